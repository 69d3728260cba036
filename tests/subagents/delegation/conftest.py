"""Fixtures and helpers of the tests in this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel


def ping() -> str:
    return 'pong'


OUT: Any = [str, DeferredToolRequests]


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for message in requests for part in message.parts if isinstance(part, ToolReturnPart)]


@dataclass
class PausedWorld:
    """Records calls and requests across all processes."""

    ran: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])

    def tools(self) -> list[Tool[Any]]:
        def wipe(x: str) -> str:
            self.ran.append(f'wipe {x}')
            return f'wiped {x}'

        def look(x: str) -> str:
            self.ran.append(f'look {x}')
            return f'saw {x}'

        return [Tool(wipe, requires_approval=True), Tool(look)]

    def model(self, name: str, *steps: Answer) -> ScriptedModel:
        """Return a model without memory besides the history, as if in its own process."""

        def play(messages: list[ModelMessage], info: AgentInfo) -> Answer:
            step = sum(isinstance(message, ModelResponse) for message in messages)
            self.asked.append(f'{name} {step}')
            return steps[step] if step < len(steps) else ' | '.join(str(part.content) for part in returns(messages))

        return ScriptedModel(then=play)


def wipe(x: str, id: str) -> ToolCallPart:
    return ToolCallPart('wipe', {'x': x}, id)


def look(x: str, id: str) -> ToolCallPart:
    return ToolCallPart('look', {'x': x}, id)


def task(subagent: str, id: str) -> ToolCallPart:
    return ToolCallPart('task', {'subagent': subagent, 'description': 'go'}, id)


async def pause_of(deps: DeepAgentDeps | None = None, **options: Any) -> tuple[Agent[Any, Any], PausedWorld, Any]:
    """Return a parent with a paused child, the recorded world, and the result."""
    world = PausedWorld()
    steps = options.pop('steps', [wipe('a', 'a')])
    tools = [*world.tools(), *options.pop('tools', ())]
    child = Subagent('flat', 'x', model=world.model('flat', *steps), tools=tools, **options)
    parent = Agent[Any, Any](world.model('top', task('flat', 't')), output_type=OUT, capabilities=[Subagents([child])])
    return parent, world, await parent.run('go', deps=deps or DeepAgentDeps())
