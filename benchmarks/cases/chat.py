"""The chat of the store cases, in which every turn writes a file. Standard library only.

Words are synthetic and drawn with the frequencies of a natural language, so that they compress like prose: to a bit
less than half. A repeated sentence would flatter every store that compresses.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TEXT_CHARS = 998
"""Characters of text per turn: 200 turns have 195 KiB."""

FILE_BYTES = 4_096
"""Size of the file that each turn writes."""

_RANDOM = random.Random(4)
_SYLLABLES = ('ba', 'co', 'den', 'er', 'fi', 'gra', 'hum', 'in', 'ko', 'lan', 'mer', 'no', 'pol', 'ri', 'sta', 'tu')
_WORDS = [''.join(_RANDOM.choices(_SYLLABLES, k=_RANDOM.choice((1, 2, 2, 3, 4)))) for _ in range(4_000)]
_WEIGHTS = list(itertools.accumulate(1 / (rank + 2) for rank in range(len(_WORDS))))


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The texts and the file of one turn."""

    prompt: str
    path: str
    content: str
    answer: str


def prose(number: int, chars: int) -> str:
    """Return a text of `chars` characters, different for each number."""
    chosen = random.Random(number).choices(_WORDS, cum_weights=_WEIGHTS, k=chars // 3)
    return ' '.join(chosen).ljust(chars, '.')[:chars]


def turn(number: int) -> Turn:
    """Return the turn with this number, from 0."""
    return Turn(
        prompt=prose(4 * number, TEXT_CHARS // 2),
        path=f'/notes/{number // 20 % 100:02d}/note-{number}.md',
        content=prose(4 * number + 1, FILE_BYTES),
        answer=prose(4 * number + 2, TEXT_CHARS - TEXT_CHARS // 2),
    )


def raw_bytes(turns: int, *, files: bool = True) -> int:
    """Return the number of bytes in a chat of this many turns, with or without files."""
    return turns * (TEXT_CHARS + (FILE_BYTES if files else 0))


def size_of(directory: Path) -> int:
    """Return the total size of the files of a database."""
    return sum(os.path.getsize(path) for path in directory.iterdir())


Say = Callable[[Turn], object]
"""Runs one turn of an agent."""
