"""Hostile files and faulty blob readers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileChangedError,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    StateBackend,
    SupportsCompareAndSwap,
    SupportsSnapshots,
    Tree,
    digest_of,
    merge_trees,
)

pytestmark = pytest.mark.anyio

HOSTILE_NAMES = [
    *('a b', ' ', 'trailing ', 'é', 'e\u0301', '\u202etxt.exe', 'zero\u200bwidth', 'a\u2028b', 'x' * 255, 'é' * 127),
    *('foo..bar', '...', '.hidden', '%2e%2e', 'COM1', '-rf', '$(id)', '`id`', '"q"', "it's", '*', '[a]', '{a,b}', '?'),
    *('#', 'aa:b', 'a~', '．．', '日本/深い/ファイル', '.git/hooks/post-checkout'),
]
"""Valid names that are special to a shell, a terminal, a glob or another system."""


def hostile_files() -> dict[str, bytes]:
    return {f'/{name}': f'contents of {name}'.encode() for name in HOSTILE_NAMES}


async def test_hostile_names_survive_copies_between_memory_and_directory(tmp_path: Path) -> None:
    files = hostile_files()
    memory, directory, copy = StateBackend(files), LocalBackend(tmp_path), StateBackend()
    tree = await memory.snapshot()
    by_digest = {digest_of(data): data for data in files.values()}

    async def read_blob(digest: str) -> bytes:
        return by_digest[digest]

    await directory.restore(tree, read_blob)
    assert await directory.snapshot() == tree
    await copy.restore(await directory.snapshot(), read_blob)
    assert await copy.snapshot() == tree
    assert {path: await copy.read_bytes(path) for path, _ in tree.items()} == files
    assert list((await directory.glob('**')).paths) == list((await memory.glob('**')).paths)
    assert (await directory.grep('contents')).counts == dict.fromkeys((await memory.glob('**')).paths, 1)


async def test_restore_removes_blocking_paths_and_changes_nothing_outside(tmp_path: Path) -> None:
    outside, root = tmp_path / 'outside', tmp_path / 'root'
    outside.mkdir()
    root.mkdir()
    (outside / 'kept').write_text('kept')
    backend = LocalBackend(root)
    wanted = {'/file': b'1', '/linked': b'2', '/dir/in/file': b'3', '/pipe': b'4'}
    for path, data in wanted.items():
        await backend.write_bytes(path, data)
    tree = await backend.snapshot()
    (root / 'file').unlink()
    (root / 'file').mkdir()
    (root / 'file' / 'inner').write_text('x')
    (root / 'linked').unlink()
    (root / 'linked').symlink_to(outside / 'kept')
    (root / 'dir' / 'in' / 'file').unlink()
    (root / 'dir' / 'in').rmdir()
    (root / 'dir' / 'in').symlink_to(outside)
    (root / 'pipe').unlink()
    os.mkfifo(root / 'pipe')

    async def read_blob(digest: str) -> bytes:
        return {digest_of(data): data for data in wanted.values()}[digest]

    await backend.restore(tree, read_blob)
    assert await backend.snapshot() == tree
    assert {path: await backend.read_bytes(path) for path in wanted} == wanted
    assert not any(path.is_symlink() for path in root.rglob('*'))
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [('kept', 'kept')]


async def lie(digest: str) -> bytes:
    return b'something else'


async def break_down(digest: str) -> bytes:
    raise ConnectionResetError('gone')


@pytest.mark.parametrize(('read_blob', 'error'), [(lie, MissingBlobError), (break_down, ConnectionResetError)])
@pytest.mark.parametrize('kind', ['state', 'local', 'composite'])
async def test_faulty_blob_reader_changes_nothing(
    kind: str, read_blob: Callable[[str], Awaitable[bytes]], error: type[Exception], tmp_path: Path
) -> None:
    local = LocalBackend(tmp_path)
    composite = CompositeBackend(StateBackend(), {'/m': local})
    assert isinstance(composite, SupportsSnapshots)
    files = {'state': StateBackend(), 'local': local, 'composite': composite}[kind]
    assert isinstance(files, BackendProtocol)
    assert isinstance(files, SupportsSnapshots)
    await files.write_bytes('/m/kept', b'1')
    before = await files.snapshot()
    wanted = before.remove('/m/kept').set('/m/new', FileVersion(digest=digest_of(b'right'), size=5))
    with pytest.raises(error):
        await files.restore(wanted, read_blob)
    assert await files.snapshot() == before


async def test_change_with_equal_size_and_mtime_is_in_the_next_snapshot(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    path = tmp_path / 'f'
    path.write_bytes(b'AAAA')
    times = path.stat()
    before = await backend.snapshot()
    path.write_bytes(b'BBBB')
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (await backend.changes(before)).changed == ('/f',)


async def test_file_mounted_twice_has_a_single_digest_to_swap() -> None:
    shared = StateBackend({'/f': b'1'})
    backend = CompositeBackend(StateBackend(), {'/a': shared, '/b': shared})
    assert isinstance(backend, SupportsCompareAndSwap)
    await backend.compare_and_swap('/a/f', b'2', expected=digest_of(b'1'))
    with pytest.raises(FileChangedError):
        await backend.compare_and_swap('/b/f', b'3', expected=digest_of(b'1'))
    assert await shared.read_bytes('/f') == b'2'


def merged(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, list[str]]:
    """Merge one file, and return its contents and the kinds of its conflicts."""
    contents = {digest_of(data): data for data in (base, ours, theirs)}
    trees = [Tree.of({'/f': FileVersion(digest=digest_of(d), size=len(d))}) for d in (base, ours, theirs)]
    result = merge_trees(trees[0], trees[1], trees[2], contents)
    found = result.tree.get('/f')
    assert found is not None
    return {**contents, **result.blobs}[found.digest], [c.kind for c in result.conflicts]


@pytest.mark.parametrize(
    ('base', 'ours', 'theirs', 'both'),
    [
        pytest.param(b'1\r\n2\r\n3\r\n', b'1\r\n2\r\nX\r\n', b'Y\r\n2\r\n3\r\n', b'Y\r\n2\r\nX\r\n', id='crlf'),
        pytest.param(b'1\n2', b'1\n2\n3', b'0\n1\n2', b'0\n1\n2\n3', id='no line end at the end'),
        pytest.param(b'\xe9\n2\n3\n', b'\xe9\n2\nX\n', b'Y\n2\n3\n', b'Y\n2\nX\n', id='latin-1'),
        pytest.param(b'a\x0cb\n2\n3\n', b'a\x0cb\n2\nX\n', b'a\x0cc\n2\n3\n', b'a\x0cc\n2\nX\n', id='form feed'),
        pytest.param(
            b'<<<<<<<\nb\nc\nd\n', b'<<<<<<< x\nb\nc\nd\n', b'<<<<<<<\nb\nc\n=======\n',
            b'<<<<<<< x\nb\nc\n=======\n', id='lines like marks of conflicts',
        ),
    ],
)  # fmt: skip
def test_text_of_any_encoding_is_merged_byte_for_byte(base: bytes, ours: bytes, theirs: bytes, both: bytes) -> None:
    assert merged(base, ours, theirs) == (both, [])


@pytest.mark.parametrize(
    ('base', 'ours', 'theirs', 'kind'),
    [
        pytest.param(b'1\n2\n3\n', b'1\r\n2\r\n3\r\n', b'1\n2\nX\n', 'content', id='line ends against text'),
        pytest.param(b'', b'x\n', b'y\n', 'content', id='two beginnings'),
        pytest.param(*('1\n2\n3\n'.encode('utf-16'), '1\n2\nX\n'.encode('utf-16'), 'Y\n2\n3\n'.encode('utf-16')),
                     'binary', id='utf-16'),
    ],
)  # fmt: skip
def test_unmergeable_contents_keep_ours_and_are_reported(base: bytes, ours: bytes, theirs: bytes, kind: str) -> None:
    assert merged(base, ours, theirs) == (ours, [kind])
