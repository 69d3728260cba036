"""Requests coalesced by pydantic-ai do not count as a changed history."""

from collections.abc import Sequence

import anyio
import pytest
from pydantic_ai import CancellationToken, RunCancelled, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import Budget, Budgets, DeepAgentDeps, StateBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep._messages.coalesced_requests import common, merged, rest_of
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

RESULT = ModelRequest(parts=[ToolReturnPart('ls', 'a', 'c')])
NOTE = ModelRequest(parts=[SystemPromptPart('Budget used.')])
CALLS = ModelResponse(parts=[ToolCallPart('ls', {}, 'c'), ToolCallPart('stat', {}, 'd')])
PROMPT = ModelRequest(parts=[UserPromptPart('go on')])
ANSWER = ModelResponse(parts=[TextPart('yes')])
CLOSED = ModelRequest(parts=[ToolReturnPart('stat', 'It was interrupted.', 'd', outcome='interrupted')])


def put_together(*requests: ModelRequest) -> ModelRequest:
    return ModelRequest(parts=[part for request in requests for part in request.parts])


def test_coalesced_request_matches_all_its_requests() -> None:
    known: list[ModelMessage] = [ANSWER, RESULT, NOTE, PROMPT, ANSWER]
    assert common(known, [ANSWER, put_together(RESULT, NOTE, PROMPT), ANSWER, PROMPT]) == (5, 3)
    assert merged(put_together(RESULT, NOTE), [RESULT, NOTE]) == 2


def test_results_come_first_in_a_coalesced_request() -> None:
    assert merged(put_together(RESULT, NOTE), [NOTE, RESULT]) == 2


def test_history_repaired_by_pydantic_ai_is_recognized() -> None:
    known: list[ModelMessage] = [PROMPT, NOTE, ANSWER, NOTE, PROMPT]
    assert common(known, repair_messages(known)) == (5, 3)


@pytest.mark.parametrize(
    'message', [put_together(RESULT, PROMPT), put_together(RESULT, NOTE, PROMPT, NOTE), ANSWER, RESULT, PROMPT]
)
def test_different_message_is_new(message: ModelMessage) -> None:
    assert merged(message, [RESULT, NOTE, ANSWER]) == 0


def test_different_histories_share_their_beginning() -> None:
    assert common([PROMPT, ANSWER, NOTE], [PROMPT, ANSWER, PROMPT]) == (2, 2)
    assert common([], [PROMPT]) == (0, 0)


@pytest.mark.parametrize('known', [[RESULT], [RESULT, NOTE], [NOTE, RESULT]])
def test_rest_of_a_message_is_its_content_beyond_known_requests(known: list[ModelRequest]) -> None:
    (message,) = repair_messages([CALLS, *known, CLOSED])[1:]
    assert rest_of(message, known) == CLOSED


@pytest.mark.parametrize(
    ('message', 'known'),
    [
        (RESULT, []),
        (RESULT, [RESULT]),
        (ANSWER, [RESULT]),
        (PROMPT, [RESULT]),
        (put_together(NOTE, RESULT, CLOSED), [RESULT]),
        (put_together(RESULT, CLOSED), [RESULT, ANSWER]),
    ],
)
def test_message_without_all_known_content_has_no_rest(message: ModelMessage, known: list[ModelMessage]) -> None:
    assert rest_of(message, known) is None


async def test_turn_after_an_interrupted_one_stays_on_its_branch() -> None:
    token = CancellationToken()

    async def stop() -> None:
        token.cancel()
        await anyio.Event().wait()

    async with open_store('memory:') as store:
        model = ScriptedModel([call('ls'), call('stop')], 'one', 'two')
        agent = VersionedAgent(create_deep_agent(model, tools=[Tool(stop, sequential=True)]), store)
        root = await agent.create(backend=StateBackend())
        stream = root.advance_stream('a', cancellation_token=token)
        with pytest.raises(RunCancelled):
            _ = [text async for text in stream]
        stopped = await agent.load(stream.version_id or '')
        first = await stopped.advance('b')
        second = await first.advance('c')
        assert [each.branch for each in (stopped, first, second)] == ['main'] * 3
        assert [part.outcome for part in model.requests[1].tool_returns] == ['success', 'interrupted']
        difference = await stopped.diff(first)
        assert (len(difference.messages_removed), len(difference.messages_added)) == (0, 3)
        for version in (first, second):
            assert (await version.replay()).difference is None


async def test_turn_after_a_budget_warning_stays_on_its_branch() -> None:
    async with open_store('memory:') as store:
        model = ScriptedModel(call('ls'), call('ls'), call('ls'), 'one', 'two')
        agent = VersionedAgent(create_deep_agent(model, capabilities=[Budgets(run=Budget(requests=5))]), store)
        first = await (await agent.create(backend=StateBackend())).advance('a')
        second = await first.advance('b')
        assert (first.branch, second.branch) == ('main', 'main')
        difference = await first.diff(second)
        assert (len(difference.messages_removed), len(difference.messages_added)) == (0, 2)
        assert (await second.replay()).difference is None


async def test_turn_after_a_failed_one_stays_on_its_branch() -> None:
    def then(messages: list[ModelMessage], info: AgentInfo) -> str:
        if sum(isinstance(part, UserPromptPart) for message in messages for part in message.parts) == 1:
            raise RuntimeError('The model is gone.')
        return 'back'

    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(then=then)), store)
        root = await agent.create(backend=StateBackend())
        with pytest.raises(RuntimeError):
            await root.advance('a')
        (failed,) = await root.children()
        again = await failed.advance('b')
        assert (failed.branch, again.branch, again.output) == ('main', 'main', 'back')


async def test_summary_shares_coalesced_requests() -> None:
    async def summarize(messages: Sequence[ModelMessage]) -> str:
        return 'Facts: none.'

    model = ScriptedModel(call('ls'), call('ls'), call('ls'), 'one', 'two', 'three')
    summarization = Summarization(trigger=Messages(6), keep=Messages(4), summarizer=summarize)
    capabilities = [Budgets(run=Budget(requests=5)), summarization]
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(model, capabilities=capabilities), store, make_deps=DeepAgentDeps)
        version = await (await agent.create(backend=StateBackend())).advance('a')
        version = await (await version.advance('b')).advance('c')
        assert (await version.replay()).difference is None
        assert version.branch.startswith('main')
