"""Requests are stored with their responses, or as rejected or interrupted ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext

from pydantic_deep.store import SqlStore
from pydantic_deep.store._samples import sample_request
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import VersionedAgent
from pydantic_deep.versions.recording._stored_history import HistoryChange
from pydantic_deep.versions.recording._uncommitted_requests import RequestEntry, UncommittedRequests
from tests.versions.recording.conftest import Bill, Hooks, agent_of, check, ls, raising, rows_of, turn_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with SqlStore(MemoryEngine.open()) as store:
        yield store


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


class City(BaseModel):
    name: str


@pytest.mark.slow
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


def test_request_without_a_response_remains_until_the_run_ends() -> None:
    requests = UncommittedRequests()
    entry = RequestEntry(record=sample_request('run'), sent={})
    requests.add(entry)
    nothing = HistoryChange(at=0, messages=[], ids=[], append=None, assets=[])

    during = requests.answered(nothing, with_others=False)
    end = requests.answered(nothing, with_others=True)

    assert (during.records, during.left) == ([], [entry])
    assert ([record.response_id for record in end.records], end.left) == ([entry.record.response_id], [])
