"""Agents of subagents: built on first use, and found again while nothing about them changes."""

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
"""Makes the agent that a description is of."""


@dataclass(frozen=True, kw_only=True)
class BuiltSubagent:
    """What the cache holds: an agent, and what it was built from."""

    agent: AbstractAgent[Any, Any]
    """The agent."""
    digest: Digest
    """The description and its builder."""


def supplied_agent(name: str, cache: dict[str, object]) -> AbstractAgent[Any, Any] | None:
    """Return the agent of that name that a user has put into deps; `None` if there is none."""
    found = cache.get(name)
    if found is None or isinstance(found, BuiltSubagent):
        return None
    if isinstance(found, AbstractAgent):
        return cast('AbstractAgent[Any, Any]', found)
    raise UserError(
        f'`deps.subagents[{name!r}]` is {type(found).__name__}, and no agent. Put a pydantic-ai agent there, or nothing.'
    )


def agent_of(subagent: Subagent, build: Builder, cache: dict[str, object]) -> AbstractAgent[Any, Any]:
    """Return the agent of a subagent.

    Nothing waits in here, so that two calls at the same time cannot both build.
    """
    ready = supplied_agent(subagent.name, cache) or subagent.agent
    if ready is not None:
        return ready
    digest = digest_of(subagent, build)
    found = cache.get(subagent.name)
    if isinstance(found, BuiltSubagent) and found.digest.value == digest.value:
        return found.agent
    agent = build(subagent)
    cache[subagent.name] = BuiltSubagent(agent=agent, digest=digest)
    return agent


def check_plain(subagents: Sequence[Subagent]) -> None:
    """Refuse subagents that a plain agent cannot be."""
    for subagent in _all(subagents):
        unread = [f'`{name}`' for name in ('skills', 'interrupt_on') if getattr(subagent, name)]
        if unread:
            raise InvalidSubagentError(
                subagent.name,
                f'{" and ".join(unread)} would be left unread by a plain agent. '
                'Use `create_deep_agent`, or pass the capabilities for it.',
                field=unread[0].strip('`'),
            )


def plain_builder(make_room: Callable[[Sequence[Subagent]], AbstractCapability[Any]]) -> Builder:
    """Return what builds a plain `pydantic_ai.Agent` with what a `Subagent` says, and nothing more.

    Args:
        make_room: Makes the capability for subagents of its own.
    """

    def build(subagent: Subagent) -> AbstractAgent[Any, Any]:
        rooms = [make_room(subagent.subagents)] if subagent.subagents else []
        return Agent[Any, Any](
            subagent.model,
            name=subagent.name,
            description=subagent.description,
            instructions=subagent.instructions,
            output_type=subagent.output_type,
            tools=subagent.tools,
            toolsets=subagent.toolsets,
            capabilities=[*rooms, *subagent.capabilities],
        )

    return build


def _all(subagents: Sequence[Subagent]) -> Iterator[Subagent]:
    for subagent in subagents:
        yield subagent
        yield from _all(subagent.subagents)
