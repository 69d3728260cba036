"""Sessions of `/mcp`: clients of older protocols that show forms, and no others, have one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from inline_snapshot import snapshot
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server

from pydantic_deep.server.mcp import _sessions
from pydantic_deep.server.mcp._sessions import SESSION_ID
from tests.server.conftest import Listen, MakeClient, Served
from tests.server.mcp.conftest import result_of
from tests.server.mcp.test_elicitation import Person, filled
from tests.server.mcp.test_http import ACCEPT, PING

pytestmark = pytest.mark.anyio


def hello(**elicitation: Any) -> dict[str, Any]:
    """Return the first message of a client of an older protocol, by default of one without forms."""
    params = {
        'protocolVersion': '2025-11-25',
        'capabilities': elicitation,
        'clientInfo': {'name': 'test', 'version': '1'},
    }
    return {'jsonrpc': '2.0', 'id': 0, 'method': 'initialize', 'params': params}


@asynccontextmanager
async def connected(url: str, key: str, person: Person | None) -> AsyncGenerator[Client]:
    """Yield a client of an older protocol, on a socket: without one, no stream is read before its end."""
    http = httpx2.AsyncClient(headers={'authorization': f'Bearer {key}'})
    transport = streamable_http_client(f'{url}/mcp', http_client=http)
    async with http, Client(transport, mode='legacy', elicitation_callback=person) as client:
        yield client


async def test_client_of_an_older_protocol_approves_in_a_form(served: Served, listen: Listen) -> None:
    """The form is a request within the stream of the call, and its answer reaches the call through the session."""
    person = Person(filled('approve'))
    async with listen(served.app) as url, connected(url, await served.key('run', 'approve'), person) as client:
        done = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
        assert (done['state'], len(person.forms)) == ('complete', 1)
        assert len(served.state.mcp_sessions) == 1


async def test_client_without_forms_has_no_session(served: Served, listen: Listen) -> None:
    """Its requests stand alone, so any process answers them."""
    async with listen(served.app) as url, connected(url, await served.key('run', 'approve'), None) as client:
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
        assert paused['state'] == 'awaiting_approval'
        assert served.state.mcp_sessions == {}


async def test_unknown_session_is_served_without_forms(served: Served, listen: Listen) -> None:
    """After a restart, or in another process, a client with the id of a session gets the approvals as a result."""
    person = Person()
    async with listen(served.app) as url, connected(url, await served.key('run', 'approve'), person) as client:
        served.state.mcp_sessions.clear()
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    assert (paused['state'], person.forms) == ('awaiting_approval', [])


async def test_answer_for_an_unknown_session_is_refused(make_client: MakeClient) -> None:
    """Nothing can use the answer to a form that no call of this process waits for, so the client learns it."""
    answer = {'jsonrpc': '2.0', 'id': 1, 'result': {'action': 'accept', 'content': {'decision': 'approve'}}}
    headers = {**ACCEPT, SESSION_ID: 'x'}
    refused = await (await make_client('run')).post('/mcp', json=answer, headers=headers)
    assert (refused.status_code, refused.json()['error']['message']) == snapshot(
        (404, 'This session has ended. Call the tool again.')
    )


async def test_session_of_another_caller_is_not_used(served: Served, make_client: MakeClient) -> None:
    """A request with the id of somebody else's session is answered as the one of its own key, without the session."""
    ada, bob = await make_client('run', owner='ada'), await make_client('run', owner='bob')
    opened = await ada.post('/mcp', json=hello(elicitation={}), headers=ACCEPT)
    stolen = {**ACCEPT, SESSION_ID: opened.headers[SESSION_ID]}
    answers = [await client.post('/mcp', json=PING, headers=stolen) for client in (ada, bob)]
    assert [answer.is_success for answer in answers] == [True, True]
    assert [SESSION_ID in answer.headers for answer in answers] == [True, False]


async def test_oldest_session_of_a_caller_ends(
    served: Served, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions are limited for each caller: a new one ends the one whose last request is the oldest."""
    monkeypatch.setattr(_sessions, 'MAX_SESSIONS', 2)
    ada, bob = await make_client('run', owner='ada'), await make_client('run', owner='bob')
    ids = [
        (await client.post('/mcp', json=hello(elicitation={}), headers=ACCEPT)).headers[SESSION_ID]
        for client in (bob, ada, ada)
    ]
    assert (await ada.post('/mcp', json=PING, headers={**ACCEPT, SESSION_ID: ids[1]})).is_success
    third = await ada.post('/mcp', json=hello(elicitation={}), headers=ACCEPT)
    assert list(served.state.mcp_sessions) == [ids[0], ids[1], third.headers[SESSION_ID]]


async def test_failed_session_does_not_end_the_server(
    served: Served, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in the loop of a session is logged, and the server answers the next request."""

    async def fail(*arguments: object) -> None:
        raise RuntimeError('a defect')

    client = await make_client('run')
    with monkeypatch.context() as patched:
        patched.setattr(Server, 'run', fail)
        await client.post('/mcp', json=hello(elicitation={}), headers=ACCEPT)
    assert 'a defect' in caplog.text
    assert served.state.mcp_sessions == {}
    assert (await client.post('/mcp', json=PING, headers=ACCEPT)).is_success


@pytest.mark.parametrize(
    'message',
    [
        hello(),
        hello(elicitation=None),
        {**hello(elicitation={}), 'params': []},
        {**hello(elicitation={}), 'params': {'protocolVersion': '2025-11-25', 'capabilities': 5}},
        {**hello(elicitation={}), 'params': {'protocolVersion': '2999-01-01', 'capabilities': {'elicitation': {}}}},
    ],
)
async def test_no_other_message_opens_a_session(
    served: Served, make_client: MakeClient, message: dict[str, Any]
) -> None:
    """Only `initialize` of an older protocol with forms opens one, whatever else a message contains."""
    answer = await (await make_client('run')).post('/mcp', json=message, headers=ACCEPT)
    assert SESSION_ID not in answer.headers
    assert served.state.mcp_sessions == {}
