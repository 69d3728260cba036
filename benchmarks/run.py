"""Measure ours, the bare library and two peers in one run, in turns, each in a separate environment.

Each case of each contestant runs in its own process. A round runs one case for all contestants, and rounds repeat, so
that a change of the load affects all of them. The first run creates the environments.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contestants import BARE, BARE_LIST, CACHE, HERE, OURS, PEERS, ROOT, CaseError, Contestant, prepare, run_case
from figures import CASES, FIGURES, Case, add_import_over_floor
from report import missed, render_tables, replace_tables

ROUNDS = 5
"""Default number of rounds of a timed case."""

FULL: dict[str, object] = {}
"""The sizes to which the targets apply: the defaults of `cases/measure.py`."""

TINY: dict[str, object] = {
    'steps': 4,
    'messages': 20,
    'files': 100,
    'repeats': 2,
    'skills': 20,
    'delegations': 2,
    'approvals': 2,
    'starts': 2,
    'turns': 3,
    'late': 20,
    'late_repeats': 4,
    'lineage': 30,
    'listed': 400,
    'listed_history': 20,
    'live_messages': 80,
    'workspace_files': 20,
    'workspace_steps': 4,
    'agents': 8,
    'commits': 32,
    'streams': 10,
    'stream_words': 20,
    'session_turns': 3,
}
"""Sizes that only show that everything works."""

Samples = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of the command line."""

    cases: Sequence[Case]
    contestants: Sequence[Contestant]
    rounds: int
    """Rounds of a case without a fixed number."""
    at_most: int
    """Maximum number of rounds of a case with a fixed number."""
    sizes: dict[str, object]
    is_here: bool
    """Whether all contestants run in the environment of this process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return 0. A missed target is printed, but is not a failure."""
    options = _parse(arguments)
    plan = _plan(options)
    started = time.monotonic()
    samples = measure(plan)
    add_import_over_floor(samples)
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / 'results.json').write_text(json.dumps(samples, indent=1))
    columns = [(contestant.key, contestant.name) for contestant in plan.contestants]
    tables = f'{render_tables(FIGURES, columns, samples)}\n\n{describe_run(plan, time.monotonic() - started)}'
    print(tables)
    if options.tiny:
        print('Everything works. The sizes were tiny, so that the figures say nothing.')
        return 0
    for line in missed(FIGURES, samples):
        print(f'Missed: {line}')
    if options.write:
        readme = HERE / 'README.md'
        readme.write_text(replace_tables(readme.read_text(), tables))
    return 0


def measure(plan: Plan) -> Samples:
    """Return the values of all rounds of all cases."""
    pythons = {c.key: sys.executable if plan.is_here else prepare(c) for c in plan.contestants}
    tree = make_tree(int(str(plan.sizes.get('files', 10_000))))
    many_skills = make_skills(int(str(plan.sizes.get('skills', 5_000))))
    sizes = {
        **plan.sizes,
        'tree': str(tree),
        'many_skills': str(many_skills),
        'four_skills': str(ROOT / 'skills'),
    }
    samples: Samples = {contestant.key: {} for contestant in plan.contestants}
    with contextlib.ExitStack() as stack:
        if any(case.name == 'store-step' for case in plan.cases):
            sizes['postgres'] = stack.enter_context(running_postgres())
        _run_rounds(plan, pythons, sizes, samples)
    return samples


def _run_rounds(plan: Plan, pythons: dict[str, str], sizes: dict[str, object], samples: Samples) -> None:
    for case in plan.cases:
        rounds = plan.rounds if case.rounds is None else min(case.rounds, plan.at_most)
        for number in range(rounds):
            print(f'{case.name}: round {number + 1} of {rounds}', file=sys.stderr)
            for contestant in plan.contestants:
                if case.name not in contestant.cases:
                    continue
                for key, value in run_case(contestant, pythons[contestant.key], case.name, sizes).items():
                    samples[contestant.key].setdefault(key, []).append(value)


