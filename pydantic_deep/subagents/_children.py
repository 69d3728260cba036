"""Build the agents of subagents on first use, and cache them while their description is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from pydantic_ai import Agent, UserError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from ._digest import Digest, digest_of
from ._errors import InvalidSubagentError
from ._types import Subagent

Builder: TypeAlias = Callable[[Subagent], AbstractAgent[Any, Any]]
"""Builds the agent of a `Subagent`."""


@dataclass(frozen=True, kw_only=True)
class BuiltSubagent:
    """A cache entry: an agent, and the digest of its description."""

    agent: AbstractAgent[Any, Any]
    """The agent that was built."""
    digest: Digest
    """The digest of the description and its builder."""


def supplied_agent(name: str, cache: dict[str, object]) -> AbstractAgent[Any, Any] | None:
    """Return the agent that a user has put into deps under a name; `None` if there is none."""
    entry = cache.get(name)
    if entry is None or isinstance(entry, BuiltSubagent):
        return None
    if isinstance(entry, AbstractAgent):
        return cast('AbstractAgent[Any, Any]', entry)
    raise UserError(
        f'`deps.subagents[{name!r}]` is {type(entry).__name__}, which is not an agent. Pass a pydantic-ai agent, or remove it.'
    )


def agent_of(subagent: Subagent, build: Builder, cache: dict[str, object]) -> AbstractAgent[Any, Any]:
    """Return the agent of a subagent, building it if necessary.

    Nothing is awaited here, so two concurrent calls cannot both build.
    """
    ready = supplied_agent(subagent.name, cache) or subagent.agent
    if ready is not None:
        return ready
    digest = digest_of(subagent, build)
    entry = cache.get(subagent.name)
    if isinstance(entry, BuiltSubagent) and entry.digest.value == digest.value:
        return entry.agent
    agent = build(subagent)
    cache[subagent.name] = BuiltSubagent(agent=agent, digest=digest)
    return agent


def check_plain(subagents: Sequence[Subagent]) -> None:
    """Raise for subagents with settings that a plain agent does not support."""
    for subagent in _all(subagents):
        unread = [f'`{name}`' for name in ('skills', 'interrupt_on') if getattr(subagent, name)]
        if unread:
            raise InvalidSubagentError(
                subagent.name,
                f'{" and ".join(unread)} would be ignored by a plain agent. '
                'Use `create_deep_agent`, or pass the capabilities for it.',
                field=unread[0].strip('`'),
            )


def plain_builder(make_capability: Callable[[Sequence[Subagent]], AbstractCapability[Any]]) -> Builder:
    """Return a builder of plain `pydantic_ai.Agent`s.

    Args:
        make_capability: Creates the capability for nested subagents.
    """

    def build(subagent: Subagent) -> AbstractAgent[Any, Any]:
        capabilities = [make_capability(subagent.subagents)] if subagent.subagents else []
        return Agent[Any, Any](
            subagent.model,
            name=subagent.name,
            description=subagent.description,
            instructions=subagent.instructions,
            output_type=subagent.output_type,
            tools=subagent.tools,
            toolsets=subagent.toolsets,
            capabilities=[*capabilities, *subagent.capabilities],
        )

    return build


def _all(subagents: Sequence[Subagent]) -> Iterator[Subagent]:
    for subagent in subagents:
        yield subagent
        yield from _all(subagent.subagents)
