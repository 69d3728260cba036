"""Properties of captures, views and checkouts under arbitrary file operations."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_deep.versions import GitignoreRules
from pydantic_deep.versions.files._checkout import checkout
from pydantic_deep.versions.files._run_files import open_run_files
from pydantic_deep_backends import CompositeBackend, LocalBackend, StateBackend, Tree, digest_of
from pydantic_deep_backends.tracking import Captured, SupportsTracking

MAX_FILE_BYTES = 20

PATHS = ('/a', '/b.log', '/d/a', '/d/b.log', '/d/e/a', '/d', '/build/x', '/m/a', '/m/d/b.log', '/~n', '/~n/a', '/.gitignore', '/d/.gitignore', '/m/.gitignore')  # fmt: skip
TEXTS = (b'', b'1', b'2', b'x' * 21, b'*.log', b'build/', b'!b.log', b'd/', b'a')

Step = tuple[str, str, bytes, bool]
"""Operation, path, contents, and whether the files are captured afterwards."""

steps = st.lists(
    st.tuples(
        st.sampled_from(('write', 'write', 'write', 'write', 'remove', 'remove', 'make_dir', 'command')),
        st.sampled_from(PATHS),
        st.sampled_from(TEXTS),
        st.booleans(),
    ),
    min_size=4,
    max_size=25,
)
"""The backend tracks most of them, so most captures look only at touched files."""


async def do(backend: StateBackend | LocalBackend | CompositeBackend, directory: Path | None, step: Step) -> None:
    """Apply one step; ignore steps that fail."""
    kind, path, data, _ = step
    try:
        if kind == 'write':
            await backend.write_bytes(path, data)
        elif kind == 'remove':
            await backend.remove(path)
        elif kind == 'make_dir':
            await backend.make_dir(path)
        elif kind == 'command' and directory is not None:
            by_hand(directory / path[1:], data)
    except (OSError, ValueError):
        pass


def by_hand(path: Path, data: bytes) -> None:
    """Write a file without the backend and replace an existing file or directory."""
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


async def fresh(backend: StateBackend | LocalBackend | CompositeBackend) -> Captured:
    """Return a capture made without any previous state."""
    assert isinstance(backend, SupportsTracking)
    return await backend.track(GitignoreRules(), max_file_bytes=MAX_FILE_BYTES).capture(Tree())


async def check_captures(
    backend: StateBackend | LocalBackend | CompositeBackend, directory: Path | None, done: list[Step]
) -> None:
    blobs: dict[str, bytes] = {}

    async def read_blob(digest: str) -> bytes:
        return blobs[digest]

    files = await open_run_files(
        backend, tree=Tree(), read_blob=read_blob, in_place=True, max_file_bytes=MAX_FILE_BYTES
    )
    assert files is not None
    tree, is_full = Tree(), False
    for step in [*done, ('end', '', b'', True)]:
        await do(backend, directory, step)
        is_full |= step[0] == 'command'
        if step[3]:
            captured = await files.capture(tree, is_full=is_full)
            tree, is_full = captured.tree, False
            assert all(digest_of(data) == digest for digest, data in captured.blobs.items())
            blobs |= captured.blobs
            wanted = await fresh(LocalBackend(directory) if directory else backend)
            assert dict(tree.items()) == dict(wanted.tree.items())
            assert captured.omitted == wanted.omitted
            assert {version.digest for _, version in tree.items()} <= blobs.keys()
    await check_view(backend, tree, blobs)


async def check_view(
    backend: StateBackend | LocalBackend | CompositeBackend, tree: Tree, blobs: dict[str, bytes]
) -> None:
    async def read_blob(digest: str) -> bytes:
        return blobs[digest]

    view = await open_run_files(backend, tree=tree, read_blob=read_blob, in_place=False, max_file_bytes=MAX_FILE_BYTES)
    assert view is not None
    for path, version in tree.items():
        assert await view.backend.read_bytes(path) == blobs[version.digest]
    captured = await view.capture(tree, is_full=True)
    assert (captured.tree, captured.blobs) == (tree, {})
    await view.aclose()


@pytest.mark.slow
@settings(max_examples=120)
@given(steps)
def test_incremental_capture_of_a_directory_equals_a_fresh_one(
    tmp_path_factory: pytest.TempPathFactory, done: list[Step]
) -> None:
    directory = tmp_path_factory.mktemp('law')
    anyio.run(check_captures, LocalBackend(directory), directory, done)


@pytest.mark.slow
@settings(max_examples=120)
@given(steps)
def test_incremental_capture_of_memory_equals_a_fresh_one(done: list[Step]) -> None:
    anyio.run(check_captures, StateBackend(), None, done)


@pytest.mark.slow
@settings(max_examples=120)
@given(steps)
def test_incremental_capture_of_a_composite_equals_a_fresh_one(
    tmp_path_factory: pytest.TempPathFactory, done: list[Step]
) -> None:
    backend = CompositeBackend(LocalBackend(tmp_path_factory.mktemp('law')), {'/m': StateBackend()})
    anyio.run(check_captures, backend, None, done)


files = st.dictionaries(
    st.sampled_from(('/a', '/b', '/d/a', '/d/b', '/e/f/a', '/e/g')), st.sampled_from((b'1', b'2', b'3')), max_size=6
)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.lists(files, min_size=1, max_size=5))
def test_full_capture_after_a_checkout_equals_the_tree(
    tmp_path_factory: pytest.TempPathFactory, targets: list[dict[str, bytes]]
) -> None:
    async def go() -> None:
        directory = tmp_path_factory.mktemp('law')
        for name in ('.git', 'node_modules'):
            (directory / name).mkdir()
            (directory / name / 'a').write_text('left alone')
        backend = LocalBackend(directory)
        current = Tree()
        for target in targets:
            state = StateBackend({**target, '/.gitignore': b'node_modules'})
            tree = await state.snapshot()
            blobs = {digest_of(data): data for data in (*target.values(), b'node_modules')}

            async def read_blob(digest: str, blobs: dict[str, bytes] = blobs) -> bytes:
                return blobs[digest]

            if current != tree:
                (directory / '.gitignore').write_text('node_modules')
                current = current.set('/.gitignore', tree['/.gitignore'])
            await checkout(backend, current=current, target=tree, read_blob=read_blob)
            assert (await fresh(backend)).tree == tree
            assert sorted(os.listdir(directory / 'node_modules')) == ['a']
            assert sorted(os.listdir(directory / '.git')) == ['a']
            current = tree

    anyio.run(go)