@contextlib.contextmanager
def running_postgres() -> Generator[str]:
    """Run the PostgreSQL server of the tests, and yield the URL of a database; empty if it is not installed."""
    command = [sys.executable, str(ROOT / 'tests' / 'store' / 'postgres_server.py')]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        if server.stdin is None or server.stdout is None or not server.stdout.readline():
            print('No PostgreSQL: `pip install --group test` has one. Its figures are left out.', file=sys.stderr)
            yield ''
            return
        server.stdin.write('database\n')
        server.stdin.flush()
        yield server.stdout.readline().strip()
        server.stdin.close()


def make_tree(files: int) -> Path:
    """Return a directory with `files` files, 50 per subdirectory: one in ten is TOML, one in a hundred has the mark."""
    root = CACHE / f'tree-{files}'
    done = root.with_suffix('.done')
    if done.exists():
        return root
    for number in range(files):
        folder = root / f'package_{number // 500:02d}' / f'part_{number // 50 % 10}'
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f'def function_{number}_{line}(value: int) -> int:\n    return value + {line}\n' for line in range(20)]
        if number % 100 == 50:
            lines[10] = f'needle_value = {number}\n'
        suffix = 'toml' if number % 10 == 0 else 'py'
        (folder / f'module_{number:05d}.{suffix}').write_text('\n'.join(lines))
    done.touch()
    return root


def make_skills(count: int) -> Path:
    """Return a directory with `count` skills of 1 KB."""
    root = CACHE / f'skills-{count}'
    done = root.with_suffix('.done')
    if done.exists():
        return root
    for number in range(count):
        folder = root / f'skill-{number:05d}'
        folder.mkdir(parents=True, exist_ok=True)
        (folder / 'SKILL.md').write_text(
            f'---\nname: {folder.name}\n'
            f'description: Use this skill when the user asks for thing number {number}. Gives it in {number} steps.\n'
            f'license: MIT\nmetadata:\n  author: nobody\n  version: "1.{number}"\n---\n\n# Thing {number}\n\n'
            + 'Take care of every part of it.\n'
            * 25
        )
    done.touch()
    return root


def describe_run(plan: Plan, seconds: float) -> str:
    """Return the date, the machine and the duration of the measurement."""
    today = datetime.datetime.now(datetime.UTC).date()
    busy = os.getloadavg()[0]
    return (
        f'Measured on {today} with Python {platform.python_version()} on {platform.system()} {platform.machine()}, '
        f'{os.cpu_count()} cores, load {busy:.1f} at the end; {plan.rounds} round{"" if plan.rounds == 1 else "s"} in {seconds / 60:.0f} minutes.'
    )


def _plan(options: argparse.Namespace) -> Plan:
    is_here: bool = options.here or options.tiny
    names: list[str] = options.only or [case.name for case in CASES]
    quick: bool = options.quick or options.tiny
    return Plan(
        cases=[case for case in CASES if case.name in names],
        contestants=[BARE, BARE_LIST, OURS] if is_here else [BARE, BARE_LIST, OURS, *PEERS],
        rounds=1 if quick else ROUNDS,
        at_most=1 if quick else ROUNDS + 2,
        sizes=TINY if options.tiny else FULL,
        is_here=is_here,
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quick', action='store_true', help='one round of each case')
    parser.add_argument('--only', action='append', choices=[c.name for c in CASES], help='a case; may be repeated')
    parser.add_argument('--here', action='store_true', help='bare and ours only, in the environment of this command')
    parser.add_argument('--tiny', action='store_true', help='`--here` with sizes that only show that all works')
    parser.add_argument('--write', action='store_true', help='put the tables into benchmarks/README.md')
    return parser.parse_args(arguments)


if __name__ == '__main__':
    try:
        sys.exit(main())
    except CaseError as error:
        sys.exit(str(error))
