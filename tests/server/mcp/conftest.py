"""Fixtures: an agent that writes files, one that asks first, and stock clients of MCP over HTTP and in the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal, TypeAlias

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from pydantic_ai import Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import AskUser, create_deep_agent
from pydantic_deep.server import AnyAgent, KeyScope, ServerSettings
from pydantic_deep.server.access._identity import caller_with_key
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.mcp._server import create_mcp_server
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import BASE_URL, Gate, Served
from tests.server.routes.file_writer import answer


def write_twice(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write the files of the prompt; after `twice`, write one file after another."""
    prompts = [str(part.content) for part in _parts(messages) if isinstance(part, UserPromptPart)]
    written = sum(isinstance(part, ToolReturnPart) for part in _parts(messages))
    if prompts[-1] == 'twice' and written < 2:
        return call('write_file', path=f'/{written}.txt', content='x')
    return answer(messages, info)


def ask_and_repeat(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Ask the user, and answer with the result."""
    results = [str(part.content) for part in _parts(messages) if isinstance(part, ToolReturnPart)]
    return results[-1] if results else call('ask_user', question='Which flower?')


def _parts(messages: list[ModelMessage]) -> list[ModelRequestPart]:
    return [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]


UNKNOWN = '00000000-0000-7000-8000-000000000000'
"""An id that does not exist."""

Mode: TypeAlias = Literal['legacy', 'auto']


@pytest.fixture
def settings() -> ServerSettings:
    """Settings with limits that no test reaches by accident, and with the tool `answer_approval`."""
    return ServerSettings(requests_per_second=1000, request_burst=100_000, mcp_answers=True)


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """`writer` writes at once, `asker` needs an approval for each file, `curious` asks the user and repeats the answer."""
    hold = [Tool(gate.hold, name='hold')]
    return {
        'writer': create_deep_agent(ScriptedModel(then=answer), tools=hold),
        'asker': create_deep_agent(ScriptedModel(then=write_twice), interrupt_on={'write_file': True}),
        'curious': create_deep_agent(ScriptedModel(then=ask_and_repeat), interrupt_on={}, capabilities=[AskUser()]),
    }


async def access_of(served: Served, *scopes: KeyScope, **options: Any) -> Access:
    """Return the access of a new key, by default of ada with `run` and `approve`."""
    key = await served.state.keys.find(await served.key(*(scopes or ('run', 'approve')), **options))
    assert key is not None
    return Access(state=served.state, caller=caller_with_key(key))


@asynccontextmanager
async def over_http(
    served: Served, *scopes: KeyScope, mode: Mode = 'auto', elicitation: Any = None, **options: Any
) -> AsyncGenerator[Client]:
    """Yield a client that talks to `/mcp` with a new key, by default of ada with `run` and `approve`."""
    key = await served.key(*(scopes or ('run', 'approve')), **options)
    http = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(served.app), headers={'authorization': f'Bearer {key}'}, base_url=BASE_URL
    )
    transport = streamable_http_client(f'{BASE_URL}/mcp', http_client=http)
    async with http, Client(transport, mode=mode, elicitation_callback=elicitation) as client:
        yield client


Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(served: Served) -> Connect:
    """Return a context manager that connects a client in the process: `connect('run', mode='legacy')`."""

    @asynccontextmanager
    async def connect(
        *scopes: KeyScope, owner: str = 'ada', agents: list[str] | None = None, **options: Any
    ) -> AsyncGenerator[Client]:
        access = await access_of(served, *scopes, owner=owner, agents=agents)
        async with Client(create_mcp_server(access), **options) as client:
            yield client

    return connect


@pytest.fixture
async def client(connect: Connect) -> AsyncGenerator[Client]:
    """A client in the process, with the scopes `run` and `approve`."""
    async with connect() as client:
        yield client


def result_of(result: CallToolResult) -> Any:
    """Return the structured result of a successful call, which its text repeats."""
    assert not result.is_error, result.content
    return result.structured_content


def error_of(result: CallToolResult) -> str:
    """Return the text of a failed call."""
    [content] = result.content
    assert result.is_error
    assert isinstance(content, TextContent)
    return content.text
