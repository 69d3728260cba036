"""Large contents are in blobs: stored before their commit, verified when read, and collected without one."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import (
    AssetNotFoundError,
    BackupError,
    Commit,
    GarbageReport,
    NewAsset,
    SqlStore,
    StoreCorruptedError,
    StoreError,
    StoreUnavailableError,
    UnknownCommitError,
    new_id,
    open_engine,
    open_store,
    restore_store,
)
from pydantic_deep.store._samples import Dialogue, sample_asset
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.object_storage import ObjectStorage
from pydantic_deep_backends import digest_of
from tests.store.conftest import running_s3, s3_environment
from tests.store.ports import free_port

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 1000
DIGEST = digest_of(LARGE)
GRACE_SECONDS = 3600.0


class Recorded(ObjectStorage):
    """Records the names that are put, and fails on demand."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        super().__init__(ObjectStorage.open(f'file://{path}')._store, url='file:///blobs')
        self.names: list[str] = []
        self.failure: OSError | None = None

    async def put(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
        if self.failure is not None:
            raise self.failure
        await super().put(name, contents)
        self.names.append(name)

    def get(self, name: str) -> AsyncIterator[bytes]:
        if self.failure is not None:
            raise self.failure
        return super().get(name)

    async def all(self) -> list[str]:
        return [entry.name async for page in self.list('') for entry in page]


@pytest.fixture
def blobs(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / 'blobs')


@pytest.fixture
async def store(tmp_path: Path, blobs: Recorded) -> AsyncIterator[SqlStore]:
    async with open_store(f'sqlite:///{tmp_path}/agents.db', blobs=blobs) as store:
        yield store


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def file_of(tmp_path: Path, blobs: Recorded) -> Path:
    return tmp_path / 'blobs' / blobs.names[0]


async def put(store: SqlStore, *datas: bytes) -> None:
    await store.commit(Commit(assets=[sample_asset(data) for data in datas]))


async def test_only_large_contents_other_than_json_are_outside(store: SqlStore, blobs: Recorded) -> None:
    """JSON stays in the database, which reads the digests in it."""
    small, json = b'x' * 65_536, b'"%s"' % (b'x' * 100_000)
    await put(store, LARGE, small)
    await store.commit(Commit(assets=[sample_asset(json, 'application/json')]))
    assert [DIGEST[7:] in name for name in blobs.names] == [True]
    read = {
        digest: asset.data
        for digest, asset in (await store.assets([digest_of(data) for data in (LARGE, small, json)])).items()
    }
    assert read == {digest_of(data): data for data in (LARGE, small, json)}
    record = await store.asset(DIGEST)
    assert (record.data, record.size_bytes) == (LARGE, len(LARGE))
    assert await store.has_assets([DIGEST]) == {DIGEST}


async def test_contents_of_a_row_are_not_uploaded_again(store: SqlStore, blobs: Recorded) -> None:
    await put(store, LARGE)
    await put(store, LARGE, b'other')
    await store.write_asset(DIGEST, chunks(b'is not read'))
    assert len(blobs.names) == 1


async def test_concurrent_commits_of_the_same_contents_agree_on_one_blob(store: SqlStore, blobs: Recorded) -> None:
    """Each uploads a blob of its own, so that none overwrites another. One row remains, and `gc` collects the rest."""
    await asyncio.gather(*(put(store, LARGE) for _ in range(5)))
    assert await store.read_asset(DIGEST) == LARGE
    dialogue = Dialogue(store)
    version = await dialogue.begin()
    await dialogue.add(version, DIGEST.encode())
    await store.gc(0)
    assert len(await blobs.all()) == 1
    assert await store.read_asset(DIGEST) == LARGE


async def test_many_large_contents_are_uploaded_in_batches(store: SqlStore, blobs: Recorded) -> None:
    datas = [b'%d' % number * 70_000 for number in range(20)]
    await put(store, *datas)
    assert len(blobs.names) == 20
    assert await store.read_asset(digest_of(datas[-1])) == datas[-1]


async def test_failed_upload_commits_nothing_and_a_retry_works(store: SqlStore, blobs: Recorded) -> None:
    blobs.failure = ConnectionError('no route')
    commit = Commit(assets=[sample_asset(LARGE), sample_asset(b'small')])
    with pytest.raises(StoreUnavailableError, match='object storage of the store cannot be written: no route'):
        await store.commit(commit)
    assert await store.has_assets([DIGEST, digest_of(b'small')]) == set()
    blobs.failure = None
    await store.commit(commit)
    assert await store.read_asset(DIGEST) == LARGE


async def test_failed_commit_leaves_a_blob_that_is_collected_after_the_grace_period(
    store: SqlStore, blobs: Recorded
) -> None:
    """A blob without a row may belong to a commit in progress, so its age decides."""
    version = (await Dialogue(store).begin())._replace(id=new_id(), deps=digest_of(b'missing'))
    with pytest.raises(AssetNotFoundError):
        await store.commit(Commit(assets=[sample_asset(LARGE)], versions=[version]))
    assert len(await blobs.all()) == 1
    report = await store.gc(GRACE_SECONDS)
    assert (report.removed['blob'], len(await blobs.all())) == (0, 1)
    report = await store.gc(0)
    assert (report.removed['blob'], report.freed_bytes, await blobs.all()) == (1, len(LARGE), [])


async def test_blob_is_removed_after_its_row(tmp_path: Path, blobs: Recorded) -> None:
    moment = time.time_ns() // 1000

    def clock() -> int:
        return moment

    async with SqlStore(await open_engine(f'sqlite:///{tmp_path}/agents.db'), clock=clock, blobs=blobs) as store:
        await put(store, LARGE)
        reports: list[GarbageReport] = []
        for _ in range(3):
            reports.append(await store.gc(GRACE_SECONDS))
            moment += int(GRACE_SECONDS * 1e6) + 5_000_000
        assert [(each.removed['asset'], each.removed['blob']) for each in reports] == [(0, 0), (1, 1), (0, 0)]
    assert await blobs.all() == []


async def test_stores_share_a_bucket_without_collecting_from_each_other(tmp_path: Path, blobs: Recorded) -> None:
    async with (
        open_store(f'sqlite:///{tmp_path}/one.db', blobs=blobs) as one,
        open_store(f'sqlite:///{tmp_path}/two.db', blobs=blobs) as two,
    ):
        await put(one, LARGE)
        await two.gc(0)
        assert await one.read_asset(DIGEST) == LARGE


async def test_chunks_are_stored_and_read_without_being_joined(store: SqlStore) -> None:
    parts = [bytes([number]) * 2**20 for number in range(6)]
    digest = digest_of(b''.join(parts))
    await store.write_asset(digest, chunks(*parts), media_type='video/mp4')
    record = await store.asset(digest)
    assert (record.size_bytes, record.media_type) == (6 * 2**20, 'video/mp4')
    assert [len(chunk) for chunk in [chunk async for chunk in store.stream_asset(digest)]] == [2**20] * 6
    await put(store, b'small')
    assert [chunk async for chunk in store.stream_asset(digest_of(b'small'))] == [b'small']
    with pytest.raises(AssetNotFoundError):
        _ = [chunk async for chunk in store.stream_asset(digest_of(b'missing'))]


class _Chunks:
    """An iterator of a storage that has no generators."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = iter(parts)

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        try:
            return next(self._parts)
        except StopIteration:
            raise StopAsyncIteration from None


async def test_reader_that_stops_early_ends_the_request_at_once(
    store: SqlStore, blobs: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [bytes([number]) * 2**20 for number in range(3)]
    digest = digest_of(b''.join(parts))
    await store.write_asset(digest, chunks(*parts))
    ended: list[str] = []

    async def get(name: str) -> AsyncIterator[bytes]:
        try:
            for part in parts:
                yield part
        finally:
            ended.append(name)

    monkeypatch.setattr(blobs, 'get', get)
    stream = store.stream_asset(digest)
    assert await anext(stream) == parts[0]
    await stream.aclose()
    assert ended == blobs.names

    def get_without_generator(name: str) -> _Chunks:
        return _Chunks(*parts)

    monkeypatch.setattr(blobs, 'get', get_without_generator)
    assert [chunk async for chunk in store.stream_asset(digest)] == parts


async def test_chunks_with_another_digest_are_refused(store: SqlStore, blobs: Recorded) -> None:
    with pytest.raises(ValueError, match=digest_of(b'ab')):
        await store.write_asset(DIGEST, chunks(b'a', b'b'))
    assert (await store.has_assets([DIGEST]), await blobs.all()) == (set(), [])


async def test_errors_of_chunks_are_not_errors_of_the_storage(store: SqlStore, blobs: Recorded) -> None:
    async def unreadable() -> AsyncIterator[bytes]:
        yield b'a'
        raise PermissionError('the file is not readable')

    with pytest.raises(PermissionError, match='the file is not readable'):
        await store.write_asset(DIGEST, unreadable())
    blobs.failure = ConnectionError('no route')
    with pytest.raises(StoreUnavailableError, match='no route'):
        await store.write_asset(DIGEST, chunks(LARGE))


async def test_changed_or_missing_blob_is_damage(store: SqlStore, blobs: Recorded, tmp_path: Path) -> None:
    dialogue = Dialogue(store)
    version = await dialogue.begin()
    await put(store, LARGE)
    await store.commit(Commit(versions=[version._replace(id=(broken := new_id()), parent_id=version.id, deps=DIGEST)]))
    assert await store.check() == []
    file = file_of(tmp_path, blobs)
    for spoil, problem in ((lambda: file.write_bytes(LARGE[:-1]), 'another digest'), (file.unlink, 'is missing from')):
        spoil()
        with pytest.raises(StoreCorruptedError, match=problem) as caught:
            await store.asset(DIGEST)
        assert (caught.value.table, caught.value.row) == ('asset', DIGEST)
        [damage] = await store.check()
        assert problem in damage.problem
        assert (damage.row, damage.versions) == (DIGEST, (broken,))


async def test_unreachable_storage_is_an_unavailable_store(store: SqlStore, blobs: Recorded) -> None:
    await put(store, LARGE, b'small')
    blobs.failure = ConnectionError('no route')
    with pytest.raises(StoreUnavailableError, match='object storage of the store cannot be read: no route'):
        await store.asset(DIGEST)
    assert await store.read_asset(digest_of(b'small')) == b'small'


async def test_store_that_was_written_with_blobs_needs_them(store: SqlStore, tmp_path: Path) -> None:
    await put(store, LARGE, b'small')
    async with open_store(store.url) as without:
        assert await without.read_asset(digest_of(b'small')) == b'small'
        for read in (without.asset(DIGEST), without.check()):
            with pytest.raises(StoreUnavailableError, match=r'256,000 bytes.*Open the store with the `blobs`'):
                await read
        with pytest.raises(StoreError, match='Open it with `blobs`'):
            await without.write_asset(DIGEST, chunks(LARGE))
        assert (await without.gc(0)).removed['asset'] == 2
    assert (await store.gc(0)).removed['blob'] == 1


@pytest.mark.parametrize('kind', ['blobs', 'database', 'postgresql'])
async def test_backup_contains_the_contents_in_blobs(
    store: SqlStore, blobs: Recorded, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """A backup needs nothing of the original storage, and is restored to a store with other blobs, or with none."""
    empty = digest_of(b'')
    await put(store, LARGE, b'small', LARGE + b'2')
    await store.write_asset(empty, chunks())
    counts: list[tuple[str, int]] = []
    rows = await store.backup(tmp_path / 'complete', on_progress=lambda table, count: counts.append((table, count)))
    assert [each for each in counts if each[0] == 'blob'] == [('blob', 1), ('blob', 2), ('blob', 3)]
    await blobs.delete(await blobs.all())

    url = f'sqlite:///{tmp_path}/restored.db' if kind != 'postgresql' else request.getfixturevalue('postgres_url')
    target = Recorded(tmp_path / 'others') if kind == 'blobs' else None
    counts.clear()
    restored_rows = await restore_store(
        url, tmp_path / 'complete', blobs=target, on_progress=lambda table, count: counts.append((table, count))
    )

    assert restored_rows == rows
    assert [each for each in counts if each[0] == 'blob'] == [('blob', 1), ('blob', 2), ('blob', 3)]
    assert target is None or len(target.names) == 3
    async with open_store(url, blobs=target) as restored:
        assert await restored.check() == []
        for content in (LARGE, b'small', LARGE + b'2', b''):
            assert await restored.read_asset(digest_of(content)) == content
        assert target is None or (await restored.gc(0)).removed['blob'] == 3  # they belong to the new store


async def test_backup_of_a_store_that_is_opened_without_its_blobs_is_refused(store: SqlStore, tmp_path: Path) -> None:
    """A backup file must be complete."""
    await put(store, LARGE)
    async with open_store(store.url) as without:
        with pytest.raises(BackupError, match=r'1 contents in object storage.*`PYDANTIC_DEEP_BLOBS`'):
            await without.backup(tmp_path / 'incomplete')
    assert not (tmp_path / 'incomplete').exists()


async def test_backup_names_a_blob_that_is_missing(store: SqlStore, blobs: Recorded, tmp_path: Path) -> None:
    """The error says which object is missing, and what to do; no incomplete file remains."""
    await put(store, LARGE)
    [name] = await blobs.all()
    await blobs.delete([name])
    with pytest.raises(BackupError) as raised:
        await store.backup(tmp_path / 'incomplete')
    assert str(raised.value) == (
        f'The content {DIGEST} cannot be backed up: its blob {name} is missing from file:///blobs. If versions were '
        'deleted during the backup, make it again. Otherwise restore the object from a copy of the storage, or delete '
        'the versions that need it, which `pydantic-deep store check` lists, and run `pydantic-deep gc`.'
    )
    assert [path.name for path in tmp_path.iterdir() if 'incomplete' in path.name] == []


async def test_backup_with_blobs_is_a_snapshot_while_others_write(
    store: SqlStore, blobs: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contents that are added after the rows were read are in the next backup."""
    await put(store, LARGE)
    read = blobs.get
    later = LARGE + b'later'

    async def get(name: str) -> AsyncIterator[bytes]:
        await put(store, later)
        async for chunk in read(name):
            yield chunk

    monkeypatch.setattr(blobs, 'get', get)
    await store.backup(tmp_path / 'snapshot')

    await restore_store('memory:snapshot', tmp_path / 'snapshot')
    await restore_store(f'sqlite:///{tmp_path}/restored.db', tmp_path / 'snapshot', blobs=f'file://{tmp_path}/new')
    async with open_store(f'sqlite:///{tmp_path}/restored.db', blobs=f'file://{tmp_path}/new') as restored:
        assert await restored.check() == []
        assert await restored.has_assets([DIGEST, digest_of(later)]) == {DIGEST}


async def test_contents_are_backed_up_and_restored_in_chunks(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory has a few mebibytes of content at a time, even of content that compresses a thousandfold."""
    content, sizes = bytes(12 * 2**20), list[int]()
    digest = digest_of(content)
    await store.write_asset(
        digest, chunks(*(content[start : start + 2**20] for start in range(0, len(content), 2**20)))
    )
    await store.backup(tmp_path / 'large')
    assert (tmp_path / 'large').stat().st_size < 2**20

    class Measured(Recorded):
        async def put(self, name: str, contents: bytes | AsyncIterable[bytes]) -> None:
            assert not isinstance(contents, bytes)
            sizes.extend([len(chunk) async for chunk in contents])

    await restore_store(f'sqlite:///{tmp_path}/restored.db', tmp_path / 'large', blobs=Measured(tmp_path / 'measured'))
    assert (sum(sizes), max(sizes)) == (len(content), max(sizes))
    assert max(sizes) <= 4 * 2**20

    monkeypatch.setattr('pydantic_deep.store.operations._backup._MAX_INSIDE_BYTES', 10 * 2**20)
    with pytest.raises(BackupError, match=r'more than 10,485,760 bytes.*`blobs`'):
        await restore_store(f'sqlite:///{tmp_path}/inside.db', tmp_path / 'large')


@pytest.mark.parametrize('is_storage_lost', [False, True])
async def test_failed_restore_leaves_no_blobs(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_storage_lost: bool
) -> None:
    """Uploaded contents are removed if the rows cannot be written, unless the outcome is unknown; then `gc` removes those
    that no row names. The error is that of the rows, even if the storage is lost, too.
    """
    await put(store, LARGE)
    await store.backup(tmp_path / 'complete')
    target = Recorded(tmp_path / 'target')
    delete = target.delete

    async def lose(names: Sequence[str]) -> None:
        await delete(names)
        if is_storage_lost:
            raise OSError('The storage is lost.')

    monkeypatch.setattr(target, 'delete', lose)
    for error, remaining in ((StoreUnavailableError('The disk is full.'), 0), (UnknownCommitError('Lost.'), 1)):

        def fail(*_: object, error: Exception = error) -> Operation[None]:
            yield Statement('SELECT 1')
            raise error

        with monkeypatch.context() as patched:
            patched.setattr('pydantic_deep.store._backups.restore', fail)
            with pytest.raises(type(error)):
                await restore_store(f'sqlite:///{tmp_path}/restored.db', tmp_path / 'complete', blobs=target)
        assert len(await target.all()) == remaining

    async with open_store(f'sqlite:///{tmp_path}/used.db') as used:
        await put(used, b'small')
    with pytest.raises(BackupError, match='not empty'):
        await restore_store(f'sqlite:///{tmp_path}/used.db', tmp_path / 'complete', blobs=target)
    assert len(target.names) == 2  # nothing was uploaded for a store that is not empty


async def test_damaged_row_of_a_blob_is_reported_once(store: SqlStore, tmp_path: Path) -> None:
    await put(store, LARGE)
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        raw.execute('UPDATE asset SET size_bytes = 1')
        raw.commit()
    assert [damage.problem for damage in await store.check()] == ['a value differs from the one that was written']


async def test_wrong_digest_is_refused_with_blobs_too(store: SqlStore) -> None:
    with pytest.raises(ValueError, match=DIGEST):
        await store.commit(Commit(assets=[NewAsset(digest=digest_of(b'other'), data=LARGE)]))
    assert await store.has_assets([digest_of(b'other')]) == set()


@pytest.mark.slow
async def test_server_killed_during_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed. When another server runs, a retry works, and `gc` leaves only blobs with a row."""
    port = free_port(8)
    parts = [bytes([number]) * 2**20 for number in range(40)]
    digest = digest_of(b''.join(parts))
    url = f'sqlite:///{tmp_path}/agents.db'

    def set_port(port: int) -> None:
        for name, value in s3_environment(port).items():
            monkeypatch.setenv(name, value)

    set_port(port)
    async with open_store(url, blobs='s3://blobs/agents') as store:
        with running_s3(port, tmp_path / 's3') as process_id:

            async def killing() -> AsyncIterator[bytes]:
                for number, part in enumerate(parts):
                    if number == 30:
                        os.kill(process_id, signal.SIGKILL)
                    yield part

            with pytest.raises(StoreUnavailableError, match='object storage'):
                await store.write_asset(digest, killing())
            with pytest.raises(StoreUnavailableError, match='object storage'):
                await put(store, LARGE)
        assert await store.has_assets([digest, DIGEST]) == set()
    set_port(port + 4)
    with running_s3(port + 4, tmp_path / 'other'):
        async with open_store(url, blobs='s3://blobs/agents') as store:
            await store.write_asset(digest, chunks(*parts))
            await put(store, LARGE)
            assert await store.read_asset(digest) == b''.join(parts)
            assert await store.check() == []
            assert (await store.gc(GRACE_SECONDS)).removed['blob'] == 0


@pytest.mark.parametrize('delay', [0, 1])
async def test_content_that_grows_old_between_list_and_removal_is_kept(
    tmp_path: Path, blobs: Recorded, delay: int
) -> None:
    """A commit of contents whose old blob is being collected has a blob of its own, which the collection cannot hit."""

    class Slow(Recorded):
        async def delete(self, names: Sequence[str]) -> None:
            if delay:
                await put(store, LARGE)  # between the list and the removal
            await super().delete(names)
            if not delay:
                await put(store, LARGE)

    slow = Slow(tmp_path / 'blobs')
    async with open_store(f'sqlite:///{tmp_path}/agents.db', blobs=slow) as store:
        await put(store, LARGE)
        assert (await store.gc(0)).removed['blob'] == 1
        assert await store.read_asset(DIGEST) == LARGE
