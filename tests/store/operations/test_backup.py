"""Backups restore every row on any engine, and incomplete or foreign backup files are refused."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import (
    BackupError,
    SqlStore,
    StoreCorruptedError,
    StoreFormatError,
    new_id,
    open_store,
    restore_store,
)
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.operations._backup import tables_of
from pydantic_deep.store.sql.dialect import SupportsTables
from tests.store.damage import make_sample
from tests.store.forks import stopped_child

pytestmark = pytest.mark.anyio


async def _rows(store: SqlStore) -> dict[str, list[Row]]:
    """Return all rows of all tables, keyed by table."""
    engine = store.engine
    assert isinstance(engine, SupportsTables)
    dialect = engine.dialect

    def read() -> Operation[dict[str, list[Row]]]:
        found: dict[str, list[Row]] = {}
        for table in (yield from tables_of(dialect)):
            found[table] = sorted((yield Statement(f'SELECT * FROM {table}')), key=repr)
        return found

    return await engine.read(read)


async def test_backup_between_sqlite_and_postgresql_preserves_every_row(tmp_path: Path, postgres_url: str) -> None:
    """A backup of a store on one engine is restored on the other with every row unchanged, and both accept new rows."""
    await make_sample(tmp_path / 'agents.db')
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as first:
        before = await _rows(first)
        count = await first.backup(tmp_path / 'first.backup')
    assert count == sum(map(len, before.values())) > 50
    assert await restore_store(postgres_url, tmp_path / 'first.backup') == count
    async with open_store(postgres_url) as second:
        assert await _rows(second) == before
        assert await second.check() == []
        await second.backup(tmp_path / 'second.backup')
    assert await restore_store(f'sqlite:///{tmp_path}/third.db', tmp_path / 'second.backup') == count
    async with open_store(f'sqlite:///{tmp_path}/third.db') as third, open_store(postgres_url) as second:
        assert await _rows(third) == before
        for store in (second, third):
            newest = max(version.number for version in await store.versions())
            assert (await Dialogue(store).begin()).number > newest
            assert await store.check() == []


@pytest.mark.slow
@pytest.mark.parametrize('is_postgres', [False, True])
async def test_missing_rows_are_still_detected_in_a_restored_backup(
    tmp_path: Path, is_postgres: bool, request: pytest.FixtureRequest
) -> None:
    """A backup of a damaged store has its original row counts, so the copy is reported as damaged too."""
    await make_sample(tmp_path / 'agents.db')
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        raw.execute('DELETE FROM message WHERE number = (SELECT MAX(number) FROM message)')
        raw.commit()
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as damaged:
        found = await damaged.check()
        await damaged.backup(tmp_path / 'agents.backup')
    assert found
    url = request.getfixturevalue('postgres_url') if is_postgres else f'sqlite:///{tmp_path}/copy.db'
    await restore_store(url, tmp_path / 'agents.backup')
    async with open_store(url) as copy:
        assert await copy.check() == found
        with pytest.raises(StoreCorruptedError):
            await copy.sql('SELECT 1')


async def test_backup_during_writes_is_a_consistent_snapshot(tmp_path: Path) -> None:
    """A backup under load has no dangling references, and only complete turns."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        dialogue = Dialogue(store)
        version = await dialogue.begin()
        backed_up = asyncio.ensure_future(store.backup(tmp_path / 'store.backup'))
        while not backed_up.done():
            version = await dialogue.add(version, b'{"asked":1}', b'{"answered":1}')
        await backed_up
    await restore_store(f'sqlite:///{tmp_path}/copy.db', tmp_path / 'store.backup')
    async with open_store(f'sqlite:///{tmp_path}/copy.db') as copy:
        assert await copy.check() == []
        newest = (await copy.versions(limit=1))[0]
        assert len(await copy.messages(newest.branch_id, newest.message_count)) == newest.message_count
        assert await copy.count() == newest.message_count // 2 + 1


