"""Threads of user interfaces at servers without workers: every server streams the runs that a worker executes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from pydantic_deep.server import ServerSettings
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.ui._extra_events import LoggedEvent, PublicError
from pydantic_deep.server.ui._native_events import logged_events
from pydantic_deep.store import SqlStore, new_id, open_store
from pydantic_deep.streaming import (
    EndEvent,
    ErrorEvent,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    UsageEvent,
    encode_entry,
)
from tests.server.conftest import Client, Gate, Serve, Served, frames_in
from tests.server.ui.conftest import (
    PICK,
    SECRET,
    answer_of,
    asked,
    events_in,
    interrupts_of,
    picked,
    resumed,
    run,
    text_of,
)

pytestmark = pytest.mark.anyio

DOOR = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False)
WORKER = ServerSettings(requests_per_second=1000, request_burst=100_000)


@dataclass(kw_only=True)
class Fleet:
    """Two doors and a worker, each with a store of its own on one database."""

    first: Client
    second: Client
    doors: list[Served]
    _serve: Serve
    _store: SqlStore

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[Served]:
        async with self._serve(settings=WORKER, store=self._store) as served:
            yield served


@pytest.fixture
async def fleet(serve: Serve) -> AsyncGenerator[Fleet]:
    name = new_id()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(f'memory:{name}')) for _ in range(3)]
        doors = [await stack.enter_async_context(serve(settings=DOOR, store=store)) for store in stores[:2]]
        key = await doors[0].key('run', 'approve')
        first, second = [await stack.enter_async_context(door.client(key)) for door in doors]
        yield Fleet(first=first, second=second, doors=doors, _serve=serve, _store=stores[2])


def shape(events: list[Any]) -> list[Any]:
    """Return events without what differs between two runs: ids and times. Texts are joined, however they were divided."""
    shapes: list[Any] = []
    for event in events:
        fields = json.loads(re.sub('call-[0-9]+', 'call', event.model_dump_json(exclude_none=True)))
        for name in ('timestamp', 'messageId', 'message_id', 'parentMessageId', 'parent_message_id', 'encrypted_value'):
            fields.pop(name, None)
        if shapes and 'delta' in fields and shapes[-1]['type'] == fields['type']:
            shapes[-1]['delta'] += fields['delta']
        elif fields['type'] != 'REASONING_ENCRYPTED_VALUE':
            shapes.append(fields)
    return shapes


@pytest.mark.parametrize('prompt', ['Hi', 'write Hello', 'plan Rest', 'fail'])
async def test_run_of_a_worker_has_the_events_of_a_run_of_the_server(fleet: Fleet, ada: Client, prompt: str):
    """AG-UI clients cannot tell which process has executed their run."""
    async with fleet.worker():
        events = await run(fleet.first, asked(prompt))

    assert shape(events) == shape(await run(ada, asked(prompt)))
    assert SECRET not in str(events)


async def test_thread_continues_at_any_server(fleet: Fleet):
    async with fleet.worker():
        one = await run(fleet.first, asked('One'))
        two = await run(fleet.second, asked('One', answer_of(one), 'Two'))
        edited = await run(fleet.first, asked('One', answer_of(one), 'Three'))

    assert text_of(two) == 'You said: Two, after 2 messages.'
    assert text_of(edited) == 'You said: Three, after 2 messages.'


async def test_pending_call_of_a_worker_is_answered_at_another_server(fleet: Fleet):
    async with fleet.worker():
        [interrupt] = interrupts_of(await run(fleet.first, asked('write Hello'), 'careful'))
        events = await run(fleet.second, resumed(interrupt.id, payload={'approved': True}), 'careful')

    assert text_of(events).startswith('Done: Created /a.txt')


async def test_tool_of_the_client_is_called_by_a_worker(fleet: Fleet):
    """A server that has not received the result knows from the store that the client has it, so the ids are the same."""
    async with fleet.worker():
        first = await run(fleet.first, asked('pick red', tools=[PICK]))
        body = asked('pick red', *picked(first, content='red'), tools=[PICK])
        second = await fleet.second.post('/ag-ui/writer', json=body)
        frames = frames_in(second.content)
        last = {'last-event-id': str(frames[0].id)}
        rest = await fleet.first.get('/ag-ui/writer/t/stream', headers=last)

    assert first[-1].outcome.type == 'success'
    assert text_of(events_in(second.content)) == 'Done: red'
    assert [frame.id for frame in frames_in(rest.content)] == [frame.id for frame in frames[1:]]


async def test_paused_run_with_a_tool_of_the_client_is_no_interrupt_at_another_server(fleet: Fleet):
    """A watcher does not have the request that declared the tool."""
    async with fleet.worker():
        posted = await fleet.first.post('/ag-ui/careful', json=asked('both red', tools=[PICK]))
        last = {'last-event-id': str(frames_in(posted.content)[0].id)}
        watched = await fleet.second.get('/ag-ui/careful/t/stream', headers=last)

    assert [call.metadata['tool'] for call in interrupts_of(events_in(watched.content))] == ['write_file']


async def test_stream_of_a_run_is_watched_and_resumed_at_another_server(fleet: Fleet, gate: Gate):
    """The ids of the events are the same on every server."""
    bodies: dict[str, bytes] = {}

    async def post() -> None:
        bodies['posted'] = (await fleet.first.post('/ag-ui/writer', json=asked('hold'))).content

    async def watch() -> None:
        bodies['watched'] = (await fleet.second.get('/ag-ui/writer/t/stream')).content

    async with fleet.worker(), anyio.create_task_group() as group:
        group.start_soon(post)
        await gate.reached.wait()
        group.start_soon(watch)
        watchers = fleet.doors[1].state.runs
        while not any(served.renderings for served in watchers.runs_of('ada')):  # noqa: ASYNC110 - it has no event
            await anyio.sleep(0.01)
        gate.opened.set()
    posted, watched = frames_in(bodies['posted']), frames_in(bodies['watched'])
    last = {'last-event-id': str(posted[2].id)}
    rest = await fleet.second.post('/ag-ui/writer', json=asked('hold'), headers=last)
    end = {'last-event-id': str(posted[-1].id)}

    assert [frame.id for frame in watched] == [frame.id for frame in posted]
    assert text_of(events_in(bodies['watched'])) == 'Done: held'
    assert [frame.id for frame in frames_in(rest.content)] == [frame.id for frame in posted[3:]]
    assert (await fleet.second.get('/ag-ui/writer/t/stream', headers=end)).status_code == 204
    assert (await fleet.second.get('/ag-ui/writer/t/stream')).status_code == 204
    beyond = {'last-event-id': str(posted[-1].id).rpartition('.')[0] + '.999'}
    assert (await fleet.second.get('/ag-ui/writer/t/stream', headers=beyond)).status_code == 409


async def test_cancelled_run_of_a_worker_ends_its_vercel_stream(fleet: Fleet, gate: Gate):
    chunks: list[bytes] = []

    async def chat() -> None:
        body = {'id': 'c', 'messages': [{'id': 'u', 'role': 'user', 'parts': [{'type': 'text', 'text': 'hold'}]}]}
        chunks.append((await fleet.first.post('/vercel/writer', json=body)).content)

    async with fleet.worker(), anyio.create_task_group() as group:
        group.start_soon(chat)
        await gate.reached.wait()
        [running] = (await fleet.second.get('/api/runs')).json()['items']
        await fleet.second.post(f'/api/runs/{running["id"]}/cancel')

    types = [json.loads(frame.data)['type'] for frame in frames_in(chunks[0]) if frame.data != '[DONE]']
    assert 'abort' in types
    assert 'finish' not in types


async def test_resumed_answer_of_a_chat_keeps_its_id_at_another_server(fleet: Fleet):
    """`resumeStream` continues the answer that the client has, although another server received its request."""
    prompt = {'id': 'u', 'role': 'user', 'parts': [{'type': 'text', 'text': 'write Hello'}]}
    body = {'id': 'c', 'messages': [prompt]}
    async with fleet.worker():
        paused = await fleet.first.post('/vercel/careful', json=body)
        answer_id = json.loads(frames_in(paused.content)[0].data)['messageId']
        [approval] = (await fleet.first.get('/api/approvals')).json()['items']
        part = {'type': 'tool-write_file', 'state': 'approval-responded', 'toolCallId': approval['pending_id']}
        decided = {**part, 'approval': {'id': approval['pending_id'], 'approved': True}}
        answer = {'id': answer_id, 'role': 'assistant', 'parts': [decided]}
        resumed_run = await fleet.first.post('/vercel/careful', json={**body, 'messages': [prompt, answer]})
        last = {'last-event-id': str(frames_in(resumed_run.content)[0].id)}
        again = await fleet.second.get('/vercel/careful/c/stream', headers=last)
        [ended] = fleet.doors[1].state.runs.runs_of('ada')
        chunks = [chunk async for _, chunk in ended.renderings['vercel'].tail()]

    assert again.status_code == 200
    assert json.loads(chunks[0].removeprefix(b'data: ')) == {'type': 'start', 'messageId': answer_id}


async def test_chat_of_a_worker_has_the_reason_of_its_end(fleet: Fleet):
    body = {'id': 'c', 'messages': [{'id': 'u', 'role': 'user', 'parts': [{'type': 'text', 'text': 'write Hello'}]}]}
    async with fleet.worker():
        response = await fleet.first.post('/vercel/writer', json=body)

    data = [json.loads(frame.data) for frame in frames_in(response.content) if frame.data != '[DONE]']
    types = [each['type'] for each in data]
    assert data[0]['messageId'] == response.headers['x-run-id']
    assert (data[-1]['type'], data[-1]['finishReason']) == ('finish', 'stop')
    assert types.index('tool-input-available') < types.index('tool-output-available') < types.index('data-file')


def logged(*events: StreamEvent) -> ServerRun:
    """Return a run with a log of these events."""
    log = RunLog()
    for event in events:
        log.append(encode_entry(event))
    return ServerRun(
        id=new_id(),
        conversation_id=new_id(),
        base_id=None,
        owner='ada',
        key_id=None,
        agent_name='writer',
        session_id=None,
        log=log,
        renderings={},
    )


async def read(events: AsyncGenerator[object]) -> None:
    async for _ in events:
        pass


async def kinds(run: ServerRun) -> list[str]:
    """Return the kinds of the events of a log, with those of parts."""
    found: list[str] = []
    async for event in logged_events(run):
        part: Any = getattr(event, 'part', None)
        kind = event.event.type if isinstance(event, LoggedEvent) else str(event.event_kind)
        found.append(kind if part is None else f'{kind} {part.part_kind}')
    run.log.discard()
    return found


async def test_parts_of_a_response_follow_one_another():
    """Thinking, text and calls that a model writes at once, and the work of a subagent between them."""
    events = [
        StartEvent(),
        ThinkingEvent(text='Well'),
        ThinkingEvent(text='.', signature='s'),
        TextEvent(text='I '),
        TextEvent(text='not mine', path=['scribe']),
        TextEvent(text='work.'),
        ToolCallDeltaEvent(index=0, id='a', name='ls', args='{'),
        ToolCallDeltaEvent(index=1, id='b', name='ls'),
        ToolCallDeltaEvent(index=0, args='}'),
        UsageEvent(),
        ToolCallEvent(id='a', name='ls', args='{}', index=0),
        ToolCallEvent(id='b', name='ls', args='{}', index=1),
        ToolCallEvent(id='c', name='ls', args='{}'),
        RetriedEvent(attempt=2, attempts=3, reason='busy', delay_seconds=1),
        EndEvent(),
    ]

    assert await kinds(logged(*events)) == [
        'start',
        'part_start thinking',
        'part_delta',
        'part_end thinking',
        'part_start text',
        'part_delta',
        'part_end text',
        'part_start tool-call',
        'part_start tool-call',
        'part_delta',
        'usage',
        'part_end tool-call',
        'function_tool_call tool-call',
        'part_end tool-call',
        'function_tool_call tool-call',
        'part_start tool-call',
        'part_end tool-call',
        'function_tool_call tool-call',
        'retried',
        'end',
    ]


async def test_events_of_a_crashed_worker_end_with_an_error():
    """Those of the next worker are divided differently, so they cannot continue the stream."""
    run = logged(StartEvent(), TextEvent(text='I '))
    run.restart(RunLog())  # and discards the first log
    run.log.append(encode_entry(EndEvent()))
    run.log.close()

    assert await kinds(run) == ['end']  # nothing was sent yet

    run = logged(StartEvent(), TextEvent(text='I '))
    events = logged_events(run)
    await anext(events)
    run.log.discard()
    with pytest.raises(PublicError, match='another one continues it'):
        await read(events)


async def test_failure_in_a_log_is_raised_as_it_is():
    run = logged(StartEvent(), ErrorEvent(kind='provider_error', message='The provider is busy.'), EndEvent())

    with pytest.raises(PublicError, match='The provider is busy') as raised:
        await kinds(run)
    run.log.discard()
    assert raised.value.kind == 'provider_error'
