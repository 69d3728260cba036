"""Servers in versioned turns: pauses, replay, and recovery after a crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pydantic_deep import Approve, StateBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.testing import ScriptedModel, call
from tests.versions.recovery.crashes import MAY_HAVE_RUN, World, ends, plan, returns, tool_call

from .conftest import MakeServer

pytestmark = pytest.mark.anyio

Calls = Callable[[], Sequence[str]]


async def test_turn_with_servers_pauses_resumes_and_replays_exactly(make_server: MakeServer, calls: Calls) -> None:
    """A version with a pending call of a server resumes after an approval, and its replay equals the recording."""
    model = ScriptedModel(call('shop_add', a=1, b=2), call('shop_stop'), call('shop_order', item='tea'), 'done')
    servers = McpServers(servers={'shop': make_server(), 'broken': McpServer(command='no-such-program')})
    agent = create_deep_agent(model, capabilities=[servers], interrupt_on={})
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        (pending,) = paused.pending
        assert (pending.tool, calls()) == ('shop_order', ['add 1 2', 'stop'])
        done = await paused.resume({pending.id: Approve()})
        replay = await done.replay()
    assert (done.output, replay.difference) == ('done', None)
    assert calls() == ['add 1 2', 'stop', 'order tea']


async def test_after_a_crash_reads_run_again_and_other_calls_ask(
    tmp_path: Path, make_server: MakeServer, calls: Calls
) -> None:
    """A call of a tool that only reads is made again; a call that may have ordered something asks a person."""
    servers = McpServers(servers={'shop': make_server()}, allow=['shop_order'])
    world = World(
        f'sqlite:///{tmp_path}/store.db',
        plan({'go': [[tool_call('shop_add', a=1, b=2), tool_call('shop_order', item='tea')], 'end']}),
        options={'capabilities': [servers], 'interrupt_on': {}},
    )
    async with world.process(dies_before=ends('shop_order')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    assert sorted(calls()) == ['add 1 2', 'order tea']
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert pending.tool == 'shop_order'
        assert str(pending.preview).startswith(MAY_HAVE_RUN)
        assert sorted(calls()) == ['add 1 2', 'add 1 2', 'order tea']
        done = await version.resume({pending.id: Approve()})
        assert sorted(returns(await done.messages())) == ['3', 'order: tea']
