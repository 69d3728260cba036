"""Standard input and output: lines that are no messages, and messages that nobody has thought of."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import ServerSettings
from pydantic_deep.server.mcp import _lines
from pydantic_deep.server.mcp._lines import text_files
from pydantic_deep.server.mcp.stdio import serve_stdio
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import MakeClient
from tests.server.mcp.test_http import ACCEPT

HELLO = {
    'jsonrpc': '2.0',
    'id': 'hello',
    'method': 'initialize',
    'params': {'protocolVersion': '2025-11-25', 'capabilities': {}, 'clientInfo': {'name': 'test', 'version': '1'}},
}
READY = {'jsonrpc': '2.0', 'method': 'notifications/initialized'}
PING = {'jsonrpc': '2.0', 'id': 'end', 'method': 'ping'}

METHODS = ('initialize', 'ping', 'tools/list', 'tools/call', 'resources/read', 'prompts/get', 'tasks/get', 'x')
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PARAMS = JSON | st.fixed_dictionaries(
    {},
    optional={
        'name': st.sampled_from(('run', 'diff', 'rewind', 'log')) | JSON,
        'arguments': JSON,
        'uri': JSON,
        '_meta': JSON,
        'cursor': JSON,
    },
)
MESSAGES = JSON | st.fixed_dictionaries(
    {'jsonrpc': st.just('2.0') | JSON},
    optional={
        'id': st.integers(0, 9) | JSON,
        'method': st.sampled_from(METHODS) | JSON,
        'params': PARAMS,
        'result': JSON,
        'error': JSON,
    },
)
"""Messages, and what is nearly one."""


async def answers(*lines: str) -> list[dict[str, Any]]:
    """Send lines to a new process, as it were, and return its answers until the input ends."""
    output = BytesIO()
    agents = {'writer': create_deep_agent(ScriptedModel())}
    async with open_store('memory:') as store:
        streams = BytesIO(''.join(f'{line}\n' for line in lines).encode()), output
        await serve_stdio(agents, store, ServerSettings(), owner='ada', streams=streams)
    return [json.loads(line) for line in output.getvalue().splitlines()]


@pytest.mark.anyio
async def test_line_that_is_no_message_is_answered() -> None:
    """Each such line gets an error, and the next message its result."""
    lines = ('{', '[]', '5', '{"jsonrpc": "2.0"}', '[' * 10_000)
    found = await answers(json.dumps(HELLO), *lines, json.dumps(PING))
    errors = [message['error'] for message in found if 'error' in message]
    assert errors == len(lines) * [
        {
            'code': -32700,
            'message': snapshot(
                'The line is no JSON-RPC message of at most 50,000,000 characters. Send one JSON document a line.'
            ),
        }
    ]
    assert {message.get('id') for message in found if 'result' in message} >= {'hello'}


@pytest.mark.anyio
async def test_requests_before_the_end_of_the_input_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that writes its requests and closes its output at once gets all answers."""
    monkeypatch.setattr(_lines, 'CLOSE_SECONDS', 60)  # on a busy machine, the run takes longer than a second
    run = {'name': 'run', 'arguments': {'prompt': 'Hi.'}}
    requests = ({'id': 'tools', 'method': 'tools/list'}, {'id': 'run', 'method': 'tools/call', 'params': run})
    found = await answers(*map(json.dumps, (HELLO, READY, *({'jsonrpc': '2.0', **sent} for sent in requests))))
    assert {message['id']: 'result' in message for message in found} == {'hello': True, 'tools': True, 'run': True}


@pytest.mark.slow
@given(messages=st.lists(MESSAGES, max_size=20))
@settings(max_examples=10, deadline=None)
def test_no_message_ends_the_process(messages: list[Any]) -> None:
    """Whatever a client sends on standard input, the process answers the messages before and after it."""

    async def check() -> None:
        lines = [json.dumps(message) for message in (HELLO, READY, *messages)]
        found = await answers(*lines, json.dumps(PING))
        assert 'hello' in {message.get('id') for message in found}

    anyio.run(check)


@pytest.mark.slow
@pytest.mark.anyio
@given(message=MESSAGES)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_message_is_a_defect_over_http(make_client: MakeClient, message: Any) -> None:
    """Whatever a client sends to `/mcp`, it is answered, never with an internal error."""
    answer = await (await make_client('run')).post('/mcp', json=message, headers=ACCEPT)
    assert answer.status_code < 500


@pytest.mark.anyio
async def test_input_is_read_in_lines_of_limited_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is too long is replaced by one that is no message. The files remain open."""
    monkeypatch.setattr(_lines, 'MAX_LINE_CHARS', 10)
    incoming, outgoing = BytesIO(b'short\n' + b'x' * 35 + b'\n' + b'y' * 9 + b'\nz' + b'w' * 20), BytesIO()
    lines, output = text_files(incoming, outgoing)
    await output.write('answer\n')
    assert [line async for line in lines] == [
        'short\n',
        'The line was too long.\n',
        'yyyyyyyyy\n',
        'The line was too long.\n',
    ]
    del lines, output
    assert outgoing.getvalue() == b'answer\n'
    assert not incoming.closed
