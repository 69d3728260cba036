"""Fixtures for summarization tests: agents with a growing history, and checks of request prefixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai import Agent, AgentStreamEvent
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models import Model

from pydantic_deep._requests.canonical_request import canonical_request
from pydantic_deep.summarization import HistorySummarizedEvent, Messages, Summarization
from pydantic_deep.testing import ScriptedModel, SeenRequest


class Watch:
    """Event handler that records the capability's events."""

    def __init__(self) -> None:
        self.events: list[HistorySummarizedEvent] = []

    async def __call__(self, ctx: Any, events: Any) -> None:
        async for event in events:
            self.note(event)

    def note(self, event: AgentStreamEvent) -> None:
        if isinstance(event, HistorySummarizedEvent):
            self.events.append(event)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def agent_of() -> Callable[..., Agent[Any, Any]]:
    """Make an agent with a tool named `work` that returns some text."""

    def make(model: Model, *capabilities: Any, text: str = 'x' * 400, **options: Any) -> Agent[Any, Any]:
        agent = Agent[Any, Any](model, capabilities=capabilities, **options)

        @agent.tool_plain(name='work')
        def _(n: int = 0) -> str:
            return f'{n}: {text}'

        return agent

    return make


def is_question(request: SeenRequest) -> bool:
    """Return whether a request asks for a summary."""
    last = request.messages[-1].parts[-1]
    return isinstance(last, UserPromptPart) and 'Summarize the conversation above' in str(last.content)


@pytest.fixture
def split() -> Callable[[ScriptedModel], tuple[list[SeenRequest], list[SeenRequest]]]:
    """Return the requests of a run and the requests for summaries."""

    def of(model: ScriptedModel) -> tuple[list[SeenRequest], list[SeenRequest]]:
        asked = [request for request in model.requests if is_question(request)]
        return [request for request in model.requests if not is_question(request)], asked

    return of


@pytest.fixture
def breaks() -> Callable[[Sequence[SeenRequest]], list[int]]:
    """Return the indexes of requests that do not start with the whole previous request."""

    def of(requests: Sequence[SeenRequest]) -> list[int]:
        forms = [canonical_request(each.messages, None, each.parameters) for each in requests]
        return [
            number
            for number, (before, after) in enumerate(pairwise(forms), start=1)
            if after.messages[: len(before.messages)] != before.messages
            or (before.tools, before.instructions) != (after.tools, after.instructions)
        ]

    return of


async def facts(messages: Sequence[ModelMessage]) -> str:
    return 'Facts: some.'


def summarization(**options: Any) -> Summarization:
    defaults: dict[str, Any] = {'trigger': Messages(8), 'keep': Messages(2), 'summarizer': facts}
    return Summarization(**(defaults | options))
