"""Servers in versioned turns: pauses, replay, and recovery after a crash."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
from pydantic_ai.capabilities import HandleDeferredToolCalls

from pydantic_deep import (
    Approve,
    Respond,
    StateBackend,
    VersionedAgent,
    answer_approvals,
    create_deep_agent,
    open_store,
    pending_approvals,
)
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import TurnOptions
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


async def test_crash_before_the_pause_is_stored_asks_instead_of_repeating(
    tmp_path: Path, make_server: MakeServer, calls: Calls
) -> None:
    """A call that asks has begun, so a process that crashes before its pause is stored leaves a call that may have run."""
    servers = McpServers(servers={'shop': make_server()}, allow=['shop_book', 'shop_order'])
    world = World(
        f'sqlite:///{tmp_path}/store.db',
        plan({'go': [[tool_call('shop_book'), tool_call('shop_order', item='tea')], 'end']}),
        options={'capabilities': [servers], 'interrupt_on': {}},
    )
    async with world.process(dies_before=lambda commit: any(each.kind == 'pause' for each in commit.versions)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert (pending.tool, pending.decisions) == ('shop_book', ('approve', 'deny'))
        assert str(pending.preview).startswith(MAY_HAVE_RUN)
        assert sorted(calls()) == ['book', 'order tea']


async def test_crash_after_an_answer_asks_instead_of_repeating(
    tmp_path: Path, make_server: MakeServer, calls: Calls
) -> None:
    """The answered call of a process that crashed may have run. If a person approves it, it asks again."""
    servers = McpServers(servers={'shop': make_server()}, allow=['shop_book'])
    world = World(
        f'sqlite:///{tmp_path}/store.db',
        plan({'go': [[tool_call('shop_book')], 'end']}),
        options={'capabilities': [servers], 'interrupt_on': {}},
    )
    async with world.process() as agent:
        paused = await (await agent.create(backend=StateBackend())).advance('go')
        paused = await paused.resume({paused.pending[0].id: Respond('2')})
    async with world.process(dies_before=ends('shop_book')) as agent:
        await (await agent.load(paused.id)).resume({paused.pending[0].id: Respond('Continue')})
    assert list(calls()) == ['book', 'book ended']
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert str(pending.preview).startswith(MAY_HAVE_RUN)
        again = await version.resume({pending.id: Approve()})
        assert again.pending[0].preview is not None
        assert again.pending[0].preview.text == "The MCP server 'shop' asks:\nHow many?"


async def test_answer_on_another_branch_does_not_repeat_the_call(make_server: MakeServer, calls: Calls) -> None:
    """The first branch that answers continues the call. Another one has no call to continue, so a person decides."""
    model = ScriptedModel(call('shop_book'), 'done')
    servers = McpServers(servers={'shop': make_server()}, allow=['shop_book'])
    agent = create_deep_agent(model, capabilities=[servers], interrupt_on={})
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        other = await paused.clone()
        (first,), (second,) = paused.pending, other.pending
        asked = await paused.resume({first.id: Respond('1')})
        again = await other.resume({second.id: Respond('2')})
    assert asked.pending[0].preview is not None
    assert asked.pending[0].preview.link == 'https://pay.example/1'
    assert (again.pending[0].decisions, list(calls())) == (('approve', 'deny'), ['book'])


async def test_answer_to_a_server_that_is_not_running_is_kept_for_a_person(
    tmp_path: Path, make_server: MakeServer, calls: Calls
) -> None:
    """If the server is gone in another process, the call may have run: a person decides, and its repetition fails."""
    gone = tmp_path / 'gone'
    model = ScriptedModel(call('shop_book'), 'done')

    def versioned() -> VersionedAgent[Any, Any]:
        servers = McpServers(servers={'shop': make_server(GONE=str(gone))}, allow=['shop_book'])
        return VersionedAgent(create_deep_agent(model, capabilities=[servers], interrupt_on={}), store)

    async with open_store('memory:') as store:
        paused = await (await versioned().create()).advance('go')
        gone.touch()
        again = await (await versioned().load(paused.id)).resume({paused.pending[0].id: Respond('2')})
        assert again.pending[0].decisions == ('approve', 'deny')
        done = await (await versioned().load(again.id)).resume({again.pending[0].id: Approve()})
        assert returns(await done.messages()) == ["The MCP server 'shop' is not running. The call was not made."]
    assert (done.output, calls()) == ('done', ['book'])


async def test_result_of_an_external_tool_that_is_named_like_those_of_a_missing_server() -> None:
    """The call is pending too, and is not one of the server."""
    servers = McpServers(servers={'shop': McpServer(command='no-such-program')})
    model = ScriptedModel(call('shop_pick'), 'done')
    agent = create_deep_agent(model, capabilities=[servers], interrupt_on={})
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create()
        paused = await root.run(TurnOptions(prompt='go', external_tools=[ToolDefinition(name='shop_pick')]))
        done = await paused.resume({paused.pending[0].id: Respond('red')})
        assert returns(await done.messages()) == ['red']


async def test_question_that_a_handler_answers_in_the_run_is_no_deferred_call(
    make_server: MakeServer, calls: Calls
) -> None:
    """A program may answer within the run. The ledger then has the result of the call, as of any other."""

    async def answer(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        (pending,) = pending_approvals(requests)
        return answer_approvals(requests, {pending.id: Respond('Ada')})

    handler = HandleDeferredToolCalls[Any](answer)
    servers = McpServers(servers={'shop': make_server()})
    agent = create_deep_agent(ScriptedModel(call('shop_ask'), 'done'), capabilities=[servers, handler], interrupt_on={})
    async with open_store('memory:') as store:
        done = await (await VersionedAgent(agent, store).create()).advance('go')
        recorded = await store.calls([done.record.run_id or ''])
    assert (done.output, [each.status for each in recorded]) == ('done', ['done'])
    assert list(calls()) == ['ask', 'ask ended']


ASKING: Final = """
import asyncio, sys
from pydantic_deep import VersionedAgent, create_deep_agent, open_store
from pydantic_deep.mcp import McpServers, read_mcp_file
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import TurnOptions

