"""Measurement of a case, the same for every contestant. Standard library only, so that importing it costs little.

A contestant is a script next to this one. `run.py` starts it in its environment as `SCRIPT CASE SIZES`, and it prints
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
    """The sizes of all cases."""

    steps: int = 50
    """Tool calls in the run for steps; every second one reads the file that the previous one wrote."""
    messages: int = 10_000
    """Messages of history before the run with measured requests."""
    files: int = 10_000
    """Files in a `Tree`."""
    stored_files: int = 100
    """Files written to the in-memory backend."""
    stored_chars: int = 10_240
    """Characters in each of these files, ASCII."""
    repeats: int = 3
    """Measured repetitions in one process, after a warm-up. A search is measured once."""
    tree: str = ''
    """The directory to search."""
    delegations: int = 20
    """Calls of `task` in the run for delegations."""
    approvals: int = 20
    """Pauses and resumptions, measured together."""
    starts: int = 15
    """Runs with and without many skills, to compare their start."""
    skills: int = 5_000
    """Skills in the directory of `many_skills`."""
    many_skills: str = ''
    """A directory with `skills` skills."""
    four_skills: str = ''
    """The directory of this project's skills, for every contestant to load."""
    turns: int = 200
    """Turns of the chat for the size of the database."""
    late: int = 1_000
    """The turn that is compared with the tenth."""
    late_repeats: int = 40
    """Turns that are measured from there on, and from the tenth."""
    lineage: int = 10_000
    """Versions in one line."""
    listed: int = 100_000
    """Versions in the store from which a page is listed."""
    listed_history: int = 1_400
    """Versions of the conversation with a listed history."""
    live_messages: int = 80_000
    """Live messages in a garbage collection."""
    workspace_files: int = 10_000
    """Files of 1 KiB in the versioned directory."""
    workspace_steps: int = 1_000
    """Steps that write one of these files each."""
    agents: int = 128
    """Maximum number of agents that commit concurrently."""
    commits: int = 1_024
    """Total number of steps that they commit."""
    streams: int = 500
    """Conversations that a server streams concurrently."""
    stream_words: int = 100
    """Words in each stream, one event each."""
    session_turns: int = 100
    """Turns of a session with counted requests."""
    postgres: str = ''
    """The URL of a PostgreSQL database; empty if none could be started."""


Figures: TypeAlias = Mapping[str, float]
"""The figures of a case, by key."""

Case: TypeAlias = Callable[[Sizes], Figures]
"""Runs a case and returns its figures."""

GLOB = '**/*.toml'
"""The glob pattern: one file in ten matches."""

LITERAL = 'needle_value'
"""The grep pattern: one file in a hundred matches. A literal, because one peer supports nothing else."""

REGEX = '(needle|thread)_val'
"""The regular expression for grep, if supported: it matches the same files, but contains no literal to search first."""

FIRST_GLOB, FIRST_GREP = 'module_00000.toml', 'module_00050.toml'
"""The files that every result must contain."""


SUBAGENT, SUBAGENT_DESCRIPTION = 'reviewer', 'Reviews a change and lists its faults.'
"""The subagent that every contestant declares."""

SUBAGENT_INSTRUCTIONS = 'You review changes.'
"""The instructions of the subagent."""

SUBAGENT_ANSWER = 'No faults found.'
"""The immediate answer of the subagent."""


def main(cases: Mapping[str, Case]) -> None:
    """Run the cases from the command line, and print their figures.

    Args:
        cases: The cases of this contestant, by name.
    """
    _, names, sizes_json = sys.argv
    sizes = Sizes(**json.loads(sizes_json))
    figures = [cases[name](sizes) for name in names.split(',')]
    print(json.dumps({key: value for result in figures for key, value in result.items()}))


def cpu_seconds() -> float:
    """Return the CPU time of this process with all its threads, and of the child processes that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def measure_cpu_ms(repeats: int, work: Callable[[], Awaitable[object]]) -> float:
    """Return the median CPU time of some work, in milliseconds. The caller must have run it once as a warm-up."""
    taken: list[float] = []
    for _ in range(repeats):
        gc.collect()
        start = cpu_seconds()
        await work()
        taken.append(cpu_seconds() - start)
    return statistics.median(taken) * 1000


def measure_creation(create: Callable[[], object], *, later: int = 15, prefix: str = '') -> Figures:
    """Return the CPU time of the first agent in a process, and of later ones."""
    taken: list[float] = []
    for _ in range(later + 1):
        start = time.process_time()
        create()
        taken.append(time.process_time() - start)
    return {f'{prefix}create_first_ms': taken[0] * 1000, f'{prefix}create_ms': statistics.median(taken[1:]) * 1000}


def measure_discovery(discover: Callable[[], int], sizes: Sizes) -> Figures:
    """Return the CPU time of discovering many skills, for the first time in a process and once more.

    Args:
        discover: Discovers the skills and returns their number.
        sizes: The expected number of skills.
    """
    taken: list[float] = []
    for _ in range(2):
        gc.collect()
        start = cpu_seconds()
        count = discover()
        taken.append(cpu_seconds() - start)
        if count != sizes.skills:
            raise RuntimeError(f'{count} skills were found, not {sizes.skills}.')
    return {'skills_first_s': taken[0], 'skills_again_s': taken[1]}


async def measure_more_ms(
    times: int, less: Callable[[], Awaitable[object]], more: Callable[[], Awaitable[object]]
) -> float:
    """Return the additional CPU milliseconds of `more` over `less`: medians of alternating runs, after a warm-up."""
    await less()
    await more()
    pairs = [(await measure_cpu_ms(1, less), await measure_cpu_ms(1, more)) for _ in range(times)]
    return statistics.median(pair[1] for pair in pairs) - statistics.median(pair[0] for pair in pairs)


async def measure_memory(sizes: Sizes, write: Callable[[str, bytes], Awaitable[object]]) -> Figures:
    """Return the memory of files, as a multiple of their size (`tracemalloc`: still allocated memory)."""
    await write('/warm/up.txt', stored_bytes(0, 1))
    gc.collect()
    tracemalloc.start()
    for number in range(sizes.stored_files):
        await write(f'/dir-{number % 10}/file-{number}.txt', stored_bytes(number, sizes.stored_chars))
    gc.collect()
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {'memory_ratio': allocated / (sizes.stored_files * sizes.stored_chars)}


def stored_bytes(number: int, size_bytes: int) -> bytes:
    """Return lines of 40 bytes, the average in source code; the text is different for each number."""
    line = f'line of file {number:05d} '.ljust(39, '.').encode() + b'\n'
    return (line * (size_bytes // len(line) + 1))[:size_bytes]


def surface_figures(tools: list[tuple[str, str, object]], instructions: str, *, prefix: str = 'surface') -> Figures:
    """Return the size of the request before the first word of a user.

    Args:
        tools: Name, description and JSON schema of the parameters of each tool.
        instructions: The instructions or the system prompt.
        prefix: The prefix of the keys of the figures.
    """
    schemas = sum(
        len(name) + len(description) + len(json.dumps(schema, ensure_ascii=False, separators=(',', ':')))
        for name, description, schema in tools
    )
    return {f'{prefix}_tools': len(tools), f'{prefix}_chars': schemas + len(instructions)}


def task_description(number: int) -> str:
    """Return a task for a subagent, different for each number, because one peer refuses to repeat a call."""
    return f'Review change {number}.'


def require(text: str, wanted: str) -> None:
    """Raise if a case did not do its work."""
    if wanted not in text:
        raise RuntimeError(f'The case did not do its work: {wanted!r} is not in {text[:500]!r}.')
