"""Run contestants × tasks × seeds against an OpenAI-compatible server, and print the table.

See `benchmarks/lab/README.md`. The key is read from `OPENAI_API_KEY`; a local server needs none.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.contestants import ROOT

from .contestants import CONTESTANTS, launch
from .harness import HarnessTask, easy_tasks
from .recorder import Recorder
from .runs import (
    Conditions,
    Launch,
    ModelUnavailableError,
    Run,
    WrongModelError,
    append_run,
    load_runs,
    run_task,
)
from .table import render_table
from .tasks import TASKS, Task

SETTINGS = {'temperature': 0, 'max_tokens': 1024}
"""Fields of each request by default. A small model may write without end."""

TEMPLATE = '{prompt}\n\nUse the tools. After the last tool call, answer: DONE'
"""The text that the agents receive. Without the last sentence, a small model repeats a call that has succeeded until the limit."""

EASY_TASKS = 12
"""Number of tasks of `harness-bench-fast` by default."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The runs to make."""

    launches: Sequence[Launch]
    tasks: Sequence[Task | HarnessTask]
    seeds: int
    jobs: int
    conditions: Conditions
    out: Path

    def missing(self) -> list[tuple[Launch, Task | HarnessTask, int]]:
        """Return the runs that are not in the file, one contestant after the other.

        Runs of a contestant begin with the same text, which a local server then has in its cache.
        """
        finished = {run.key for run in load_runs(self.out, self.conditions.model)}
        runs = product(self.launches, self.tasks, range(self.seeds))
        return [run for run in runs if (run[0].contestant, run[1].id, run[2]) not in finished]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parse(arguments)
    if not options.table:
        if not options.url or not options.url.startswith(('http://', 'https://')) or not options.model:
            print(
                'Pass `--url` and `--model`, for example --url http://127.0.0.1:8080/v1 --model local.', file=sys.stderr
            )
            return 2
        try:
            _run(_plan(options), options.url)
        except (UnknownTaskError, WrongModelError) as error:
            print(error, file=sys.stderr)
            return 2
        except ModelUnavailableError as error:
            print(f'{error}\nStart the command again to make the missing runs.', file=sys.stderr)
            return 1
    print(render_table(load_runs(options.out)))
    return 0


def _run(plan: Plan, url: str) -> None:
    """Make the missing runs and append each to the file as it ends.

    Raises:
        ModelUnavailableError: The server failed. Runs that had begun are in the file, unless they failed too.
    """
    missing = plan.missing()
    key = os.environ.get('OPENAI_API_KEY', 'none')
    failures: list[ModelUnavailableError] = []
    with Recorder(url, key).serve() as recorder, ThreadPoolExecutor(plan.jobs) as pool:

        def attempt(launch: Launch, task: Task | HarnessTask, seed: int) -> Run | None:
            try:
                return None if failures else run_task(launch, task, seed, plan.conditions, recorder)
            except ModelUnavailableError as error:
                failures.append(error)
                return None

        futures = [pool.submit(attempt, *run) for run in missing]
        try:
            for number, future in enumerate(as_completed(futures), start=1):
                if (run := future.result()) is not None:
                    append_run(plan.out, run)
                    print(f'{number} of {len(missing)}: {_describe(run)}', file=sys.stderr)
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            raise
    if failures:
        raise failures[0]


def _describe(run: Run) -> str:
    verdict = 'solved' if run.solved else f'{run.reason} ({run.message[:100]})'
    return f'{run.contestant} {run.task}, {run.requests} requests, {run.seconds:.0f} s: {verdict}'


class UnknownTaskError(Exception):
    """No task has the name that was passed."""


def _plan(options: argparse.Namespace) -> Plan:
    patterns: list[str] = options.task or ['*']
    tasks: list[Task | HarnessTask] = [*easy_tasks(options.easy), *TASKS]
    for pattern in patterns:
        if not any(fnmatch(task.id, pattern) for task in tasks):
            raise UnknownTaskError(f'No task matches {pattern!r}. Tasks: {", ".join(task.id for task in tasks)}.')
    settings: dict[str, Any] = {**SETTINGS, **options.settings}
    return Plan(
        launches=[launch(name, is_here=options.here) for name in options.contestant or CONTESTANTS],
        tasks=[task for task in tasks if any(fnmatch(task.id, pattern) for pattern in patterns)],
        seeds=options.seeds,
        jobs=options.jobs,
        conditions=Conditions(
            model=options.model, settings=settings, template=options.template, timeout_seconds=options.timeout
        ),
        out=options.out,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make lab ARGS=…', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('--url', default=os.environ.get('OPENAI_BASE_URL'), help='base URL of the server, up to /v1')
    add('--model', help='name of the model')
    add('--contestant', action='append', choices=CONTESTANTS, help='a contestant; may be repeated (all)')
    add('--task', action='append', help="ids of tasks, such as 'easy/*' or edits/bug; may be repeated (all)")
    add('--easy', type=int, default=EASY_TASKS, help='number of easy tasks of harness-bench-fast (%(default)s)')
    add('--seeds', type=int, default=1, help='runs of each contestant and task (%(default)s)')
    add('--jobs', type=int, default=1, help='runs at a time (%(default)s)')
    add('--timeout', type=float, default=600, help='seconds of a run (%(default)s)')
    add('--settings', type=json.loads, default={}, help=f'JSON fields of each request, over {json.dumps(SETTINGS)}')
    add(
        '--out',
        type=Path,
        default=ROOT / '.cache/lab/runs.jsonl',
        help='file of results; finished runs are not repeated',
    )
    add('--template', default=TEMPLATE, help=f'the text that the agents receive ({TEMPLATE!r})')
    add('--here', action='store_true', help='bare and ours run in the environment of this command')
    add('--table', action='store_true', help='only print the table of the file')
    return parser.parse_args(arguments)


if __name__ == '__main__':
    sys.exit(main())