@pytest.mark.parametrize('damage', ['cut off', 'flipped', 'longer', 'empty', 'something else', 'of a newer release'])
async def test_incomplete_or_damaged_backup_is_refused(tmp_path: Path, damage: str) -> None:
    """A truncated backup, one with a flipped bit, or another kind of file is refused before anything is created."""
    path, backup = tmp_path / 'agents.db', tmp_path / 'store.backup'
    await make_sample(path)
    async with open_store(f'sqlite:///{path}') as store:
        await store.backup(backup)
    data = backup.read_bytes()
    variants: dict[str, list[bytes]] = {
        'cut off': [data[:length] for length in range(23, len(data), len(data) // 7)],
        'flipped': [_flipped(data, place) for place in range(0, len(data), len(data) // 40)],
        'longer': [data + b'\0'],
        'empty': [b''],
        'something else': [path.read_bytes()],
        'of a newer release': [data.replace(b'backup 1', b'backup 2', 1)],
    }
    for variant in variants[damage]:
        backup.write_bytes(variant)
        with pytest.raises(BackupError):
            await restore_store(f'sqlite:///{tmp_path}/copy.db', backup)
    assert not (tmp_path / 'copy.db').exists()


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


async def test_backup_of_a_newer_release_is_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup lists its tables, and a release that does not know them refuses it."""
    from pydantic_deep.store.operations import _backup
    from pydantic_deep.store.sql import _migrations

    # To simulate a newer release, this one pretends to be older.
    async with open_store('memory:') as store:
        await store.backup(tmp_path / 'store.backup')
    monkeypatch.setattr(_backup, 'MIGRATIONS', _migrations.MIGRATIONS[:-1])
    with pytest.raises(BackupError, match='newer release'):
        await restore_store(f'sqlite:///{tmp_path}/copy.db', tmp_path / 'store.backup')


async def test_backup_is_restored_only_to_an_empty_store(tmp_path: Path) -> None:
    """A refused restore changes nothing."""
    await make_sample(tmp_path / 'agents.db')
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        await store.backup(tmp_path / 'store.backup')
        before = await _rows(store)
    with pytest.raises(BackupError, match=f"'{url}' is not empty. Restore"):
        await restore_store(url, tmp_path / 'store.backup')
    async with open_store(url) as store:
        assert await _rows(store) == before
    async with open_store(f'sqlite:///{tmp_path}/empty.db'):
        pass
    await restore_store(f'sqlite:///{tmp_path}/empty.db', tmp_path / 'store.backup')
    (tmp_path / 'text.db').write_text('no database ' * 100)
    with pytest.raises(StoreFormatError):
        await restore_store(f'sqlite:///{tmp_path}/text.db', tmp_path / 'store.backup')


async def test_backup_file_appears_only_when_complete_and_is_private(tmp_path: Path) -> None:
    """The target name is used only for a complete backup, and an existing file is not replaced."""
    path = tmp_path / 'backups' / 'store.backup'
    path.parent.mkdir()
    seen: list[list[str]] = []

    def look(_table: str, _rows: int) -> None:
        seen.append([each.name for each in path.parent.iterdir()])

    async with open_store('memory:') as store:
        await Dialogue(store).begin()
        await store.backup(path, on_progress=look)
        assert seen
        assert all(names != ['store.backup'] for names in seen)
        assert [each.name for each in path.parent.iterdir()] == ['store.backup']
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        data = path.read_bytes()
        with pytest.raises(FileExistsError, match=r'store\.backup'):
            await store.backup(path)
        assert path.read_bytes() == data


async def test_failed_backup_leaves_no_file(tmp_path: Path) -> None:
    """A partial backup is removed on failure."""

    def fail(_table: str, _rows: int) -> None:
        raise OSError('the disk is full')

    async with open_store('memory:') as store:
        await Dialogue(store).begin()
        with pytest.raises(OSError, match='the disk is full'):
            await store.backup(tmp_path / 'store.backup', on_progress=fail)
    assert list(tmp_path.iterdir()) == []


async def test_interrupted_backup_leaves_no_file_under_its_name(tmp_path: Path) -> None:
    """A process stopped during a backup leaves no file with the target name."""

    async def back_up(stop: Callable[[], None]) -> None:  # pragma: no cover - in another process
        def stop_there(_table: str, _rows: int) -> None:
            stop()

        async with open_store('memory:') as store:
            await Dialogue(store).begin()
            await store.backup(tmp_path / 'store.backup', on_progress=stop_there)

    with stopped_child(back_up):
        assert not (tmp_path / 'store.backup').exists()


async def test_large_rows_are_written_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are read by size, so that a backup never holds many large ones in memory."""
    from pydantic_deep.store.operations import _backup

    # Real contents of several megabytes would be slow.
    monkeypatch.setattr(_backup, '_PAGE_BYTES', 300)
    monkeypatch.setattr(_backup, '_PAGE', 4)
    await make_sample(tmp_path / 'agents.db')
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        before = await _rows(store)
        await store.backup(tmp_path / 'store.backup')
    await restore_store(f'sqlite:///{tmp_path}/copy.db', tmp_path / 'store.backup')
    async with open_store(f'sqlite:///{tmp_path}/copy.db', read_only=True) as copy:
        assert await _rows(copy) == before
        await copy.backup(tmp_path / f'{new_id()}.backup')
