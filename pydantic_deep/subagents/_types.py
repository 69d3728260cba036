"""The noun of the room: what a subagent is. How it is built and run is not here."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from pydantic_ai import AgentToolset, Tool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, AgentCapability
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.tools import ToolFuncEither
from pydantic_ai.usage import UsageLimits

from pydantic_deep._checks import check_model, check_unicode

from ._errors import InvalidSubagentError

Isolation: TypeAlias = Literal['shared', 'fork']
"""Whose files a subagent works on: its parent's, or a copy-on-write view of them."""

_NAME = re.compile(r'[A-Za-z0-9_-]{1,64}')
"""What every provider takes as the name of a tool."""

MAX_LEVELS = 16
"""How many levels of subagents may be declared below one another. Real ones have one to three."""

_BUILDS = (
    'instructions',
    'tools',
    'toolsets',
    'capabilities',
    'skills',
    'subagents',
    'output_type',
    'interrupt_on',
)
"""The fields that say how an agent is built, and have nothing to say of a ready one."""


@dataclass(frozen=True)
class Subagent:
    """An agent that another agent may hand work to.

    Either it is described, and built on first use, or `agent` is a ready one. Agents are stateless, so one
    description, and one ready agent, may serve any number of users.

    Raises:
        InvalidSubagentError: The name is no name for the model, the description is empty, a ready agent is to be
            built differently, or a limit is none.
    """

    name: str
    """What the model calls it by: up to 64 letters, digits, `_` and `-`."""
    description: str
    """What it is for, in one line; the model chooses by it, and pays for it on every request."""
    _: KW_ONLY
    instructions: str | Sequence[str] | None = None
    """What it is told, besides what its rooms add."""
    model: Model | KnownModelName | str | None = None
    """Its model; `None` for that of a ready agent, or else of its parent."""
    tools: Sequence[Tool[Any] | ToolFuncEither[Any, ...]] = ()
    """Functions that it may call."""
    toolsets: Sequence[AgentToolset[Any]] = ()
    """pydantic-ai toolsets that it has."""
    capabilities: Sequence[AgentCapability[Any]] = ()
    """pydantic-ai capabilities that it has."""
    skills: Sequence[object] = ()
    """Skills that it has, for the factory to read."""
    subagents: Sequence[Subagent] = ()
    """Subagents of its own. It can call them unless a `max_depth` leaves no level for them, which the log says."""
    output_type: OutputSpec[Any] = str
    """What it answers with: text, or data of that type."""
    interrupt_on: Mapping[str, object] | None = None
    """Calls that wait for a person besides those of its parent, for the factory to read."""
    max_depth: int | None = None
    """How many levels may be below it, if fewer than it declares and its parent leaves."""
    usage_limits: UsageLimits | None = None
    """What one delegation to it may use, with all that is below it. The limits of its parent hold besides.

    pydantic-ai's `UsageLimits` stop at 50 requests unless `request_limit` says otherwise. Tokens are counted when a
    response is there: `count_tokens_before_request` is not looked at.
    """
    timeout_seconds: float | None = None
    """How long one run of it may take; the time in which it waits for a person does not count."""
    isolation: Isolation = 'shared'
    """Whether its files are those of its parent, or a view of them that is merged when it ends well."""
    agent: AbstractAgent[Any, Any] | None = None
    """A ready agent, in the place of all that says how to build one."""

    def __post_init__(self) -> None:
        self._check_model_facing()
        self._check_bounds()
        problem = list_problem(self.subagents)
        if problem is not None:
            raise InvalidSubagentError(self.name, problem, field='subagents')
        if self.agent is not None:
            self._check_ready_agent(self.agent)
        if levels_of([self]) > MAX_LEVELS:
            raise InvalidSubagentError(
                self.name,
                f'more than {MAX_LEVELS} levels of subagents are declared, its own included. Declare fewer.',
                field='subagents',
            )

    def _check_model_facing(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):  # pyright: ignore[reportUnnecessaryIsInstance] - nothing checks types at run time
            raise InvalidSubagentError(self.name, 'its name is not 1 to 64 letters, digits, `_` and `-`.')
        if not isinstance(self.description, str) or not self.description.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise InvalidSubagentError(
                self.name, 'it has no description, by which a model would choose it. Add one.', field='description'
            )
        check_unicode('description', self.description)

    def _check_bounds(self) -> None:
        if isinstance(self.model, str) and not self.model.strip():
            raise InvalidSubagentError(
                self.name,
                f'`model` is {self.model!r}. Name a model, or leave it out for that of the agent or its parent.',
                field='model',
            )
        check_model('model', self.model)
        if self.isolation not in get_args(Isolation):
            raise InvalidSubagentError(
                self.name, f"`isolation` is {self.isolation!r}. Use 'shared' or 'fork'.", field='isolation'
            )
        if self.usage_limits is not None and not isinstance(cast('object', self.usage_limits), UsageLimits):
            raise InvalidSubagentError(
                self.name,
                f'`usage_limits` is {self.usage_limits!r}. Use `UsageLimits(request_limit=…)` of pydantic-ai.',
                field='usage_limits',
            )
        if self.timeout_seconds is not None and not (
            isinstance(cast('object', self.timeout_seconds), (int, float)) and self.timeout_seconds > 0
        ):
            raise InvalidSubagentError(
                self.name, f'`timeout_seconds` is {self.timeout_seconds!r}. Use more than 0.', field='timeout_seconds'
            )
        if self.max_depth is not None and not (isinstance(cast('object', self.max_depth), int) and self.max_depth >= 0):
            raise InvalidSubagentError(
                self.name, f'`max_depth` is {self.max_depth!r}. Use 0 or more.', field='max_depth'
            )

    def _check_ready_agent(self, agent: object) -> None:
        if not isinstance(agent, AbstractAgent):
            raise InvalidSubagentError(
                self.name,
                f'`agent` is {type(agent).__name__}, and no pydantic-ai agent. Pass an `Agent`.',
                field='agent',
            )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        values = {name: getattr(self, name) for name in _BUILDS}
        given = [f'`{name}`' for name, value in values.items() if value and value != defaults[name]]
        if given:
            raise InvalidSubagentError(
                self.name,
                f'it has a ready `agent` and {", ".join(given)}, which would be left unread. '
                'Build the agent with them, or leave `agent` out.',
                field='agent',
            )


def levels_of(subagents: Sequence[Subagent]) -> int:
    """Return how many levels of subagents are declared, those in a list and below them."""
    below = (each.subagents if each.agent is None else declared_by(each.agent) for each in subagents)
    return max((1 + levels_of(each) for each in below), default=0)


def declared_by(agent: AbstractAgent[Any, Any]) -> list[Subagent]:
    """Return the subagents that an agent declares: those of its capability for them, whose attribute they are."""
    capabilities: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(capabilities.append)
    lists: list[object] = [getattr(each, 'subagents', None) for each in capabilities]
    return [each for given in lists if list_problem(given) is None for each in cast('Collection[Subagent]', given)]


def list_problem(subagents: object) -> str | None:
    """Return why something is no list of subagents, and what to write; `None` if it is one."""
    if isinstance(subagents, str) or not isinstance(subagents, Collection):
        return f'`subagents` is {_short(subagents)}. Pass a list, `[Subagent(name, description)]`, or leave it out.'
    for each in cast('Collection[object]', subagents):
        if not isinstance(each, Subagent):
            return f'`subagents` holds {_short(each)}. Write `Subagent(name, description)`.'
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f'{text[:200]}…'
