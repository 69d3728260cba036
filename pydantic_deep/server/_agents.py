"""Served agents: validation of their names and stores, and the capabilities that the server adds to their runs."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, cast

from pydantic_ai.agent import AbstractAgent, AgentRun, WrapperAgent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep._agent_imports import AnyAgent, InvalidAgentsError
from pydantic_deep._checks import CREATE_AGENT, check_object, check_store
from pydantic_deep.memory import Memories, VersionedMemory
from pydantic_deep.store import Store
from pydantic_deep.versions import VersionedAgent

ServedAgent: TypeAlias = VersionedAgent[Any, Any]
"""An agent with a store, with any deps and output."""

MetadataSource: TypeAlias = Callable[[str], Awaitable[dict[str, Any]]]
"""Returns the metadata of a run, by the id of its conversation."""

_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,63}')
"""The valid names: they are part of URLs, and precede a colon in Google's: `models/{agent}:generateContent`."""


def check_agents(agents: Mapping[str, AnyAgent], store: Store) -> None:
    """Validate the agents to serve.

    Raises:
        ValidationError: The agents, one of them, or the store is of another type.
        InvalidAgentsError: There are no agents, a name is invalid, or a versioned agent has another store or name.
    """
    check_object('agents', agents, Mapping, 'Pass names with agents: `{"analyst": agent}`.')
    check_store(store)
    if not agents:
        raise InvalidAgentsError('There are no agents to serve. Pass at least one: `{"analyst": agent}`.')
    for name, agent in agents.items():
        if not isinstance(cast('object', name), str) or not _NAME.fullmatch(name):
            raise InvalidAgentsError(
                f'{name!r} cannot be the name of a served agent, because names are part of URLs. Use at most 64 '
                'letters, digits, dots, hyphens and underscores, and start with a letter or a digit.'
            )
        check_object('agents', agent, (AbstractAgent, VersionedAgent), CREATE_AGENT)
        if isinstance(agent, VersionedAgent):
            if agent.store is not store:
                raise InvalidAgentsError(f'The agent {name!r} has another store. Pass the same store to both.')
            if agent.name != name:
                raise InvalidAgentsError(
                    f'The versions of the agent {name!r} have the name {agent.name!r}. Serve it as {agent.name!r}, or '
                    f'create it with `name={name!r}`.'
                )


def prepare_agents(
    agents: Mapping[str, AnyAgent],
    store: Store,
    *,
    make_deps: Callable[[], Any] | None,
    capabilities: Sequence[AbstractCapability[Any]],
    run_metadata: MetadataSource,
    memory: VersionedMemory | None = None,
) -> dict[str, VersionedAgent[Any, Any]]:
    """Return the agents as they are served. The agents that are passed are not changed.

    Args:
        agents: The agents, by name.
        store: The store of their versions.
        make_deps: Creates the deps of each run of agents that are not `VersionedAgent`s.
        capabilities: Capabilities to add to each run.
        run_metadata: Returns the metadata of each run, with its owner.
        memory: The memory of all owners; `None` for none. Each run gets that of its owner and agent.
    """
    prepared: dict[str, VersionedAgent[Any, Any]] = {}
    for name, agent in agents.items():
        if isinstance(agent, VersionedAgent):
            prepared[name] = agent.with_agent(_NamedAgent(agent.agent, name, capabilities, run_metadata, memory))
        else:
            prepared[name] = VersionedAgent(
                _NamedAgent(agent, name, capabilities, run_metadata, memory), store, make_deps=make_deps
            )
    return prepared


class _NamedAgent(WrapperAgent[Any, Any]):
    """An agent under another name, with additional capabilities and metadata in each run, and the memory of its owner."""

    def __init__(
        self,
        wrapped: AbstractAgent[Any, Any],
        name: str,
        capabilities: Sequence[AbstractCapability[Any]],
        run_metadata: MetadataSource,
        memory: VersionedMemory | None,
    ) -> None:
        super().__init__(wrapped)
        self._name = name
        self._capabilities = capabilities
        self._run_metadata = run_metadata
        self._memory = memory

    @property
    def name(self) -> str | None:
        """The name that clients use."""
        return self._name

    @name.setter
    def name(self, value: str | None) -> None:
        raise AttributeError(f'The agent is served as {self._name!r}, and cannot be renamed.')

    def iter(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[AgentRun[Any, Any]]:
        """Start a run. All other methods of an agent run through this one."""
        return self._iter(*args, **kwargs)

    @asynccontextmanager
    async def _iter(
        self,
        *args: Any,
        conversation_id: str | None = None,
        capabilities: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[AgentRun[Any, Any]]:
        metadata = await self._run_metadata(conversation_id or '')
        owner = metadata.get('owner')
        memory = (
            [] if self._memory is None or owner is None
            else [Memories(files=self._memory, owner=owner, agent=self._name).capability()]
        )  # fmt: skip
        arguments = {
            **kwargs,
            'conversation_id': conversation_id,
            'capabilities': [*(capabilities or ()), *self._capabilities, *memory],
            'metadata': metadata,
        }
        with self.wrapped.override(name=self._name):  # for this run only, including its spans and records
            async with self.wrapped.iter(*args, **arguments) as run:
                yield run
