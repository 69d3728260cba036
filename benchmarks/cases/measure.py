"""How a case is measured: the same for every contestant. Standard library only, so that importing it costs little.

A contestant is a script beside this one; `run.py` starts it in its environment as `SCRIPT CASE SIZES`, and it prints
one line of JSON: the figures by key. Several cases in one process, `step,memory`, are for tests.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large the cases are."""

    steps: int = 50
    """Tool calls in the run whose steps are measured; every second one reads what the one before it wrote."""
    messages: int = 10_000
    """Messages of history before the run whose requests are measured."""
    files: int = 10_000
    """Files in a `Tree`."""
    stored_files: int = 100
    """Files written to the backend in memory."""
    stored_chars: int = 10_240
    """Characters in each of them, ASCII."""
    repeats: int = 3
    """Measured repetitions in one process, after one that is not; a search is measured once."""
    tree: str = ''
    """The directory that is searched."""
    delegations: int = 20
    """Calls of `task` in the run whose delegations are measured."""
    approvals: int = 20
    """Pauses and resumptions that are measured together."""
    starts: int = 15
    """Runs without and with many skills whose start is compared."""
    skills: int = 5_000
    """Skills in the directory of `many_skills`."""
    many_skills: str = ''
    """A directory with that many skills."""
    four_skills: str = ''
    """The directory of the skills that come with this project, for every contestant to load."""
    turns: int = 200
    """Turns of the chat whose database is weighed."""
    late: int = 1_000
    """The turn that is compared with the tenth."""
    lineage: int = 10_000
    """Versions in one line."""
    listed: int = 100_000
    """Versions in the store of which a page is listed."""
    listed_history: int = 1_400
    """Versions of the conversation whose history is listed."""
    live_messages: int = 80_000
    """Messages that a garbage collection finds alive."""
    workspace_files: int = 10_000
    """Files of 1 KiB in the directory that is versioned."""
    workspace_steps: int = 1_000
    """Steps, each of which writes one of them."""
    agents: int = 128
    """At most how many agents commit at once."""
    commits: int = 1_024
    """Steps that these commit, all together."""
    streams: int = 500
    """Conversations that a server streams at once."""
    stream_words: int = 100
    """Words that each is told, an event for each."""
    session_turns: int = 100
    """Turns of a session whose requests are counted."""
    postgres: str = ''
    """The URL of a PostgreSQL database for whoever can use one; empty if none could be started."""


Figures: TypeAlias = Mapping[str, float]
"""What a case found, by key."""

Case: TypeAlias = Callable[[Sizes], Figures]
"""Does something and returns the figures."""

GLOB = '**/*.toml'
"""What glob looks for: one file in ten."""

LITERAL = 'needle_value'
"""What grep looks for: one file in a hundred has it. A literal, because one peer searches for nothing else."""

REGEX = '(needle|thread)_val'
"""What grep looks for where it can search for a regular expression: the same files, and no literal to look for first."""

FIRST_GLOB, FIRST_GREP = 'module_00000.toml', 'module_00050.toml'
"""The files that every answer must name."""


SUBAGENT, SUBAGENT_DESCRIPTION = 'reviewer', 'Reviews a change and lists its faults.'
"""The subagent that everybody declares."""

SUBAGENT_INSTRUCTIONS = 'You review changes.'
"""What it is told."""

SUBAGENT_ANSWER = 'No faults found.'
"""What it answers at once."""


def main(cases: Mapping[str, Case]) -> None:
    """Run the cases that the command line names, and print their figures.

    Args:
        cases: What this contestant can be asked, by name.
    """
    _, names, given = sys.argv
    sizes = Sizes(**json.loads(given))
    figures = [cases[name](sizes) for name in names.split(',')]
    print(json.dumps({key: value for found in figures for key, value in found.items()}))


def cpu_seconds() -> float:
    """Return the CPU time of this process with all its threads, and of the commands that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def measure_cpu_ms(repeats: int, work: Callable[[], Awaitable[object]]) -> float:
    """Return the median CPU time of some work, in milliseconds. The caller has done it once, to see that it works."""
    taken: list[float] = []
    for _ in range(repeats):
        gc.collect()
        start = cpu_seconds()
        await work()
        taken.append(cpu_seconds() - start)
    return statistics.median(taken) * 1000


def measure_creation(create: Callable[[], object], *, later: int = 15, prefix: str = '') -> Figures:
    """Return the CPU time of the first agent that a process makes, and of those after it."""
    taken: list[float] = []
    for _ in range(later + 1):
        start = time.process_time()
        create()
        taken.append(time.process_time() - start)
    return {f'{prefix}create_first_ms': taken[0] * 1000, f'{prefix}create_ms': statistics.median(taken[1:]) * 1000}


def measure_discovery(discover: Callable[[], int], sizes: Sizes) -> Figures:
    """Return the CPU time of finding many skills: for the first time in a process, and once more.

    Args:
        discover: Finds them and returns how many there are.
        sizes: How many there must be.
    """
    taken: list[float] = []
    for _ in range(2):
        gc.collect()
        start = cpu_seconds()
        found = discover()
        taken.append(cpu_seconds() - start)
        if found != sizes.skills:
            raise RuntimeError(f'{found} skills were found, not {sizes.skills}.')
    return {'skills_first_s': taken[0], 'skills_again_s': taken[1]}


async def measure_more_ms(
    times: int, less: Callable[[], Awaitable[object]], more: Callable[[], Awaitable[object]]
) -> float:
    """Return by how many CPU milliseconds one work takes longer than another: by turns, medians, after one of each."""
    await less()
    await more()
    pairs = [(await measure_cpu_ms(1, less), await measure_cpu_ms(1, more)) for _ in range(times)]
    return statistics.median(pair[1] for pair in pairs) - statistics.median(pair[0] for pair in pairs)


async def measure_memory(sizes: Sizes, write: Callable[[str, bytes], Awaitable[object]]) -> Figures:
    """Return the memory that files take, as a multiple of their bytes (`tracemalloc`: what is still allocated)."""
    await write('/warm/up.txt', stored_bytes(0, 1))
    gc.collect()
    tracemalloc.start()
    for number in range(sizes.stored_files):
        await write(f'/dir-{number % 10}/file-{number}.txt', stored_bytes(number, sizes.stored_chars))
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {'memory_ratio': held / (sizes.stored_files * sizes.stored_chars)}


def stored_bytes(number: int, size_bytes: int) -> bytes:
    """Return lines of 40 bytes, as source code has them on average; another text for each number."""
    line = f'line of file {number:05d} '.ljust(39, '.').encode() + b'\n'
    return (line * (size_bytes // len(line) + 1))[:size_bytes]


def surface_figures(tools: list[tuple[str, str, object]], instructions: str, *, prefix: str = 'surface') -> Figures:
    """Return how much a model is sent before the first word of a user.

    Args:
        tools: Name, description and JSON schema of the parameters of each tool.
        instructions: The instructions or the system prompt.
        prefix: What the keys of the figures begin with.
    """
    schemas = sum(
        len(name) + len(description) + len(json.dumps(schema, ensure_ascii=False, separators=(',', ':')))
        for name, description, schema in tools
    )
    return {f'{prefix}_tools': len(tools), f'{prefix}_chars': schemas + len(instructions)}


def task_description(number: int) -> str:
    """Return what a subagent is told; another text for each number, because one peer refuses to repeat a call."""
    return f'Review change {number}.'


def require(found: str, wanted: str) -> None:
    """Refuse to measure something that did not do its work."""
    if wanted not in found:
        raise RuntimeError(f'The case did not do its work: {wanted!r} is not in {found[:500]!r}.')
