"""Large files enter versions and return from them in chunks, if the store has blobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydantic_deep import LocalBackend, StateBackend
from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.store import SqlStore, Store, StoreUnavailableError, open_store
from pydantic_deep.versions.files._asset_streams import AssetStreams
from pydantic_deep.versions.files._tree_views import fill
from pydantic_deep_backends import FileVersion, Tree, digest_of
from pydantic_deep_backends.tracking import STREAMED_BYTES, Captured, OmittedFile
from tests.versions.files.conftest import agent_of, writes

pytestmark = pytest.mark.anyio

LARGE = b'0123456789abcdef' * (STREAMED_BYTES // 16) + b'x'


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with open_store(f'sqlite:///{tmp_path}/agents.db', blobs=f'file://{tmp_path}/blobs') as store:
        yield store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / 'work').mkdir()
    return tmp_path / 'work'


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the sizes of assets that are read as a whole."""
    sizes: list[int] = []
    read_asset = SqlStore.read_asset

    async def recorded(self: SqlStore, digest: str) -> bytes:
        data = await read_asset(self, digest)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(SqlStore, 'read_asset', recorded)
    return sizes


def streams_of(store: Store) -> AssetStreams:
    streams = AssetStreams.of(store)
    assert streams is not None
    return streams


async def test_large_file_of_a_directory_is_versioned_and_checked_out_in_chunks(
    store: SqlStore, work: Path, whole: list[int]
) -> None:
    (work / 'large').write_bytes(LARGE)
    (work / 'large').chmod(0o755)
    (work / 'small').write_bytes(b'small')
    first = await agent_of(store).create(backend=LocalBackend(work))
    (work / 'large').write_bytes(LARGE[::-1])
    second = await first.advance('go')
    assert [(await version.file_tree())['/large'].digest for version in (first, second)] == [
        digest_of(LARGE),
        digest_of(LARGE[::-1]),
    ]
    (work / 'large').unlink()
    (work / 'small').unlink()
    await first.checkout(force=True)
    assert ((work / 'large').read_bytes(), (work / 'small').read_bytes()) == (LARGE, b'small')
    assert (work / 'large').stat().st_mode & 0o100
    assert max(whole) < STREAMED_BYTES


async def test_unversioned_large_file_is_stored_before_a_checkout(store: SqlStore, work: Path) -> None:
    agent = agent_of(store)
    first = await agent.create(backend=LocalBackend(work))
    (work / 'large').write_bytes(LARGE)
    await first.checkout(force=True)
    assert not (work / 'large').exists()
    [edit] = [version for version in await agent.list() if version.kind == 'edit']
    await edit.checkout()
    assert (work / 'large').read_bytes() == LARGE


async def test_size_limit_depends_on_the_store(store: SqlStore, work: Path) -> None:
    """Files over 50 MiB are versioned only with blobs."""
    with (work / 'huge').open('wb') as file:
        file.truncate(MAX_FILE_BYTES + 1)
    version = await agent_of(store).create(backend=LocalBackend(work))
    assert ((await version.file_tree())['/huge'].size, version.omitted_files) == (MAX_FILE_BYTES + 1, ())
    async with open_store('memory:') as without:
        with pytest.warns(UserWarning, match='/huge'):
            version = await agent_of(without).create(backend=LocalBackend(work))
        assert [file.reason for file in version.omitted_files] == ['too large']


async def test_files_of_a_view_with_commands_are_written_in_chunks(
    store: SqlStore, work: Path, whole: list[int]
) -> None:
    await store.write_asset(digest_of(LARGE), _chunks(LARGE))
    small = b'small'
    tree = Tree.of(
        {
            '/large': FileVersion(digest=digest_of(LARGE), size=len(LARGE)),
            '/small': FileVersion(digest=digest_of(small), size=len(small)),
        }
    )

    async def read(digest: str) -> bytes:
        return {digest_of(small): small}[digest]

    backend = LocalBackend(work)
    await fill(backend, tree, read, streams_of(store))
    assert await backend.snapshot() == tree
    assert whole == []


