"""What is different between the files of two versions."""

from __future__ import annotations

import pytest

from pydantic_deep.versions._changes import diff_files
from pydantic_deep_backends import FileVersion, Tree, digest_of

pytestmark = pytest.mark.anyio


async def diff(before: str, after: str) -> str | None:
    """Return the diff of one file."""
    contents = {digest_of(text.encode()): text.encode() for text in (before, after)}

    async def read(digest: str) -> bytes:
        return contents[digest]

    trees = [Tree.of({'/a': FileVersion(digest=digest_of(text.encode()), size=len(text))}) for text in (before, after)]
    (found,) = await diff_files(trees[0], trees[1], read)
    return found.diff


async def test_a_diff_is_made_in_time_whatever_the_lines() -> None:
    """difflib takes half a minute for these, and an agent could write them to stop whoever looks."""
    before = ''.join(f'{place % 150}\n' for place in range(20_000))
    after = ''.join(f'{place * 7 % 150}\n' for place in range(20_000))

    found = await diff(before, after)

    assert found is not None
    assert sum(line[0] in ' -' for line in found.splitlines()[2:]) == 20_000
    assert 'cut here' not in found
