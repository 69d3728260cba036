"""The stored history of a run follows the messages of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext

from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import AgentVersion, Recorder, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.recording.conftest import write_then_answer

pytestmark = pytest.mark.anyio


def words(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]


async def test_messages_enqueued_during_a_run_are_stored(make_plain: MakeAgent):
    async def steer(ctx: RunContext[object]) -> str:
        ctx.enqueue('Mind the gap.')
        return 'ok'

    agent = make_plain(call('steer'), 'done', tools=[steer])
    turn = await (await agent.create()).advance('go')

    assert words(await (await agent.load(turn.id)).messages()) == ['go', 'Mind the gap.', 'done']


class Trim(AbstractCapability[object]):
    """Sends only the newest message."""

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        request_context.messages = request_context.messages[-1:]
        return request_context


async def test_trimming_one_request_does_not_rewrite_the_history(make_plain: MakeAgent, store: SpyStore):
    agent = make_plain('one', 'two', capabilities=[Trim()])
    second = await (await (await agent.create()).advance('a')).advance('b')

    model: Any = agent.agent.model
    assert [len(request.messages) for request in model.requests] == [1, 1]
    assert words(await second.messages()) == ['a', 'one', 'b', 'two']
    assert len(await store.branches(second.conversation_id)) == 1


async def test_replaced_response_is_the_one_stored(make_plain: MakeAgent, store: SpyStore):
    class Polite(AbstractCapability[object]):
        async def after_model_request(
            self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
        ) -> ModelResponse:
            return ModelResponse(parts=[TextPart('Please.')], usage=response.usage)

    turn = await (await make_plain('now', capabilities=[Polite()]).create()).advance('go')

    assert turn.output == 'Please.'
    assert words(await turn.messages()) == ['go', 'Please.']
    [request] = await store.requests(turn.run_id or '')
    records = await store.messages(turn.record.branch_id, 2)
    assert request.response_id == records[1].id


async def test_recorder_alone_distinguishes_histories_of_equal_length(store: SpyStore):
    agent = Agent(ScriptedModel('one', 'two', 'three'), capabilities=[Recorder(store=store)])
    first = await agent.run('a')
    again = await agent.run('b', conversation_id=first.conversation_id)
    await agent.run('c', message_history=first.all_messages(), conversation_id=first.conversation_id)

    newest = (await store.versions(limit=1))[0]
    assert again.conversation_id == first.conversation_id
    assert words(await VersionedAgent(agent, store).thread(first.conversation_id)) == ['a', 'one', 'c', 'three']
    assert newest.branch == 'main'


async def test_commits_contain_only_new_content(make: MakeAgent, store: SpyStore) -> None:
    version: AgentVersion[Any, Any] = await make(then=write_then_answer).create()
    for _ in range(6):
        version = await version.advance('Go on.')
    store.commits.clear()
    await version.advance('Go on.')
    appended = [commit.append for commit in store.commits if commit.append is not None]
    assert [len(append.messages) for append in appended] == [2, 2]
    nodes = [len(commit.nodes or {}) for commit in store.commits]
    assert sum(nodes) <= 3  # the directories on the path to the file, once
