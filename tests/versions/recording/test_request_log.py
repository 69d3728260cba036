"""Requests in versions: their settings, digests and cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion
from pydantic_deep.versions.recording import _request_log
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.recording.conftest import write_then_answer

pytestmark = pytest.mark.anyio


async def test_request_digests_only_new_messages(make: MakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[ModelMessage] = []
    inner = _request_log.canonical_message

    def counted(message: ModelMessage) -> object:
        digested.append(message)
        return inner(message)

    monkeypatch.setattr(_request_log, 'canonical_message', counted)
    version: AgentVersion[Any, Any] = await make(then=write_then_answer).create()
    counts: list[int] = []
    for _ in range(5):
        digested.clear()
        version = await version.advance('Go on.')
        counts.append(len(digested))
    assert counts == [3, 4, 4, 4, 4]  # new messages since the last request: the next turn sends the last answer


async def test_two_turns_from_one_version_have_their_own_request_digests(make: MakeAgent, store: SpyStore) -> None:
    first: AgentVersion[Any, Any] = await (await make(then=write_then_answer).create()).advance('Go on.')
    left, right = await first.advance('Left.'), await first.advance('Right.')
    left_digests, right_digests = [
        [each.digest for each in await store.requests(version.run_id or '')] for version in (left, right)
    ]
    assert not set(left_digests) & set(right_digests)
    assert await left.replay()
    assert await right.replay()


async def test_effective_settings_of_each_request_are_stored_beside_its_tokens(make: MakeAgent, store: SpyStore):
    """000-15c: The settings in effect for each request are stored beside its input and output tokens."""
    agent = make(call('ls'), 'done', model_settings={'seed': 7})
    root = await agent.create(model_settings={'temperature': 0})

    turn = await root.advance('go', max_tokens=9)

    assert turn.run_id is not None
    requests = await store.requests(turn.run_id)
    assert [request.number for request in requests] == [1, 2]
    assert [json.loads(request.model_settings) for request in requests] == [
        {'seed': 7, 'temperature': 0, 'max_tokens': 9}
    ] * 2
    assert [(request.input_tokens, request.output_tokens) for request in requests] == [(100, 10)] * 2
    records = await store.messages(turn.record.branch_id, turn.message_count)
    assert [request.response_id for request in requests] == [records[1].id, records[3].id]


async def test_settings_changed_by_a_capability_are_stored_as_sent(make: MakeAgent, store: SpyStore):
    """000-15c: The settings in effect for each request are stored, including changes by capabilities."""

    class Cooler(AbstractCapability[object]):
        async def before_model_request(
            self, ctx: RunContext[object], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            request_context.model_settings = ModelSettings(temperature=0.25)
            return request_context

    turn = await (await make('one', capabilities=[Cooler()]).create()).advance('go', temperature=1)

    [request] = await store.requests(turn.run_id or '')
    assert json.loads(request.model_settings) == {'temperature': 0.25}


async def test_timeout_setting_does_not_change_the_stored_request_parameters(make: MakeAgent, store: SpyStore):
    class Patient(AbstractCapability[Any]):
        def get_model_settings(self) -> Callable[[RunContext[Any]], ModelSettings]:
            return lambda ctx: ModelSettings(timeout=float(ctx.run_step))

    root = await make(call('ls'), 'done', capabilities=[Patient()]).create()

    turn = await root.advance('go')

    first, second = await store.requests(turn.run_id or '')
    assert first.parameters == second.parameters
    kept = [asset.digest for commit in store.commits for asset in commit.assets]
    assert kept.count(first.parameters or '') == 1


async def test_turn_records_its_cost(make_plain: MakeAgent, store: SpyStore):
    usage = RequestUsage(input_tokens=1_000_000)
    answers = [
        ModelResponse(parts=[part], model_name='gpt-4o', provider_name='openai', usage=usage)
        for part in (call('look'), TextPart('done'))
    ]

    def look() -> str:
        return 'ok'

    turn = await (await make_plain(*answers, tools=[look]).create()).advance('go')

    first, second = await turn.requests()
    run = await store.run(turn.run_id or '')
    assert run is not None
    assert first.cost == second.cost
    assert Decimal(run.cost or '') == 2 * Decimal(first.cost or '') > 0
