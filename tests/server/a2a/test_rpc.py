"""Requests of JSON-RPC: malformed ones, older clients, streams that end early, and a little fuzzing."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from a2a.utils.errors import InternalError
from hypothesis import HealthCheck, given, settings, strategies
from inline_snapshot import snapshot
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pydantic_deep.server import ServerSettings, list_api_keys, revoke_api_key
from pydantic_deep.server.a2a import _updates
from tests.server.a2a.conftest import UNKNOWN, Connect, message, responses
from tests.server.conftest import Client, Gate, Listen, MakeClient, Serve, Served

pytestmark = pytest.mark.anyio

V1 = {'a2a-version': '1.0'}


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {'messageId': 'm1', 'role': 'ROLE_USER', 'parts': [{'text': text}], **fields}


async def post(client: Client, body: Any, **headers: str) -> Any:
    """Send a request, and return the JSON of its response, which is always HTTP 200."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await client.post('/a2a/writer', content=content, headers={'a2a-version': '1.0', **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ('body', 'id', 'code', 'text'),
    [
        (b'', None, -32700, snapshot('The body is not valid JSON: EOF while parsing a value at line 1 column 0.')),
        (b'\xff', None, -32700, snapshot('The body is not valid JSON: expected value at line 1 column 1.')),
        (
            b'{"id": "\\ud800"}',
            None,
            -32700,
            snapshot('The body is not valid JSON: unexpected end of hex escape at line 1 column 15.'),
        ),
        (
            b'[' * 300,
            None,
            -32700,
            snapshot('The body is not valid JSON: recursion limit exceeded at line 1 column 202.'),
        ),
        ([], None, -32600, snapshot('A request is a JSON object. Batches are not supported.')),
        ({'id': 'a'}, 'a', -32600, snapshot('A request has `"jsonrpc": "2.0"` and the name of a `method`.')),
        (
            {'jsonrpc': '2.0', 'method': 5, 'id': True},
            None,
            -32600,
            snapshot('A request has `"jsonrpc": "2.0"` and the name of a `method`.'),
        ),
        (
            {'jsonrpc': '2.0', 'method': 'GetTask', 'id': [1]},
            None,
            -32600,
            snapshot('The `id` of a request is a string or a whole number.'),
        ),
        (
            request('Nothing'),
            1,
            -32601,
            snapshot(
                'There is no such method. Methods: SendMessage, SendStreamingMessage, SubscribeToTask, GetTask, ListTasks, CancelTask, GetExtendedAgentCard.'
            ),
        ),
        ({**request('GetTask'), 'params': []}, 1, -32602, snapshot('The `params` of a request are a JSON object.')),
        (
            request('GetTask', id=2**70, x=1),
            2**70,
            -32001,
            snapshot('This resource does not exist, or this key has no access to it.'),
        ),
        (
            {**request('GetTask'), 'params': {'id': 5}},
            1,
            -32602,
            snapshot(
                "The `params` are invalid: Failed to parse id field: expected string or bytes-like object, got 'int'. Compare them with the specification."
            ),
        ),
        (
            request('SendMessage', message={'parts': 'x'}),
            1,
            -32602,
            snapshot(
                'The `params` are invalid: Failed to parse message field: Failed to parse parts field: repeated field parts must be in [] which is x at SendMessageRequest.message. Compare them with the specification.'
            ),
        ),
        (
            request('SendMessage'),
            1,
            -32602,
            snapshot('The message has no `messageId`. Choose a new one for each message.'),
        ),
        (
            request('SendMessage', message=said('Hi', messageId='')),
            1,
            -32602,
            snapshot('The message has no `messageId`. Choose a new one for each message.'),
        ),
        (
            request('SendStreamingMessage', message=said('Hi', taskId=UNKNOWN)),
            1,
            -32001,
            snapshot('This resource does not exist, or this key has no access to it.'),
        ),
        (
            request('SendMessage', message={'messageId': '1', 'parts': [{'data': 10**400}]}),
            1,
            -32602,
            snapshot(
                'The `params` are invalid: int too large to convert to float. Compare them with the specification.'
            ),
        ),
        (
            request('ListTasks', status='done'),
            1,
            -32602,
            snapshot('`status` is not the name of a state, such as `TASK_STATE_WORKING`.'),
        ),
        (
            request('ListTaskPushNotificationConfigs', taskId=UNKNOWN),
            1,
            -32003,
            snapshot('This server sends no push notifications. It has webhooks.'),
        ),
        (
            request('GetExtendedAgentCard'),
            1,
            -32007,
            snapshot('The card of this agent is complete. There is no extended one.'),
        ),
    ],
)
async def test_malformed_requests_are_errors_of_json_rpc(
    make_client: MakeClient, body: Any, id: object, code: int, text: str
) -> None:
    """Each has the code of the specification, the id of the request if it has one, and the remedy."""
    answer = await post(await make_client('run'), body)
    assert (answer['id'], answer['error']['code'], answer['error']['message']) == (id, code, text)


