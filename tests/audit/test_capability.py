"""Each run has one record, however it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import JsonValue
from pydantic_ai import Agent, DeferredToolRequests, RunContext, UserError
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from pydantic_deep import Approve, DeepAgentDeps, answer_approvals, create_deep_agent
from pydantic_deep.audit import Audit, AuditRecord
from pydantic_deep.repository import Repository
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, call

from .conftest import AuditRows, MakeAgent

pytestmark = pytest.mark.anyio


async def test_run_is_recorded_with_status_tokens_and_tool_results(audited: MakeAgent, rows: AuditRows) -> None:
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


async def test_run_without_tools_is_recorded(audited: MakeAgent, rows: AuditRows) -> None:
    """004-24: with or without tools."""
    await audited(ScriptedModel('hello')).run('Hi')

    record = await rows.one()

    assert (record.question, record.output, record.tool_calls) == ('Hi', 'hello', [])


async def test_record_has_question_history_settings_session_and_agent(audited: MakeAgent, rows: AuditRows) -> None:
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


async def test_metadata_of_deps_are_the_default_for_the_run(audited: MakeAgent, rows: AuditRows) -> None:
    deps = DeepAgentDeps(metadata={'owner': 'of deps', 'tenant': 'acme', 'session_id': None})
    await audited(ScriptedModel('ok')).run('Hi', deps=deps, metadata={'owner': 'of the run'})

    record = await rows.one()

    assert (record.owner, record.tenant, record.session_id) == ('of the run', 'acme', None)


async def test_each_run_writes_its_record_twice(audited: MakeAgent, rows: AuditRows) -> None:
    await audited(ScriptedModel(*[call('work')] * 10, 'end')).run('Go')

    assert rows.writes == ['running', 'success']
    assert len((await rows.one()).tool_calls) == 10


async def test_record_is_running_before_the_run_starts(audited: MakeAgent, rows: AuditRows) -> None:
    found: list[AuditRecord] = []

    async def work() -> str:
        found.append(await rows.one())
        return 'done'

    await audited(ScriptedModel(call('work'), 'end'), work=work).run('Go')

    assert [(each.status, each.question, each.ended_at) for each in found] == [('running', 'Go', None)]


async def test_failure_is_recorded_with_type_and_message(audited: MakeAgent, rows: AuditRows) -> None:
    def work() -> str:
        raise KeyError('no such thing')

    with pytest.raises(KeyError):
        await audited(ScriptedModel(call('work')), work=work).run('Go')

    record = await rows.one()

    assert record.status == 'failed'
    assert record.error is not None
    assert (record.error.kind, record.error.message) == ('KeyError', "'no such thing'")
    assert [each.outcome for each in record.tool_calls] == ['failed']


async def test_failed_model_request_records_its_settings(audited: MakeAgent, rows: AuditRows) -> None:
    def refuse(*_: object) -> str:
        raise OSError('no network')

    with pytest.raises(OSError, match='no network'):
        await audited(ScriptedModel(then=refuse)).run('Go', model_settings={'temperature': 0.1})

    record = await rows.one()

    assert (record.status, record.model, record.model_settings) == ('failed', None, {'temperature': 0.1})
    assert record.usage.requests == 0


async def test_client_disconnect_is_recorded_as_interrupted(audited: MakeAgent, rows: AuditRows) -> None:
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


async def test_subagents_have_their_own_records(rows: AuditRows) -> None:
    """Each names its parent run and counts only its own usage."""
    child = Subagent('helper', 'Helps.', model=ScriptedModel('helped'))
    task = call('task', description='Help me.', subagent='helper')
    agent = create_deep_agent(ScriptedModel(task, 'end'), subagents=[child], capabilities=[Audit(rows)], name='boss')
    result = await agent.run('Go', deps=DeepAgentDeps(metadata={'owner': 'me'}))

    boss, helper = await rows.all()

    assert (boss.agent_name, boss.parent_run_id, boss.usage.requests) == ('boss', None, 2)
    assert (helper.agent_name, helper.parent_run_id, helper.usage.requests) == ('helper', result.run_id, 1)
    assert (helper.owner, helper.output, helper.status) == ('me', 'helped', 'success')
    assert 'Help me.' in helper.question


async def test_subagent_with_its_own_audit_has_one_record(rows: AuditRows) -> None:
    child = Subagent('helper', 'Helps.', model=ScriptedModel('helped'), capabilities=[Audit(rows)])
    task = call('task', description='Help me.', subagent='helper')
    agent = create_deep_agent(ScriptedModel(task, 'end'), subagents=[child], capabilities=[Audit(rows)])
    result = await agent.run('Go', deps=DeepAgentDeps())

    assert [each.parent_run_id for each in await rows.all()] == [None, result.run_id]


async def test_several_audits_of_one_run_write_one_record(rows: AuditRows) -> None:
    other = Audit(lambda _: rows)
    agent = Agent[Any, Any](ScriptedModel('ok'), capabilities=[Audit(rows), other])
    await agent.run('Go', capabilities=[Audit(rows)])

    assert rows.writes == ['running', 'success']


async def test_concurrent_runs_of_one_agent_share_no_state(audited: MakeAgent, rows: AuditRows) -> None:
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


async def test_repository_can_be_chosen_per_run(rows: AuditRows) -> None:
    def choose(ctx: RunContext[Any]) -> Repository[AuditRecord]:
        assert ctx.deps == 'mine'
        return rows

    await Agent[Any, Any](ScriptedModel('ok'), deps_type=str, capabilities=[Audit(choose)]).run('Go', deps='mine')

    assert (await rows.one()).status == 'success'


@pytest.mark.parametrize('status', ['running', 'success'])
async def test_failing_repository_is_logged_and_does_not_end_the_run(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture, status: str
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


async def test_unwritten_record_is_an_event_in_the_span(audited: MakeAgent, rows: AuditRows) -> None:
    rows.fails |= {'running', 'success'}
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer('test').start_as_current_span('run'):
        await audited(ScriptedModel('ok')).run('Go')

    (span,) = exporter.get_finished_spans()
    assert [event.name for event in span.events] == ['pydantic_deep.audit.unwritten'] * 2
    assert 'hunter2' not in str([event.attributes for event in span.events])


async def test_failing_redaction_does_not_end_the_run_or_leak_content(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(value: JsonValue) -> JsonValue:
        raise ZeroDivisionError

    audit = Audit(rows, redact=broken)
    result = await audited(ScriptedModel(call('work'), 'ok'), audit=audit).run('Go canary')

    assert (result.output, rows.writes) == ('ok', [])
    assert 'ZeroDivisionError' in caplog.text
    assert 'canary' not in caplog.text


async def test_redaction_failing_at_the_end_keeps_the_running_record(
    audited: MakeAgent, rows: AuditRows, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(value: JsonValue) -> JsonValue:
        if isinstance(value, list):
            raise ZeroDivisionError
        return value

    await audited(ScriptedModel('ok'), audit=Audit(rows, redact=broken)).run('Go')

    assert (await rows.one()).status == 'running'
    assert 'ZeroDivisionError' in caplog.text


async def test_labels_are_truncated_to_index_length(audited: MakeAgent, rows: AuditRows) -> None:
    await audited(ScriptedModel('ok')).run('Go', metadata={'session_id': 'x' * 10_000, 'owner': ['no', 'text']})

    record = await rows.one()

    assert (record.session_id, record.owner) == ('x' * 256, None)


async def test_audit_cannot_be_deferred(rows: AuditRows) -> None:
    with pytest.raises(UserError, match='no record would be written'):
        Audit(rows, defer_loading=True)


@pytest.mark.parametrize('seconds', [0, -1, float('nan'), 'x'])
async def test_audit_without_time_for_a_write_is_refused(rows: AuditRows, seconds: Any) -> None:
    with pytest.raises(ValueError, match='no record could be written'):
        Audit(rows, write_seconds=seconds)


async def test_approvals_of_a_deep_agent_are_recorded(rows: AuditRows) -> None:
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
