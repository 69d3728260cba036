r"""How a text is edited by exact match. Pure.

Matching does not see the difference between `\n` and `\r\n`, because a model does not: both texts are compared with
`\n`, and positions are carried back to the text as it is. Only what differs between the old and the new string is
replaced, so every other character keeps its place and every other line keeps its end.
Not here: bytes and encodings, and what to say when nothing matches (`_match_failures`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

MAX_LINES_NAMED = 10
"""How many line numbers an answer lists: enough to tell matches apart, and short for any file."""


@dataclass(frozen=True, kw_only=True)
class AppliedEdit:
    """A text after an edit."""

    text: str
    """The whole new text."""
    count: int
    """How many matches were replaced."""
    line_numbers: tuple[int, ...]
    """The lines where the first of them began, before the edit; at most `MAX_LINES_NAMED`."""


class NoMatchError(ValueError):
    """The old string is not in the text."""


class SeveralMatchesError(ValueError):
    """The old string is in the text more than once, and one match was asked for.

    Attributes:
        count: How often it is there.
        line_numbers: Where the first of them begin.
    """

    def __init__(self, count: int, line_numbers: tuple[int, ...]) -> None:
        self.count = count
        self.line_numbers = line_numbers
        super().__init__(f'{count} matches')


def apply_edit(text: str, old: str, new: str, *, replace_all: bool = False) -> AppliedEdit:
    r"""Return the text with `old` replaced by `new`, once or everywhere.

    A line end that comes with `new` is written as the replaced text writes its own, else as most of the text does.

    Args:
        text: The text as it is.
        old: What is to go; not empty. `\n` in it matches `\r\n` in the text.
        new: What is to come.
        replace_all: Whether every match is replaced, from the left, none overlapping another.

    Raises:
        NoMatchError: `old` is not there.
        SeveralMatchesError: `old` is there more than once, overlapping matches counted, without `replace_all`.
    """
    view = _View(text)
    old_lf, new_lf = _with_lf(old), _with_lf(new)
    starts = list(islice(_find_all(view.lf, old_lf), None if replace_all else 1))
    if not starts:
        raise NoMatchError(old)
    if not replace_all and view.lf.find(old_lf, starts[0] + 1) >= 0:
        first = list(islice(_find_all(view.lf, old_lf, step=1), MAX_LINES_NAMED))
        raise SeveralMatchesError(max(view.lf.count(old_lf), len(first)), view.line_numbers(first))
    head = _shared_start(old_lf, new_lf)
    tail = _shared_start(old_lf[head:][::-1], new_lf[head:][::-1])
    middle = new_lf[head : len(new_lf) - tail]
    text_end = _dominant_end(text) or _dominant_end(new) or '\n'
    pieces: list[str] = []
    done = 0
    for start in starts:
        begin, end = view.origin(start + head), view.origin(start + len(old_lf) - tail)
        match = text[view.origin(start) : view.origin(start + len(old_lf))]
        line_end = _dominant_end(text[begin:end]) or _dominant_end(match) or text_end
        pieces += [text[done:begin], middle.replace('\n', line_end)]
        done = end
    return AppliedEdit(text=''.join([*pieces, text[done:]]), count=len(starts), line_numbers=view.line_numbers(starts))


def is_same(old: str, new: str) -> bool:
    """Return whether replacing `old` by `new` changes nothing; their line ends do not count."""
    return _with_lf(old) == _with_lf(new)


class _View:
    r"""A text with every `\r\n` seen as `\n`, and the way back from its positions to those of the text."""

    def __init__(self, text: str) -> None:
        self._line_ends = [match.start() - index for index, match in enumerate(re.finditer('\r\n', text))]
        self.lf = _with_lf(text) if self._line_ends else text

    def origin(self, position: int) -> int:
        r"""Return the position in the text; that of a `\r\n` is the position of its `\r`."""
        return position + bisect_left(self._line_ends, position)

    def line_numbers(self, positions: list[int]) -> tuple[int, ...]:
        """Return the lines of the first few positions, each line once."""
        numbers: list[int] = []
        line, done = 1, 0
        for position in positions[:MAX_LINES_NAMED]:
            line += self.lf.count('\n', done, position)
            done = position
            if numbers[-1:] != [line]:
                numbers.append(line)
        return tuple(numbers)


def _shared_start(one: str, two: str) -> int:
    """Return how many characters both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def _with_lf(text: str) -> str:
    return text.replace('\r\n', '\n')


def _find_all(text: str, part: str, *, step: int | None = None) -> Iterator[int]:
    """Yield where `part` is; the next search begins `step` characters on, by default after the match."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + (step or len(part)))


def _dominant_end(text: str) -> str | None:
    """Return the line end that most lines have; `None` if there is none or they are even."""
    crlf = text.count('\r\n')
    lf = text.count('\n') - crlf
    if crlf == lf:
        return None
    return '\r\n' if crlf > lf else '\n'
