"""Large files are captured and written in chunks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backends.tests.conftest import Named
from pydantic_deep_backends import (
    CompositeBackend,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    ReadOnlyBackend,
    ReadOnlyError,
    StateBackend,
    Tree,
    digest_of,
)
from pydantic_deep_backends.local import _patch as patching
from pydantic_deep_backends.tracking import (
    MAX_WHOLE_BYTES,
    STREAMED_BYTES,
    Captured,
    FileTracker,
    OmittedFile,
    SupportsStreamedPatch,
    SupportsTracking,
)

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * (STREAMED_BYTES // 256) + b'x'
TREE = Tree.of({'/d/large': FileVersion(digest=digest_of(LARGE), size=len(LARGE), mode=0o755)})


def track(backend: object, max_file_bytes: int = MAX_WHOLE_BYTES + 1) -> FileTracker:
    assert isinstance(backend, SupportsTracking)
    return backend.track(Named(), max_file_bytes=max_file_bytes)


async def read(captured: Captured, data: bytes = LARGE) -> bytes:
    return b''.join([chunk async for chunk in captured.streams[digest_of(data)]()])


async def chunks(data: bytes = LARGE, failure: Exception | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 2**20):
        yield data[start : start + 2**20]
    if failure is not None:
        raise failure


async def test_large_contents_are_streams_if_larger_files_are_allowed(backend: LocalBackend) -> None:
    await backend.write_bytes('/large', LARGE)
    await backend.write_bytes('/small', LARGE[:-1])
    captured = await track(backend).capture(Tree())
    assert captured.tree['/large'] == FileVersion(digest=digest_of(LARGE), size=len(LARGE))
    assert (list(captured.blobs), list(captured.streams)) == ([digest_of(LARGE[:-1])], [digest_of(LARGE)])
    assert await read(captured) == LARGE
    again = await track(backend).capture(captured.tree)
    assert (again.tree, again.blobs, again.streams) == (captured.tree, {}, {})
    whole = await track(backend, MAX_WHOLE_BYTES).capture(Tree())
    assert (whole.tree, len(whole.blobs), whole.streams) == (captured.tree, 2, {})


async def test_largest_file_is_limited(backend: LocalBackend, tmp_path: Path) -> None:
    (tmp_path / 'sparse').touch()
    os.truncate(tmp_path / 'sparse', MAX_WHOLE_BYTES + 2)
    captured = await track(backend).capture(Tree())
    assert captured.omitted == (OmittedFile(path='/sparse', reason='too large', size_bytes=MAX_WHOLE_BYTES + 2),)


async def test_chunks_of_a_changed_file_have_another_digest(backend: LocalBackend) -> None:
    await backend.write_bytes('/large', LARGE)
    captured = await track(backend).capture(Tree())
    await backend.write_bytes('/large', LARGE[::-1])
    assert digest_of(await read(captured)) != digest_of(LARGE)
    await backend.remove('/large')
    with pytest.raises(FileNotFoundError):
        await read(captured)


async def test_ignored_large_file_is_captured_on_request(backend: LocalBackend) -> None:
    await backend.write_bytes('/.gitignore', b'ignored')
    await backend.write_bytes('/ignored', LARGE)
    await backend.write_bytes('/large', LARGE + b'2')
    captured = await track(backend).capture(Tree(), also=['/ignored'])
    assert set(captured.streams) == {digest_of(LARGE), digest_of(LARGE + b'2')}


@pytest.mark.parametrize('is_durable', [True, False])
async def test_file_is_written_from_chunks(backend: LocalBackend, tmp_path: Path, *, is_durable: bool) -> None:
    (tmp_path / 'd').write_text('a file in place of the directory')
    tracker = track(backend)
    before = (await tracker.capture(Tree())).tree
    await backend.patch_stream(TREE, '/d/large', chunks(), is_durable=is_durable)
    assert await backend.snapshot() == TREE
    assert (await tracker.capture(before)).tree == TREE
    assert os.listdir(tmp_path / 'd') == ['large']


async def test_chunks_with_another_digest_leave_the_old_file(backend: LocalBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/d/large', b'old')
    with pytest.raises(MissingBlobError, match='/d/large'):
        await backend.patch_stream(TREE, '/d/large', chunks(LARGE[1:]))
    with pytest.raises(ConnectionError):
        await backend.patch_stream(TREE, '/d/large', chunks(failure=ConnectionError()))
    with pytest.raises(KeyError):
        await backend.patch_stream(TREE, '/other', chunks())
    assert await backend.read_bytes('/d/large') == b'old'
    assert os.listdir(tmp_path / 'd') == ['large']


async def test_failed_start_leaves_no_file(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_file = patching.start_file

    def failing(*arguments: object, **options: object) -> int:
        os.close(start_file(*arguments, **options))  # pyright: ignore[reportArgumentType] - as they were passed
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(patching, 'start_file', failing)
    with pytest.raises(OSError, match='No space left'):
        await backend.patch_stream(TREE, '/d/large', chunks())
    assert os.listdir(tmp_path / 'd') == []


async def test_parts_of_a_composite_stream_what_they_can(tmp_path: Path) -> None:
    """A part without `patch_stream` receives the chunks as one."""
    parts = {'/m': StateBackend(), '/fixed': ReadOnlyBackend(StateBackend())}
    composite = CompositeBackend(LocalBackend(tmp_path), parts)
    assert isinstance(composite, SupportsStreamedPatch)
    tree = TREE.graft('/m', TREE).graft('/fixed', TREE)
    await composite.patch_stream(tree, '/d/large', chunks())
    await composite.patch_stream(tree, '/m/d/large', chunks())
    assert await composite.read_bytes('/m/d/large') == LARGE
    with pytest.raises(ReadOnlyError):
        await composite.patch_stream(tree, '/fixed/d/large', chunks())
    captured = await track(composite).capture(Tree())
    assert sorted(captured.tree) == ['/d/large', '/m/d/large']
    assert await read(captured) == LARGE
    assert not isinstance(CompositeBackend(StateBackend(), {}), SupportsStreamedPatch)
