"""Four sessions of 100 turns: the prompts, the tool calls and their results. Pure, and determined by a seed.

Nothing here depends on a contestant: actions are abstract, and each contestant translates them into calls of its tools.
Standard library only. `player.py` plays a session.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from chat import prose

FILES = 60
"""Files of the repository in the coding session, of 100 to 400 lines each."""

HOT_FILES = 15
"""Number of files that get three quarters of the visits, as in a change across a program."""

NAMES = 600
"""Function names in the repository. Each line contains one, so a search for a name finds about 25 lines."""

PAGE_CHARS = (8_000, 60_000)
"""Length of a page in the research session."""

LOOKUP_CHARS = 500
"""Length of a lookup result in the support session."""

WHOLE_SHARE = 1 / 3
"""Share of pages that are needed in full; of the others, one passage is needed."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Reads lines of a file. The result must contain `expected`."""

    path: str
    first: int = 0
    """Index of the first line, from 0."""
    lines: int = 2_000
    expected: str
    rest_of: str | None = None
    """The URL of a page to read to its end, in as many calls as the contestant needs."""


@dataclass(frozen=True, kw_only=True)
class Grep:
    """Searches for a literal, with matching lines in the result."""

    pattern: str
    path: str | None = None
    """A file to search; `None` for all files."""
    expected: str


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Replaces lines of a file."""

    path: str
    first: int
    """Index of the first line, from 0."""
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Todos:
    """Writes the whole todo list, with states."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Calls one of the user's tools: `fetch(url)` or `lookup(key)`."""

    tool: str
    key: str
    needs_all: bool = False
    """Whether the whole page is needed, even if the contestant shows only a part."""


Action: TypeAlias = Read | Grep | Edit | Todos | Ask


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The prompt of a user, the steps of the model, and its answer."""

    prompt: str
    steps: tuple[tuple[Action, ...], ...]
    """Each step is one response of the model, with parallel calls."""
    answer: str


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session with all its turns."""

    name: str
    turns: tuple[Turn, ...]
    files: Mapping[str, str]
    """The initial files, by absolute path."""


def session(name: str, turns: int) -> Session:
    """Return one of the sessions."""
    return SESSIONS[name](turns)


@cache
def page(url: str) -> str:
    """Return the text of a page: paragraphs of about 50 to 450 characters, each with a unique mark."""
    random_ = _random_of(url)
    size, number, lines, chars = random_.randint(*PAGE_CHARS), zlib.crc32(url.encode()), list[str](), 0
    while chars < size:
        line = f'item_{number % 10_000}_{len(lines)}: {prose(number + len(lines), random_.randint(40, 440))}'
        lines.append(line)
        chars += len(line) + 1
    return '\n'.join(lines)


def lookup(key: str) -> str:
    """Return the record of a customer."""
    return f'{key}: {prose(zlib.crc32(key.encode()), LOOKUP_CHARS - len(key) - 2)}'


def passage_of(text: str) -> tuple[int, str]:
    """Return the position of the needed passage of a page, as a line index, and the mark that identifies it."""
    lines = text.split('\n')
    middle = len(lines) // 2
    return middle, lines[middle].partition(' ')[0]


def _coding(turns: int) -> Session:
    """Return a session of two to six calls per turn: mostly a search, one or two reads, and edits of some of the
    lines."""
    random_ = _random_of('coding')
    files = {f'/src/part_{n % 8}/module_{n:02d}.py': _source(random_, n) for n in range(FILES)}
    now = {path: text.split('\n') for path, text in files.items()}
    played = tuple(_coding_turn(random_, number, now) for number in range(turns))
    return Session(name='coding', turns=played, files=files)


