"""One record of each run, however it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Protocol

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import JsonValue
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, ImageUrl, RunContext, ToolReturn, UserError
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, RunCancelled, ToolFailed
from pydantic_ai.messages import CachePoint, ModelResponse, TextContent, ToolCallPart
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep import Approve, DeepAgentDeps, answer_approvals, create_deep_agent
from pydantic_deep.audit import Audit, AuditRecord
from pydantic_deep.repository import Repository
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

MakeAgent = Callable[..., Agent[Any, Any]]


class Rows(Repository[AuditRecord], Protocol):
    """The type of the fixture `rows`."""

    writes: list[str]
    fails: set[str]
    hangs: set[str]
    gives_up: set[str]
    waits: set[str]
    go: asyncio.Event
    writing: asyncio.Event

    async def all(self) -> list[AuditRecord]: ...

    async def one(self) -> AuditRecord: ...


async def test_a_run_is_recorded_with_its_status_tokens_and_tool_results(audited: MakeAgent, rows: Rows) -> None:
    """004-24: on completion, with tools, tokens, status and tool results are recorded."""
    model = ScriptedModel(call('work'), 'the answer', usage=RequestUsage(input_tokens=100, output_tokens=7))
    result = await audited(model).run('What is it?')

    record = await rows.one()

    assert (record.run_id, record.conversation_id) == (result.run_id, result.conversation_id)
    assert (record.status, record.output, record.error) == ('success', 'the answer', None)
    assert record.usage.model_dump(exclude_defaults=True) == {'requests': 2, 'input_tokens': 200, 'output_tokens': 14}
    (done,) = record.tool_calls
    assert (done.name, done.arguments.value, done.outcome) == ('work', {}, 'success')
    assert done.result is not None
    assert done.result.value == 'done'
    assert done.started_at is not None
    assert done.ended_at is not None
    assert record.started_at <= done.started_at <= done.ended_at
    assert record.ended_at is not None
    assert done.ended_at <= record.ended_at


async def test_a_run_without_tools_is_recorded_too(audited: MakeAgent, rows: Rows) -> None:
    """004-24: with or without tools."""
    await audited(ScriptedModel('hello')).run('Hi')

    record = await rows.one()

    assert (record.question, record.output, record.tool_calls) == ('Hi', 'hello', [])


async def test_a_record_has_question_history_settings_session_and_agent(audited: MakeAgent, rows: Rows) -> None:
    """004-25: question, full message history, session id, model settings, agent id."""
    agent = audited(ScriptedModel('one', 'two'))
    first = await agent.run('First?')
    second = await agent.run(
        'Second?',
        message_history=first.all_messages(),
        model_settings=ModelSettings(temperature=0.5, max_tokens=100),
        metadata={'session_id': 'tab-1', 'owner': 7, 'tenant': 'acme', 'room': {'seat': 3}},
    )

    record = (await rows.all())[1]

    assert (record.question, record.agent_name, record.model) == ('Second?', 'worker', 'scripted:scripted')
    assert (record.session_id, record.owner, record.tenant) == ('tab-1', '7', 'acme')
    assert record.metadata['room'] == {'seat': 3}
    assert record.model_settings == {'temperature': 0.5, 'max_tokens': 100}
    assert (len(record.messages), record.first_new) == (len(second.all_messages()), 2)
    assert json.dumps(record.messages).count('First?') == 1


async def test_metadata_of_deps_are_recorded_where_the_run_has_none(audited: MakeAgent, rows: Rows) -> None:
    deps = DeepAgentDeps(metadata={'owner': 'of deps', 'tenant': 'acme', 'session_id': None})
    await audited(ScriptedModel('ok')).run('Hi', deps=deps, metadata={'owner': 'of the run'})

    record = await rows.one()

    assert (record.owner, record.tenant, record.session_id) == ('of the run', 'acme', None)


async def test_a_run_is_written_twice_however_long_it_is(audited: MakeAgent, rows: Rows) -> None:
    await audited(ScriptedModel(*[call('work')] * 10, 'end')).run('Go')

    assert rows.writes == ['running', 'success']
    assert len((await rows.one()).tool_calls) == 10


async def test_a_record_says_running_before_anything_runs(audited: MakeAgent, rows: Rows) -> None:
    found: list[AuditRecord] = []

    async def work() -> str:
        found.append(await rows.one())
        return 'done'

    await audited(ScriptedModel(call('work'), 'end'), work=work).run('Go')

    assert [(each.status, each.question, each.ended_at) for each in found] == [('running', 'Go', None)]


async def test_a_failure_is_recorded_with_its_kind_and_message(audited: MakeAgent, rows: Rows) -> None:
    def work() -> str:
        raise KeyError('no such thing')

    with pytest.raises(KeyError):
        await audited(ScriptedModel(call('work')), work=work).run('Go')

    record = await rows.one()

    assert record.status == 'failed'
    assert record.error is not None
    assert (record.error.kind, record.error.message) == ('KeyError', "'no such thing'")
    assert [each.outcome for each in record.tool_calls] == ['failed']


async def test_a_model_that_fails_leaves_its_settings(audited: MakeAgent, rows: Rows) -> None:
    def refuse(*_: object) -> str:
        raise OSError('no network')

    with pytest.raises(OSError, match='no network'):
        await audited(ScriptedModel(then=refuse)).run('Go', model_settings={'temperature': 0.1})

    record = await rows.one()

    assert (record.status, record.model, record.model_settings) == ('failed', None, {'temperature': 0.1})
    assert record.usage.requests == 0


async def test_a_client_that_disconnects_leaves_an_audit(audited: MakeAgent, rows: Rows) -> None:
    """C26, and a failure of the peers: a client disconnect writes no audit."""
    started = asyncio.Event()

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(audited(ScriptedModel(call('work')), work=work).run('Go'))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    record = await rows.one()

    assert (record.status, record.ended_at is None) == ('interrupted', False)
    assert [(each.name, each.outcome, each.result) for each in record.tool_calls] == [('work', 'interrupted', None)]
    assert len(record.messages) == 2


async def test_a_scope_that_is_cancelled_leaves_an_audit(audited: MakeAgent, rows: Rows) -> None:
    """C26: the record of a disconnect is written in a task that is cancelled: a server's scope."""
    with anyio.CancelScope() as scope:

        async def work() -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            raise AssertionError

        # anyio keeps the loop busy while a cancelled scope is left, so that threads are slow meanwhile.
        audit = Audit(rows, write_seconds=300)
        await audited(ScriptedModel(call('work')), work=work, audit=audit).run('Go')

    assert (await rows.one()).status == 'interrupted'


