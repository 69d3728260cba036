"""The tasks of `harness-bench-fast`: list the easy ones, write the files of one, or check its result.

usage: harness_tasks.py list | write TASK DIRECTORY | check TASK DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from harness_bench.tasks import ALL_TASKS, get_task

if __name__ == '__main__':
    action, *arguments = sys.argv[1:]
    result = None
    if action == 'list':
        result = [{'id': task.id, 'prompt': task.prompt} for task in ALL_TASKS if 'easy' in task.tags]
    elif action == 'write':
        get_task(arguments[0]).setup(Path(arguments[1]))
    else:
        verdict = get_task(arguments[0]).verify(Path(arguments[1]))
        result = None if verdict.passed else verdict.message or 'The verifier refuses the result.'
    print(json.dumps(result))
