"""Runs as they are observed: however they end, and with the usage and cost they had."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, RunCancelled, ToolFailed
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep.audit import Audit
from pydantic_deep.testing import ScriptedModel, call

from .conftest import AuditRows, MakeAgent

pytestmark = pytest.mark.anyio


async def test_abandoned_stream_is_recorded_as_interrupted(audited: MakeAgent, rows: AuditRows) -> None:
    """C26: on disconnect from a stream, of each kind that pydantic-ai has."""
    async with audited(ScriptedModel('one two three')).run_stream('Go') as stream:
        async for _ in stream.stream_text(debounce_by=None):
            break
    async with audited(ScriptedModel('one two three')).run_stream_events('Go') as events:
        async for _ in events:
            break
    async with audited(ScriptedModel('one two three')).iter('Go') as run:
        async for _ in run:
            break

    assert rows.writes == ['running', 'interrupted'] * 3
    assert [each.question for each in await rows.all()] == ['Go'] * 3


async def test_fully_read_stream_is_recorded_as_success(audited: MakeAgent, rows: AuditRows) -> None:
    async with audited(ScriptedModel(call('work'), 'one two three')).run_stream('Go') as stream:
        assert [each async for each in stream.stream_text(debounce_by=None)][-1] == 'one two three'

    record = await rows.one()

    assert (record.status, record.output, record.usage.requests) == ('success', 'one two three', 2)


async def test_run_that_cancels_itself_is_interrupted(rows: AuditRows) -> None:
    agent = Agent[Any, Any](ScriptedModel(call('stop')), capabilities=[Audit(rows)])

    @agent.tool
    async def stop(ctx: RunContext[Any]) -> str:
        ctx.cancel()
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RunCancelled):
        await agent.run('Go')

    assert (await rows.one()).status == 'interrupted'


async def test_interrupted_run_records_its_completed_calls(rows: AuditRows) -> None:
    """Completed calls of a parallel batch have their results, in the history too."""
    done, failed = asyncio.Event(), asyncio.Event()
    agent = Agent[Any, Any](
        ScriptedModel([call('fast'), call('bad'), call('slow')]), capabilities=[Audit(rows)], name='worker'
    )

    @agent.tool_plain
    async def fast() -> ToolReturn[Any]:
        done.set()
        return ToolReturn('was done', metadata={'x': 1})

    @agent.tool_plain
    async def bad() -> str:
        failed.set()
        raise ToolFailed('not possible')

    @agent.tool_plain
    async def slow() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(agent.run('Go'))
    await done.wait()
    await failed.wait()
    await asyncio.sleep(0)  # lets both calls end
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    record = await rows.one()

    outcomes = {each.name: (each.outcome, each.result and each.result.value) for each in record.tool_calls}
    assert outcomes == {'fast': ('success', 'was done'), 'bad': ('failed', None), 'slow': ('interrupted', None)}


async def test_suspended_and_resumed_runs_are_both_recorded(rows: AuditRows) -> None:
    agent = Agent[Any, Any](
        ScriptedModel([call('pay'), call('look')], 'paid'),
        capabilities=[Audit(rows)],
        output_type=[str, DeferredToolRequests],
    )

    @agent.tool
    def pay(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return 'ok'

    @agent.tool_plain
    def look() -> str:
        return 'seen'

    paused = await agent.run('Pay it')
    assert isinstance(paused.output, DeferredToolRequests)
    (waiting,) = await rows.all()
    answers = paused.output.build_results(approve_all=True)
    await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers)
    _, done = await rows.all()

    assert (waiting.status, waiting.output) == ('awaiting_approval', None)
    assert [(each.name, each.outcome) for each in waiting.tool_calls] == [('pay', 'deferred'), ('look', 'success')]
    assert (done.status, done.question, done.output) == ('success', 'Pay it', 'paid')
    assert [(each.name, each.outcome) for each in done.tool_calls] == [('pay', 'success')]


class Priced(WrapperModel):
    """Answers under the name of a model with a known price."""

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return replace(await super().request(*args, **kwargs), model_name='gpt-5', provider_name='openai')


async def test_cost_is_computed_from_known_prices(rows: AuditRows) -> None:
    model = Priced(ScriptedModel('ok', usage=RequestUsage(input_tokens=1_000_000)))
    await Agent[Any, Any](model, capabilities=[Audit(rows)]).run('Go')

    assert (await rows.one()).cost == Decimal('1.25')


async def test_cost_reported_by_the_provider_takes_precedence(audited: MakeAgent, rows: AuditRows) -> None:
    model = ScriptedModel(call('work'), 'ok', usage=RequestUsage(input_tokens=1, cost=Decimal('0.125')))
    await audited(model).run('Go')

    assert (await rows.one()).cost == Decimal('0.25')


class ToldAgain(AbstractCapability[Any]):
    """Reports responses as recorded, as in the recovery of a crashed run."""

    earlier_usage = RunUsage()
    lost_usage = RunUsage()

    def is_recovered_response(self) -> bool:
        return True

    async def recovered_conversation_id(self) -> str | None:
        return None


@pytest.mark.anyio
async def test_recorded_responses_are_not_counted_again(rows: AuditRows) -> None:
    """Usage of replayed responses is in the record of the crashed attempt."""
    agent = Agent(ScriptedModel('Hi.'), capabilities=[Audit(rows), ToldAgain()])

    await agent.run('Hello')

    assert (await rows.one()).usage.input_tokens == 0
