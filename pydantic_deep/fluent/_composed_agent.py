"""An agent with the configuration of a conversation, and the capability that passes each message to its reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai.agent import AbstractAgent, AgentRun, CallToolsNode, ModelRequestNode, WrapperAgent
from pydantic_ai.capabilities import AgentNode
from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import RunContext

from pydantic_deep._capabilities.base import BaseCapability

from ._delta import Config, DepsT, OutputT

MessageListener = Callable[[Sequence[ModelMessage], ModelMessage], Awaitable[None]]
"""Receives the history of a run and the message that is now complete, and returns when the run may continue. The message
is the last of the history, or comes after it."""


@dataclass
class MessageTap(BaseCapability[Any]):
    """Passes each complete message to a listener before it is used: a response before its calls run, and a request
    before it is sent.
    """

    listener: MessageListener

    async def before_node_run(self, ctx: RunContext[Any], *, node: AgentNode[Any]) -> AgentNode[Any]:
        """Pass on the response with the next calls, or the next request."""
        if isinstance(node, CallToolsNode):
            await self.listener(ctx.messages, node.model_response)
        elif isinstance(node, ModelRequestNode):
            await self.listener(ctx.messages, node.request)
        return node


class ComposedAgent(WrapperAgent[DepsT, OutputT]):
    """An agent with the instructions and tools of a conversation in each run. The wrapped agent is not changed.

    Each conversation has its own instance, and runs one turn at a time.
    """

    listener: MessageListener
    """The listener of the current turn. Each turn sets it before it runs."""

    def __init__(self, wrapped: AbstractAgent[DepsT, OutputT]) -> None:
        super().__init__(wrapped)
        self.config: Config[DepsT] = Config()
        """Additional instructions, tools and capabilities of its runs."""

    @asynccontextmanager
    async def iter(self, *args: Any, **arguments: Any) -> AsyncGenerator[AgentRun[DepsT, Any]]:
        """Run the agent with the additional configuration."""
        config = self.config
        version_instructions: Sequence[str] = (
            arguments.get('instructions') or ()
        )  # those of the version, which stores them
        if merged := [
            *version_instructions,
            *(text for text in config.instructions if text not in version_instructions),
        ]:
            arguments['instructions'] = merged
        arguments['toolsets'] = [*(arguments.get('toolsets') or ()), *config.toolsets]
        arguments['capabilities'] = [*(arguments.get('capabilities') or ()), MessageTap(self.listener)]
        async with self.wrapped.iter(*args, **arguments) as run:
            yield run
