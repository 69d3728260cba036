"""Untrusted content in turns of several processes: after approvals, crashes, branches, rewinds, and in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter

from pydantic_deep import Approve, DeepAgentDeps, StateBackend, UntrustedContent, answer_approvals, open_store
from pydantic_deep._messages.message_json import dump_history, parse_history
from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.versions.recovery.crashes import World, ends, plan, tool_call

from .conftest import READ, SEND, Outside, Shell, marks, pending, run, tools_of

pytestmark = pytest.mark.anyio


def versioned(outside: Outside, store: Any, *steps: Any) -> VersionedAgent[Any, Any]:
    return VersionedAgent(outside.agent(*steps), store)


def waits(version: AgentVersion[Any]) -> list[str]:
    return [approval.tool for approval in version.pending]


async def test_serialized_conversation_has_the_mark() -> None:
    first = await run(Outside().agent(READ, SEND))
    history = parse_history(dump_history(first.all_messages()))
    answers = answer_approvals(first.output, {pending(first)[0].id: Approve()})
    second = Outside()
    result = await second.agent(SEND).run(
        message_history=history, deferred_tool_results=answers, deps=DeepAgentDeps(backend=Shell())
    )
    assert (tools_of(result), second.sent) == (['send'], ['all files'])
    assert ModelMessagesTypeAdapter.dump_json(history) == ModelMessagesTypeAdapter.dump_json(first.all_messages())


async def test_versions_have_the_mark_from_the_result_on(outside: Outside) -> None:
    async with open_store('memory:') as store:
        root = await versioned(outside, store).create(backend=StateBackend())
        clean = await versioned(outside, store, 'hello').load(root.id)
        clean = await clean.advance('hi')
        page = await (await versioned(outside, store, READ, 'a page').load(clean.id)).advance('read')
        assert marks(await page.messages()) == [['fetch_page']]

        later = await (await versioned(outside, store, SEND).load(page.id)).advance('send')
        assert (waits(later), outside.sent) == (['send'], [])

        branch = await (await versioned(outside, store, SEND).load(page.id)).advance('send', branch='other')
        assert (waits(branch), outside.sent) == (['send'], [])

        before = await (await versioned(outside, store, SEND, 'sent').load(clean.id)).advance('send', branch='before')
        assert (before.output, outside.sent) == ('sent', ['all files'])


async def test_paused_version_resumes_in_another_process(outside: Outside) -> None:
    async with open_store('memory:') as store:
        first = versioned(outside, store, READ, SEND)
        pause = await (await first.create(backend=StateBackend())).advance('go')
        assert waits(pause) == ['send']
        second = Outside()
        loaded = await versioned(second, store, SEND).load(pause.id)
        again = await loaded.resume({loaded.pending[0].id: Approve()})
        assert (waits(again), outside.sent, second.sent) == (['send'], [], ['all files'])


async def test_replay_is_exact(outside: Outside) -> None:
    async with open_store('memory:') as store:
        agent = versioned(outside, store, READ, call('ls'), 'a page')
        turn = await (await agent.create(backend=StateBackend())).advance('go')
        replay = await turn.replay()
        assert (replay.difference, replay.output) == (None, 'a page')


@pytest.mark.parametrize(('tool', 'source'), [('make', 'make'), ('task', 'look')])
async def test_recovered_run_has_the_mark(tmp_path: Path, tool: str, source: str) -> None:
    """The result comes from the ledger, as the process crashed after the call."""
    url = f'memory:{tmp_path.name}'
    first = tool_call('make', key='a') if tool == 'make' else tool_call('task', subagent='child', description='help')
    world = World(
        url,
        plan(
            {
                'go': [first, tool_call('send', key='secret'), 'end'],
                'help': [tool_call('look', key='b'), 'seen'],
            }
        ),
        options={'interrupt_on': {}, 'capabilities': [UntrustedContent()]},
    )
    async with open_store(url):
        async with world.process(dies_after=ends(tool)) as agent:
            await (await agent.create(backend=StateBackend())).advance('go')
        async with world.process() as agent:
            (version,) = await agent.recover()
            assert [approval.tool for approval in version.pending] == ['send']
            assert marks(await version.messages()) == [[source]]
    assert 'send secret' not in world.ran


async def test_recovery_of_a_failed_subagent_is_untrusted(tmp_path: Path) -> None:
    """The ledger does not have the metadata of failures."""
    url = f'memory:{tmp_path.name}'

    def script(said: str, count: int) -> Any:
        if said == 'help':
            raise RuntimeError('The model failed.')
        task = tool_call('task', subagent='child', description='help')
        return [task, tool_call('send', key='secret')][count]

    world = World(url, script, options={'interrupt_on': {}, 'capabilities': [UntrustedContent()]})
    async with open_store(url):
        async with world.process(
            dies_after=lambda commit: any(c.tool_name == 'task' and c.result for c in commit.calls)
        ) as agent:
            await (await agent.create(backend=StateBackend())).advance('go')
        async with world.process() as agent:
            (version,) = await agent.recover()
            assert [approval.tool for approval in version.pending] == ['send']
