r"""Three-way merge of texts, line by line. Lines end at `\n`, `\r\n` or `\r`.

The merge is diff3: lines of the base that both sides have unchanged divide the texts, and each stretch between two of
them is taken from the side that changed it (Khanna, Kunal and Pierce, "A Formal Investigation of Diff3", 2007, section
3). `lines` finds the common lines of two texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic_deep_backends.lines import shared_lines


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Merge three texts line by line; `None` if both sides changed the same or neighbouring lines.

    Line ends are preserved, so nothing is rewritten and no encoding is assumed.
    """
    old, one, two = (data.splitlines(keepends=True) for data in (base, ours, theirs))
    merged: list[bytes] = []
    at = (0, 0, 0)
    for place in _unchanged_in_both(old, one, two):
        stretch = _merge_stretch(*(lines[i:j] for lines, i, j in zip((old, one, two), at, place, strict=True)))
        if stretch is None:
            return None
        merged += stretch
        merged += old[place[0] : place[0] + 1]
        at = (place[0] + 1, place[1] + 1, place[2] + 1)
    return b''.join(merged)


def _merge_stretch(old: Sequence[bytes], one: Sequence[bytes], two: Sequence[bytes]) -> Sequence[bytes] | None:
    """Return the merged lines of a stretch; `None` if both sides changed it differently."""
    if one in (old, two):
        return two
    return one if two == old else None


def _unchanged_in_both(
    old: Sequence[bytes], one: Sequence[bytes], two: Sequence[bytes]
) -> Iterator[tuple[int, int, int]]:
    """Yield the positions in all three texts of each line that both sides preserved; the ends of the texts are last."""
    place_in_two = {i + n: j + n for i, j, count in shared_lines(old, two) for n in range(count)}
    for i, j, count in shared_lines(old, one):
        for n in range(count):
            if i + n in place_in_two:
                yield i + n, j + n, place_in_two[i + n]
    yield len(old), len(one), len(two)
