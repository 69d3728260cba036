"""Each model response is one row of `requests`, whatever happens to it, and the usage of the version is their sum."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, UsageLimits
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError, SkipModelRequest, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from pydantic_deep import Budget, Budgets, Retries, Subagent, create_deep_agent
from pydantic_deep._requests.observed_model import ObservedModel
from pydantic_deep.audit import audit_of_run
from pydantic_deep.store import RequestRecord, RunRecord, SqlStore
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.retries.conftest import FaultyModel, cut, whole

pytestmark = pytest.mark.anyio

Version = AgentVersion[Any, Any]
Hook = Callable[[ModelResponse], ModelResponse]


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with SqlStore(MemoryEngine.open()) as store:
        yield store


@dataclass
class Bill:
    """The bill of a provider: an entry for each response, each with a unique number of tokens."""

    given: list[int] = field(default_factory=list[int])

    def model(self, *answers: Answer, name: str = 'billed') -> ScriptedModel:
        return ScriptedModel(*map(self.answer, answers), model_name=name)

    def answer(self, answer: Answer) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
        def give(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return self.response(answer)

        return give

    def response(self, answer: Answer) -> ModelResponse:
        self.given.append(100 + 7 ** len(self.given))
        usage = RequestUsage(input_tokens=self.given[-1], output_tokens=10, cost=Decimal(self.given[-1]) / 1000)
        parts = cast('Sequence[Any]', answer if isinstance(answer, list) else [answer])
        said = [TextPart(part) if isinstance(part, str) else part for part in parts]
        return ModelResponse(said, usage=usage, model_name='billed')


@dataclass(kw_only=True)
class Hooks(AbstractCapability[Any]):
    """Changes or replaces the numbered responses of a run."""

    after: dict[int, Callable[[ModelResponse], ModelResponse]] = field(default_factory=dict[int, Hook])
    wrap: dict[int, Hook] = field(default_factory=dict[int, Hook])
    before: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])
    count: int = 0

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.count += 1
        if self.count in self.before:
            self.before[self.count]()
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        return self.after.get(self.count, lambda same: same)(response)

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        response = await handler(request_context)
        return self.wrap.get(self.count, lambda same: same)(response)


def raising(error: Exception) -> Any:
    def raises(*_: object) -> ModelResponse:
        raise error

    return raises


def other(text: str) -> Hook:
    return lambda response: ModelResponse([TextPart(text)])


def agent_of(store: SqlStore, model: Model, *capabilities: AbstractCapability[Any], **options: Any) -> Any:
    made = create_deep_agent(model, capabilities=capabilities, **options)
    return VersionedAgent(made, store)


async def attempt_ids(store: SqlStore) -> list[RunRecord]:
    return (await store.runs(limit=1_000))[::-1]


async def rows_of(store: SqlStore) -> list[RequestRecord]:
    return [row for run in await attempt_ids(store) for row in await store.requests(run.id)]


async def check(store: SqlStore, version: Version, bill: Bill) -> list[str]:
    """Assert that all accounts agree with the bill, and return the kinds of the requests, main run first."""
    rows = await rows_of(store)
    assert sorted(row.input_tokens for row in rows if row.kind != 'skipped') == sorted(bill.given)
    used = version.usage
    counted = [row for row in rows if row.kind != 'failed']
    assert used.requests == len(counted)
    assert used.input_tokens == sum(row.input_tokens for row in rows)
    assert used.output_tokens == sum(row.output_tokens for row in rows)
    assert used.cost or sum(Decimal(row.cost or 0) for row in rows) == 0
    for run in await attempt_ids(store):
        own = await store.requests(run.id)
        told = json.loads(run.usage)
        assert told.get('requests', 0) == sum(row.kind != 'failed' for row in own)
        assert told.get('input_tokens', 0) == sum(row.input_tokens for row in own)
        assert (run.cost or '0') == str(sum(Decimal(row.cost or 0) for row in own))
        audited = (await audit_of_run(store, run.id)).usage
        assert (audited.requests, audited.input_tokens) == (told.get('requests', 0), told.get('input_tokens', 0))
    assert await store.check() == []
    numbers = await store.sql("SELECT count(*) FILTER (kind != 'failed'), sum(input_tokens) FROM requests")
    assert [*numbers.rows] == [(used.requests, used.input_tokens or None)]
    return [row.kind for row in rows]


async def turn_of(agent: Any, **options: Any) -> Version:
    return await (await agent.create()).advance('go', **options)


async def failed_turn_of(agent: Any, error: type[BaseException], **options: Any) -> Version:
    with pytest.raises(error):
        await turn_of(agent, **options)
    return (await agent.list(limit=1))[0]


def ls() -> str:
    return ''


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


async def test_response_sent_back_by_a_hook_is_a_rejected_request(store: SqlStore):
    bill = Bill()
    hooks = Hooks(after={1: raising(ModelRetry('No.')), 3: raising(ModelRetry('No.'))})
    model = bill.model('a', ToolCallPart('ls', {}), 'b', 'end')

    turn = await turn_of(VersionedAgent[Any, Any](Agent(model, capabilities=[hooks], tools=[ls], retries=3), store))

    assert await check(store, turn, bill) == ['rejected', 'answer', 'rejected', 'answer']
    messages = {row.response_id: row.kind for row in await rows_of(store)}
    stored = await store.messages(turn.record.branch_id, turn.message_count)
    assert [messages[record.id] for record in stored if record.id in messages] == [
        'rejected', 'answer', 'rejected', 'answer'
    ]  # fmt: skip
    hooks.count = 0
    replay = await turn.replay()
    assert (replay.difference, replay.requests) == (None, 4)


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


class City(BaseModel):
    name: str


@pytest.mark.parametrize('output_type', [str, City])
async def test_response_refused_by_a_validator_is_rejected(store: SqlStore, output_type: Any):
    bill = Bill()
    answers: list[Answer] = (
        ['a', 'b', 'c']
        if output_type is str
        else [ToolCallPart('final_result', {'name': name}) for name in ('a', 'b', 'c')]
    )
    inner = Agent[Any, Any](bill.model(*answers), output_type=output_type, retries=3)
    refused = ['a', 'b']

    @inner.output_validator
    def check_output(output: object) -> object:
        if (output if isinstance(output, str) else getattr(output, 'name', '')) in refused:
            raise ModelRetry('No.')
        return output

    turn = await turn_of(VersionedAgent[Any, Any](inner, store))

    assert await check(store, turn, bill) == ['rejected', 'rejected', 'answer']
    assert (await turn.replay()).difference is None


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


async def test_abandoned_stream_is_an_interrupted_request(store: SqlStore):
    agent = agent_of(store, ScriptedModel(ToolCallPart('ls', {}), 'one two three four'))
    root = await agent.create()

    async with root.advance_stream('go') as stream:
        async for _ in stream:
            break

    (version, *_) = await agent.list(limit=1)
    first, row = await rows_of(store)
    assert [version.state, first.kind, row.kind] == ['interrupted', 'answer', 'interrupted']
    assert version.usage.requests == 2
    assert version.usage.output_tokens == first.output_tokens + row.output_tokens
    assert row.response_id in [
        each.id for each in await store.messages(version.record.branch_id, version.message_count)
    ]


async def test_response_is_stored_before_a_hook_runs(store: SqlStore):
    """A process killed while a hook handles a response leaves a request that is marked as superseded."""
    seen: list[Sequence[tuple[str, int]]] = []
    bill = Bill()

    class Looks(AbstractCapability[Any]):
        async def after_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
        ) -> ModelResponse:
            seen.append([(row.kind, row.input_tokens) for row in await rows_of(store)])
            return response

    turn = await turn_of(agent_of(store, bill.model(ToolCallPart('ls', {}), 'end'), Looks()))

    assert seen == [[('superseded', 101)], [('answer', 101), ('superseded', 107)]]
    assert await check(store, turn, bill) == ['answer', 'answer']
