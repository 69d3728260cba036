"""Helpers for tests of recordings: turns with files, a provider that bills each response, and hooks that change responses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep import create_deep_agent
from pydantic_deep.audit import audit_of_run
from pydantic_deep.store import RequestRecord, RunRecord, SqlStore
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import AgentVersion, VersionedAgent

TEXT_BYTES, FILE_BYTES = 1_000, 4_096
"""Bytes of text and of files per turn."""


def prose(seed: object, size: int) -> str:
    """Return text that compresses to about half, like prose."""
    return random.Random(str(seed)).randbytes(size // 2).hex()


def write_then_answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Write a file of 4 KB, then answer with 500 bytes."""
    usage = RequestUsage(input_tokens=10, output_tokens=1)
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(prose(len(messages), TEXT_BYTES // 2))], usage=usage)
    content = prose(-len(messages), FILE_BYTES)
    call = ToolCallPart('write_file', {'path': f'/notes/{len(messages) // 80}/{len(messages)}.md', 'content': content})
    return ModelResponse(parts=[call], usage=usage)


Version = AgentVersion[Any, Any]

Hook = Callable[[ModelResponse], ModelResponse]


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


def ls() -> str:
    return ''
