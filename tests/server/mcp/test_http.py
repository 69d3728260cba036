"""`/mcp`: stock clients of both generations of the protocol, keys, origins, and hostile messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from inline_snapshot import snapshot
from starlette.requests import Request
from starlette.types import Message

from pydantic_deep.server import ServerSettings
from pydantic_deep.server.mcp._http import McpResponse
from pydantic_deep.server.mcp._tools import TOOLS
from tests.server.conftest import BASE_URL, Client, MakeClient, Serve, Served
from tests.server.mcp.conftest import UNKNOWN, Mode, access_of, error_of, over_http, result_of

pytestmark = pytest.mark.anyio

ACCEPT = {'accept': 'application/json, text/event-stream'}
PING = {'jsonrpc': '2.0', 'id': 1, 'method': 'ping'}


@pytest.mark.slow
@pytest.mark.parametrize('mode', ['legacy', 'auto'])
async def test_stock_client_runs_approves_compares_rewinds_and_branches(served: Served, mode: Mode) -> None:
    """A client of either generation runs, answers an approval, reads the diff, goes back and branches, with progress."""
    received: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        received.append(message)

    async with over_http(served, mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == set(TOOLS)
        task = {'prompt': '/a.txt=a', 'agent': 'asker'}
        paused = result_of(await client.call_tool('run', task, progress_callback=note))
        [call] = paused['approvals']
        answer = {'approval': call['approval'], 'decision': 'approve', 'digest': call['digest']}
        done = result_of(await client.call_tool('answer_approval', answer))['run']
        place = {'version': paused['version'], 'to': done['version']}
        [file] = result_of(await client.call_tool('diff', place))['files']
        assert file['path'] == '/a.txt'
        place = {'conversation': done['conversation'], 'version': paused['version']}
        assert result_of(await client.call_tool('rewind', place))['head'] == paused['version']
        branch = {'prompt': 'Hi', 'from_version': done['version'], 'branch': 'other'}
        assert result_of(await client.call_tool('run', branch))['conversation'] == done['conversation']
        log = result_of(await client.call_tool('log', {'conversation': done['conversation']}))
        assert {version['branch'] for version in log['versions']} >= {'other'}
    assert received == ['write_file']


async def test_request_without_a_key_is_refused(nobody: Client) -> None:
    """Like every route, `/mcp` answers 401 before it reads the body."""
    assert (await nobody.post('/mcp', json=PING, headers=ACCEPT)).status_code == 401


@pytest.mark.parametrize('method', ['GET', 'DELETE'])
async def test_only_post_is_supported(make_client: MakeClient, method: str) -> None:
    """Without sessions there is no stream to open and no session to end, which the specification says with 405."""
    answer = await (await make_client('run')).request(method, '/mcp', headers=ACCEPT)
    assert (answer.status_code, answer.headers['allow']) == (405, 'POST')


@pytest.mark.parametrize(
    ('origin', 'status'),
    [
        (None, 200),
        (BASE_URL, 200),
        ('https://app.example.com', 200),
        ('https://localhost', 200),
        ('ftp://localhost', 403),
        ('https://evil.example.com', 403),
        ('null', 403),
    ],
)
async def test_only_known_origins_may_call(serve: Serve, origin: str | None, status: int) -> None:
    """A web page may call the server from its own origin, with TLS or as the request, and from `cors_origins`."""
    settings = ServerSettings(cors_origins=('https://app.example.com',))
    async with serve(settings=settings) as served, served.client(await served.key()) as client:
        headers = ACCEPT if origin is None else {**ACCEPT, 'origin': origin}
        assert (await client.post('/mcp', json=PING, headers=headers)).status_code == status


async def test_foreign_host_is_refused(make_client: MakeClient) -> None:
    """A rebound host name is refused as on every route."""
    client = await make_client('run')
    assert (await client.post('/mcp', json=PING, headers={**ACCEPT, 'host': 'evil.example.com'})).status_code == 400


async def test_server_without_the_extra_names_it(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra `mcp`, the route answers with the command that installs it."""

    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr('importlib.util.find_spec', find_nothing)
    answer = await (await make_client('run')).post('/mcp', json=PING, headers=ACCEPT)
    assert answer.json()['error']['message'] == snapshot(
        "This server does not offer MCP. It needs the extra: `pip install 'versioned-deep-agents[mcp]'`."
    )


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'{',
        b'[]',
        b'null',
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}',
    ],
)
async def test_malformed_messages_are_refused(make_client: MakeClient, body: bytes) -> None:
    """Messages that are not JSON-RPC, or not of MCP, are errors of the client, and the server answers the next one."""
    client = await make_client('run')
    headers = {**ACCEPT, 'content-type': 'application/json'}
    answer = await client.post('/mcp', content=body, headers=headers)
    assert answer.status_code == 400 or '"error"' in answer.text
    assert (await client.post('/mcp', json=PING, headers=headers)).is_success


