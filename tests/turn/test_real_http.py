"""A whole turn over real HTTP, with the providers' own SDKs and a third-party server.

Nothing is mocked between our code and the server. The server is `llmock` on a free loopback port, in a thread
that its pytest plugin ends; it speaks each provider's wire format and returns the scripted answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from llmock.journal import RequestRecord
from llmock.scenarios import Reply, ToolCall
from llmock.testing import LLMockServer
from llmock.tools import ToolSpec, tool_context
from pydantic import JsonValue
from pydantic_ai import models
from pydantic_ai.messages import ModelResponse, PartDeltaEvent
from pydantic_ai.models import Model, override_allow_model_requests
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.settings import ModelSettings

from pydantic_deep import DeepAgentDeps, Todo, create_deep_agent
from pydantic_deep.testing import RecordedModel, RecordingModel

pytestmark = pytest.mark.anyio

KEY = 'no-key'
PROMPT = 'Write the greeting to /greeting.txt and read it back.'
TEXT = 'Grüße,\nWelt\n'
ANSWER = 'The greeting stands in /greeting.txt.'
PLAN: list[JsonValue] = [
    {'content': 'Write the greeting', 'status': 'completed'},
    {'content': 'Read it back', 'status': 'in_progress'},
]
TURN = (
    ToolCall('write_todos', {'todos': PLAN}),
    ToolCall('write_file', {'path': '/greeting.txt', 'content': TEXT}),
    ToolCall('read_file', {'path': '/greeting.txt'}),
)


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One provider's API."""

    provider: str
    """Name of the provider on the server."""
    dialect: str
    """Name of the format in the request parser of the server."""
    path: str
    """Request path; `{method}` depends on streaming."""
    make: Callable[[str], Model]
    """Make the model for a base URL."""


def openai_chat(url: str) -> Model:
    return OpenAIChatModel('gpt-5.2', provider=OpenAIProvider(base_url=url, api_key=KEY))


def openai_responses(url: str) -> Model:
    return OpenAIResponsesModel('gpt-5.2', provider=OpenAIProvider(base_url=url, api_key=KEY))


def anthropic(url: str) -> Model:
    # With the largest answer size, pydantic-ai requests a stream even if the run is not streamed.
    settings = ModelSettings(max_tokens=1000)
    provider = AnthropicProvider(base_url=url, api_key=KEY)
    return AnthropicModel('claude-opus-5-5', provider=provider, settings=settings)


def google(url: str) -> Model:
    return GoogleModel('gemini-2.5-pro', provider=GoogleProvider(base_url=url, api_key=KEY))


WIRES = {
    'openai-chat': Wire(provider='openai', dialect='openai', path='/v1/chat/completions', make=openai_chat),
    'openai-responses': Wire(
        provider='openai', dialect='openai-responses', path='/v1/responses', make=openai_responses
    ),
    'anthropic': Wire(provider='anthropic', dialect='anthropic', path='/anthropic/v1/messages', make=anthropic),
    'google': Wire(
        provider='gemini', dialect='gemini', path='/gemini/v1beta/models/gemini-2.5-pro:{method}', make=google
    ),
}


@pytest.fixture(autouse=True)
def requests_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow model requests in this module: every base URL is on loopback."""
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)
    # The server speaks Google's `v1beta`; the SDK takes the version from here.
    monkeypatch.setenv('GOOGLE_GENAI_API_VERSION', 'v1beta')


@pytest.fixture
def server(llmock_server: LLMockServer) -> Iterator[LLMockServer]:
    """The server, with one scripted turn."""
    llmock_server.state.reset()
    llmock_server.state.scenarios.add(*(Reply(tool_calls=(call,)) for call in TURN), Reply(text=ANSWER))
    yield llmock_server
    llmock_server.state.reset()


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The outcome of a turn."""

    result: AgentRunResult[str]
    deps: DeepAgentDeps
    delta_count: int
    """Number of part deltas that the run emitted."""