async def test_other_versions_are_refused(make_client: MakeClient) -> None:
    """A header that contradicts the method is refused; without one, the name of the method says the version."""
    client = await make_client('run')
    answer = await post(client, request('GetTask', x=1), **{'a2a-version': '2.0'})
    assert answer['error'] == snapshot(
        {
            'code': -32009,
            'message': "`A2A-Version` is '2.0'. This method belongs to version 1.0.",
            'data': [
                {
                    '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
                    'reason': 'VERSION_NOT_SUPPORTED',
                    'domain': 'a2a-protocol.org',
                    'metadata': {},
                }
            ],
        }
    )
    assert (await post(client, request('GetTask', x=1), **{'a2a-version': ''}))['error']['code'] == -32001


async def test_clients_of_a2a_0_3_send_and_stream(make_client: MakeClient) -> None:
    """Older clients use other names and forms, for the same tasks."""
    client = await make_client('run')
    sent = {'kind': 'message', 'messageId': 'm1', 'role': 'user', 'parts': [{'kind': 'text', 'text': '/a.txt=a'}]}
    older = {'a2a-version': '0.3'}
    task = (await post(client, request('message/send', message=sent), **older))['result']
    assert (task['kind'], task['status']['state'], task['artifacts'][0]['parts']) == snapshot(
        ('task', 'completed', [{'kind': 'text', 'text': 'Written.'}])
    )
    assert (await post(client, request('tasks/get', id=1), **older))['error']['code'] == -32600
    asked = {'jsonrpc': '2.0', 'id': 1, 'method': 'tasks/get', 'params': {'id': task['id']}}
    assert (await post(client, asked, **older))['result'] == task
    streamed = await client.post(
        '/a2a/writer', json=request('message/stream', message={**sent, 'messageId': 'm2'}), headers=older
    )
    events = [json.loads(line[6:])['result'] for line in streamed.text.splitlines() if line.startswith('data: ')]
    assert [(event['kind'], event.get('final')) for event in events] == snapshot(
        [
            ('task', None),
            ('status-update', False),
            ('artifact-update', None),
            ('status-update', True),
        ]
    )
    asked = {**asked, 'params': {'id': UNKNOWN}}
    assert (await post(client, asked, **older))['error']['code'] == -32001


