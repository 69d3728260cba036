"""Operations and capabilities of a `ReadOnlyBackend`."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileEntry,
    InvalidPathError,
    ReadOnlyBackend,
    ReadOnlyError,
    StateBackend,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
    TreeDiff,
    WrapperBackend,
)

pytestmark = pytest.mark.anyio


def capabilities_of(backend: BackendProtocol) -> list[str]:
    known = (SupportsCommands, SupportsSearch, SupportsCompareAndSwap, SupportsSnapshots)
    return [protocol.__name__ for protocol in known if isinstance(backend, protocol)]


def test_read_only_backend_supports_only_search() -> None:
    assert capabilities_of(ReadOnlyBackend(StateBackend())) == ['SupportsSearch']
    assert not hasattr(ReadOnlyBackend(StateBackend()), 'restore')


class Unsearchable(WrapperBackend):
    """Has no optional capability."""

    capabilities = ()


def test_read_only_backend_adds_no_capability() -> None:
    backend = Unsearchable(StateBackend())
    assert isinstance(backend, BackendProtocol)
    read_only = ReadOnlyBackend(backend)
    assert capabilities_of(read_only) == []
    assert not hasattr(read_only, 'snapshot')
    assert not hasattr(read_only, 'changes')


async def test_read_only_backend_shows_the_current_files() -> None:
    files = StateBackend({'/a': '1'})
    backend = ReadOnlyBackend(files)
    before = await backend.snapshot()
    await files.write_bytes('/d/b', b'22')
    assert await backend.read_bytes('/d/b') == b'22'
    assert await backend.list_dir('/d') == [FileEntry(name='b', path='/d/b', is_dir=False, size=2)]
    assert await backend.snapshot() == await files.snapshot()
    assert await backend.changes(before) == TreeDiff(added=('/d/b',))


async def test_read_only_backend_has_the_ref_of_the_files() -> None:
    files = StateBackend()
    assert ReadOnlyBackend(files).ref == files.ref
    assert await ReadOnlyBackend(files).working_dir() == '/'
    assert repr(ReadOnlyBackend(files)) == 'ReadOnlyBackend(<StateBackend of 0 files, 0 bytes>)'


async def test_read_only_error_names_the_path() -> None:
    with pytest.raises(ReadOnlyError, match=r"'/a/b' is read-only") as caught:
        await ReadOnlyBackend(StateBackend()).write_bytes('/a//b', b'')
    assert caught.value.path == '/a/b'
    with pytest.raises(InvalidPathError):
        await ReadOnlyBackend(StateBackend()).write_bytes('../a', b'')


async def test_mount_can_be_read_only() -> None:
    backend = CompositeBackend(StateBackend(), {'/docs': ReadOnlyBackend(StateBackend({'/a.md': 'x'}))})
    assert await backend.read_bytes('/docs/a.md') == b'x'
    with pytest.raises(ReadOnlyError, match=r"'/docs/a.md' is read-only") as caught:
        await backend.write_bytes('/docs/a.md', b'')
    assert caught.value.path == '/docs/a.md'
    assert capabilities_of(backend) == ['SupportsSearch']
