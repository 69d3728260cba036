"""The description of a subagent."""

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

from pydantic_deep._checks import (
    check_instructions,
    check_model,
    check_object,
    check_output_type,
    check_tools,
    check_unicode,
)

from ._errors import InvalidSubagentError

Isolation: TypeAlias = Literal['shared', 'fork']
"""The files of a subagent: those of its parent, or a copy-on-write view of them."""

_NAME = re.compile(r'[A-Za-z0-9_-]{1,64}')
"""Tool names that all providers accept."""

MAX_LEVELS = 16
"""Maximum number of declared levels of subagents. In practice there are one to three."""

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
"""Fields that describe how to build an agent, and do not apply to an existing one."""


@dataclass(frozen=True)
class Subagent:
    """An agent that another agent can delegate work to.

    The agent is either described here, and built on first use, or passed as `agent`. Agents are stateless, so a
    description or an agent can serve any number of users.

    Raises:
        InvalidSubagentError: The name is not a valid tool name, the description is empty, an existing agent is combined
            with fields for building one, or a limit is invalid.
    """

    name: str
    """The name for the model: up to 64 letters, digits, `_` and `-`."""
    description: str
    """The purpose of the subagent in one line, by which the model selects it. It is part of each request."""
    _: KW_ONLY
    instructions: str | Sequence[str] | None = None
    """The instructions, in addition to those of capabilities."""
    model: Model | KnownModelName | str | None = None
    """The model; `None` means that of `agent`, otherwise that of the parent."""
    tools: Sequence[Tool[Any] | ToolFuncEither[Any, ...]] = ()
    """Functions that the subagent may call."""
    toolsets: Sequence[AgentToolset[Any]] = ()
    """pydantic-ai toolsets of the subagent."""
    capabilities: Sequence[AgentCapability[Any]] = ()
    """pydantic-ai capabilities of the subagent."""
    skills: Sequence[object] = ()
    """Skills of the subagent, which `create_deep_agent` supports."""
    subagents: Sequence[Subagent] = ()
    """Nested subagents. If `max_depth` leaves no level for them, they are unavailable and a warning is logged."""
    output_type: OutputSpec[Any] = str
    """The output type: text, or data of a type."""
    interrupt_on: Mapping[str, object] | None = None
    """Further tools that need approval, in addition to those of the parent. `create_deep_agent` supports it."""
    max_depth: int | None = None
    """Maximum number of levels below the subagent, if lower than the declared ones and the limit of its parent."""
    usage_limits: UsageLimits | None = None
    """Limits for one delegation, including nested subagents, in addition to the limits of the parent.

    pydantic-ai's `UsageLimits` allow 50 requests unless `request_limit` is set. Tokens are counted after each response;
    `count_tokens_before_request` has no effect.
    """
    timeout_seconds: float | None = None
    """Maximum time for one run of the subagent in seconds, excluding pauses for approval."""
    isolation: Isolation = 'shared'
    """Whether the files are those of the parent, or a view that is merged after a successful run."""
    agent: AbstractAgent[Any, Any] | None = None
    """An existing agent, instead of the fields that describe how to build one."""

    def __post_init__(self) -> None:
        self._check_model_facing()
        self._check_bounds()
        problem = list_problem(self.subagents)
        if problem is not None:
            raise self._error('subagents', problem)
        if self.agent is not None:
            self._check_ready_agent(self.agent)
        if levels_of([self]) > MAX_LEVELS:
            raise self._error(
                'subagents',
                f'more than {MAX_LEVELS} levels of subagents are declared, its own included. Declare fewer.',
            )

    def _check_model_facing(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):  # pyright: ignore[reportUnnecessaryIsInstance] - nothing checks types at run time
            raise self._error('name', 'its name is not 1 to 64 letters, digits, `_` and `-`.')
        if not isinstance(self.description, str) or not self.description.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise self._error('description', 'it has no description, by which a model selects it. Add one.')
        check_unicode('description', self.description)

    def _check_bounds(self) -> None:
        if isinstance(self.model, str) and not self.model.strip():
            raise self._error(
                'model', f'`model` is {self.model!r}. Pass a model, or `None` to use that of the agent or its parent.'
            )
        check_model('model', self.model)
        check_instructions(self.instructions)
        check_tools(self.tools, self.toolsets, self.capabilities)
        check_output_type('output_type', self.output_type)
        check_object('skills', self.skills, Collection, 'Pass a list of directories or `Skill` objects.')
        if self.interrupt_on is not None:
            check_object('interrupt_on', self.interrupt_on, Mapping, "For example, `{'write_file': True}`.")
        if self.isolation not in get_args(Isolation):
            raise self._error('isolation', f"`isolation` is {self.isolation!r}. Use 'shared' or 'fork'.")
        if self.usage_limits is not None and not isinstance(cast('object', self.usage_limits), UsageLimits):
            raise self._error(
                'usage_limits',
                f'`usage_limits` is {self.usage_limits!r}. Use `UsageLimits(request_limit=…)` of pydantic-ai.',
            )
        if self.timeout_seconds is not None and not (
            isinstance(cast('object', self.timeout_seconds), (int, float)) and self.timeout_seconds > 0
        ):
            raise self._error('timeout_seconds', f'`timeout_seconds` is {self.timeout_seconds!r}. Use more than 0.')
        if self.max_depth is not None and not (isinstance(cast('object', self.max_depth), int) and self.max_depth >= 0):
            raise self._error('max_depth', f'`max_depth` is {self.max_depth!r}. Use 0 or more.')

    def _check_ready_agent(self, agent: object) -> None:
        if not isinstance(agent, AbstractAgent):
            raise self._error(
                'agent', f'`agent` is {type(agent).__name__}, which is not a pydantic-ai agent. Pass an `Agent`.'
            )
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        values = {name: getattr(self, name) for name in _BUILDS}
        ignored = [f'`{name}`' for name, value in values.items() if value and value != defaults[name]]
        if ignored:
            raise self._error(
                'agent',
                f'it has a ready `agent` and {", ".join(ignored)}, which would be ignored. '
                'Build the agent with them, or remove `agent`.',
            )

    def _error(self, field: str, reason: str) -> InvalidSubagentError:
        return InvalidSubagentError(self.name, reason, field=field)


def levels_of(subagents: Sequence[Subagent]) -> int:
    """Return the number of declared levels of subagents, including nested ones."""
    children = (subagent.subagents if subagent.agent is None else declared_by(subagent.agent) for subagent in subagents)
    return max((1 + levels_of(subagent) for subagent in children), default=0)


def declared_by(agent: AbstractAgent[Any, Any]) -> list[Subagent]:
    """Return the subagents that an agent declares, from its capability with that attribute."""
    capabilities: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(capabilities.append)
    lists: list[object] = [getattr(capability, 'subagents', None) for capability in capabilities]
    return [
        capability
        for value in lists
        if list_problem(value) is None
        for capability in cast('Collection[Subagent]', value)
    ]


def list_problem(subagents: object) -> str | None:
    """Return an error message if a value is not a list of subagents; `None` if it is."""
    if isinstance(subagents, str) or not isinstance(subagents, Collection):
        return f'`subagents` is {_short(subagents)}. Pass a list: `[Subagent(name, description)]`.'
    for item in cast('Collection[object]', subagents):
        if not isinstance(item, Subagent):
            return f'`subagents` contains {_short(item)}. Pass `Subagent(name, description)`.'
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f'{text[:200]}…'