async def test_a_stream_that_is_left_leaves_an_audit(audited: MakeAgent, rows: Rows) -> None:
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


async def test_a_stream_that_is_read_to_its_end_has_succeeded(audited: MakeAgent, rows: Rows) -> None:
    async with audited(ScriptedModel(call('work'), 'one two three')).run_stream('Go') as stream:
        assert [each async for each in stream.stream_text(debounce_by=None)][-1] == 'one two three'

    record = await rows.one()

    assert (record.status, record.output, record.usage.requests) == ('success', 'one two three', 2)


async def test_a_run_that_is_cancelled_again_while_its_record_is_written_is_recorded(
    audited: MakeAgent, rows: Rows
) -> None:
    started = asyncio.Event()
    rows.waits.add('interrupted')

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(audited(ScriptedModel(call('work')), work=work).run('Go'))
    await started.wait()
    task.cancel()
    await rows.writing.wait()
    task.cancel()
    rows.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await rows.one()).status == 'interrupted'


async def test_a_run_that_is_cancelled_before_it_begins_is_recorded(audited: MakeAgent, rows: Rows) -> None:
    rows.waits.add('running')
    task = asyncio.ensure_future(audited(ScriptedModel('never')).run('Go'))
    await rows.writing.wait()
    task.cancel()
    rows.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert rows.writes == ['running', 'interrupted']
    assert (await rows.one()).usage.requests == 0


