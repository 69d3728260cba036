"""The client as a whole: its arguments, its imports, and a workflow over a socket."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from pydantic_deep.approvals import Approve
from pydantic_deep.client import Client
from pydantic_deep.errors import ValidationError
from tests.client.conftest import Server
from tests.server.conftest import Listen

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    'url', ['', 'localhost:8000', 'file:///tmp', '//localhost', 'http://', 'http://localhost:x', '\ud83d', None]
)
async def test_url_without_the_scheme_of_http_is_refused(url: Any):
    """A URL that is not one of a server is refused when the client is created."""
    with pytest.raises(ValidationError, match=r'base_url: .* must be a URL that starts with `http://`'):
        Client(url, 'key')


@pytest.mark.parametrize('key', ['', 'two words', 'line\nbreak', 'schlüssel'])
async def test_key_that_no_header_can_carry_is_refused(key: str):
    """A key that was copied incompletely or with other text is refused before it is sent, and is not in the error."""
    with pytest.raises(ValidationError, match=r'^api_key: It is empty, or has spaces') as refused:
        Client('http://localhost', key)
    assert not key or key not in str(refused.value)


async def test_path_of_the_base_url_is_kept():
    """A server that is mounted below a path is reached below that path."""
    async with Client('http://localhost/deep/', 'key') as client:
        assert str(client._http.build_request('GET', '/api/me').url) == 'http://localhost/deep/api/me'  # pyright: ignore[reportPrivateUsage]


@pytest.mark.slow
def test_import_needs_no_server():
    """Importing the client imports neither the server nor the web framework that it is built on."""
    names = ('pydantic_deep.server', 'fastapi', 'starlette', 'uvicorn', 'typer')
    program = f'import sys, pydantic_deep.client\nprint([name for name in {names} if name in sys.modules])'
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert ran.stdout == '[]\n'


async def test_workflow_over_a_socket(server: Server, listen: Listen):
    """A turn pauses for an approval, the answer resumes it, and the written file is read, all over a real socket."""
    async with (
        listen(server.app) as url,
        Client(url, await server.key()) as client,
    ):
        conversation = await client.conversations.create('careful')
        run = await client.turns.start(conversation.id, '/a=1')
        async with client.turns.events(run.id, function_calls=True) as events:
            types = [event.type async for event in events]
        [approval] = [each async for each in client.approvals.list()]
        answered = await client.approvals.answer(approval, Approve(), resume=True)
        resumed = await client.turns.wait(answered.run_id or '')

        assert (types[0], types[-2:]) == ('start', ['approval_required', 'end'])
        assert 'tool_call' in types
        assert (resumed.state, resumed.output) == ('complete', 'Written.')
        assert await client.files.read(resumed.version_id or '', '/a') == b'1\n'
