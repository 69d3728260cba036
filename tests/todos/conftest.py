"""Helpers of the tests in this folder."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import Todo


@dataclass
class Tasks:
    """Third-party deps with todos."""

    todos: list[Todo] = field(default_factory=list[Todo])


def write(*todos: tuple[str, str]) -> ToolCallPart:
    return ToolCallPart('write_todos', {'todos': [{'content': c, 'status': s} for c, s in todos]})


def play(*steps: ToolCallPart | str, seen: list[AgentInfo] | None = None) -> FunctionModel:
    """A model that plays its steps. A text ends the run."""
    left = list(steps)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        step = left.pop(0)
        return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])

    return FunctionModel(respond)


def notices(messages: list[ModelMessage]) -> list[str]:
    return [p.content for m in messages for p in m.parts if isinstance(p, SystemPromptPart)]


def returned(messages: list[ModelMessage]) -> list[tuple[str, object]]:
    return [(p.outcome, p.content) for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
