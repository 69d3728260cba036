"""Audit records of proxied streams, and session ids of runs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart

from pydantic_deep import create_deep_agent
from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord, audit_response, rehydrate
from pydantic_deep.repository import MemoryRepository
from pydantic_deep.streaming import HybridResponse, OpenaiDecoder, session_scope, stream_agent
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

MakeAgent = Callable[..., Agent[Any, Any]]

SENT: list[ModelMessage] = [
    ModelRequest.user_text_prompt('Hi'),
    ModelResponse([TextPart('Hello.')]),
    ModelRequest.user_text_prompt('And password=hunter2 ?'),
]


@pytest.fixture
def records() -> MemoryRepository[AuditRecord]:
    return MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)


def proxied(*deltas: dict[str, Any], ends: bool = True, status: int = 200) -> HybridResponse:
    async def chunks() -> AsyncGenerator[bytes]:
        for delta in deltas:
            body = {'id': 'c-1', 'model': 'gpt-4o', 'choices': [{'index': 0, 'delta': delta}]}
            yield f'data: {json.dumps(body)}\n\n'.encode()
        if ends:
            usage = {'prompt_tokens': 10, 'completion_tokens': 4, 'prompt_tokens_details': {'cached_tokens': 3}}
            end: dict[str, Any] = {
                'id': 'c-1',
                'model': 'gpt-4o',
                'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}],
            }
            yield f'data: {json.dumps({**end, "usage": usage})}\n\ndata: [DONE]\n\n'.encode()

    return HybridResponse(chunks(), OpenaiDecoder(), status=status)


def looks() -> dict[str, Any]:
    function = {'name': 'look', 'arguments': '{"path": "/a", "token": "x"}'}
    return {'tool_calls': [{'index': 0, 'id': 'call-1', 'type': 'function', 'function': function}]}


async def test_proxied_stream_is_audited_by_one_call(records: MemoryRepository[AuditRecord]) -> None:
    """004-24, 004-25: the record of a finished proxied stream has the original question, the full message history,
    the session id and the model settings, the agent's id, tool calls, tokens, status and cost, without secrets.
    """
    response = proxied({'content': 'It is '}, {'content': 'AKIAIOSFODNN7EXAMPLE.'}, looks())
    assert [line async for line in response.iter_lines()]
    record = await audit_response(
        response,
        records,
        messages=SENT,
        agent_name='gate',
        provider='openai',
        model_settings={'temperature': 0, 'extra_headers': {'Authorization': 'Bearer x'}},
        conversation_id='c',
        parent_run_id='p',
        session_id='s-1',
        metadata={'owner': 'ann', 'app.tenant': 7, 'api_key': 'x'},
    )
    assert await records.get(record.id) == record
    assert (record.status, record.question, record.output) == (
        'success',
        'And password=[redacted: secret] ?',
        'It is [redacted: aws key].',
    )
    assert (record.agent_name, record.model, record.conversation_id, record.parent_run_id) == (
        'gate', 'openai:gpt-4o', 'c', 'p',
    )  # fmt: skip
    assert (record.owner, record.tenant, record.session_id) == ('ann', '7', 's-1')
    assert record.metadata['api_key'] == '[redacted: api key]'
    assert record.model_settings == {'temperature': 0, 'extra_headers': {'Authorization': '[redacted: authorization]'}}
    assert record.usage.model_dump(exclude_defaults=True) == {
        'requests': 1, 'input_tokens': 10, 'output_tokens': 4, 'cache_read_tokens': 3,
    }  # fmt: skip
    assert record.cost is not None
    assert record.cost > Decimal(0)
    assert [(each.name, each.outcome, each.arguments.value) for each in record.tool_calls] == [
        ('look', 'deferred', {'path': '/a', 'token': '[redacted: token]'})
    ]
    assert record.ended_at is not None
    assert record.ended_at >= record.started_at == response.started_at
    messages = await rehydrate(record)
    assert (len(messages), record.first_new) == (5, 3)  # the last closes the call
    answer = messages[3]
    assert isinstance(answer, ModelResponse)
    assert isinstance(answer.parts[1], ToolCallPart)
    assert (answer.run_id, answer.model_name, answer.finish_reason) == (record.run_id, 'gpt-4o', 'tool_call')


async def test_failed_proxied_stream_is_audited(records: MemoryRepository[AuditRecord]) -> None:
    """004-24: the record of a failed stream has the error, without secrets, and the partial response."""
    response = proxied({'content': 'It is'}, looks(), ends=False)
    assert [event async for event in response]
    record = await audit_response(response, records)
    assert record.error is not None
    assert (record.status, record.error.kind, record.output, record.cost) == ('failed', 'truncated', None, None)
    assert (record.question, record.model, record.usage.input_tokens) == ('', 'gpt-4o', 0)
    assert 'It is' in json.dumps(record.messages)
    refused = proxied(status=401)
    assert [event async for event in refused]
    record = await audit_response(refused, records)
    assert (record.status, record.model, record.tool_calls) == ('failed', None, [])


async def test_proxied_stream_with_a_disconnected_client_is_audited(records: MemoryRepository[AuditRecord]) -> None:
    """004-24: the record of a partially read stream is `interrupted` and has the partial response."""
    response = proxied({'content': 'It is'}, {'content': ' late.'})
    async with response:
        async for _ in response.iter_lines():
            break
    with session_scope('s-2'):
        record = await audit_response(response, records, messages=SENT, metadata={})
    assert (record.status, record.output, record.session_id) == ('interrupted', None, 's-2')
    assert (await rehydrate(record))[-1].state == 'interrupted'
    named = await audit_response(response, records, metadata={'session_id': 's-3'})
    assert named.session_id == 's-3'


async def test_session_id_is_recorded_for_a_run_and_its_subagents(
    records: MemoryRepository[AuditRecord],
) -> None:
    """004-33: `session_id` propagates through recursion: the value passed to `stream_agent` or `session_scope` is in
    the audit records of the run and its subagents, unless the metadata of a run override it.
    """
    for begin in ('stream', 'scope', 'metadata'):
        leaf = Subagent('leaf', 'Leaf.', model=ScriptedModel('leaf'))
        child = ScriptedModel(call('task', subagent='leaf', description='Go'), 'child')
        mid = Subagent('mid', 'Middle.', model=child, subagents=[leaf], max_depth=2)
        model = ScriptedModel(call('task', subagent='mid', description='Go'), 'Done.')
        agent: Agent[Any, Any] = create_deep_agent(model, subagents=[mid], capabilities=[Audit(records)])
        if begin == 'stream':
            async with stream_agent(agent, 'Go', session_id='mine') as stream:
                assert [event async for event in stream]
        else:
            with session_scope('mine'):
                await agent.run('Go', metadata={'session_id': 'other'} if begin == 'metadata' else None)
    found = [(each.agent_name, each.session_id) for each in (await records.list(limit=100)).items]
    assert {name for name, _ in found} >= {'deep-agent', 'mid'}
    assert sorted({session for name, session in found if name == 'deep-agent'}, key=str) == ['mine', 'other']
    assert {session for _, session in found} == {'mine', 'other'}


async def test_session_id_is_truncated_and_redacted(audited: MakeAgent, rows: Any) -> None:
    with session_scope(f'ghp_{"a1" * 20} ' + 'x' * 1000):
        await audited(ScriptedModel('Hi')).run('Go')
    session = (await rows.one()).session_id
    assert session.startswith('[redacted: github token] x')
    assert len(session) == 256
