"""Faults: full disks, missing permissions, damaged pages, lost connections and clocks set back lose no acknowledged
work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import (
    Commit,
    Committed,
    SqlStore,
    Store,
    StoreError,
    StoreUnavailableError,
    VersionFilter,
    open_engine,
    open_store,
)
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, VersionedAgent

pytestmark = pytest.mark.anyio

_SERVER = Path(__file__).parent.parent / 'store' / 'postgres_server.py'

NOBODY = 65534


def agent_on(store: Store, *steps: Step, **options: Any) -> VersionedAgent[Any, Any]:
    return VersionedAgent(create_deep_agent(ScriptedModel(*steps), name='agent', **options), store)


def write(path: str, content: str) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': content}, tool_call_id=path)


def _statement(sql: str) -> Operation[object]:
    return (yield Statement(sql))


async def _limit(store: SqlStore, pages: int) -> None:
    """Limit the file to this number of pages, like a full disk."""
    await store.engine.write(lambda: _statement(f'PRAGMA max_page_count = {pages}'))


async def _read_all(version: AgentVersion[Any, Any]) -> tuple[int, dict[str, bytes]]:
    files = await version.files()
    contents = {path: await files.read_bytes(path) for path in await version.file_tree()}
    return len(await version.messages()), contents


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f'sqlite:///{tmp_path}/store.db'


async def test_turn_on_a_full_disk_fails_and_recovers_when_space_is_available(url: str, tmp_path: Path) -> None:
    (tmp_path / 'work').mkdir()
    backend = LocalBackend(tmp_path / 'work')
    async with open_store(url) as store:
        agent = agent_on(store, 'one', write('/large.txt', os.urandom(300_000).hex()), 'two')
        first = await (await agent.create(backend=backend)).advance('first')
        await _limit(store, 1)
        with pytest.raises(StoreUnavailableError, match=r'full.*Make room'):
            await first.advance('second')
        assert await _read_all(await agent.load(first.id)) == (2, {})
    async with open_store(url) as store:
        agent = agent_on(store, write('/small.txt', 'small'), 'recovered')
        assert await _read_all(await agent.load(first.id)) == (2, {})
        versions = await agent.recover()
        assert len(versions) <= 1
        assert await store.runs(states=['running']) == []
        again = await (await agent.load(first.id)).advance('again') if not versions else versions[0]
        assert again.state == 'complete'
        assert (await _read_all(again))[1] == {'/small.txt': b'small'}


async def test_store_works_again_after_a_full_disk_without_being_reopened(url: str) -> None:
    async with open_store(url) as store:

        async def lose(path: str) -> str:
            """Fill the disk while a file is written."""
            await _limit(store, 1)
            return 'lost'

        agent = agent_on(
            store, [write('/a.txt', 'a' * 100_000), ToolCallPart('lose', {'path': 'x'})], 'end', tools=[lose]
        )
        root = await agent.create(backend=StateBackend())
        with pytest.raises(StoreUnavailableError, match='full'):
            await root.advance('go')
        await _limit(store, 1_000_000)
        done = await agent_on(store, write('/b.txt', 'b'), 'end').load(root.id)
        assert (await _read_all(await done.advance('again')))[1] == {'/b.txt': b'b'}


@contextmanager
def _without_rights(path: Path) -> Generator[None]:
    """Remove write permission from a file and its directory, and drop root privileges."""
    paths = [path.parent, *path.parent.glob(f'{path.name}*')]
    for each in paths:
        each.chmod(0o555 if each.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for each in paths:
            each.chmod(0o755 if each.is_dir() else 0o644)


async def test_unwritable_file_raises_and_is_unchanged_afterwards() -> None:
    with tempfile.TemporaryDirectory(prefix='pd-fault-') as directory:
        path = Path(directory) / 'store.db'
        url = f'sqlite:///{path}'
        async with open_store(url) as store:
            first = await (await agent_on(store, 'one').create(backend=StateBackend())).advance('first')
        with _without_rights(path), pytest.raises(StoreUnavailableError, match=r'can(not)? be (opened|written)'):
            async with open_store(url):
                pass
        async with open_store(url) as store:
            assert (await (await agent_on(store, 'two').load(first.id)).advance('second')).output == 'two'


@pytest.mark.slow
async def test_damaged_page_raises_a_store_error_or_has_no_effect(url: str, tmp_path: Path) -> None:
    async with open_store(url) as store:
        agent = agent_on(store, write('/a.txt', 'a' * 5000), 'one', write('/b.txt', 'b'), 'two')
        first = await (await agent.create(backend=StateBackend(), name='whole')).advance('first')
        second = await first.advance('second')
        whole = await _read_all(second)
    good = (tmp_path / 'store.db').read_bytes()
    size = int.from_bytes(good[16:18], 'big')
    said: list[str] = []
    for page in range(1, len(good) // size):
        copy = tmp_path / f'page-{page}'
        copy.mkdir()
        damaged = bytearray(good)
        damaged[page * size : page * size + 48] = bytes(byte ^ 0xFF for byte in good[page * size : page * size + 48])
        (copy / 'store.db').write_bytes(damaged)
        try:
            async with open_store(f'sqlite:///{copy}/store.db') as store:
                again = await agent_on(store).load(second.id)
                assert await _read_all(again) == whole
        except StoreError as error:
            said.append(str(error))
        shutil.rmtree(copy)
    assert any('restore the store from a backup' in each for each in said)
    async with open_store(url) as store:
        assert await _read_all(await agent_on(store).load(second.id)) == whole


class FlakyStore(SqlStore):
    """A store that fails one commit."""

    fails = False

    async def commit(self, commit: Commit) -> Committed:
        if self.fails and commit.nodes:
            self.fails = False
            raise StoreUnavailableError('The disk failed.')
        return await super().commit(commit)


async def test_turn_whose_commit_failed_is_suspended_although_the_store_is_available_again(url: str) -> None:
    """It is recovered with the contents of the failed commit, instead of being stored as failed."""
    async with FlakyStore(await open_engine(url)) as store:
        agent = agent_on(store, write('/a.txt', 'a'), write('/b.txt', 'b'), 'end')
        root = await agent.create(backend=StateBackend())
        store.fails = True
        with pytest.raises(StoreUnavailableError):
            await root.advance('go')
        (recovered,) = await agent.recover()
        assert recovered.state == 'complete'
        assert (await _read_all(recovered))[1] == {'/a.txt': b'a'}


@pytest.fixture
def durable_url() -> Generator[str]:
    with subprocess.Popen(
        [sys.executable, _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        assert server.stdin is not None
        server.stdin.close()


@pytest.mark.slow
async def test_turn_survives_connections_terminated_by_the_server(durable_url: str) -> None:
    async with open_store(durable_url) as store, open_store(durable_url) as other:

        async def cut() -> str:
            """End all connections of the store."""
            sql = (
                'SELECT pg_terminate_backend(pid) FROM pg_stat_activity'
                ' WHERE pid <> pg_backend_pid() AND datname = current_database()'
            )
            await other.engine.write(lambda: _statement(sql))
            return 'cut'

        agent = agent_on(
            store, [write('/a.txt', 'a'), ToolCallPart('cut', {})], write('/b.txt', 'b'), 'end', tools=[cut]
        )
        root = await agent.create(backend=StateBackend())
        done = await root.advance('go')
        assert (await _read_all(done))[1] == {'/a.txt': b'a', '/b.txt': b'b'}
        assert [each.id for each in await done.lineage()] == [root.id, done.id]
        assert await agent.recover() == []


async def test_clock_set_back_does_not_change_the_order(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = count(time.time_ns(), -1_000_000_000)
    monkeypatch.setattr(time, 'time_ns', lambda: next(moments))
    async with open_store(url) as store:
        agent = agent_on(store, [write('/a.txt', 'a'), write('/b.txt', 'b')], 'one', write('/a.txt', 'new'), 'two')
        root = await agent.create(backend=StateBackend())
        first = await root.advance('first')
        second = await first.advance('second')
        assert second.created_at < first.created_at < root.created_at
        assert [each.id for each in await agent.list()] == [second.id, first.id, root.id]
        assert [each.id for each in await second.lineage()] == [root.id, first.id, second.id]
        numbers = [each.number for each in await store.versions(VersionFilter(conversation_id=root.conversation_id))]
        assert numbers == sorted(numbers, reverse=True)
        runs = await store.runs(conversation_id=root.conversation_id)
        calls = await store.calls([run.id for run in runs if run.base_id == root.id])
        ends = [call.ended_at or 0 for call in calls]
        assert len(set(ends)) == 2, 'moments of a turn tell the order of what it did, whatever the clock says'
        assert (await _read_all(second))[1] == {'/a.txt': b'new', '/b.txt': b'b'}


@dataclass
class Noted(DeepAgentDeps):
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


@pytest.mark.parametrize('steps', [1, 0])
async def test_run_with_unserializable_deps_fails_and_releases_its_locks(tmp_path: Path, steps: int) -> None:
    """It fails at the next step or, without a next step, at its end."""

    def spoil(ctx: RunContext[Noted]) -> str:
        """Spoil."""
        ctx.deps.notes['it'] = object()
        return 'spoiled'

    def spoil_at_the_end(ctx: RunContext[Noted], output: str) -> str:
        spoil(ctx)
        return output

    script = (call('spoil'), call('ls'), 'done')[2 - 2 * steps :]
    agent = create_deep_agent(ScriptedModel(*script, 'again'), deps_type=Noted, tools=[spoil])
    if not steps:
        agent.output_validator(spoil_at_the_end)
    async with open_store('memory:') as store:
        versions = VersionedAgent(agent, store, make_deps=Noted)
        root = await versions.create(backend=LocalBackend(tmp_path))
        with pytest.raises(DeepAgentError, match="'notes'") as caught:
            await root.advance('go')
        assert any('The run is stored up to version' in note for note in caught.value.__notes__)
        (run,) = await store.runs()
        assert run.state == 'failed'
        await root.checkout()
        assert await versions.recover() == []