def _coding_turn(random_: random.Random, number: int, files: dict[str, list[str]]) -> Turn:
    calls = random_.randint(2, 6)
    reads = random_.randint(1, 2) if calls > 3 else 1
    searches = random_.randint(0, 1) if calls > 2 else 0
    steps: list[tuple[Action, ...]] = []
    if searches:
        name = f'step_{random_.randrange(NAMES)}'
        steps.append((Grep(pattern=f'{name}(', expected=name),))
    paths = random_.sample(_likely(random_, sorted(files)), reads)
    steps.append(tuple(Read(path=path, expected=files[path][-2]) for path in paths))
    for edit in range(calls - reads - searches):
        steps.append((_edit(random_, random_.choice(paths), files, revision=number * 10 + edit),))
    return Turn(prompt=prose(5_000 + number, random_.randint(150, 450)), steps=tuple(steps), answer=prose(number, 300))


def _likely(random_: random.Random, paths: list[str]) -> list[str]:
    return paths[:HOT_FILES] if random_.random() < 0.75 else paths[HOT_FILES:]


def _edit(random_: random.Random, path: str, files: dict[str, list[str]], *, revision: int) -> Edit:
    lines, count = files[path], random_.randint(2, 8)
    first = random_.randrange(len(lines) - count - 2)
    old = tuple(lines[first : first + count])
    new = tuple(_line(random_, f'{revision}_{place}') for place in range(count))
    lines[first : first + count] = new
    return Edit(path=path, first=first, old=old, new=new)


def _source(random_: random.Random, number: int) -> str:
    lines = [_line(random_, f'{number}_{place}') for place in range(random_.randint(100, 400))]
    return '\n'.join([*lines, f'end_of_module_{number} = True', ''])


def _line(random_: random.Random, mark: str) -> str:
    indent = ' ' * random_.choice((0, 4, 4, 8))
    return f'{indent}value_{mark} = step_{random_.randrange(NAMES)}({"argument, " * random_.randint(0, 2)}limit)'


def _research(turns: int) -> Session:
    """Return a session of one to three pages per turn, fetched in parallel in half of the turns, and long answers."""
    random_, played = _random_of('research'), list[Turn]()
    for number in range(turns):
        urls = [f'https://example.com/{number}/{place}' for place in range(random_.randint(1, 3))]
        asks = [Ask(tool='fetch', key=url, needs_all=random_.random() < WHOLE_SHARE) for url in urls]
        steps = (tuple(asks),) if random_.random() < 0.5 else tuple((ask,) for ask in asks)
        played.append(Turn(prompt=prose(6_000 + number, 300), steps=steps, answer=prose(number, 1_500)))
    return Session(name='research', turns=tuple(played), files={})


def _support(turns: int) -> Session:
    """Return a session of short questions and answers; every third needs a lookup."""
    return Session(name='support', turns=tuple(_support_turn(number) for number in range(turns)), files={})


def _support_turn(number: int) -> Turn:
    steps = ((Ask(tool='lookup', key=f'customer-{number}'),),) if number % 3 == 0 else ()
    return Turn(prompt=prose(7_000 + number, 200), steps=steps, answer=prose(8_000 + number, 400))


def _todos(turns: int) -> Session:
    """Return the support session, with a list of five to eight todos that is written in every turn."""
    random_, played = _random_of('todos'), list[Turn]()
    for number in range(turns):
        short = _support_turn(number)
        count, done = random_.randint(5, 8), random_.randint(0, 4)
        statuses = [*('completed',) * done, 'in_progress', *('pending',) * (count - done - 1)]
        tasks = (prose(9_000 + number // 5 * 10 + place, 60) for place in range(count))
        steps = ((Todos(items=tuple(zip(tasks, statuses, strict=True))),), *short.steps)
        played.append(Turn(prompt=short.prompt, steps=steps, answer=short.answer))
    return Session(name='todos', turns=tuple(played), files={})


def _random_of(text: str) -> random.Random:
    return random.Random(zlib.crc32(text.encode()))


SESSIONS: Mapping[str, Callable[[int], Session]] = {
    'coding': _coding,
    'research': _research,
    'support': _support,
    'todos': _todos,
}
"""The sessions, by name. Each takes its number of turns."""

NAMES_OF_SESSIONS: Sequence[str] = tuple(SESSIONS)
