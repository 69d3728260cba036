"""Which lines two texts share: what a merge joins by, and what a diff leaves out. Pure, and bounded in time."""

from __future__ import annotations

from collections.abc import Sequence

from ._merge_lines import LineMatcher

__all__ = ('shared_lines',)


def shared_lines(one: Sequence[bytes], two: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return the runs of equal lines, in order: where each begins in one, where in two, and how long it is.

    Long stretches of lines that repeat may count as different though some are equal; never the other way round.

    ```python
    from pydantic_deep_backends.lines import shared_lines

    print(shared_lines([b'a', b'b', b'c'], [b'a', b'x', b'c']))
    #> [(0, 0, 1), (2, 2, 1)]
    ```
    """
    *blocks, _ = LineMatcher(None, one, two).get_matching_blocks()
    return blocks
