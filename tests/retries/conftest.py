"""Fixtures for retry tests: a model that fails on demand, delays on a fake clock, and the real models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pytest
from llmock.scenarios import ToolCall
from pydantic_ai import Agent, RunContext, models
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from pydantic_deep._requests.canned_stream import CannedStream
from pydantic_deep.retries import ModelRetriedEvent, Retries
from pydantic_deep.testing import FakeClock

Step: TypeAlias = ModelResponse | Exception | tuple[ModelResponse, Exception]
"""A response, a failure, or a failure after part of a response."""

USAGE = RequestUsage(input_tokens=7, output_tokens=3)


def whole(*parts: ModelResponsePart | str) -> ModelResponse:
    """Return a complete response as OpenAI would send it."""
    return replace(cut(*parts), finish_reason='stop', provider_details={'finish_reason': 'stop'})


def cut(*parts: ModelResponsePart | str) -> ModelResponse:
    """Return a response from a stream that ended early, as pydantic-ai represents it."""
    return ModelResponse(
        parts=[TextPart(part) if isinstance(part, str) else part for part in parts],
        model_name='gpt-5.2',
        provider_name='openai',
        provider_url='https://api.openai.com/v1',
        finish_reason='stop',
        usage=replace(USAGE),
    )


class FaultyModel(Model[None]):
    """Plays steps, and counts its requests and open streams."""

    def __init__(self, *steps: Step, system: str = 'fallback:openai,anthropic') -> None:
        super().__init__()
        self.steps = list(steps)
        self.asked = 0
        self.open_count = 0
        self._system = system

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        step = self._next()
        if isinstance(step, tuple):
            raise step[1]
        return step

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        step = self._next()
        response, error = step if isinstance(step, tuple) else (step, None)
        self.open_count += 1
        try:
            yield _FaultyStream(model_request_parameters, response=response, error=error)
        finally:
            self.open_count -= 1

    def _next(self) -> ModelResponse | tuple[ModelResponse, Exception]:
        self.asked += 1
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return replace(step) if isinstance(step, ModelResponse) else step

    @property
    def model_name(self) -> str:
        return 'gpt-5.2'

    @property
    def system(self) -> str:
        return self._system


@dataclass
class _FaultyStream(CannedStream):
    """Streams a response and then fails."""

    error: Exception | None = field(kw_only=True)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self.state, self.provider_details = self.response.state, self.response.provider_details
        async for event in super()._get_event_iterator():
            if self._cancelled:  # the connection is closed
                return
            yield event
        if self.error is not None:
            raise self.error

    def get(self) -> ModelResponse:
        """Return the response so far, with the attempts that a `FallbackModel` recorded on the stream."""
        return replace(super().get(), failed_attempts=self.failed_attempts)


@dataclass
class Waits:
    """Delays that take no real time, on a fake clock."""

    clock: FakeClock = field(default_factory=FakeClock)
    seconds: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.clock.advance(seconds)

    def retries(self, **options: Any) -> Retries:
        """Return the capability with the maximum delays, which take no real time."""
        defaults: dict[str, Any] = {'sleep': self.sleep, 'random': lambda: 1.0, 'clock': self.clock.monotonic}
        return Retries(**(defaults | options))


@pytest.fixture
def waits() -> Waits:
    return Waits()


def lost() -> ModelAPIError:
    """Return a transient failure."""
    return ModelAPIError('gpt-5.2', 'Failed to decode response as JSON')


KEY = 'no-key'
ANSWER = 'It rains in Paris and the sun shines in London, says the weather service today.'
CALL = ToolCall('weather', {'cities': ['Paris', 'London'], 'day': 'today'})


def openai_chat(url: str) -> Model:
    return OpenAIChatModel('gpt-5.2', provider=OpenAIProvider(base_url=url, api_key=KEY))


def openai_responses(url: str) -> Model:
    return OpenAIResponsesModel('gpt-5.2', provider=OpenAIProvider(base_url=url, api_key=KEY))


def anthropic(url: str) -> Model:
    # With room for the longest answer, pydantic-ai requests a stream even if the run is not streamed.
    settings = ModelSettings(max_tokens=1000)
    return AnthropicModel('claude-opus-5-5', provider=AnthropicProvider(base_url=url, api_key=KEY), settings=settings)


def google(url: str) -> Model:
    return GoogleModel('gemini-2.5-pro', provider=GoogleProvider(base_url=url, api_key=KEY))


WIRES: dict[str, tuple[str, Callable[[str], Model]]] = {
    'openai-chat': ('openai', openai_chat),
    'openai-responses': ('openai', openai_responses),
    'anthropic': ('anthropic', anthropic),
    'google': ('gemini', google),
}
"""The server's name of a provider, and the function that makes its model."""


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow model requests: every base URL here is a loopback address."""
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)
    monkeypatch.setenv('GOOGLE_GENAI_API_VERSION', 'v1beta')  # the version implemented by the server


@dataclass(kw_only=True)
class Turn:
    """Result of a turn."""

    result: AgentRunResult[str]
    events: list[AgentStreamEvent]
    tool_runs: list[list[str]]

    @property
    def retried(self) -> list[ModelRetriedEvent]:
        return [event for event in self.events if isinstance(event, ModelRetriedEvent)]


async def take_turn(model: Model, waits: Waits, *, streamed: bool, **options: Any) -> Turn:
    """Run a turn of two requests and one tool call, without the retries of the SDKs."""
    settings = ModelSettings(max_retries=0)
    agent = Agent(model, capabilities=[waits.retries(**options)], model_settings=settings)
    tool_runs: list[list[str]] = []
    events: list[AgentStreamEvent] = []

    @agent.tool_plain
    def weather(cities: list[str], day: str) -> str:
        tool_runs.append(cities)
        return 'rain, sun'

    async with agent:  # entering it closes the SDK's connections at the end
        if not streamed:
            return Turn(result=await agent.run('And the weather?'), events=events, tool_runs=tool_runs)
        results: list[AgentRunResult[str]] = []
        async with agent.run_stream_events('And the weather?') as stream:
            async for event in stream:
                if isinstance(event, AgentRunResultEvent):
                    results.append(event.result)
                else:
                    events.append(event)
    return Turn(result=results[0], events=events, tool_runs=tool_runs)
