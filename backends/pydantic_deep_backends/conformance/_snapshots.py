"""Tests of `SupportsSnapshots` and `SupportsIdentity`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import pytest

from pydantic_deep_backends.errors import InvalidPathError, MissingBlobError
from pydantic_deep_backends.snapshots import FileVersion, Tree, TreeDiff, digest_of

from ._base import BackendRules, CapturingBackend


class SnapshotRules(BackendRules):
    """Tests of snapshots and location identities."""

    async def test_equal_files_have_equal_trees_on_every_backend(
        self, capturing: CapturingBackend, root: str, tree_root: str
    ) -> None:
        files = {'/a': b'1', '/d/b': b'', '/d/e/c': bytes(range(256)), '/.hidden': b'x', '/naïve': b'\r\n'}
        for path, data in files.items():
            await capturing.write_bytes(f'{root}{path}', data)
        await capturing.make_dir(f'{root}/empty')
        tree = (await capturing.snapshot()).subtree(tree_root)
        assert dict(tree.items()) == {path: _version(data) for path, data in files.items()}
        assert tree.digest == _tree(files).digest

    async def test_snapshot_does_not_change_with_the_files(
        self, capturing: CapturingBackend, root: str, tree_root: str
    ) -> None:
        await capturing.write_bytes(f'{root}/a', b'1')
        before = await capturing.snapshot()
        await capturing.write_bytes(f'{root}/a', b'2')
        after = await capturing.snapshot()
        assert before.get(f'{tree_root}/a') == _version(b'1')
        assert after.get(f'{tree_root}/a') == _version(b'2')

    async def test_changes_lists_added_removed_and_changed_files(
        self, capturing: CapturingBackend, root: str, tree_root: str
    ) -> None:
        for path in ('same', 'gone', 'd/other', 'touched'):
            await capturing.write_bytes(f'{root}/{path}', path.encode())
        before = await capturing.snapshot()
        assert await capturing.changes(before) == TreeDiff()
        await capturing.write_bytes(f'{root}/d/other', b'new')
        await capturing.write_bytes(f'{root}/d/added', b'')
        await capturing.write_bytes(f'{root}/touched', b'touched')
        await capturing.remove(f'{root}/gone')
        await capturing.make_dir(f'{root}/empty')
        assert await capturing.changes(before) == TreeDiff(
            added=(f'{tree_root}/d/added',), removed=(f'{tree_root}/gone',), changed=(f'{tree_root}/d/other',)
        )

    async def test_restore_restores_every_file(self, capturing: CapturingBackend, root: str) -> None:
        files = {f'{root}/a': b'1', f'{root}/d/b': b'2', f'{root}/d/c': b'2', f'{root}/e/f/g': b'3', f'{root}/h': b'4'}
        for path, data in files.items():
            await capturing.write_bytes(path, data)
        before = await capturing.snapshot()
        await capturing.write_bytes(f'{root}/a', b'changed')
        await capturing.remove(f'{root}/d')
        await capturing.write_bytes(f'{root}/d', b'a file now')
        await capturing.remove(f'{root}/h')
        await capturing.write_bytes(f'{root}/h/i/j', b'a directory now')
        await capturing.write_bytes(f'{root}/new/file', b'')
        await capturing.restore(before, _reader(files.values()))
        assert await capturing.snapshot() == before
        assert await capturing.changes(before) == TreeDiff()
        for path, data in files.items():
            assert await capturing.read_bytes(path) == data
        assert [entry.name for entry in await capturing.list_dir(root)] == ['a', 'd', 'e', 'h']

    async def test_restored_file_can_replace_an_empty_directory(
        self, capturing: CapturingBackend, root: str, tree_root: str
    ) -> None:
        await capturing.make_dir(f'{root}/a/b')
        wanted = Tree.of({f'{tree_root}/a': _version(b'x')})
        await capturing.restore(wanted, _reader([b'x']))
        assert await capturing.snapshot() == wanted

    async def test_restore_restores_the_executable_bit(self, capturing: CapturingBackend, tree_root: str) -> None:
        wanted = Tree.of({f'{tree_root}/run': _version(b'#!', 0o755), f'{tree_root}/read': _version(b'#!')})
        await capturing.restore(wanted, _reader([b'#!']))
        assert await capturing.snapshot() == wanted
        swapped = Tree.of({f'{tree_root}/run': _version(b'#!'), f'{tree_root}/read': _version(b'#!', 0o755)})
        await capturing.restore(swapped, _reader([b'#!']))
        assert await capturing.snapshot() == swapped

    async def test_restoring_an_empty_tree_removes_every_file(self, capturing: CapturingBackend, root: str) -> None:
        await capturing.write_bytes(f'{root}/a/b', b'x')
        await capturing.restore(Tree())
        assert await capturing.snapshot() == Tree()
        assert not await capturing.exists(f'{root}/a')

    async def test_restore_with_missing_contents_changes_nothing(
        self, capturing: CapturingBackend, root: str, tree_root: str
    ) -> None:
        await capturing.write_bytes(f'{root}/keep', b'1')
        before = await capturing.snapshot()
        wanted = Tree.of({f'{tree_root}/{name}': _version(name.encode()) for name in ('b', 'a', 'c')})
        for read_blob in (None, _reader([b'b']), _wrong_contents):
            with pytest.raises(MissingBlobError) as caught:
                await capturing.restore(wanted, read_blob)
            assert f'{tree_root}/a' in caught.value.paths
            assert list(caught.value.paths) == sorted(caught.value.paths)
            assert await capturing.snapshot() == before

    async def test_tree_with_an_invalid_path_is_not_restored(self, capturing: CapturingBackend, tree_root: str) -> None:
        wanted = Tree.of({f'{tree_root}/a\nb': _version(b'x')})
        with pytest.raises(InvalidPathError):
            await capturing.restore(wanted, _reader([b'x']))
        assert await capturing.snapshot() == Tree()


def _version(data: bytes, mode: int = 0o644) -> FileVersion:
    return FileVersion(digest=digest_of(data), size=len(data), mode=mode)


def _tree(files: Mapping[str, bytes]) -> Tree:
    return Tree.of({path: _version(data) for path, data in files.items()})


def _reader(contents: Iterable[bytes]) -> Callable[[str], Awaitable[bytes]]:
    by_digest = {digest_of(data): data for data in contents}

    async def read_blob(digest: str) -> bytes:
        return by_digest[digest]

    return read_blob


async def _wrong_contents(digest: str) -> bytes:
    return b'not what has the digest ' + digest.encode()