async def take_turn(model: Model, *, streamed: bool) -> Turn:
    """Run the turn."""
    deps = DeepAgentDeps()
    agent = create_deep_agent(model)
    delta_count = 0
    # Entering the agent closes the SDK's connections at the end.
    async with agent:
        if streamed:
            results: list[AgentRunResult[str]] = []
            async with agent.run_stream_events(PROMPT, deps=deps) as events:
                async for event in events:
                    delta_count += isinstance(event, PartDeltaEvent)
                    if isinstance(event, AgentRunResultEvent):
                        results.append(event.result)
            result = results[0]
        else:
            result = await agent.run(PROMPT, deps=deps)
    return Turn(result=result, deps=deps, delta_count=delta_count)


def offered_tools(wire: Wire, request: RequestRecord) -> dict[str, ToolSpec]:
    """Return the tools that the server found in a request, by name."""
    context = tool_context(wire.dialect, request.body)
    return {tool.name: tool for tool in context.tools} if context else {}


async def assert_done(turn: Turn) -> None:
    """Assert that the tools ran and the model answered."""
    assert turn.result.output == ANSWER
    assert await turn.deps.backend.read_bytes('/greeting.txt') == TEXT.encode()
    assert turn.deps.todos == [
        Todo(content='Write the greeting', status='completed'),
        Todo(content='Read it back', status='in_progress'),
    ]


@pytest.mark.slow
@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@pytest.mark.parametrize('name', WIRES)
async def test_whole_turn_with_tools(server: LLMockServer, name: str, streamed: bool) -> None:
    wire = WIRES[name]
    turn = await take_turn(wire.make(server.base_url(wire.provider)), streamed=streamed)

    await assert_done(turn)
    assert (turn.delta_count > 0) is streamed

    usage = turn.result.usage
    assert (usage.requests, usage.tool_calls) == (4, 3)
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    responses = [m for m in turn.result.all_messages() if isinstance(m, ModelResponse)]
    assert all(response.usage.output_tokens > 0 for response in responses)


@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@pytest.mark.parametrize('name', WIRES)
async def test_server_receives_our_tools_and_their_results(server: LLMockServer, name: str, streamed: bool) -> None:
    wire = WIRES[name]
    await take_turn(wire.make(server.base_url(wire.provider)), streamed=streamed)
    requests = server.state.journal.records(wait=2)

    method = 'streamGenerateContent' if streamed else 'generateContent'
    assert [request.path for request in requests] == [wire.path.format(method=method)] * 4
    assert [request.status for request in requests] == [200] * 4
    assert [request.stream for request in requests] == [streamed] * 4
    for request in requests:
        tools = offered_tools(wire, request)
        assert set(tools) >= {'write_todos', 'ls', 'read_file', 'write_file', 'edit_file', 'glob', 'grep'}
        assert list(tools['write_file'].parameters['properties']) == ['path', 'content']
        assert tools['write_file'].parameters['required'] == ['path', 'content']
        assert tools['write_file'].description
    assert 'Welt' in str(requests[-1].body)


@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@pytest.mark.parametrize('name', WIRES)
async def test_recorded_turn_replays_without_the_server(
    server: LLMockServer, tmp_path: Path, name: str, streamed: bool
) -> None:
    wire, path = WIRES[name], tmp_path / 'recording.json'
    live = await take_turn(RecordingModel(wire.make(server.base_url(wire.provider)), path), streamed=streamed)
    request_count = len(server.state.journal.records(wait=2))

    # Streamed if it was recorded without streaming and vice versa, and with model requests disabled.
    with override_allow_model_requests(False):
        model = RecordedModel(path)
        played = await take_turn(model, streamed=not streamed)

    await assert_done(played)
    assert model.remaining == 0
    assert (model.system, model.model_name) == (live.result.response.provider_name, played.result.response.model_name)
    assert played.result.usage.output_tokens == live.result.usage.output_tokens
    assert len(server.state.journal.records(wait=2)) == request_count
