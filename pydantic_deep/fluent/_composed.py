"""An agent with the configuration of a conversation, and the gate at which its runs wait for whoever reads along."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai.agent import AbstractAgent, AgentRun, CallToolsNode, ModelRequestNode, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, AgentNode
from pydantic_ai.messages import ModelMessage
from pydantic_ai.tools import RunContext

from ._delta import Config, DepsT, OutputT

See = Callable[[Sequence[ModelMessage], ModelMessage], Awaitable[None]]
"""Is told the history of a run and the message that is complete now, and returns when the run may go on. The message
is the last of the history, or comes after it."""


@dataclass
class Gate(AbstractCapability[Any]):
    """Shows each message when it is complete, before anything is done with it: before the calls of a response run, and
    before their results are sent.
    """

    see: See

    async def before_node_run(self, ctx: RunContext[Any], *, node: AgentNode[Any]) -> AgentNode[Any]:
        """Show the response whose calls are next, or the request that is sent next."""
        if isinstance(node, CallToolsNode):
            await self.see(ctx.messages, node.model_response)
        elif isinstance(node, ModelRequestNode):
            await self.see(ctx.messages, node.request)
        return node


class ComposedAgent(WrapperAgent[DepsT, OutputT]):
    """An agent, with the instructions and tools of a conversation in each of its runs. The agent itself is not changed.

    Each conversation has its own, and one turn at a time.
    """

    see: See
    """Who reads along; each turn says so before it runs."""

    def __init__(self, wrapped: AbstractAgent[DepsT, OutputT]) -> None:
        super().__init__(wrapped)
        self.config: Config[DepsT] = Config()
        """What its runs have besides."""

    @asynccontextmanager
    async def iter(self, *args: Any, **arguments: Any) -> AsyncGenerator[AgentRun[DepsT, Any]]:
        """Run the agent, with all of this."""
        config = self.config
        given: Sequence[str] = arguments.get('instructions') or ()  # of a version: they are kept with it
        if said := [*given, *(text for text in config.instructions if text not in given)]:
            arguments['instructions'] = said
        arguments['toolsets'] = [*(arguments.get('toolsets') or ()), *config.toolsets]
        arguments['capabilities'] = [*(arguments.get('capabilities') or ()), Gate(self.see)]
        async with self.wrapped.iter(*args, **arguments) as run:
            yield run
