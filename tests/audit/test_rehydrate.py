"""Restoring a conversation from its record, with any repository."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart

from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord, rehydrate
from pydantic_deep.repository import Prefix, Range, Repository
from pydantic_deep.repository.duckdb import DuckdbRepository
from pydantic_deep.repository.memory import MemoryRepository
from pydantic_deep.repository.sql import SqlRepository
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

PNG = BinaryContent(b'\x89PNG\xff\x00', media_type='image/png')


def as_json(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages after a JSON round trip, in which images get their own type."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(list(messages)))


def look(key: str) -> list[Any]:
    """Look."""
    return [key, PNG, {'nested': [1.5, None]}]


async def test_conversation_continues_from_its_record(rows: MemoryRepository[AuditRecord]) -> None:
    """004-26: exchanges, tool use and media are restored from JSON, and an agent continues with them."""
    agent = Agent[Any, Any](
        ScriptedModel(call('look', key='a'), 'one', 'two', 'three'), capabilities=[Audit(rows)], tools=[look]
    )
    first = await agent.run(['What is it?', PNG])
    second = await agent.run('And then?', message_history=first.all_messages())
    record = AuditRecord.model_validate_json((await rows.list()).items[1].model_dump_json())

    messages = await rehydrate(record)
    third = await agent.run('And now?', message_history=messages)

    assert messages == as_json(second.all_messages())
    assert as_json(third.all_messages())[: len(messages)] == messages
    assert third.output == 'three'


async def test_tool_calls_in_records_have_the_fields_for_evaluation(rows: MemoryRepository[AuditRecord]) -> None:
    """004-26: tool-evaluation records: name, arguments, result, outcome and duration of each call."""
    agent = Agent[Any, Any](ScriptedModel(call('look', key='a'), 'end'), capabilities=[Audit(rows)], tools=[look])
    await agent.run('Go')

    (evaluated,) = (await rows.list()).items[0].tool_calls

    assert (evaluated.name, evaluated.arguments.value, evaluated.outcome) == ('look', {'key': 'a'}, 'success')
    assert evaluated.result is not None
    assert evaluated.result.is_whole
    assert evaluated.started_at is not None
    assert evaluated.ended_at is not None


async def test_redacted_text_is_marked(rows: MemoryRepository[AuditRecord]) -> None:
    agent = Agent[Any, Any](ScriptedModel('Do not tell AKIAIOSFODNN7EXAMPLE.'), capabilities=[Audit(rows)])
    await agent.run('My key is AKIAIOSFODNN7EXAMPLE.')

    text = str(await rehydrate((await rows.list()).items[0]))

    assert (text.count('[redacted: aws key]'), text.count('AKIA')) == (2, 0)


async def test_interrupted_run_can_be_continued(rows: MemoryRepository[AuditRecord]) -> None:
    """Completed calls have their results; the others are marked as interrupted."""
    done = asyncio.Event()

    async def fast() -> str:
        done.set()
        return 'was done'

    async def slow() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    model = ScriptedModel([call('fast'), call('slow')], 'on')
    agent = Agent[Any, Any](model, capabilities=[Audit(rows)], tools=[fast, slow])
    task = asyncio.ensure_future(agent.run('Go'))
    await done.wait()
    await asyncio.sleep(0)  # lets the call end
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = (await rows.list()).items

    messages = await rehydrate(record)
    result = await agent.run('Go on', message_history=messages)

    returned = [part for part in result.all_messages()[2].parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_name, part.outcome) for part in returned] == [('fast', 'success'), ('slow', 'interrupted')]
    assert (returned[0].content, result.output) == ('was done', 'on')


async def test_run_that_failed_in_its_first_call_can_be_continued(rows: MemoryRepository[AuditRecord]) -> None:
    def bad() -> str:
        raise ZeroDivisionError

    agent = Agent[Any, Any](ScriptedModel(call('bad'), 'on'), capabilities=[Audit(rows)], tools=[bad])
    with pytest.raises(ZeroDivisionError):
        await agent.run('Go')
    (record,) = (await rows.list()).items

    messages = await rehydrate(record)

    assert isinstance(messages[-1], ModelRequest)
    assert (await agent.run('Go on', message_history=messages)).output == 'on'


async def test_pending_run_can_be_resumed_from_its_record(rows: MemoryRepository[AuditRecord]) -> None:
    def pay(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return 'ok'

    agent = Agent[Any, Any](
        ScriptedModel(call('pay'), 'paid'),
        capabilities=[Audit(rows)],
        tools=[pay],
        output_type=[str, DeferredToolRequests],
    )
    paused = await agent.run('Pay')
    (record,) = (await rows.list()).items
    assert isinstance(paused.output, DeferredToolRequests)

    answers = paused.output.build_results(approve_all=True)
    result = await agent.run(message_history=await rehydrate(record), deferred_tool_results=answers)

    assert result.output == 'paid'


@pytest.fixture(params=['memory', 'sqlite beside a store', 'duckdb'])
async def any_rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Repository[AuditRecord]]:
    match request.param:
        case 'memory':
            yield MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
        case 'duckdb':
            rows = await DuckdbRepository.open(tmp_path / 'audit.duckdb', AuditRecord, fields=AUDIT_FIELDS)
            yield rows
            await rows.aclose()
        case _:
            async with open_store(f'sqlite:///{tmp_path}/store.db') as store:
                yield await SqlRepository.open(store, AuditRecord, fields=AUDIT_FIELDS)


async def test_any_repository_stores_and_queries_records(any_rows: Repository[AuditRecord]) -> None:
    agent = Agent[Any, Any](
        ScriptedModel(call('look', key='a'), 'one', 'two'), capabilities=[Audit(any_rows)], tools=[look], name='seer'
    )
    result = await agent.run(['What is it?', PNG], metadata={'owner': 'a', 'tenant': 'acme', 'session_id': 's-1'})
    await agent.run('Else?', metadata={'owner': 'b'})

    (found,) = (await any_rows.list({'owner': 'a', 'status': 'success', 'session_id': Prefix('s-')})).items

    assert await rehydrate(found) == as_json(result.all_messages())
    assert await any_rows.get(found.id) == found
    assert await any_rows.count({'agent_name': 'seer', 'started_at': Range(ge=found.started_at)}) == 2
    assert [each.owner for each in (await any_rows.list(order_by='-started_at')).items] == ['b', 'a']
    assert len((await any_rows.list({'parent_run_id': None})).items) == 2
    for name in AUDIT_FIELDS:
        assert len((await any_rows.list(order_by=name)).items) == 2
