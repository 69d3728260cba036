"""Fixtures for tests of views: agents of a server and of the command line on one store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from anyio.to_thread import run_sync
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from typer.testing import CliRunner

from pydantic_deep import create_deep_agent
from pydantic_deep.cli._app import app
from pydantic_deep.cli._environment import Environment
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, MakeClient, make_client, serve, served, settings

__all__ = ('make_client', 'serve', 'served', 'settings')

Print: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a command with `--json` and returns the printed document."""


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


@pytest.fixture
def print_json(tmp_path: Path) -> Print:
    async def invoke(*args: str) -> Any:
        options = [*args, '--json', '--store', f'sqlite:///{tmp_path}/agents.db']
        environment = Environment(variables={'HOME': str(tmp_path)})
        done = await run_sync(partial(CliRunner().invoke, app, options, obj=environment))
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return invoke


async def converse(client: Client, agent: str, *prompts: str) -> str:
    """Start a conversation and return its id."""
    path = (await client.post('/api/conversations', json={'agent': agent})).headers['location']
    for prompt in prompts:
        await client.post(f'{path}/turns', json={'prompt': prompt})
    return path.rpartition('/')[2]


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Follow the user's command: `write PATH`, `delegate`, `plan` or `fail`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return 'Done.'
    (prompt,) = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    verb, _, path = prompt.partition(' ')
    if verb == 'write':
        return call('write_file', path=path, content=f'{len(messages)}\n')
    if verb == 'plan':
        return call('write_todos', todos=[{'content': 'Write it', 'status': 'in_progress'}])
    if verb == 'fail':
        raise ValueError('secret')
    return call('task', subagent='scribe', description='look') if verb == 'delegate' else 'Looked.'


@pytest.fixture
def agents() -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    scribe = Subagent(name='scribe', description='Looks.', instructions='Look.')
    return {
        'analyst': create_deep_agent(model, subagents=[scribe]),
        'asker': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqlStore]:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        yield store