async def test_stream_has_text_as_pieces_of_the_output(make_client: MakeClient) -> None:
    """The first element is the task, the last one its state; the pieces are the output that `GetTask` returns."""
    client = await make_client('run')
    answer = await client.post('/a2a/writer', json=request('SendStreamingMessage', message=said('Hi')), headers=V1)
    assert answer.headers['content-type'].startswith('text/event-stream')
    results = [json.loads(line[6:])['result'] for line in answer.text.splitlines() if line.startswith('data: ')]
    assert [*results[0]] == ['task']
    assert results[-1]['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    pieces = [result['artifactUpdate'] for result in results if 'artifactUpdate' in result]
    assert [piece.get('append', False) for piece in pieces] == [number > 0 for number in range(len(pieces))]
    assert ''.join(piece['artifact']['parts'][0]['text'] for piece in pieces) == 'Nothing.'


async def test_requests_write_no_spans_with_texts(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span contains no text of people, but the dispatcher of `a2a-sdk` writes the messages of errors into spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The SDK reads the global provider, which can be set only once in a process.
    monkeypatch.setattr('a2a.utils.telemetry.trace.get_tracer', provider.get_tracer)
    client = await make_client('run')
    for id in ('m1', 'm2'):
        await post(client, request('SendMessage', message=said('Hi', messageId=id, contextId='a secret')))
        await post(client, request('SendMessage', message=said('Hi', messageId=id)))
    older: dict[str, Any] = {'kind': 'message', 'messageId': 'm1', 'role': 'user', 'parts': [], 'contextId': 'a secret'}
    await post(client, request('message/send', message=older), **{'a2a-version': '0.3'})
    assert 'secret' not in ''.join(span.to_json() for span in exporter.get_finished_spans())


async def test_failure_in_a_stream_is_its_last_event(
    connect: Connect, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that fails never ends like one that succeeded."""

    async def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError('a secret')

    async with connect('writer', streaming=True) as client:
        monkeypatch.setattr(_updates, 'load_task', fail)
        with pytest.raises(InternalError, match='Internal server error'):
            await responses(client, message('Hi'))
        client = await make_client('run')
    answer = await client.post('/a2a/writer', json=request('SendStreamingMessage', message=said('Hi')), headers=V1)
    assert 'event: error' in answer.text
    assert 'a secret' not in answer.text


@pytest.mark.slow
async def test_client_that_leaves_loses_nothing_and_subscribes_again(
    served: Served, listen: Listen, gate: Gate
) -> None:
    """The run belongs to the server: it goes on without readers, and another stream has the rest."""
    headers = {'authorization': f'Bearer {await served.key("run")}', **V1}
    async with listen(served.app) as url, httpx.AsyncClient(headers=headers, base_url=url) as client:
        sent = request('SendStreamingMessage', message=said('hold'))
        async with client.stream('POST', '/a2a/writer', json=sent) as answer:
            line = await anext(answer.aiter_lines())
            id = json.loads(line[6:])['result']['task']['id']
        await gate.reached.wait()
        asked = {**request('SubscribeToTask'), 'params': {'id': id}}
        async with client.stream('POST', '/a2a/writer', json=asked) as answer:
            lines = aiter(answer.aiter_lines())
            assert json.loads((await anext(lines))[6:])['result']['task']['id'] == id
            gate.opened.set()
            rest = [json.loads(line[6:])['result'] async for line in lines if line.startswith('data: ')]
        assert rest[-1]['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
        ended = (await client.post('/a2a/writer', json=asked)).json()
        assert (ended['error']['code'], ended['error']['message']) == (
            -32004,
            f'The task {id} has ended: complete. Get it instead.',
        )


@pytest.mark.slow
async def test_stream_ends_when_its_key_is_revoked(serve: Serve, listen: Listen, gate: Gate) -> None:
    """A revoked key receives nothing more of a stream that it has opened, and the run continues."""
    async with serve(settings=ServerSettings(keepalive_seconds=0.01)) as served, listen(served.app) as url:
        key = await served.key('run')
        headers = {'authorization': f'Bearer {key}', **V1}
        async with httpx.AsyncClient(headers=headers, base_url=url) as client:
            sent = request('SendStreamingMessage', message=said('hold'))
            async with client.stream('POST', '/a2a/writer', json=sent) as answer:
                lines = aiter(answer.aiter_lines())
                id = json.loads((await anext(lines))[6:])['result']['task']['id']
                await gate.reached.wait()
                [known] = await list_api_keys(served.store)
                await revoke_api_key(served.store, known.id)
                gate.opened.set()
                rest = [line async for line in lines if 'COMPLETED' in line]
        assert rest == []
        run = served.state.runs.get(id)
        assert run is not None
        await run.wait()
        assert run.state == 'complete'


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats(allow_nan=False)
    | strategies.text(max_size=8) | strategies.sampled_from([UNKNOWN, 'ROLE_USER', 'text', 'm1']),
    lambda inner: strategies.lists(inner, max_size=3)
    | strategies.dictionaries(
        strategies.sampled_from(
            ['id', 'message', 'messageId', 'parts', 'text', 'data', 'raw', 'url', 'taskId', 'contextId', 'metadata',
             'configuration', 'historyLength', 'pageSize', 'status', 'role', 'kind', 'tenant']
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
METHODS = ['SendMessage', 'SendStreamingMessage', 'GetTask', 'ListTasks', 'CancelTask', 'SubscribeToTask',
           'message/send', 'message/stream', 'tasks/get', 'tasks/cancel', 'tasks/resubscribe',
           'tasks/pushNotificationConfig/set', 'agent/getAuthenticatedExtendedCard']  # fmt: skip


@given(method=strategies.sampled_from(METHODS), params=JSON, id=JSON)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_random_requests_are_answered(make_client: MakeClient, method: str, params: object, id: object) -> None:
    """Whatever a client sends, it gets a result or an error of JSON-RPC."""
    client = await make_client('run')
    content = json.dumps({'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}).encode()
    answer = await client.post('/a2a/writer', content=content, headers=V1 if method[0].isupper() else {})
    assert answer.status_code == 200, answer.text
    if answer.headers['content-type'] == 'application/json':
        assert answer.json().keys() & {'result', 'error'}
