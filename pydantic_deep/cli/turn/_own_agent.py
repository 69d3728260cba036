"""The agent that a user names with `--agent`, with the budget and the model of the command line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, cast

from pydantic_ai.agent import AbstractAgent, AgentRun, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.toolsets import AbstractToolset

from pydantic_deep._agent_imports import InvalidAgentsError, import_agents
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.mcp import McpServers
from pydantic_deep.versions import VersionedAgent
from pydantic_deep_backends import BackendProtocol


class OwnAgent(WrapperAgent[Any, Any]):
    """An agent with additional capabilities, and possibly another model, in each run.

    Args:
        wrapped: The agent.
        model: The model of its runs. `None` for its own.
        capabilities: The capabilities to add.
    """

    def __init__(
        self, wrapped: AbstractAgent[Any, Any], *, model: Model | None, capabilities: Sequence[AbstractCapability[Any]]
    ) -> None:
        super().__init__(wrapped)
        self._model = model
        self._capabilities = capabilities
        self._in_runs = [_with_own_servers(wrapped, capability) for capability in capabilities]
        self._entered: list[AsyncExitStack] = []

    async def __aenter__(self) -> AbstractAgent[Any, Any]:
        """Enter the agent and the toolsets of the added capabilities, whose MCP servers then run until it is left."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.wrapped)
            for capability in self._capabilities:
                toolset = capability.get_toolset()
                if isinstance(toolset, AbstractToolset):
                    await stack.enter_async_context(cast('AbstractToolset[Any]', toolset))
            self._entered.append(stack.pop_all())
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        return await self._entered.pop().__aexit__(*args)

    @property
    def model(self) -> Model | KnownModelName | str | None:
        """The model of its runs."""
        return self._model or self.wrapped.model

    def iter(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[AgentRun[Any, Any]]:
        """Start a run. All other methods of an agent run through this one."""
        return self._iter(*args, **kwargs)

    @asynccontextmanager
    async def _iter(
        self,
        *args: Any,
        model: Any = None,
        capabilities: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[AgentRun[Any, Any]]:
        added = [*(capabilities or ()), *self._in_runs]
        async with self.wrapped.iter(*args, model=model or self._model, capabilities=added, **kwargs) as run:
            yield run


def _with_own_servers(agent: AbstractAgent[Any, Any], added: AbstractCapability[Any]) -> AbstractCapability[Any]:
    """Return MCP servers together with those of the agent, which they would replace in a run, as the id is the same.

    A server of the agent takes precedence over an added one with its name.
    """
    if not isinstance(added, McpServers):
        return added
    capabilities: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(capabilities.append)
    own = [each for each in capabilities if isinstance(each, McpServers) and each.id == added.id]
    return McpServers.combine([added, *own])


def import_own_agent(reference: str) -> AbstractAgent[Any, Any]:
    """Return the agent that `package.module:attribute` refers to.

    Raises:
        InvalidAgentsError: There is no such agent, or there are several, or its deps are not `DeepAgentDeps`.
    """
    agents = import_agents(reference)
    if len(agents) != 1:
        names = ', '.join(agents) or 'none'
        raise InvalidAgentsError(f'{reference!r} has several agents: {names}. Name one of them by an attribute.')
    [agent] = agents.values()
    found = agent.agent if isinstance(agent, VersionedAgent) else agent
    deps_type: type[Any] = found.deps_type
    if not issubclass(deps_type, DeepAgentDeps):
        raise InvalidAgentsError(
            f'The agent {reference!r} has deps of the type {deps_type.__name__}. The command line passes the '
            'directory in `DeepAgentDeps`: create the agent with `deps_type=DeepAgentDeps`, or a subclass.'
        )
    return found


def make_deps(agent: AbstractAgent[Any, Any], reference: str, backend: BackendProtocol) -> DeepAgentDeps:
    """Return the deps of an agent, with the files of the directory.

    Raises:
        InvalidAgentsError: Its type of deps needs more than `backend`.
    """
    try:
        return agent.deps_type(backend=backend)
    except TypeError as error:
        raise InvalidAgentsError(
            f'The deps of the agent {reference!r} cannot be created with `backend` alone: {error}. Give the other fields '
            'defaults.'
        ) from None
