r"""Replace text by exact match. Pure.

Matching treats `\r\n` and `\n` as equal, because models do not distinguish them: both texts are normalized to `\n`, and
positions are mapped back to the original text. Only the difference between the old and the new string is replaced, so
all other characters and line endings remain unchanged. `_match_failures` explains why nothing matched; `_write_plan`
deals with bytes and encodings.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

MAX_LINES_NAMED = 10
"""Maximum number of line numbers in a result."""


@dataclass(frozen=True, kw_only=True)
class AppliedEdit:
    """A text after an edit."""

    text: str
    """The complete new text."""
    count: int
    """The number of matches that were replaced."""
    line_numbers: tuple[int, ...]
    """The lines where the first matches began before the edit, at most `MAX_LINES_NAMED`."""


class NoMatchError(ValueError):
    """The old string does not occur in the text."""


class SeveralMatchesError(ValueError):
    """The old string occurs more than once, but a single match is required.

    Attributes:
        count: The number of matches.
        line_numbers: The lines where the first matches begin.
    """

    def __init__(self, count: int, line_numbers: tuple[int, ...]) -> None:
        self.count = count
        self.line_numbers = line_numbers
        super().__init__(f'{count} matches')


def apply_edit(text: str, old: str, new: str, *, replace_all: bool = False) -> AppliedEdit:
    r"""Return the text with `old` replaced by `new`, once or everywhere.

    Line endings in `new` are converted to those of the replaced text, otherwise to those of most lines of the text.

    Args:
        text: The current text.
        old: The text to replace; not empty. `\n` in it also matches `\r\n`.
        new: The replacement.
        replace_all: Whether to replace every non-overlapping match, from left to right.

    Raises:
        NoMatchError: `old` does not occur.
        SeveralMatchesError: `old` occurs more than once, including overlaps, and `replace_all` is false.
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
    """Return whether replacing `old` by `new` changes nothing, apart from line endings."""
    return _with_lf(old) == _with_lf(new)


class _View:
    r"""A text with every `\r\n` normalized to `\n`, and the mapping of positions to the original text."""

    def __init__(self, text: str) -> None:
        self._line_ends = [match.start() - index for index, match in enumerate(re.finditer('\r\n', text))]
        self.lf = _with_lf(text) if self._line_ends else text

    def origin(self, position: int) -> int:
        r"""Return the position in the original text. For a `\r\n`, it is the position of the `\r`."""
        return position + bisect_left(self._line_ends, position)

    def line_numbers(self, positions: list[int]) -> tuple[int, ...]:
        """Return the line numbers of the first few positions, without duplicates."""
        numbers: list[int] = []
        line, done = 1, 0
        for position in positions[:MAX_LINES_NAMED]:
            line += self.lf.count('\n', done, position)
            done = position
            if numbers[-1:] != [line]:
                numbers.append(line)
        return tuple(numbers)


def _shared_start(left: str, right: str) -> int:
    """Return the length of the common prefix."""
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _with_lf(text: str) -> str:
    return text.replace('\r\n', '\n')


def _find_all(text: str, part: str, *, step: int | None = None) -> Iterator[int]:
    """Yield the positions of `part`. Each search continues `step` characters further, by default after the match."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + (step or len(part)))


def _dominant_end(text: str) -> str | None:
    """Return the most frequent line ending; `None` if there is none or a tie."""
    crlf = text.count('\r\n')
    lf = text.count('\n') - crlf
    if crlf == lf:
        return None
    return '\r\n' if crlf > lf else '\n'
