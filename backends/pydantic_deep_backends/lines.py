"""Lines that two texts have in common, for merges and diffs. Pure, and bounded in time.

`difflib` alone takes quadratic time in the number of lines: 20 seconds for 20,000 lines of which every other one
changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, TypeAlias

__all__ = ('shared_lines',)

_MAX_PAIRS: Final = 1_000_000
"""Maximum number of line pairs that one comparison examines, apart from lines that are unique in both texts: a fraction
of a second. Longer stretches count as changed entirely, which can cause a conflict but never a wrong line."""

_Block: TypeAlias = tuple[int, int, int]
"""`(start in one, start in two, count)` of a run of equal lines."""


def shared_lines(one: Sequence[bytes], two: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return the runs of equal lines, in order, as `(start in one, start in two, length)`.

    Long stretches of repeated lines may count as different although some are equal; the reverse never happens.

    ```python
    from pydantic_deep_backends.lines import shared_lines

    print(shared_lines([b'a', b'b', b'c'], [b'a', b'x', b'c']))
    #> [(0, 0, 1), (2, 2, 1)]
    ```
    """
    return [block for block in _LineMatcher(one, two).blocks() if block[2]]


class _LineMatcher:
    """Finds the lines that two texts have in common, in bounded time.

    Lines that are unique in both texts and in the same order are matched first (Bram Cohen's patience diff). Between
    two of them, common lines at both ends are matched, and `difflib` matches the rest.
    """

    def __init__(self, one: Sequence[bytes], two: Sequence[bytes]) -> None:
        self._one = one
        self._two = two
        self._pairs_left = _MAX_PAIRS

    def blocks(self) -> Iterator[_Block]:
        at_one = at_two = 0
        for i, j in _unique_in_both(self._one, self._two):
            yield from self._between(at_one, i, at_two, j)
            yield i, j, 1
            at_one, at_two = i + 1, j + 1
        yield from self._between(at_one, len(self._one), at_two, len(self._two))

    def _between(self, low_one: int, high_one: int, low_two: int, high_two: int) -> Iterator[_Block]:
        one, two = self._one[low_one:high_one], self._two[low_two:high_two]
        shorter = min(len(one), len(two))
        head = next((i for i in range(shorter) if one[i] != two[i]), shorter)
        tail = next((i for i in range(shorter - head) if one[-1 - i] != two[-1 - i]), shorter - head)
        yield low_one, low_two, head
        one, two = one[head : len(one) - tail], two[head : len(two) - tail]
        if len(one) * len(two) <= self._pairs_left:
            self._pairs_left -= len(one) * len(two)
            for i, j, count in SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
                yield low_one + head + i, low_two + head + j, count
        yield high_one - tail, high_two - tail, tail


def _unique_in_both(one: Sequence[bytes], two: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the positions of lines that occur once in each text, limited to the longest sequence in the same order."""
    count_in_one, count_in_two = Counter(one), Counter(two)
    place_in_two = {line: j for j, line in enumerate(two) if count_in_two[line] == 1}
    shared = [(i, place_in_two[line]) for i, line in enumerate(one) if count_in_one[line] == 1 and line in place_in_two]
    return _longest_rising(shared)


def _longest_rising(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of `places` in which the second numbers increase; the first ones already do."""
    lowest_ends: list[int] = []
    """The lowest second number that ends an increasing subsequence, by length."""
    last_of: list[int] = []
    """The index of the place with that number, by length."""
    before: list[int] = []
    """The index of the predecessor of each place in its subsequence."""
    for index, (_, j) in enumerate(places):
        length = bisect_left(lowest_ends, j)
        before.append(last_of[length - 1] if length else -1)
        lowest_ends[length : length + 1] = [j]
        last_of[length : length + 1] = [index]
    rising: list[tuple[int, int]] = []
    index = last_of[-1] if last_of else -1
    while index >= 0:
        rising.append(places[index])
        index = before[index]
    return rising[::-1]
