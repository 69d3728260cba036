"""Why a run failed, decided from its trace. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from .trace import Step

Ending = Literal['finished', 'timed out', 'request limit', 'error']
"""How a run ended: the agent answered, was stopped by the lab, or raised an exception."""

Reason = Literal['planned only', 'looped', 'wrong edit', 'gave up', 'timed out', 'request limit', 'error']
"""Why a task is not solved."""

LOOP_CALLS = 3
"""Number of calls of one tool with the same arguments that make a loop."""

PLANNING_TOOLS = frozenset(
    {'write_todos', 'read_todos', 'add_todo', 'remove_todo', 'update_todo_status', 'update_todo_statuses'}
)
"""Tools of the contestants that note a plan and change nothing else."""


def classify(trace: Sequence[Step], *, ending: Ending, changed_files: Collection[str]) -> Reason:
    """Return why a run did not solve its task: the first of these that holds.

    - looped: the same call with the same arguments at least `LOOP_CALLS` times, however the run ended.
    - error, timed out, request limit: the ending.
    - wrong edit: the agent changed files, and not as the task wants.
    - planned only: the last call noted a plan, and no file changed.
    - gave up: the agent answered, and no file changed.

    Args:
        trace: The steps of the run.
        ending: How it ended.
        changed_files: The files that differ from those at the start.
    """
    if has_loop(trace):
        return 'looped'
    if ending != 'finished':
        return ending
    if changed_files:
        return 'wrong edit'
    tools = [call['tool'] for step in trace for call in step['calls']]
    return 'planned only' if tools and tools[-1] in PLANNING_TOOLS else 'gave up'


def has_loop(trace: Sequence[Step]) -> bool:
    """Return whether a call was repeated with the same arguments, in any order of keys, `LOOP_CALLS` times."""
    calls = Counter(
        (call['tool'], json.dumps(call['arguments'], sort_keys=True)) for step in trace for call in step['calls']
    )
    return any(count >= LOOP_CALLS for count in calls.values())