async def test_a_run_that_stops_itself_is_interrupted(rows: Rows) -> None:
    agent = Agent[Any, Any](ScriptedModel(call('stop')), capabilities=[Audit(rows)])

    @agent.tool
    async def stop(ctx: RunContext[Any]) -> str:
        ctx.cancel()
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RunCancelled):
        await agent.run('Go')

    assert (await rows.one()).status == 'interrupted'


async def test_what_was_done_when_a_run_is_cut_off_is_in_its_record(rows: Rows) -> None:
    """Of calls that run at once, those that are done have their results, in the history too."""
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


async def test_a_pause_and_its_resumption_are_both_recorded(rows: Rows) -> None:
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


async def test_calls_that_are_rejected_are_recorded_as_retried(audited: MakeAgent, rows: Rows) -> None:
    def work(count: int) -> str:
        if count == 0:
            raise ModelRetry('more')
        return 'ok'

    wrong = ToolCallPart('work', '{"count": ', tool_call_id='a')
    script = [wrong, call('work', count=0), call('work', count=1)]
    await audited(ScriptedModel(*script, 'end'), work=work, retries=3).run('Go')

    record = await rows.one()

    assert [each.outcome for each in record.tool_calls] == ['retried', 'retried', 'success']
    assert [each.arguments.value for each in record.tool_calls] == ['{"count": ', {'count': 0}, {'count': 1}]
    assert [each.started_at is None for each in record.tool_calls] == [True, False, False]


async def test_large_contents_have_digest_and_size_and_are_complete_in_the_messages(
    audited: MakeAgent, rows: Rows
) -> None:
    await audited(ScriptedModel(call('work'), 'end'), work=lambda: 'x' * 5000).run('Go')

    record = await rows.one()
    result = record.tool_calls[0].result

    assert result is not None
    assert (result.value, result.is_whole, result.size_bytes, len(result.digest)) == (None, False, 5002, 64)
    assert json.dumps(record.messages).count('x' * 5000) == 1


async def test_media_of_a_question_are_named(audited: MakeAgent, rows: Rows) -> None:
    prompt = [
        'Look:',
        BinaryContent(b'123456', media_type='image/png'),
        ImageUrl('https://example.com/a.png'),
        TextContent('and this'),
        CachePoint(),
    ]
    await audited(ScriptedModel('ok')).run(prompt)

    assert (await rows.one()).question == (
        'Look:\n[image/png, about 6 bytes]\n[image-url: https://example.com/a.png]\nand this'
    )


async def test_a_run_without_any_question_is_recorded(audited: MakeAgent, rows: Rows) -> None:
    await audited(ScriptedModel('ok'), instructions='Say something.').run()

    assert (await rows.one()).question == ''


class Priced(WrapperModel):
    """Answers in the name of a model that has a price."""

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return replace(await super().request(*args, **kwargs), model_name='gpt-5', provider_name='openai')


async def test_the_cost_is_what_known_prices_make_it(rows: Rows) -> None:
    model = Priced(ScriptedModel('ok', usage=RequestUsage(input_tokens=1_000_000)))
    await Agent[Any, Any](model, capabilities=[Audit(rows)]).run('Go')

    assert (await rows.one()).cost == Decimal('1.25')


async def test_the_cost_reported_by_the_provider_takes_precedence(audited: MakeAgent, rows: Rows) -> None:
    model = ScriptedModel(call('work'), 'ok', usage=RequestUsage(input_tokens=1, cost=Decimal('0.125')))
    await audited(model).run('Go')

    assert (await rows.one()).cost == Decimal('0.25')


async def test_subagents_have_records_of_their_own(rows: Rows) -> None:
    """Each says which run called it, and has used only its own."""
    child = Subagent('helper', 'Helps.', model=ScriptedModel('helped'))
    task = call('task', description='Help me.', subagent='helper')
    agent = create_deep_agent(ScriptedModel(task, 'end'), subagents=[child], capabilities=[Audit(rows)], name='boss')
    result = await agent.run('Go', deps=DeepAgentDeps(metadata={'owner': 'me'}))

    boss, helper = await rows.all()

    assert (boss.agent_name, boss.parent_run_id, boss.usage.requests) == ('boss', None, 2)
    assert (helper.agent_name, helper.parent_run_id, helper.usage.requests) == ('helper', result.run_id, 1)
    assert (helper.owner, helper.output, helper.status) == ('me', 'helped', 'success')
    assert 'Help me.' in helper.question