async def test_file_that_changes_while_it_is_stored_is_omitted(store: SqlStore) -> None:
    async def gone() -> AsyncIterator[bytes]:
        raise FileNotFoundError('/gone')
        yield b''

    versions = {
        path: FileVersion(digest=digest_of(path.encode()), size=9) for path in ('/changed', '/gone', '/same', '/small')
    }
    versions['/copy'] = versions['/changed']
    streams = {
        versions['/changed'].digest: lambda: _chunks(b'other'),
        versions['/gone'].digest: gone,
        versions['/same'].digest: lambda: _chunks(b'/same'),
    }
    captured = await streams_of(store).write(Captured(tree=Tree.of(versions), streams=streams))
    assert sorted(captured.tree) == ['/same', '/small']
    assert captured.omitted == tuple(
        OmittedFile(path=path, reason='unreadable', size_bytes=9) for path in ('/changed', '/copy', '/gone')
    )
    assert await store.read_asset(versions['/same'].digest) == b'/same'


async def test_unavailable_storage_is_not_an_unreadable_file(store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / 'blobs').chmod(0o500)
    (tmp_path / 'blobs').rename(tmp_path / 'moved')
    (tmp_path / 'blobs').write_text('a file in place of the directory')
    tree = Tree.of({'/large': FileVersion(digest=digest_of(LARGE), size=len(LARGE))})
    with pytest.raises(StoreUnavailableError, match='object storage'):
        await streams_of(store).write(Captured(tree=tree, streams={digest_of(LARGE): lambda: _chunks(LARGE)}))


async def test_large_file_in_memory_is_read_as_a_whole(store: SqlStore) -> None:
    agent = agent_of(store)
    first = await agent.create(backend=(files := StateBackend({'/large': LARGE})))
    await files.remove('/large')
    await first.checkout(backend=files, force=True)
    assert await files.read_bytes('/large') == LARGE


async def test_agent_writes_a_large_file_that_is_read_after_a_rewind(store: SqlStore, work: Path) -> None:
    text = 'line of text\n' * 420_000
    agent = agent_of(store, writes('/report.txt', text), 'written', writes('/report.txt', 'short'))
    root = await agent.create(backend=LocalBackend(work))
    long = await root.advance('write much')
    short = await long.advance('write little')
    assert (work / 'report.txt').read_text() == 'short'
    await long.checkout()
    assert (work / 'report.txt').read_text() == text
    assert await (await long.files()).read_bytes('/report.txt') == text.encode()
    assert await (await short.files()).read_bytes('/report.txt') == b'short'
    assert await store.check() == []


PROGRAM = """
import asyncio, sys
from pathlib import Path
from pydantic_ai.models.test import TestModel
from pydantic_deep import LocalBackend, VersionedAgent, create_deep_agent, open_store

def resident(name):
    return next(int(line.split()[1]) for line in Path('/proc/self/status').read_text().splitlines() if line.startswith(name))

async def main(directory):
    def database_bytes():
        return sum(path.stat().st_size for path in directory.glob('agents.db*') if path.is_file())

    work = directory / 'work'
    work.mkdir()
    async with open_store(f'sqlite:///{directory}/agents.db', blobs=f'file://{directory}/blobs') as store:
        agent = VersionedAgent(create_deep_agent(TestModel(call_tools=[])), store)
        version = await (await agent.create(backend=LocalBackend(work))).advance('go')
        with (work / 'large').open('wb') as file:
            for number in range(1000):
                file.write(number.to_bytes(8, 'big') * 125_000)
        before = database_bytes()
        Path('/proc/self/clear_refs').write_text('5')  # the peak starts again
        idle = resident('VmRSS')
        version = await version.advance('go on')
        (work / 'large').unlink()
        await version.checkout(force=True)
        size = (work / 'large').stat().st_size
        print(size, resident('VmHWM') - idle, database_bytes() - before)

asyncio.run(main(Path(sys.argv[1])))
"""
"""Prints the size of the file, the peak memory above idle in KiB, and the growth of the database in bytes."""


@pytest.mark.slow
def test_memory_for_a_file_of_a_gigabyte_is_limited(tmp_path: Path) -> None:
    """It enters a version and returns within 64 MiB of memory above idle and 1 MB of the database."""
    ran = subprocess.run([sys.executable, '-c', PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    size, peak_kib, database_bytes = map(int, ran.stdout.split())
    assert size == 1_000_000_000
    assert peak_kib <= 64 * 1024
    assert database_bytes <= 1_000_000


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 2**20):
        yield data[start : start + 2**20]
