"""The stored size of a pause grows with its pending calls, not with the histories of the pending subagents."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart

from pydantic_deep import Approve, DeepAgentDeps, answer_approvals, create_deep_agent, pending_approvals
from pydantic_deep._messages.deferred_metadata import DelegationRequest, dump
from pydantic_deep._messages.message_json import parse_history
from pydantic_deep.store import Store, VersionNotFoundError, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from pydantic_deep.versions.pauses._pause_histories import load_pause, store_pause
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.pauses.conftest import pause, team, write

pytestmark = pytest.mark.anyio

MEASURED = "{'a': [nan, inf, -inf], 'text': 'NaN'}"
LONG = 'a finding. ' * 5_000


def _steps() -> list[ToolCallPart | str]:
    return [
        ToolCallPart('task', {'subagent': 'general-purpose', 'description': 'look'}, tool_call_id='t1'),
        ToolCallPart('write_file', {'path': '/one.md', 'content': LONG}, tool_call_id='w1'),
        ToolCallPart('write_file', {'path': '/two.md', 'content': 'two'}, tool_call_id='w2'),
        'child is done',
        'done',
    ]


async def _paused(store: Store) -> AgentVersion[object, object]:
    agent = create_deep_agent(ScriptedModel(*_steps()), interrupt_on={'write_file': True})
    root = await VersionedAgent(agent, store).create()
    return await root.advance('go')  # pyright: ignore[reportReturnType] - only its values matter here


async def test_pause_refers_to_the_version_of_its_subagent_instead_of_copying_it() -> None:
    async with open_store('memory:') as store:
        first = await _paused(store)
        second = await first.resume({first.pending[0].id: Approve()})
        for version in (first, second):
            stored = (await store.asset(version.record.pending or '')).data
            (metadata,) = json.loads(stored)['metadata'].values()
            (thread,) = await version.subagents() or await first.subagents()
            held = metadata['pydantic_deep']['messages']['version']
            assert (await store.version(held)).conversation_id == thread.conversation_id
        assert len(stored) < 5_000  # the history of the subagent has 55,000 characters by now


async def test_subagent_resumes_from_its_version() -> None:
    async with open_store('memory:') as store:
        first = await _paused(store)
        second = await first.resume({first.pending[0].id: Approve()})
        last = await second.resume({second.pending[0].id: Approve()})
        assert (last.output, last.state) == ('done', 'complete')
        assert sorted(await last.file_tree()) == ['/one.md', '/two.md']


async def test_pause_with_a_deleted_subagent_raises_before_storing_answers() -> None:
    async with open_store('memory:') as store:
        first = await _paused(store)
        (thread,) = await first.subagents()
        await store.delete(thread.version_id or '')
        with pytest.raises(VersionNotFoundError):
            await first.resume({first.pending[0].id: Approve()})
        (approval,) = await store.approvals(status=None, version_id=first.id)
        assert (approval.status, approval.resumed_by) == ('pending', None)


def _measuring() -> Agent[Any, Any]:
    """Return an agent whose subagent receives NaN and infinities and then pauses twice for approval."""

    def measure() -> dict[str, object]:
        return {'a': [math.nan, math.inf, -math.inf], 'text': 'NaN'}

    delegate, *others = _steps()
    script = ScriptedModel(delegate, ToolCallPart('measure', {}, tool_call_id='m'), *others)
    return create_deep_agent(script, tools=[measure], interrupt_on={'write_file': True})


def _measured(messages: Sequence[ModelMessage]) -> str:
    parts = [part for message in messages for part in message.parts]
    return repr(next(part.content for part in parts if isinstance(part, ToolReturnPart)))


async def test_nan_and_infinity_survive_in_the_history_of_a_paused_subagent() -> None:
    """NaN and infinities are unchanged in a pause saved and loaded as JSON, by any adapter."""
    agent, deps, adapter = _measuring(), DeepAgentDeps(), TypeAdapter(DeferredToolRequests)
    result = await agent.run('go', deps=deps)
    for _ in range(2):
        saved = adapter.validate_json(adapter.dump_json(result.output))
        (metadata,) = saved.metadata.values()
        assert _measured(parse_history(metadata['pydantic_deep']['messages'])) == MEASURED
        (pending,) = pending_approvals(saved)
        answers = answer_approvals(saved, {pending.id: Approve()})
        history = result.all_messages()
        result = await agent.run(message_history=history, deferred_tool_results=answers, deps=deps)
    assert result.output == 'done'


async def test_history_of_a_paused_subagent_is_that_of_its_version() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(_measuring(), store)
        first = await (await agent.create()).advance('go')
        (metadata,) = json.loads((await store.asset(first.record.pending or '')).data)['metadata'].values()
        assert list(metadata['pydantic_deep']['messages']) == ['version']
        second = await first.resume({first.pending[0].id: Approve()})
        last = await second.resume({second.pending[0].id: Approve()})
        assert last.output == 'done'
        (thread,) = await last.subagents() or await first.subagents()
        assert _measured(await agent.thread(thread.conversation_id)) == MEASURED
        assert (await last.replay()).difference is None


async def test_pause_of_an_unstored_subagent_contains_its_history(store: SpyStore):
    """A foreign agent may delegate without a recorder; then the pause contains the history itself."""
    child = DelegationRequest(subagent='x', conversation_id='nowhere', messages=['m'], requests=DeferredToolRequests())
    requests = DeferredToolRequests(
        approvals=[ToolCallPart('task', {}, tool_call_id='c')], metadata={'c': dump(child), 'd': {'other': 1}}
    )

    loaded = await load_pause(store, await store_pause(store, requests))

    assert loaded == requests


async def test_pause_contains_a_subagent_history_that_differs_from_its_thread(make: MakeAgent, store: SpyStore):
    paused = await pause(make, call('task', subagent='lead', description='a'), write('/one.txt'), subagents=team())
    [thread] = await paused.subagents()
    child = DelegationRequest(
        subagent='lead', conversation_id=thread.conversation_id, messages=['other'], requests=DeferredToolRequests()
    )
    requests = DeferredToolRequests(approvals=[ToolCallPart('task', {}, tool_call_id='c')], metadata={'c': dump(child)})

    assert await load_pause(store, await store_pause(store, requests)) == requests
