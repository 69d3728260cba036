"""Fixtures for budget tests: agents that work until tool calls are disallowed, and a fake clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, AgentStreamEvent, RunContext
from pydantic_ai.messages import ModelMessage, SystemPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep.budgets import Budgets, BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from pydantic_deep.testing import Answer, FakeClock, ScriptedModel, call


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _work(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call a tool as long as tool calls are allowed."""
    return 'what is done' if (info.model_settings or {}).get('tool_choice') == 'none' else call('work')


@pytest.fixture
def working() -> Callable[..., ScriptedModel]:
    """Make a model that plays steps and then calls `work` until tool calls are disallowed."""

    def make(*steps: Answer, usage: RequestUsage | None = None) -> ScriptedModel:
        usage = usage or RequestUsage(input_tokens=90, output_tokens=10)
        return ScriptedModel(*steps, then=_work, usage=usage)

    return make


@pytest.fixture
def agent_of() -> Callable[..., Agent[Any, Any]]:
    """Make an agent with a tool named `work`."""

    def make(
        model: ScriptedModel, *capabilities: Any, work: Callable[[], object] = lambda: 'done', **options: Any
    ) -> Agent[Any, Any]:
        agent = Agent[Any, Any](model, capabilities=capabilities, **options)

        @agent.tool_plain(name='work')
        def _() -> object:
            return work()

        return agent

    return make


class Watch:
    """Event handler that records the capability's events and its per-run instance."""

    def __init__(self) -> None:
        self.events: list[BudgetWarningEvent | LastAnswerEvent | BudgetUnknownEvent] = []
        self.budgets: Budgets | None = None

    async def __call__(self, ctx: RunContext[Any], events: Any) -> None:
        found = ctx.capabilities['budgets']
        assert isinstance(found, Budgets)
        self.budgets, self.ctx = found, ctx
        async for event in events:
            self.note(event)

    def note(self, event: AgentStreamEvent) -> None:
        if isinstance(event, (BudgetWarningEvent, LastAnswerEvent, BudgetUnknownEvent)):
            self.events.append(event)


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def notices() -> Callable[[Sequence[ModelMessage]], list[str]]:
    """Return the notices that the capability added to the messages."""

    def of(messages: Sequence[ModelMessage]) -> list[str]:
        parts = [part for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
        return [part.content for part in parts]

    return of
