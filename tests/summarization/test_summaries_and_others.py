"""Summaries with other capabilities: subagents, pending approvals, request budgets, retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent, ConversationTypeAdapter, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep import Approve, DeepAgentDeps, Subagent, create_deep_agent
from pydantic_deep._messages.summary_metadata import find_summary, replaced_messages
from pydantic_deep.approvals import answer_approvals, pending_approvals
from pydantic_deep.caching import CacheWatch
from pydantic_deep.retries import Retries
from pydantic_deep.summarization import Messages
from pydantic_deep.testing import Answer, ScriptedModel, SeenRequest, call

from .conftest import summarization

pytestmark = pytest.mark.anyio

Split = Callable[[ScriptedModel], tuple[list[SeenRequest], list[SeenRequest]]]


def summaries(requests: Sequence[SeenRequest]) -> list[int]:
    return [number for number, request in enumerate(requests) if find_summary(request.messages)]


async def test_child_summarizes_its_own_history_only() -> None:
    child = ScriptedModel(*(call('ls', path='/') for _ in range(10)), 'the child is done')
    model = ScriptedModel(call('task', subagent='worker', description='Work long.'), 'done')
    worker = Subagent('worker', 'Works.', model=child, capabilities=[summarization()])
    result = await create_deep_agent(model, subagents=[worker]).run('go', deps=DeepAgentDeps())
    assert result.output == 'done'
    assert summaries(child.requests)
    assert summaries(model.requests) == []
    last = child.requests[-1].messages
    assert 'Work long.' in str(find_summary(last))
    assert 'the child is done' in str(model.requests[-1].tool_returns[-1].content)


async def test_replaced_delegation_result_is_searchable() -> None:
    child = ScriptedModel('The vault code is 8812.')
    model = ScriptedModel(
        call('task', subagent='worker', description='Find the code.'),
        *(call('ls', path='/') for _ in range(5)),
        call('search_history', query='vault code'),
        'done',
    )
    worker = Subagent('worker', 'Works.', model=child)
    agent = create_deep_agent(model, subagents=[worker], capabilities=[summarization()], summarization=False)
    result = await agent.run('go', deps=DeepAgentDeps())
    assert summaries(model.requests)
    assert '8812' in str(model.requests[-1].tool_returns[-1].content)
    assert '8812' in str(replaced_messages(result.all_messages()))


@dataclass
class Archive(AbstractCapability[object]):
    """Stores messages that summaries replace (`SupportsHistory`)."""

    stored: list[ModelMessage] = field(default_factory=list[ModelMessage])

    async def persist(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> None:
        self.stored += messages

    async def earlier_messages(self, ctx: RunContext[object]) -> Sequence[ModelMessage]:
        return self.stored


async def test_capability_that_stores_the_history_is_searched_instead_of_metadata() -> None:
    model = ScriptedModel(*(call('ls', path='/') for _ in range(5)), call('search_history', query='crypt'), 'done')
    agent = create_deep_agent(model, capabilities=[summarization(), archive := Archive()], summarization=False)
    result = await agent.run('Open the crypt.', deps=DeepAgentDeps())
    assert 'Open the crypt.' in str(archive.stored[0])
    assert 'Open the crypt.' in str(model.requests[-1].tool_returns[-1].content)
    assert replaced_messages(result.all_messages()) == []


@dataclass
class Receipts(AbstractCapability[object]):
    """Lists responses with summaries (`SupportsSummaryRecording`)."""

    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])

    async def record_summary(
        self, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> None:
        self.responses.append(response)


async def test_every_capability_that_records_summaries_receives_each() -> None:
    model = ScriptedModel(*(call('ls', path='/') for _ in range(5)), 'done')
    writer = ScriptedModel(then=lambda messages, info: 'Facts: none.')
    both = Receipts(id='first'), Receipts(id='second')
    agent = create_deep_agent(model, capabilities=[summarization(summarizer=writer), *both], summarization=False)
    await agent.run('go', deps=DeepAgentDeps())
    assert [[response.text for response in receipts.responses] for receipts in both] == [['Facts: none.']] * 2


@dataclass
class Script(AbstractCapability[object]):
    """Provides a summary for the second request (`SupportsSummaryReplay`)."""

    requests: int = 0

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.requests += 1
        return request_context

    def has_overflowed(self) -> bool:
        return self.requests == 2

    def next_summary(self) -> ModelMessage | None:
        return ModelRequest.user_text_prompt('The recorded summary.')

    def may_request_summary(self) -> bool:
        return True


async def test_recorded_summary_is_used_instead_of_a_new_one() -> None:
    model = ScriptedModel(call('ls', path='/'), 'done')
    writer = ScriptedModel()
    capabilities = [Script(), summarization(summarizer=writer, trigger=())]
    await create_deep_agent(model, capabilities=capabilities, summarization=False).run('go', deps=DeepAgentDeps())
    assert 'The recorded summary.' in str(model.requests[-1].messages[0])
    assert writer.requests == []


@pytest.mark.parametrize('as_json', [False, True])
async def test_pending_approval_can_be_answered_after_a_summary(as_json: bool) -> None:
    model = ScriptedModel(
        *(call('ls', path='/') for _ in range(6)),
        call('write_file', path='/a.txt', content='a'),
        *(call('ls', path='/') for _ in range(6)),
        'done',
    )
    agent = create_deep_agent(
        model, capabilities=[summarization()], summarization=False, interrupt_on={'write_file': True}
    )
    deps = DeepAgentDeps()
    paused = await agent.run('go', deps=deps)
    assert isinstance(paused.output, DeferredToolRequests)
    assert find_summary(paused.all_messages()) is not None
    conversation, output = paused.conversation, paused.output
    if as_json:
        conversation = ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))
    answers: DeferredToolResults = answer_approvals(output, {each.id: Approve() for each in pending_approvals(output)})
    result = await agent.run(conversation=conversation, deferred_tool_results=answers, deps=deps)
    assert result.output == 'done'
    assert await deps.backend.read_bytes('/a.txt') == b'a'
    calls = [
        part for request in model.requests for part in request.messages[-1].parts if isinstance(part, ToolReturnPart)
    ]
    assert [part.outcome for part in calls if part.tool_name == 'write_file'] == ['success']


async def test_pending_call_is_never_replaced(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    """A suspension among parallel calls: completed calls are retained together with the pending one."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        count = len(model.requests)
        if count == 6:
            return [call('ls', path='/'), call('write_file', path='/b.txt', content='b'), call('ls', path='/')]
        return 'done' if count > 8 else call('ls', path='/')

    model = ScriptedModel(then=answer)
    agent = create_deep_agent(
        model,
        capabilities=[summarization(trigger=Messages(5), keep=Messages(1))],
        summarization=False,
        interrupt_on={'write_file': True},
    )
    deps = DeepAgentDeps()
    paused = await agent.run('go', deps=deps)
    assert isinstance(paused.output, DeferredToolRequests)
    answers = answer_approvals(paused.output, {each.id: Approve() for each in pending_approvals(paused.output)})
    result = await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers, deps=deps)
    assert result.output == 'done'
    calls = [p.tool_call_id for m in result.all_messages() for p in m.parts if isinstance(p, ToolCallPart)]
    returned = [p.tool_call_id for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    assert sorted(calls) == sorted(returned)


@pytest.mark.parametrize('first', [True, False])
async def test_transient_summarizer_error_is_retried(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any, first: bool
) -> None:
    async def sleep(seconds: float) -> None:
        pass

    model = ScriptedModel(
        *(call('work', n=n) for n in range(4)), ModelAPIError('m', 'cut'), 'Facts: asked twice.', 'done'
    )
    capabilities = [Retries(sleep=sleep), summarization(summarizer=None)]
    agent = agent_of(model, *(capabilities if first else capabilities[::-1]))
    result = await agent.run('go', event_stream_handler=watch)
    assert result.output == 'done'
    assert [event.is_plain for event in watch.events] == [False]
    assert 'Facts: asked twice.' in str(find_summary(result.all_messages()))


async def test_cache_watch_reports_no_unintended_prefix_breaks(
    agent_of: Callable[..., Agent[Any, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(*(call('work', n=n) for n in range(20)), 'done', usage=RequestUsage())
    result = await agent_of(model, CacheWatch(), summarization()).run('go')
    assert result.output == 'done'
    assert caplog.records == []
    assert len(summaries(model.requests)) > 4


async def test_new_prompt_is_never_replaced(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    model = ScriptedModel(then=lambda messages, info: 'yes')
    agent = agent_of(model, summarization(trigger=Messages(2), keep=Messages(1)))
    history: list[ModelMessage] = []
    for turn in range(6):
        history = (await agent.run(f'turn {turn}', message_history=history)).all_messages()
        last = model.requests[-1].messages[-1].parts[-1]
        assert isinstance(last, UserPromptPart)
        assert last.content == f'turn {turn}'
