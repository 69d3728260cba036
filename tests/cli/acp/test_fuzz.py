"""Lines and messages at random: each is answered or ignored, and the connection goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION
from acp.meta import AGENT_METHODS

from pydantic_deep.cli.acp import _connection
from pydantic_deep.testing import ScriptedModel
from tests.cli.acp.conftest import Connect

ROUNDS = 300
"""Number of messages of a test; a defect of the dispatch shows in the first few dozens."""

VALUES: list[Any] = [None, True, -1, 1.5, 10**400, '', 'x', '\udcff', [], {}, [[]], {'type': 'text'}, ['a'] * 3]
"""Values of fields, of every type of JSON."""


def message(chance: random.Random, directory: Path, session: str) -> dict[str, Any]:
    """Return a message that resembles a request, a notification or a response, with some wrong fields."""
    params: dict[str, Any] = {
        'cwd': str(directory),
        'sessionId': session,
        'mcpServers': [],
        'protocolVersion': 1,
        'modeId': 'auto',
        'prompt': [{'type': 'text', 'text': '/log'}],
    }
    for name in chance.sample(list(params), 2):
        params[name] = chance.choice(VALUES)
    made: dict[str, Any] = {
        'jsonrpc': '2.0',
        'id': chance.choice([1_000_000, 'a', None, -5]),
        'method': chance.choice([*AGENT_METHODS.values(), '_x', '', 'x/y']),
        'params': params,
        'result': {},
        'error': {'code': 1, 'message': 'm'},
    }
    for name in chance.sample(list(made), chance.randrange(len(made))):
        made[name] = chance.choice(VALUES) if chance.random() < 0.4 else None
        if chance.random() < 0.6:
            del made[name]
    return made


@pytest.mark.slow
async def test_messages_at_random_do_not_end_the_connection(connect: Connect, work: Path) -> None:
    """Whatever a client sends, the next valid request is answered."""
    chance = random.Random(21)
    async with connect(ScriptedModel('Works.')) as editor:
        session = await editor.open(work)
        for number in range(ROUNDS):
            line = json.dumps(message(chance, work, session)).encode()
            cut = chance.randrange(len(line)) if chance.random() < 0.2 else len(line)
            editor.output.write(line[:cut] + bytes([chance.randrange(256)]) * (cut < len(line)) + b'\n')
            if number % 50 == 0:
                response = await editor.connection.initialize(protocol_version=PROTOCOL_VERSION)
                assert response.protocol_version == PROTOCOL_VERSION
        session = await editor.open(work)
        assert (await editor.prompt(session, 'Hello.')).stop_reason == 'end_turn'
        assert editor.text().endswith('Works.')


async def test_a_line_above_the_limit_does_not_end_the_connection(connect: Connect, work: Path) -> None:
    """A line that is longer than the limit is refused, and the next request is answered."""
    async with connect(ScriptedModel('Works.')) as editor:
        editor.output.write(b'{"id": 1, "method": "' + b'x' * _connection.MAX_LINE_BYTES + b'"}\n')
        await editor.output.drain()
        session = await editor.open(work)
        assert (await editor.prompt(session, 'Hello.')).stop_reason == 'end_turn'
