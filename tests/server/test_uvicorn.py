"""`serve` in this process on loopback: startup, signals, shutdown, and import of agents by name."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import (
    AnyAgent,
    InvalidAgentsError,
    ServerSettings,
    ServerStartError,
    create_api_key,
    import_agents,
    serve,
)
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


def settings(**fields: object) -> ServerSettings:
    return ServerSettings.model_validate({'port': 0, **fields})


@asynccontextmanager
async def serving(
    store: SqlStore, given: ServerSettings, agent: AnyAgent | None = None
) -> AsyncGenerator[tuple[httpx.AsyncClient, Callable[[int], None]]]:
    """Serve; yield a client and a function that sends a signal. Wait for the shutdown."""
    agents: dict[str, AnyAgent] = {'analyst': agent or create_deep_agent(ScriptedModel('Hello.'))}
    started = anyio.Event()
    urls: list[str] = []

    def on_start(url: str) -> None:
        urls.append(url)
        started.set()

    async def work() -> None:
        await serve(agents, store, given, on_start=on_start)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await started.wait()
            headers = {'authorization': f'Bearer {await create_api_key(store, name="x", scopes=["run"], owner="ada")}'}
            async with httpx.AsyncClient(base_url=urls[0], headers=headers, timeout=60) as client:
                yield client, signal.raise_signal


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
async def test_serve_runs_until_a_signal_without_closing_the_store(store: SqlStore, number: int) -> None:
    before = signal.getsignal(number)
    async with serving(store, settings()) as (client, send):
        answer = await client.get('/api/me')
        assert (answer.status_code, answer.json()['owner']) == (200, 'ada')
        assert 'server' not in answer.headers
        send(number)
    assert await store.conversation('none') is None
    assert signal.getsignal(number) is before


async def test_shutdown_completes_active_runs(store: SqlStore) -> None:
    asked, continued = anyio.Event(), anyio.Event()

    async def wait(messages: list[ModelMessage], info: AgentInfo) -> str:
        asked.set()
        await continued.wait()
        return 'The end.'

    async with serving(store, settings(), create_deep_agent(ScriptedModel(then=wait))) as (client, send):
        conversation = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
        outcomes: list[object] = []

        async def turn() -> None:
            path = f'/api/conversations/{conversation}/turns'
            outcomes.append((await client.post(path, json={'prompt': 'Hi'})).json()['output'])

        async with anyio.create_task_group() as group:
            group.start_soon(turn)
            await asked.wait()
            send(signal.SIGTERM)
            while (await client.get('/health')).status_code != 503:  # until the server has handled the signal
                pass
            outcomes.append([(await client.get(path)).status_code for path in ('/readyz', '/healthz')])
            other = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
            refused = await client.post(f'/api/conversations/{other}/turns', json={'prompt': 'Hi'})
            outcomes.append(refused.status_code)
            continued.set()
    assert outcomes == [[503, 200], 503, 'The end.']


async def test_second_ctrl_c_interrupts_active_runs(store: SqlStore) -> None:
    asked = anyio.Event()

    async def wait(messages: list[ModelMessage], info: AgentInfo) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ''

    given = settings(shutdown_seconds=1000)
    async with serving(store, given, create_deep_agent(ScriptedModel(then=wait))) as (client, send):
        conversation = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
        await client.post(f'/api/conversations/{conversation}/turns', params={'wait': 'false'}, json={'prompt': 'Hi'})
        await asked.wait()
        send(signal.SIGINT)
        while (await client.get('/health')).status_code != 503:
            pass
        send(signal.SIGINT)
    [newest] = await store.versions(limit=1)
    assert newest.state == 'interrupted'


EVENTS = {'accept': 'text/event-stream'}
MESSAGES = [{'role': 'user', 'content': 'Hi'}]
A2A: dict[str, Any] = {'role': 'ROLE_USER', 'parts': [{'text': 'Hi'}]}
UI: dict[str, Any] = {'id': 't', 'messages': [{'id': '1', 'role': 'user', 'parts': [{'type': 'text', 'text': 'Hi'}]}]}
AG_UI: dict[str, Any] = {
    'threadId': 'u',
    'runId': 'r',
    'state': {},
    'messages': [{'id': '1', 'role': 'user', 'content': 'Hi'}],
    'tools': [],
    'context': [],
    'forwardedProps': {},
}


def rpc(method: str, params: object) -> dict[str, Any]:
    return {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}


OPEN_REQUESTS: dict[str, tuple[dict[str, Any], dict[str, str], int, str]] = {
    '/api/conversations/{}/turns': ({'prompt': 'Hi'}, EVENTS, 200, 'retry: 1000\n\n'),
    '/api/conversations/{}/turns?wait=true': ({'prompt': 'Hi'}, {}, 202, '"state":"queued"'),
    '/v1/chat/completions': (
        {'model': 'analyst', 'messages': MESSAGES, 'stream': True},
        {},
        200,
        'data: {"error":{"message":"The stream ended before it was complete.',
    ),
    '/v1/chat/completions?': (
        {'model': 'analyst', 'messages': [{'role': 'user', 'content': 'Whole'}]},
        {},
        503,
        'The run is not affected',
    ),
    '/v1/messages': (
        {'model': 'analyst', 'messages': MESSAGES, 'stream': True, 'max_tokens': 9},
        {},
        200,
        'event: error\ndata: {"type":"error"',
    ),
    '/v1/responses': (
        {'model': 'analyst', 'input': 'Hi', 'stream': True},
        {},
        200,
        'event: error\ndata: {"type":"error","sequence_number":2',
    ),
    '/v1beta/models/analyst:streamGenerateContent?alt=sse': (
        {'contents': [{'role': 'user', 'parts': [{'text': 'Hi'}]}]},
        {},
        200,
        'data: {"error":{"code":502',
    ),
    '/ag-ui/analyst': (AG_UI, EVENTS, 200, '"type":"RUN_ERROR"'),
    '/vercel/analyst': ({'trigger': 'submit-message', **UI}, EVENTS, 200, '"finishReason":"error"'),
    '/a2a/analyst': (
        rpc('SendStreamingMessage', {'message': {'messageId': 'm', **A2A}}),
        {'a2a-version': '1.0'},
        200,
        'This server is stopping. The task is not affected: subscribe to it again.',
    ),
    '/a2a/analyst?': (
        rpc('SendMessage', {'message': {'messageId': 'n', **A2A}}),
        {'a2a-version': '1.0'},
        200,
        'TASK_STATE_SUBMITTED',
    ),
    '/mcp': (
        rpc('tools/call', {'name': 'run', 'arguments': {'agent': 'analyst', 'prompt': 'Hi'}}),
        {'accept': 'application/json, text/event-stream', 'mcp-protocol-version': '2025-06-18'},
        200,
        'The run continues. Wait for it with `get_run`.',
    ),
}
"""Requests that wait for a run: the body, the headers, and the status and the end of the response if the server stops."""


async def test_open_streams_end_when_the_server_stops(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each says so in its protocol, or has no end, so that the client looks for it elsewhere. The runs are not affected.

    The time after which uvicorn would cancel the requests is longer than the time limit of the test.
    """
    monkeypatch.setattr('pydantic_deep.server._uvicorn.CONNECTION_SECONDS', 1000)
    ends: dict[str, tuple[int, str]] = {}
    with caplog.at_level(logging.WARNING):
        given = settings(worker=False, max_runs_per_key=100, request_burst=1000)
        async with serving(store, given) as (client, send), anyio.create_task_group() as group:

            async def ask(path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
                created = await client.post('/api/conversations', json={'agent': 'analyst'})
                answer = await client.post(path.format(created.json()['id']), json=body, headers=headers)
                ends[path] = (answer.status_code, answer.text)

            for path, (body, headers, _, _) in OPEN_REQUESTS.items():
                group.start_soon(ask, path, body, headers)
            while len(await store.queue.list()) < len(OPEN_REQUESTS):
                await anyio.lowlevel.checkpoint()
            send(signal.SIGTERM)
    for path, (_, _, status, end) in OPEN_REQUESTS.items():
        assert ends[path][0] == status, path
        assert end in ends[path][1], path
        assert 'event: end' not in ends[path][1], path
    assert {run.state for run in await store.queue.list()} == {'queued'}
    # OpenTelemetry warns if an earlier test of this process has replaced its provider.
    assert [record for record in caplog.records if not record.name.startswith('opentelemetry.')] == []


async def test_next_signal_cancels_the_rest_of_the_requests(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as the upload of a client that sends nothing any more. None of them is logged with a traceback."""
    monkeypatch.setattr('pydantic_deep.server._uvicorn.CONNECTION_SECONDS', 1000)
    with caplog.at_level(logging.WARNING):
        async with serving(store, settings(worker=False)) as (client, send):
            url, key = client.base_url, client.headers['authorization']
            conversation = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
            stream = await anyio.connect_tcp(url.host, url.port or 0)
            head = f'PUT /api/conversations/{conversation}/uploads/a HTTP/1.1\r\nHost: localhost\r\n'
            await stream.send(
                f'{head}Authorization: {key}\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n'.encode()
            )
            assert (await stream.receive()).startswith(b'HTTP/1.1 100 ')  # the server reads the body
            send(signal.SIGTERM)
            with suppress(OSError):
                while True:  # until the server accepts no more connections
                    await (await anyio.connect_tcp(url.host, url.port or 0)).aclose()
            send(signal.SIGTERM)
            async for _ in stream:
                pass
            await stream.aclose()
    assert [record.exc_info for record in caplog.records if record.exc_info] == []


async def test_large_upload_is_refused_before_its_body_is_read(store: SqlStore) -> None:
    """The server responds to the header and closes the connection without reading the body."""
    async with serving(store, settings()) as (client, send):
        url = client.base_url
        key = client.headers['authorization']
        stream = await anyio.connect_tcp(url.host, url.port or 0)
        head = f'PUT /api/conversations/x/uploads/big HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n'
        await stream.send(f'{head}Content-Length: {10 * 2**30}\r\n\r\n'.encode() + b'x' * 1000)
        received = b''
        async for chunk in stream:
            received += chunk
        assert received.startswith(b'HTTP/1.1 413 ')
        assert b'connection: close' in received.lower()
        await stream.aclose()
        send(signal.SIGTERM)


async def test_access_log_omits_the_key_of_the_query(store: SqlStore, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(store, settings(access_log=True)) as (client, send):
        secret = client.headers.pop('authorization').removeprefix('Bearer ')
        assert (await client.get('/v1beta/models', params={'key': secret, 'pageSize': '5'})).status_code == 200
        send(signal.SIGTERM)
    printed = capsys.readouterr()
    assert [line.partition(' - ')[2] for line in printed.out.splitlines()] == [
        '"GET /v1beta/models?pageSize=5 HTTP/1.1" 200 OK'
    ]
    assert secret not in printed.out + printed.err


async def test_listening_address_is_an_allowed_host(store: SqlStore) -> None:
    async with serving(store, settings(host='127.0.0.2')) as (client, send):
        assert client.base_url.host == '127.0.0.2'
        assert (await client.get('/health')).status_code == 200
        assert (await client.get('/health', headers={'host': 'evil.example'})).status_code == 400
        send(signal.SIGTERM)


async def test_forwarded_headers_do_not_change_the_address_of_wrong_keys(store: SqlStore) -> None:
    """Wrong keys count for the connected address, regardless of proxy headers."""
    async with serving(store, settings(wrong_keys_per_minute=1, wrong_key_burst=2)) as (client, send):
        wrong = [{'authorization': 'Bearer guess', 'x-forwarded-for': f'192.0.2.{number}'} for number in range(3)]
        answers = [await client.get('/api/me', headers=each) for each in wrong]
        assert [each.status_code for each in answers] == [401, 401, 429]
        assert (await client.get('/api/me')).status_code == 200
        send(signal.SIGTERM)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason='this machine has no IPv6')
async def test_serve_listens_on_ipv6(store: SqlStore) -> None:
    async with serving(store, settings(host='::1')) as (client, send):
        assert client.base_url.host == '::1'
        assert (await client.get('/health')).status_code == 200
        send(signal.SIGTERM)


async def test_used_port_raises(store: SqlStore) -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        given = settings(port=taken.getsockname()[1])
        said = f'^The server cannot listen at 127.0.0.1:{given.port}: .* in use. Set another `host` or `port`.$'
        with pytest.raises(OSError, match=said):
            await serve({'a': create_deep_agent(ScriptedModel())}, store, given, on_start=lambda url: None)


async def test_failed_startup_raises_the_reason_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    async with open_store('memory:') as closed:
        pass
    with pytest.raises(
        ServerStartError, match=r'^The server could not start\. The database of the repository was closed\.'
    ):
        await serve({'a': create_deep_agent(ScriptedModel())}, closed, settings(), on_start=lambda url: None)
    assert 'Traceback' not in capsys.readouterr().err


async def test_unexpected_error_at_startup_is_logged_with_its_traceback(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(store: SqlStore) -> None:
        raise RuntimeError('a defect')

    monkeypatch.setattr('pydantic_deep.server._lifespan.open_keys', fail)  # no input of a caller leads to such an error
    with pytest.raises(ServerStartError, match='The preceding log messages contain the reason'):
        await serve({'a': create_deep_agent(ScriptedModel())}, store, settings(), on_start=lambda url: None)
    assert 'RuntimeError: a defect' in capsys.readouterr().err


async def test_serve_in_a_thread_does_not_change_signal_handlers(store: SqlStore) -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> None:
        async with open_store('memory:') as closed:
            pass
        with pytest.raises(ServerStartError):
            await serve({'a': create_deep_agent(ScriptedModel())}, closed, settings(), on_start=lambda url: None)

    await anyio.to_thread.run_sync(anyio.run, work)
    assert signal.getsignal(signal.SIGTERM) is before


# Agents by name


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [each for each in sys.path if each])
    (tmp_path / 'served_house.py').write_text(
        'from pydantic_ai import Agent\n'
        "analyst = Agent('test', name='analyst')\n"
        "nameless = Agent('test')\n"
        "agents = {'a': analyst, 'b': nameless}\n"
        'number = 3\n'
        "numbers = {'a': 3}\n"
    )
    (tmp_path / 'served_broken.py').write_text('import served_nothing\n')
    return tmp_path


@pytest.mark.parametrize(
    ('reference', 'names'),
    [('served_house:analyst', ['analyst']), ('served_house:nameless', ['agent']), ('served_house:agents', ['a', 'b'])],
)
def test_agents_are_imported_from_the_working_directory(modules: Path, reference: str, names: list[str]) -> None:
    assert list(import_agents(reference)) == names


@pytest.mark.parametrize(
    ('reference', 'said'),
    [
        ('served_house', 'Write `package.module:attribute`'),
        ('served_house:', 'Write `package.module:attribute`'),
        (':agents', 'Write `package.module:attribute`'),
        ('served_house:a.b', 'Write `package.module:attribute`'),
        ('served_nobody:agents', "There is no module 'served_nobody'"),
        ('served_nobody.here:agents', "There is no module 'served_nobody.here'"),
        ('served_house:nothing', "The module 'served_house' has no 'nothing'. Its agents: analyst, nameless, agents."),
        ('served_house:number', 'neither an agent nor a dictionary'),
        ('served_house:numbers', 'neither an agent nor a dictionary'),
    ],
)
def test_invalid_agents_reference_is_refused(modules: Path, reference: str, said: str) -> None:
    with pytest.raises(InvalidAgentsError, match=said):
        import_agents(reference)


def test_import_error_inside_the_module_is_raised(modules: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match='served_nothing'):
        import_agents('served_broken:agents')