async def test_body_beyond_the_limit_is_refused(serve: Serve) -> None:
    """The limit holds for a body of unknown length too, and the server answers the next message."""

    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(3):
            yield 100 * b' '

    async with (
        serve(settings=ServerSettings(max_body_bytes=250)) as served,
        served.client(await served.key('run')) as client,
    ):
        headers = {**ACCEPT, 'content-type': 'application/json'}
        assert (await client.post('/mcp', content=chunks(), headers=headers)).status_code == 413
        assert (await client.post('/mcp', json=PING, headers=ACCEPT)).is_success


async def test_client_that_disconnects_in_its_message_is_no_defect(served: Served) -> None:
    """A message that does not arrive as a whole is not answered, and nothing is started by it."""
    access = await access_of(served)
    scope: dict[str, Any] = {'type': 'http', 'method': 'POST', 'path': '/mcp', 'headers': []}
    sent: list[Message] = []

    async def receive() -> Message:
        return {'type': 'http.disconnect'}

    async def send(message: Message) -> None:
        sent.append(message)

    await McpResponse(access, Request(scope, receive))(scope, receive, send)
    assert sent == []


# Isolation of owners, by tool


async def resources(served: Served, owner: str) -> dict[str, str]:
    """Create a conversation with two versions, and one with a pending approval, and return the arguments of tools."""
    async with over_http(served, owner=owner) as client:
        done = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'writer'}))
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    [call] = paused['approvals']
    return {
        'run': done['run'],
        'conversation': done['conversation'],
        'version': done['version'],
        'from_version': done['version'],
        'to': done['version'],
        'approval': call['approval'],
        'prompt': 'Hi',
        'decision': 'deny',
    }


OWNED = ('run', 'conversation', 'version', 'from_version', 'to', 'approval')
"""The arguments of tools that identify resources of an owner."""

CASES = [(tool.name, name) for tool in TOOLS.values() for name in OWNED if name in tool.arguments.model_fields]


def test_each_identifier_is_in_the_matrix() -> None:
    """A new argument of a tool is either in the matrix or in the list of those that identify nothing."""
    nothing = {'prompt', 'agent', 'branch', 'wait_seconds', 'decision', 'digest', 'args', 'content', 'reason'}
    nothing |= {'steps', 'limit', 'cursor'}
    assert {name for tool in TOOLS.values() for name in tool.arguments.model_fields} == nothing | set(OWNED)


@pytest.mark.slow
@pytest.mark.parametrize('owner', ['bob', 'ada'])
async def test_resources_of_others_do_not_exist(served: Served, owner: str) -> None:
    """Each id of another owner, or of an agent that the key may not use, is answered exactly as an unknown one."""
    own, foreign = await resources(served, 'bob'), await resources(served, 'ada')
    agents: list[str] | None = None if owner == 'bob' else []
    async with over_http(served, owner=owner, agents=agents) as client:
        before = result_of(await client.call_tool('log', {}))
        for tool, name in CASES:
            fields = TOOLS[tool].arguments.model_fields
            needed = {field: own[field] for field, info in fields.items() if info.is_required()}
            answers = [await client.call_tool(tool, {**needed, name: value}) for value in (foreign[name], UNKNOWN)]
            assert (
                error_of(answers[0])
                == error_of(answers[1])
                == snapshot('This resource does not exist, or this key has no access to it.')
            ), (tool, name)
        assert result_of(await client.call_tool('log', {})) == before
        approvals = result_of(await client.call_tool('list_approvals', {}))['approvals']
        assert foreign['approval'] not in [call['approval'] for call in approvals]


async def test_resources_of_the_owner_are_found(served: Served) -> None:
    """Proves that the calls of the matrix are valid, so that the refusals above are due to ownership."""
    own = await resources(served, 'ada')
    async with over_http(served) as client:
        for tool, name in CASES:
            fields = TOOLS[tool].arguments.model_fields
            needed = {field: own[field] for field, info in fields.items() if info.is_required()}
            answer = await client.call_tool(tool, {**needed, name: own[name]})
            if answer.is_error:
                assert (tool, error_of(answer)) == ('resume_run', f'The run {own["run"]} is not suspended.')
