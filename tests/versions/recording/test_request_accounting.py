"""Each model response is one row of `requests`, whatever happens to it, and the usage of the version is their sum."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import ModelRetry, UsageLimits
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError, SkipModelRequest, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import Budget, Budgets, Retries, Subagent
from pydantic_deep._requests.observed_model import ObservedModel
from pydantic_deep.store import SqlStore
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import Answer
from pydantic_deep.versions.recording._request_accounting import RequestAccounting
from tests.retries.conftest import FaultyModel, cut, whole
from tests.versions.recording.conftest import Bill, Hook, Hooks, Version, agent_of, check, raising, rows_of, turn_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with SqlStore(MemoryEngine.open()) as store:
        yield store


def other(text: str) -> Hook:
    return lambda response: ModelResponse([TextPart(text)])


async def failed_turn_of(agent: Any, error: type[BaseException], **options: Any) -> Version:
    with pytest.raises(error):
        await turn_of(agent, **options)
    return (await agent.list(limit=1))[0]


async def test_response_in_two_pieces_is_one_request(store: SqlStore):
    """A response that the provider pauses is continued, and its total usage is that of one request, as in pydantic-ai."""
    bill = Bill()
    pieces = iter(['suspended', 'complete'])

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return replace(bill.response('end'), state=next(pieces))

    turn = await turn_of(agent_of(store, FunctionModel(answer)))

    (row,) = await rows_of(store)
    assert (row.kind, row.input_tokens, len(bill.given)) == ('answer', sum(bill.given), 2)
    assert (turn.usage.requests, turn.usage.input_tokens) == (1, sum(bill.given))


async def test_response_on_which_a_hook_fails_is_billed_but_not_a_request(store: SqlStore):
    bill = Bill()
    agent = agent_of(store, bill.model(ToolCallPart('ls', {}), 'a'), Hooks(after={2: raising(RuntimeError('no'))}))

    version = await failed_turn_of(agent, RuntimeError)

    assert await check(store, version, bill) == ['answer', 'failed']


async def test_response_replaced_by_a_capability_is_still_one_request(store: SqlStore):
    bill = Bill()
    hooks = Hooks(
        wrap={1: other('x'), 2: raising(SkipModelRequest(ModelResponse([TextPart('y')])))},
        after={3: other('z')},
    )
    agent = agent_of(store, bill.model('a', 'b', 'c'), hooks)

    first = await turn_of(agent)
    second = await first.advance('go')
    third = await second.advance('go')

    assert await check(store, third, bill) == ['answer', 'answer', 'answer']
    for version, output in ((first, 'x'), (second, 'y'), (third, 'z')):
        hooks.count = (first, second, third).index(version)
        replay = await version.replay()
        assert (replay.difference, replay.output) == (None, output)


async def test_response_made_by_a_capability_is_not_billed(store: SqlStore):
    bill = Bill()
    skip = SkipModelRequest(ModelResponse([ToolCallPart('ls', {}, tool_call_id='own')]))
    hooks = Hooks(before={2: raising(skip)})
    agent = agent_of(store, bill.model(ToolCallPart('ls', {}), 'end'), hooks)

    turn = await turn_of(agent)

    assert await check(store, turn, bill) == ['answer', 'skipped', 'answer']
    hooks.count = 0
    replay = await turn.replay()
    assert (replay.difference, replay.requests) == (None, 3)
    hooks.before, hooks.count = {}, 0
    assert (await turn.replay()).difference is None, 'what was said in place of the model is said by it'


async def test_response_that_exceeds_a_limit_is_counted(store: SqlStore):
    bill = Bill()
    agent = agent_of(store, bill.model('a'), Hooks())

    version = await failed_turn_of(agent, UsageLimitExceeded, usage_limits=UsageLimits(total_tokens_limit=5))

    assert await check(store, version, bill) == ['answer']


async def test_response_sent_back_beyond_a_limit_is_billed(store: SqlStore):
    bill = Bill()
    agent = agent_of(store, bill.model('a'), Hooks(after={1: raising(ModelRetry('No.'))}))

    version = await failed_turn_of(agent, UsageLimitExceeded, usage_limits=UsageLimits(total_tokens_limit=5))

    assert await check(store, version, bill) == ['failed']


def _fallback(bill: Bill, *answers: Answer, second: str = 'end') -> FallbackModel:
    refuses = ['no 1', 'no 9']

    def refuse(response: ModelResponse) -> bool:
        return response.text in refuses

    models = bill.model(*answers, name='first'), bill.model(second, name='second')
    return FallbackModel(*models, fallback_on=refuse)


async def test_response_replaced_by_a_fallback_is_billed_but_not_a_request(store: SqlStore):
    bill = Bill()
    model = _fallback(bill, 'no 1')

    turn = await turn_of(agent_of(store, model))

    assert await check(store, turn, bill) == ['failed', 'answer']
    assert (await turn.replay()).difference is None


async def test_responses_are_billed_if_all_models_of_a_fallback_fail(store: SqlStore):
    bill = Bill()
    model = _fallback(bill, 'no 1', second='no 9')

    version = await failed_turn_of(agent_of(store, model), Exception)

    assert await check(store, version, bill) == ['failed', 'failed']


@pytest.mark.slow
@pytest.mark.parametrize('attempts', [1, 3])
async def test_truncated_response_is_billed_and_retried(store: SqlStore, attempts: int):
    bill = Bill(given=[7, 7, 7] if attempts == 3 else [7])
    half = replace(cut('half'), provider_name='anthropic')

    async def sleep(seconds: float) -> None:
        pass

    retries = Retries(attempts=attempts, sleep=sleep, finish_reason_from={'anthropic'})
    agent = agent_of(store, FaultyModel(half, half, whole('end'), system='anthropic'), retries)
    if attempts == 1:
        version = await failed_turn_of(agent, Exception)
        assert await check(store, version, bill) == ['failed']
    else:
        assert await check(store, await turn_of(agent), bill) == ['failed', 'failed', 'answer']


@pytest.mark.slow
@pytest.mark.parametrize('summarizer', ['run', 'other', 'fallback', 'empty', 'none'])
async def test_requests_of_a_summarizer_are_counted(store: SqlStore, summarizer: str):
    bill = Bill()
    writers: dict[str, Any] = {
        'run': None,
        'other': bill.model('sum', name='other'),
        'fallback': _fallback(bill, 'no 1'),
        'empty': bill.model(''),
        'none': _fallback(bill, 'no 1', second='no 9'),
    }
    calls = [ToolCallPart('ls', {}) for _ in range(3)]
    room = Summarization(trigger=Messages(4), keep=Messages(2), summarizer=writers[summarizer])
    answers: list[Answer] = [*calls[:2], *(['sum'] if summarizer == 'run' else []), 'end']
    agent = agent_of(store, bill.model(*answers), room, Budgets(conversation=Budget(tokens=10_000_000)))

    turn = await turn_of(agent)

    made = {'fallback': ['failed', 'summary'], 'none': ['failed', 'failed']}.get(summarizer, ['summary'])
    kinds = await check(store, turn, bill)
    assert sorted(kinds) == sorted(['answer', 'answer', *made, 'answer'])
    assert (await turn.replay()).difference is None


@pytest.mark.slow
@pytest.mark.parametrize(('second', 'made'), [('end', 'summary'), ('no 9', 'failed')])
async def test_summaries_of_a_subagent_are_billed(store: SqlStore, second: str, made: str):
    bill = Bill()
    room = Summarization(trigger=Messages(4), keep=Messages(2), summarizer=_fallback(bill, 'no 1', second=second))
    calls = [ToolCallPart('ls', {}) for _ in range(2)]
    child = Subagent('child', 'Works.', model=bill.model(*calls, 'end'), capabilities=[room])
    task = ToolCallPart('task', {'subagent': 'child', 'description': 'do'})

    turn = await turn_of(agent_of(store, bill.model(task, 'end'), subagents=[child]))

    kinds = await check(store, turn, bill)
    assert sorted(kinds) == sorted(['answer'] * 5 + ['failed', made])


async def test_stream_of_which_all_models_fail_is_observed():
    heard: list[tuple[ModelResponse | None, int]] = []
    failing = FaultyModel(ModelHTTPError(500, 'first')), FaultyModel(ModelHTTPError(500, 'second'))
    model = ObservedModel(FallbackModel(*failing), lambda response, failed: heard.append((response, len(failed))))
    with pytest.raises(FallbackExceptionGroup):
        async with model.request_stream([], None, ModelRequestParameters()):
            pass
    assert heard == [(None, 2)]


async def test_requests_of_subagents_and_forks_are_attributed_to_them(store: SqlStore):
    bill = Bill()
    hooks = Hooks(after={1: raising(ModelRetry('No.'))})
    skips = Hooks(before={1: raising(SkipModelRequest(ModelResponse([TextPart('skipped')])))})
    children = [
        Subagent('child', 'Works.', model=bill.model('a', 'b'), capabilities=[hooks]),
        Subagent('fork', 'Works.', model=bill.model(), isolation='fork', capabilities=[skips]),
    ]
    tasks = [ToolCallPart('task', {'subagent': each.name, 'description': 'do'}) for each in children]
    agent = agent_of(store, bill.model(tasks, 'end'), subagents=children)

    turn = await turn_of(agent)

    assert sorted(await check(store, turn, bill)) == ['answer', 'answer', 'answer', 'rejected', 'skipped']


def test_billed_attempts_before_the_first_request_are_ignored() -> None:
    recording: Any = None  # it is not used, because no request was sent
    RequestAccounting(recording=recording).record_billed_attempts([])
