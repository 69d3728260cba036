"""Fixtures: agents that pause in several ways, and the official client of A2A."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_data_part, new_text_part
from a2a.types import Artifact, Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState
from google.protobuf.json_format import MessageToDict
from pydantic import BaseModel
from pydantic_ai import Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep import AskUser, create_deep_agent
from pydantic_deep.server import AnyAgent, KeyScope
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import BASE_URL, Gate, Served
from tests.server.routes.file_writer import answer

UNKNOWN = '00000000-0000-7000-8000-000000000000'
"""An id that does not exist."""


def parts_of(messages: list[ModelMessage]) -> list[ModelRequestPart]:
    return [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]


def ask_and_repeat(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Ask the user, and answer with the result."""
    results = [str(part.content) for part in parts_of(messages) if isinstance(part, ToolReturnPart)]
    return results[-1] if results else call('ask_user', question='Which flower?')


def look_up_and_repeat(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call an external tool, and answer with its result."""
    results = [str(part.content) for part in parts_of(messages) if isinstance(part, ToolReturnPart)]
    return results[-1] if results else call('look_up', key='may')


def hold_or_write(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Hold until the gate opens if the last prompt is `hold`; repeat a list of contents; write files otherwise."""
    last = parts_of(messages)[-1]
    if isinstance(last, UserPromptPart) and not isinstance(last.content, str):
        return ' '.join(item if isinstance(item, str) else type(item).__name__ for item in last.content)
    return answer(messages, info)


class Flower(BaseModel):
    petals: int


EXTERNAL = ExternalToolset[Any]([ToolDefinition(name='look_up', parameters_json_schema={'type': 'object'})])


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """`writer` writes at once, `asker` needs approvals, `curious` asks the user, `outside` has an external tool,
    and `typed` has a structured output.
    """
    hold = [Tool(gate.hold, name='hold')]
    writer = create_deep_agent(ScriptedModel(then=hold_or_write), tools=hold)
    writer.description = 'Writes files.'
    return {
        'writer': writer,
        'asker': create_deep_agent(
            ScriptedModel(then=hold_or_write), tools=hold, interrupt_on={'write_file': True, 'hold': True}
        ),
        'typed': create_deep_agent(
            ScriptedModel(then=lambda messages, info: call('final_result', petals=5)), output_type=Flower
        ),
        'curious': create_deep_agent(ScriptedModel(then=ask_and_repeat), interrupt_on={}, capabilities=[AskUser()]),
        'outside': create_deep_agent(ScriptedModel(then=look_up_and_repeat), interrupt_on={}, toolsets=[EXTERNAL]),
    }


Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(served: Served) -> Connect:
    """Return a context manager that connects the official client: `connect('writer', 'run', owner='bob')`."""
    return connect_to(served)


def connect_to(served: Served) -> Connect:
    """Return `connect` for an application."""

    @asynccontextmanager
    async def connect(
        agent: str, *scopes: KeyScope, streaming: bool = False, url: str | None = None, **options: Any
    ) -> AsyncGenerator[Client]:
        key = await served.key(*(scopes or ('run', 'approve')), **options)
        transport = httpx.ASGITransport(served.app) if url is None else None
        async with httpx.AsyncClient(transport=transport, headers={'authorization': f'Bearer {key}'}) as http:
            card = await A2ACardResolver(http, f'{url or BASE_URL}/a2a/{agent}').get_agent_card()
            config = ClientConfig(httpx_client=http, streaming=streaming)
            yield ClientFactory(config).create(card)

    return connect


def message(*parts: str | object, id: str | None = None, **fields: Any) -> Message:
    """Return a message of the user: texts, data, and parts as they are."""
    return Message(message_id=id or uuid4().hex, role=Role.ROLE_USER, parts=[_part(part) for part in parts], **fields)


def _part(part: str | object) -> Part:
    if isinstance(part, Part):
        return part
    return new_text_part(part) if isinstance(part, str) else new_data_part(part)


async def responses(client: Client, sent: Message, **configuration: Any) -> list[StreamResponse]:
    """Send a message, and return what the client yields."""
    request = SendMessageRequest(message=sent, configuration=configuration)
    return [response async for response in client.send_message(request)]


async def send(client: Client, *parts: str | object, id: str | None = None, now: bool = False, **fields: Any) -> Task:
    """Send a message without a stream, and return the task."""
    [response] = await responses(client, message(*parts, id=id, **fields), return_immediately=now)
    return response.task


def text_of(artifacts: Sequence[Artifact]) -> str:
    return ''.join(part.text for artifact in artifacts for part in artifact.parts)


def pending_in(task: Task) -> list[dict[str, Any]]:
    """Return the pending calls of a task."""
    assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    return [MessageToDict(part.data) for part in task.status.message.parts if part.HasField('data')]


def decision(shown: Mapping[str, Any], decision: str, **fields: Any) -> dict[str, Any]:
    """Return the data of a decision on a call as it was shown."""
    return {'approval': shown['approval'], 'digest': shown['digest'], 'decision': decision, **fields}
