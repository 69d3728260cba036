r"""Three-way merge of texts, line by line. Lines end at `\n`, `\r\n` or `\r`.

The merge is diff3: lines of the base that both sides kept divide the texts, and each stretch between two of them is
taken from the side that changed it (Khanna, Kunal and Pierce, "A Formal Investigation of Diff3", 2007, section 3).
Which lines two texts share is found in `lines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic_deep_backends.lines import shared_lines


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Merge three texts line by line; `None` if both sides changed the same or neighbouring lines.

    Lines keep their ends, so nothing is rewritten and no encoding is assumed.
    """
    old, one, two = (data.splitlines(keepends=True) for data in (base, ours, theirs))
    merged: list[bytes] = []
    at = (0, 0, 0)
    for kept in _kept_by_both(old, one, two):
        stretch = _merge_stretch(*(lines[i:j] for lines, i, j in zip((old, one, two), at, kept, strict=True)))
        if stretch is None:
            return None
        merged += stretch
        merged += old[kept[0] : kept[0] + 1]
        at = (kept[0] + 1, kept[1] + 1, kept[2] + 1)
    return b''.join(merged)


def _merge_stretch(old: Sequence[bytes], one: Sequence[bytes], two: Sequence[bytes]) -> Sequence[bytes] | None:
    """Return the lines of a stretch that at most one side changed, or both alike; `None` if they changed it differently."""
    if one in (old, two):
        return two
    return one if two == old else None


def _kept_by_both(old: Sequence[bytes], one: Sequence[bytes], two: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield where each line of the base is that both sides kept, in all three; the ends of the texts come last."""
    place_in_two = {i + n: j + n for i, j, count in shared_lines(old, two) for n in range(count)}
    for i, j, count in shared_lines(old, one):
        for n in range(count):
            if i + n in place_in_two:
                yield i + n, j + n, place_in_two[i + n]
    yield len(old), len(one), len(two)
