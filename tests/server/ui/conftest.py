"""Requests of the AG-UI protocol, and the events of its streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from ag_ui.core import Event, EventType
from pydantic import TypeAdapter
from pydantic_ai import BinaryContent, UserContent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.approvals import ApprovalRule
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, Gate, Listen, MakeClient, Served, frames_in

EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
SECRET = 'the inside of the server'


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Do what the first word of the prompt says, then answer with the result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    results = [part.model_response_str() for part in last.parts if isinstance(part, ToolReturnPart)]
    if results:
        return f'Done: {results[-1]}'
    said = [part.content for part in last.parts if isinstance(part, UserPromptPart)][-1]
    word, _, rest = said.partition(' ') if isinstance(said, str) else ('', '', '')
    match word:
        case 'write':
            return ['I write.', call('write_file', path='/a.txt', content=rest)]
        case 'plan':
            return call('write_todos', todos=[{'content': rest, 'status': 'in_progress'}])
        case 'hold':
            return call('hold')
        case 'delegate':
            return call('task', subagent='scribe', description=rest)
        case 'pick':
            return call('pick_color', colors=rest.split())
        case 'both':
            return [call('pick_color', colors=rest.split()), call('write_file', path='/a.txt', content=rest)]
        case 'fail':
            raise ValueError(SECRET)
        case _:
            return f'You said: {said_of(said)}, after {len(messages) - 1} messages.'


def said_of(content: str | Sequence[UserContent]) -> str:
    """Return text, and files by media type and data."""
    pieces = [content] if isinstance(content, str) else content
    return '+'.join(
        f'{each.media_type}={each.data!r}' if isinstance(each, BinaryContent) else str(each) for each in pieces
    )


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    scribe = Subagent(name='scribe', description='Writes.', instructions='Write.')
    only_yes = ApprovalRule(decisions=('approve',))
    return {
        'writer': create_deep_agent(model, tools=[gate.hold]),
        'careful': create_deep_agent(model, subagents=[scribe], interrupt_on={'write_file': True}),
        'strict': create_deep_agent(model, interrupt_on={'write_file': only_yes}),
    }


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


def asked(*messages: object, thread: str = 't', **fields: object) -> dict[str, object]:
    """Return a `RunAgentInput` as sent by `@ag-ui/client`."""
    said: list[object] = [each if isinstance(each, dict) else user_message(each) for each in messages]
    body: dict[str, object] = {'threadId': thread, 'runId': 'r', 'messages': said, 'state': {}, 'tools': []}
    return {**body, 'context': [], 'forwardedProps': {}, **fields}


def user_message(content: object) -> dict[str, object]:
    """Return a user message."""
    return {'id': 'u', 'role': 'user', 'content': content}


async def run(client: Client, body: Mapping[str, object], agent: str = 'writer') -> list[Any]:
    """Send a request and return the events as models of the protocol."""
    response = await client.post(f'/ag-ui/{agent}', json=body)
    assert response.status_code == 200, response.text
    assert response.headers['content-type'] == 'text/event-stream; charset=utf-8'
    return events_in(response.content)


def events_in(data: bytes) -> list[Any]:
    return [EVENTS.validate_json(frame.data) for frame in frames_in(data)]


def text_of(events: Sequence[Any]) -> str:
    return ''.join(event.delta for event in events if event.type is EventType.TEXT_MESSAGE_CONTENT)


@pytest.fixture
async def live(served: Served, listen: Listen) -> AsyncGenerator[Client]:
    """A client with a real socket."""
    async with listen(served.app) as url:
        headers = {'authorization': f'Bearer {await served.key("run")}'}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            yield client


def replace_log(run: Any, log: RunLog) -> Any:
    return replace(run, renderings={'ag-ui': log})


def resumed(*ids: str, payload: object = None, status: str = 'resolved', **fields: Any) -> dict[str, object]:
    """Return a request with answers to interrupts."""
    return asked(resume=[{'interruptId': id, 'status': status, 'payload': payload} for id in ids], **fields)


PICK = {
    'name': 'pick_color',
    'description': 'Let the person pick a color.',
    'parameters': {'type': 'object', 'properties': {'colors': {'type': 'array', 'items': {'type': 'string'}}}},
}
"""A tool of the client."""


def picked(events: Sequence[Any], **fields: object) -> list[dict[str, object]]:
    """Return the messages with which a client answers the call of its tool."""
    [started] = [each for each in of_type(events, EventType.TOOL_CALL_START) if each.tool_call_name == 'pick_color']
    called = {'id': started.tool_call_id, 'type': 'function', 'function': {'name': 'pick_color', 'arguments': '{}'}}
    return [
        {'id': started.parent_message_id, 'role': 'assistant', 'toolCalls': [called]},
        {'id': 'result', 'role': 'tool', 'toolCallId': started.tool_call_id, **fields},
    ]


def answer_of(events: Sequence[Any]) -> dict[str, object]:
    """Return the answer of a run as the client sends it in its next request."""
    started = of_type(events, EventType.TEXT_MESSAGE_START)[-1]
    return {'id': started.message_id, 'role': 'assistant', 'content': text_of(events)}


def of_type(events: Sequence[Any], type: EventType) -> list[Any]:
    return [event for event in events if event.type is type]


def interrupts_of(events: Sequence[Any]) -> list[Any]:
    assert events[-1].outcome.type == 'interrupt'
    return events[-1].outcome.interrupts