async def test_a_subagent_with_an_audit_of_its_own_has_one_record(rows: Rows) -> None:
    child = Subagent('helper', 'Helps.', model=ScriptedModel('helped'), capabilities=[Audit(rows)])
    task = call('task', description='Help me.', subagent='helper')
    agent = create_deep_agent(ScriptedModel(task, 'end'), subagents=[child], capabilities=[Audit(rows)])
    result = await agent.run('Go', deps=DeepAgentDeps())

    assert [each.parent_run_id for each in await rows.all()] == [None, result.run_id]


async def test_several_audits_of_one_run_are_one(rows: Rows) -> None:
    other = Audit(lambda _: rows)
    agent = Agent[Any, Any](ScriptedModel('ok'), capabilities=[Audit(rows), other])
    await agent.run('Go', capabilities=[Audit(rows)])

    assert rows.writes == ['running', 'success']


async def test_two_users_of_one_agent_share_nothing(audited: MakeAgent, rows: Rows) -> None:
    both = asyncio.Event()
    running: list[str] = []

    async def work() -> str:
        running.append('x')
        if len(running) == 2:
            both.set()
        await both.wait()
        return 'done'

    def answer(messages: list[Any], _: object) -> Any:
        return 'end' if len(messages) > 1 else call('work')

    agent = audited(ScriptedModel(then=answer), work=work)
    await asyncio.gather(agent.run('A', metadata={'owner': 'a'}), agent.run('B', metadata={'owner': 'b'}))

    found = sorted((each.owner, each.question, len(each.tool_calls), each.usage.requests) for each in await rows.all())
    assert found == [('a', 'A', 1, 2), ('b', 'B', 1, 2)]


async def test_where_a_record_goes_can_depend_on_the_run(rows: Rows) -> None:
    def choose(ctx: RunContext[Any]) -> Repository[AuditRecord]:
        assert ctx.deps == 'mine'
        return rows

    await Agent[Any, Any](ScriptedModel('ok'), deps_type=str, capabilities=[Audit(choose)]).run('Go', deps='mine')

    assert (await rows.one()).status == 'success'


