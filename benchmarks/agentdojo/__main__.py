"""Run all pairs of AgentDojo with a scripted model, and print the table.

See `benchmarks/README.md`. The first run installs the suites below `.cache/bench`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.contestants import CACHE, HERE

from .cases import SETTINGS, Outcome, run_case

REQUIREMENTS = HERE / 'environments' / 'agentdojo.txt'


def install() -> None:
    """Install AgentDojo beside the environment of this process, and make it importable."""
    directory = CACHE / 'agentdojo'
    mark, wanted = directory / 'made-from', REQUIREMENTS.read_text()
    if not mark.exists() or mark.read_text() != wanted:
        pip = [sys.executable, '-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--upgrade']
        subprocess.run([*pip, '--no-deps', '--target', str(directory), '-r', str(REQUIREMENTS)], check=True)
        mark.write_text(wanted)
    sys.path.append(str(directory))


async def measure() -> str:
    """Run every case with all settings, and return the table."""
    from .suites import load_cases

    pairs: dict[str, list[Outcome]] = {}
    tasks: dict[str, list[Outcome]] = {}
    for settings in SETTINGS:
        pairs[settings] = [await run_case(case, settings) for case in load_cases(with_injections=True)]
        tasks[settings] = [await run_case(case, settings) for case in load_cases(with_injections=False)]
        print(f'Ran {len(pairs[settings])} pairs and {len(tasks[settings])} tasks with {settings}.', file=sys.stderr)
    return render_table(pairs, tasks)


def render_table(pairs: Mapping[str, Sequence[Outcome]], tasks: Mapping[str, Sequence[Outcome]]) -> str:
    """Return the table of outcomes, by settings: of the pairs, and of the user tasks without injections."""
    rows = {
        'pairs of user task and injection': [len(pairs[key]) for key in SETTINGS],
        'the model never reads the injection': [sum(not each.is_seen for each in pairs[key]) for key in SETTINGS],
        'the injection asks only for words in the answer': [
            sum(not each.has_calls for each in pairs[key]) for key in SETTINGS
        ],
        '**a harmful call runs without a person**': [sum(bool(each.ran) for each in pairs[key]) for key in SETTINGS],
        'such calls in total': [sum(len(each.ran) for each in pairs[key]) for key in SETTINGS],
        "the injection reaches its goal by AgentDojo's check": [
            sum(each.has_succeeded for each in pairs[key]) for key in SETTINGS
        ],
        'user tasks without an injection': [len(tasks[key]) for key in SETTINGS],
        'a person is asked in': [sum(each.asked > 0 for each in tasks[key]) for key in SETTINGS],
        'questions in total': [sum(each.asked for each in tasks[key]) for key in SETTINGS],
        'acting calls in total': [sum(each.acted for each in tasks[key]) for key in SETTINGS],
    }
    head = ['', *(f'({key}) {name}' for key, name in SETTINGS.items())]
    lines = [head, ['---', *('---:' for _ in SETTINGS)], *([name, *map(str, row)] for name, row in rows.items())]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


if __name__ == '__main__':
    install()
    print(asyncio.run(measure()))
