"""Startup and shutdown: recovery of crashed runs, their audit records, and deps of runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.test import TestModel

from pydantic_deep import DeepAgentDeps, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.audit import AuditRecord
from pydantic_deep.server._lifespan import recover
from pydantic_deep.store import Commit, RunRecord, SqlStore, VersionRecord, new_id
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Serve, Served

pytestmark = pytest.mark.anyio


class _Broken(SqlStore):
    """A store that raises when it lists orphaned runs."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__(store.engine)

    async def orphans(self, limit: int = 1000) -> list[RunRecord]:
        raise RuntimeError('broken')


def agent(*answers: str, name: str = 'deep-agent') -> Agent[DeepAgentDeps, str]:
    return create_deep_agent(ScriptedModel(*answers), name=name)


async def test_deps_are_created_for_each_run(serve: Serve) -> None:
    seen: list[DeepAgentDeps] = []

    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        """Look."""
        seen.append(ctx.deps)
        return ''

    async with serve(
        agents={'a': create_deep_agent(TestModel(call_tools=['look']), tools=[look])},
        make_deps=lambda: DeepAgentDeps(metadata={'tenant': 'acme'}),
    ) as served:
        root = await served.state.agents['a'].create()
        await root.advance('Hi')
        await root.advance('Hi')
    assert [deps.metadata for deps in seen] == [{'tenant': 'acme'}] * 2
    assert seen[0] is not seen[1]


async def test_versioned_agent_overrides_deps_and_timeout(serve: Serve, store: SqlStore) -> None:
    def make() -> DeepAgentDeps:
        return DeepAgentDeps(metadata={'mine': True})

    given = VersionedAgent(agent('Hello.', name='a'), store, make_deps=make, approval_timeout_seconds=5)
    async with serve(agents={'a': given}, make_deps=lambda: DeepAgentDeps(metadata={'mine': False})) as served:
        version = await (await served.state.agents['a'].create()).advance('Hi')
        assert served.state.agents['a'].approval_timeout_seconds == 5
        [record] = (await served.state.audit.list()).items
    assert (version.output, record.metadata) == ('Hello.', {'mine': True})


@pytest.mark.slow
async def test_conversation_without_an_owner_has_an_audit_record_without_one(served: Served) -> None:
    await (await served.state.agents['analyst'].create()).advance('Hi')
    [record] = (await served.state.audit.list()).items
    assert (record.owner, record.agent_name) == (None, 'analyst')


async def store_orphan(url: str, base: VersionRecord) -> str:
    """Store the start of a run that no process works on, as after a crash, and return its id."""
    run = running(base)
    async with open_store(url) as crashed_store:
        await crashed_store.commit(Commit(runs=[run]))
    return run.id


def running(base: VersionRecord) -> RunRecord:
    """Return a running run that starts from a version."""
    return RunRecord(
        id=new_id(),
        conversation_id=base.conversation_id,
        base_id=base.id,
        agent_name=base.agent_name,
        attempt_of=None,
        parent_run_id=None,
        state='running',
        owner=None,
        prompt=b'"Hello"',
        options='{}',
        usage='{}',
        cost=None,
        error=None,
        trace_id=None,
        started_at=1,
        ended_at=None,
    )


async def records_of(served: Served, status: str, count: int = 1) -> list[AuditRecord]:
    """Wait until `count` records have the status, and return them."""
    with anyio.fail_after(60):
        while True:
            page = await served.state.audit.list({'status': status})
            if len(page.items) == count:
                return page.items


def crashed(run_id: str, **fields: Any) -> AuditRecord:
    """Return the audit record of a run at the time of its crash."""
    known = {'id': new_id(), 'run_id': run_id, 'agent_name': 'gone', 'question': 'Hello', 'status': 'running'}
    return AuditRecord.model_validate({**known, 'started_at': datetime(2026, 1, 1, tzinfo=UTC), **fields})


async def test_crashed_runs_are_recovered_at_startup(serve: Serve) -> None:
    """002-20: a run of a crashed process is completed, and its audit record contains the owner."""
    async with open_store('memory:recovered') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
        run_id = await store_orphan(store.url, await store.version(root.id))
        async with serve(store=store) as second:
            [record] = await records_of(second, 'success')
            [newest] = await second.state.agents['analyst'].list(limit=1)
    assert (newest.output, newest.parent_id) == ('You said: Hello', root.id)
    assert (record.owner, record.agent_name, record.run_id == run_id) == ('ada', 'analyst', False)


async def test_recovered_runs_are_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO', 'pydantic_deep')
    async with open_store('memory:logged') as store, serve(store=store) as served:
        root = await served.state.agents['analyst'].create()
        await store_orphan(store.url, await store.version(root.id))
        await recover(served.state)
        with anyio.fail_after(60):
            while not any('Recovered' in line for line in caplog.messages):  # the recovery at startup may log it
                await store.conversation('none')
        [newest] = await served.state.agents['analyst'].list(limit=1)
    assert f"Recovered a run of 'analyst': the version {newest.id} is complete" in caplog.messages


async def test_run_that_fails_in_recovery_does_not_prevent_startup(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store('memory:failing') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
        await store_orphan(store.url, await store.version(root.id))
        async with serve({'analyst': agent()}, store=store) as second:
            [record] = await records_of(second, 'failed')
            async with second.client() as client:
                assert (await client.get('/health')).status_code == 200
    assert record.owner == 'ada'
    assert any('failed again' in line for line in caplog.messages)


async def test_audit_records_of_unrecoverable_runs_are_closed(serve: Serve) -> None:
    async with open_store('memory:crashed') as store:
        async with serve(store=store) as first:
            root = await first.state.agents['analyst'].create()
            left = await store_orphan(store.url, (await store.version(root.id))._replace(agent_name='gone'))
            await first.state.audit.create(crashed(left))
            await first.state.audit.create(crashed('of-no-store'))
        async with serve(store=store) as second:
            ended = await records_of(second, 'crashed', 2)
            still = await second.state.audit.count({'status': 'running'})
    assert ({record.run_id for record in ended}, still) == ({left, 'of-no-store'}, 0)


async def test_audit_records_of_active_runs_of_other_processes_remain_open(serve: Serve) -> None:
    async with open_store('memory:alive') as store, open_store('memory:alive') as other, serve(store=store) as served:
        root = await served.state.agents['analyst'].create()
        alive = running(await store.version(root.id))
        await other.commit(Commit(runs=[alive]))
        await served.state.audit.create(crashed(alive.id))
        await served.state.audit.create(crashed('of-no-store'))
        await recover(served.state)
        assert (await records_of(served, 'running'))[0].run_id == alive.id


async def test_recovery_errors_are_logged_and_ignored(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as served:
        await served.state.audit.aclose()
        state = replace(served.state, agents={'analyst': VersionedAgent(agent(), _Broken(served.store))})
        await recover(state)
    # The recovery at startup may find the closed repository too.
    assert list(dict.fromkeys(line for line in caplog.messages if 'could not be' in line)) == [
        "Crashed runs of the agent 'analyst' could not be recovered",
        'The audit records of crashed runs could not be ended',
    ]


async def test_store_remains_open_after_shutdown(serve: Serve, store: SqlStore) -> None:
    async with serve():
        pass
    async with serve() as again, again.client(await again.key()) as client:
        assert (await client.get('/api/me')).status_code == 200
    assert await store.conversation('none') is None
