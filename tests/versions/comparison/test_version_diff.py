"""Differences between the files of two versions."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

from pydantic_deep import VersionedAgent, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions.comparison._version_diff import diff_files
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


@pytest.mark.slow
async def test_diff_takes_bounded_time_for_any_lines() -> None:
    """difflib takes half a minute for these lines, which an agent could write to block a reviewer."""
    before = ''.join(f'{place % 150}\n' for place in range(20_000))
    after = ''.join(f'{place * 7 % 150}\n' for place in range(20_000))

    found = await diff(before, after)

    assert found is not None
    assert sum(line[0] in ' -' for line in found.splitlines()[2:]) == 20_000
    assert 'cut here' not in found


async def test_mode_change_has_an_empty_diff() -> None:
    digest = digest_of(b'echo\n')
    before, after = (Tree.of({'/a': FileVersion(digest=digest, size=5, mode=mode)}) for mode in (0o644, 0o755))

    async def read(digest: str) -> bytes:
        return b'echo\n'

    (found,) = await diff_files(before, after, read)

    assert (found.kind, found.diff) == ('changed', '')


async def test_version_without_our_deps_has_no_uploads() -> None:
    async with open_store('memory:') as store:
        version = await VersionedAgent(Agent(ScriptedModel('Hi.')), store).create()

    assert version.uploads == {}