@pytest.mark.parametrize('status', ['running', 'success'])
async def test_a_failing_repository_is_logged_and_does_not_end_the_run(
    audited: MakeAgent, rows: Rows, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    rows.fails.add(status)
    with caplog.at_level(logging.ERROR, 'pydantic_deep'):
        result = await audited(ScriptedModel('ok')).run('Go')

    (told,) = caplog.records
    assert result.output == 'ok'
    assert (told.levelname, told.name) == ('ERROR', 'pydantic_deep')
    assert told.getMessage() == (
        f'The audit record of run {result.run_id} ({status}) could not be written: OSError: '
        'the disk of postgres://me:[redacted: password]@host is full'
    )
    assert AuditRecord.model_validate_json(vars(told)['audit_record']).status == status
    assert [each.status for each in await rows.all()] == (['success'] if status == 'running' else ['running'])


@pytest.mark.parametrize('status', ['running', 'success'])
async def test_a_repository_that_hangs_ends_no_run(
    audited: MakeAgent, rows: Rows, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    rows.hangs.add(status)
    result = await audited(ScriptedModel('ok'), audit=Audit(rows, write_seconds=0.01)).run('Go')

    assert result.output == 'ok'
    assert 'the write has not completed in 0.01 seconds' in caplog.text


async def test_a_repository_that_cancels_itself_is_logged(
    audited: MakeAgent, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    rows.gives_up.add('success')

    assert (await audited(ScriptedModel('ok')).run('Go')).output == 'ok'
    assert '(running) could not be written' not in caplog.text
    assert '(success) could not be written' in caplog.text


async def test_a_record_that_is_not_written_is_an_event_in_the_span(audited: MakeAgent, rows: Rows) -> None:
    rows.fails |= {'running', 'success'}
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer('test').start_as_current_span('run'):
        await audited(ScriptedModel('ok')).run('Go')

    (span,) = exporter.get_finished_spans()
    assert [event.name for event in span.events] == ['pydantic_deep.audit.unwritten'] * 2
    assert 'hunter2' not in str([event.attributes for event in span.events])


async def test_a_redaction_that_fails_ends_no_run_and_lets_nothing_out(
    audited: MakeAgent, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(value: JsonValue) -> JsonValue:
        raise ZeroDivisionError

    audit = Audit(rows, redact=broken)
    result = await audited(ScriptedModel(call('work'), 'ok'), audit=audit).run('Go canary')

    assert (result.output, rows.writes) == ('ok', [])
    assert 'ZeroDivisionError' in caplog.text
    assert 'canary' not in caplog.text


async def test_a_redaction_that_fails_at_the_end_leaves_what_was_known_before(
    audited: MakeAgent, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            raise ZeroDivisionError
        return value

    await audited(ScriptedModel('ok'), audit=Audit(rows, redact=broken)).run('Go')

    assert (await rows.one()).status == 'running'
    assert 'ZeroDivisionError' in caplog.text


async def test_what_json_cannot_hold_is_recorded_by_its_repr(audited: MakeAgent, rows: Rows) -> None:
    class Thing:
        def __repr__(self) -> str:
            return '<a thing>'

    await audited(ScriptedModel('ok')).run('Go', metadata={'it': Thing()})

    assert (await rows.one()).metadata == {'it': '<a thing>'}


async def test_what_no_database_takes_is_recorded(audited: MakeAgent, rows: Rows) -> None:
    await audited(ScriptedModel('lone \ud800 surrogate')).run('Go')

    assert (await rows.one()).output == 'lone ? surrogate'


async def test_labels_are_as_short_as_any_index_needs(audited: MakeAgent, rows: Rows) -> None:
    await audited(ScriptedModel('ok')).run('Go', metadata={'session_id': 'x' * 10_000, 'owner': ['no', 'text']})

    record = await rows.one()

    assert (record.session_id, record.owner) == ('x' * 256, None)


async def test_an_audit_cannot_be_loaded_later(rows: Rows) -> None:
    with pytest.raises(UserError, match='no record would be written'):
        Audit(rows, defer_loading=True)


async def test_approvals_of_a_deep_agent_are_recorded(rows: Rows) -> None:
    """The pause of a child is its own record too."""
    agent = create_deep_agent(
        ScriptedModel(call('write_file', path='/a', content='b'), 'end'),
        capabilities=[Audit(rows)],
        interrupt_on={'write_file': True},
    )
    deps = DeepAgentDeps()
    paused = await agent.run('Go', deps=deps)
    assert isinstance(paused.output, DeferredToolRequests)
    answers = {each.tool_call_id: Approve() for each in paused.output.approvals}
    await agent.run(
        message_history=paused.all_messages(),
        deferred_tool_results=answer_approvals(paused.output, answers),
        deps=deps,
    )

    assert [each.status for each in await rows.all()] == ['awaiting_approval', 'success']


class ToldAgain(AbstractCapability[Any]):
    """Says that responses come from a recording, as the recovery of a crashed run does."""

    earlier_usage = RunUsage()
    lost_usage = RunUsage()

    def is_recovered_response(self) -> bool:
        return True

    async def recovered_conversation_id(self) -> str | None:
        return None


@pytest.mark.anyio
async def test_responses_from_a_recording_are_not_counted_again(rows: Rows) -> None:
    """The record of a crashed attempt has them: what a recovery replays was paid for once."""
    agent = Agent(ScriptedModel('Hi.'), capabilities=[Audit(rows), ToldAgain()])

    await agent.run('Hello')

    assert (await rows.one()).usage.input_tokens == 0