async def main():
    servers = McpServers(servers=read_mcp_file('.mcp.json'), allow=['shop_book'])
    agent = create_deep_agent(ScriptedModel(call('shop_book')), capabilities=[servers], interrupt_on={})
    async with open_store('sqlite:///store.db') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        print(paused.id, flush=True)
        if sys.argv[1:]:
            await asyncio.Event().wait()

asyncio.run(main())
"""
"""A program whose turn pauses with a question of a server. With an argument, it stays."""


@pytest.mark.slow
@pytest.mark.parametrize('is_killed', [False, True])
async def test_answer_in_another_process_asks_before_the_call_runs_again(
    tmp_path: Path, make_server: MakeServer, calls: Calls, is_killed: bool
) -> None:
    """The server ends with the process that held the call, killed or not, and another process asks a person."""
    server = make_server()
    (tmp_path / '.mcp.json').write_text(json.dumps({'mcpServers': {'shop': server.model_dump(exclude_none=True)}}))
    command = [sys.executable, '-c', ASKING, *(['stay'] if is_killed else [])]
    process = await anyio.open_process(command, cwd=tmp_path, stderr=None)
    assert process.stdout is not None
    version_id = (await process.stdout.receive()).decode().strip()
    if is_killed:
        process.kill()
    await process.wait()
    await process.stdout.aclose()
    servers = McpServers(servers={'shop': server}, allow=['shop_book'])
    agent = create_deep_agent(ScriptedModel('done'), capabilities=[servers], interrupt_on={})
    async with open_store(f'sqlite:///{tmp_path}/store.db') as store:
        version = await VersionedAgent(agent, store).load(version_id)
        again = await version.resume({version.pending[0].id: Respond('2')})
        assert (again.pending[0].decisions, list(calls())) == (('approve', 'deny'), ['book'])
        asked = await again.resume({again.pending[0].id: Approve()})
        done = await asked.resume({asked.pending[0].id: Respond('Continue')})
    assert (done.output, list(calls())) == ('done', ['book', 'book', 'book ended'])
