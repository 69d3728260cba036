"""The state of the capability during one run, and the plan for each `task` call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_ai import DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.settings import ModelSettings

from pydantic_deep._messages.deferred_metadata import DelegationAnswers, StillPending, parse_answer
from pydantic_deep._pause_check import with_pause
from pydantic_deep.extensions import SupportsApprovalGate, SupportsInheritance, find_capabilities

from ._catalogue import GENERAL
from ._children import Builder, agent_of, supplied_agent
from ._deps import HasSubagents, depth_of
from ._hidden_tools import check_gated_names
from ._tree_position import TreePosition, position_of
from ._types import MAX_LEVELS, Subagent, declared_by, levels_of
from .delegation._delegation import Delegation, Plan
from .delegation._fork import check_forkable
from .delegation._inheritance import inherited_capabilities, passed_settings
from .delegation._report import describe_error

TOOL_NAME = 'task'

_LOGGER = logging.getLogger('pydantic_deep')


@dataclass(kw_only=True)
class Planner:
    """Plans the delegations of one run."""

    subagents: Mapping[str, Subagent | None]
    """The subagents by name; `None` is the agent itself."""
    build: Builder
    """Builds the agents of subagents."""
    settings: ModelSettings | None = None
    """The settings of the last request; `None` before the first."""
    is_streamed: bool | None = None
    """Whether the last request was streamed; `None` before the first."""
    deps: object = None
    """The deps that the tools of the run see."""
    _must_check_names: bool = field(default=True, init=False)
    _is_checked: bool = field(default=False, init=False)
    _cache: dict[str, object] = field(default_factory=dict[str, object], init=False)
    _inherits: Sequence[SupportsInheritance] | None = field(default=None, init=False)

    def set_deps(self, deps: object) -> None:
        """Store the deps, and raise if a subagent cannot work with them."""
        if self._is_checked and deps is self.deps:
            return
        self.deps, self._is_checked = deps, True
        for name, subagent in self.subagents.items():
            if subagent is not None and subagent.isolation == 'fork':
                check_forkable(name, deps)

    async def check_names(self, ctx: RunContext[object]) -> None:
        """Raise if `interrupt_on` of a subagent names an unknown tool. The check runs once, in the topmost run.

        Raises:
            UserError: No tool of the subagent has one of the names.
        """
        if self._must_check_names:
            self._must_check_names = False
            if position_of(ctx.metadata).path:
                return
            built: dict[str, object] = {}
            await check_gated_names(
                ctx,
                [subagent for subagent in self.subagents.values() if subagent is not None],
                lambda subagent: agent_of(subagent, self.build, built),
            )

    def is_open(self, ctx: RunContext[object]) -> bool:
        """Return whether the tool is available: more levels are allowed, or one of its calls is pending.

        A pending call from a history with more levels is refused when it runs.
        """
        if not self.subagents:
            return False
        return depth_of(ctx.deps, position_of(ctx.metadata)) != 0 or _awaits_task(ctx.messages)

    async def delegate(self, ctx: RunContext[object], name: str, description: str) -> ToolReturn[object]:
        """Execute a `task` call.

        An approval without answers is refused, unless the calls of the tool are gated themselves: a suspended child
        would start from the beginning, and repeat its work.
        """
        try:
            answer = parse_answer(ctx.tool_call_metadata)
        except ValueError as error:
            raise ToolFailed(f'The subagent cannot resume: {error}') from error
        if isinstance(answer, StillPending):
            raise ApprovalRequired(metadata=answer.request)
        self.refuse(ctx, name)
        delegation = Delegation(ctx=ctx, plan=self._checked_plan(ctx, name))
        if isinstance(answer, DelegationAnswers):
            return await delegation.resume(answer)
        if answer is None and ctx.tool_call_approved and not self.is_gated(ctx):
            raise ToolFailed(
                f'The subagent {name!r} needs answers, and a plain approval has none, so nothing ran. '
                'Create them with `answer_approvals`.'
            )
        return await delegation.start(description)

    def refuse(self, ctx: RunContext[object], name: str) -> None:
        """Raise if a subagent is unknown, or no further level is allowed.

        Raises:
            ModelRetry: There is no such subagent.
            ToolFailed: No more levels are allowed.
        """
        if name not in self.subagents:
            raise ModelRetry(f'There is no subagent {name!r}. Subagents: {", ".join(self.subagents)}.')
        position = position_of(ctx.metadata)
        depth = depth_of(ctx.deps, position)
        chain = ' > '.join((*position.path, name))
        if depth == 0:
            raise ToolFailed(f'No more levels of subagents are allowed here, so {chain} cannot run. Do it yourself.')
        if depth is None and len(position.path) >= MAX_LEVELS:
            raise ToolFailed(f'At most {MAX_LEVELS} levels of subagents run, so {chain} cannot. Do it yourself.')

    def _checked_plan(self, ctx: RunContext[object], name: str) -> Plan:
        position = position_of(ctx.metadata)
        try:
            return self._plan(ctx, name, position=position, depth=depth_of(ctx.deps, position))
        except Exception as error:  # user code, which may raise anything
            _LOGGER.warning('Subagent %r cannot be built', name, exc_info=error)
            raise ToolFailed(f'The subagent {name!r} cannot be built: {describe_error(error)}') from error

    def _plan(self, ctx: RunContext[object], name: str, *, position: TreePosition, depth: int | None) -> Plan:
        subagent = self.subagents[name]
        agent = self._agent(ctx, subagent)
        is_parent = agent is ctx.agent
        model, has_parents_model = _model(ctx, subagent, agent)
        return Plan(
            name=name,
            agent=agent,
            place=TreePosition(path=(*position.path, name), max_depth=self._depth_below(depth, subagent, agent)),
            is_parent=is_parent,
            model=model,
            has_parents_model=has_parents_model,
            settings=None if self.settings is None else passed_settings(self.settings),
            is_streamed=self.is_streamed,
            output_type=[str, DeferredToolRequests]
            if subagent is None and is_parent
            else with_pause(agent.output_type),
            capabilities=inherited_capabilities(self._inherited(ctx), agent),
            limits=None if subagent is None else subagent.usage_limits,
            timeout_seconds=None if subagent is None else subagent.timeout_seconds,
            is_fork=subagent is not None and subagent.isolation == 'fork',
        )

    def _depth_below(self, depth: int | None, subagent: Subagent | None, agent: AbstractAgent[Any, Any]) -> int | None:
        """Return the maximum number of levels below a child; `None` allows all that it declares.

        The agent itself, as its general-purpose subagent, declares none.
        """
        declared = () if subagent is None else declared_by(agent)
        own_limit = None if subagent is None else subagent.max_depth
        if depth is None:
            levels = levels_of(declared)
            below = None if levels and (own_limit is None or own_limit >= levels) else own_limit if levels else 0
        else:
            below = depth - 1 if own_limit is None else min(depth - 1, own_limit)
        if below == 0 and declared:
            _LOGGER.warning(
                'The subagent %r cannot call the subagents that it declares (%s): `max_depth` of the deps or of a '
                'subagent leaves no level for them. Raise or remove it.',
                cast('Subagent', subagent).name,
                ', '.join(repr(subagent.name) for subagent in declared),
            )
        return below

    def _agent(self, ctx: RunContext[object], subagent: Subagent | None) -> AbstractAgent[Any, Any]:
        cache = self.cache_of(ctx.deps)
        if subagent is not None:
            return agent_of(subagent, self.build, cache)
        return supplied_agent(GENERAL, cache) or cast('AbstractAgent[Any, Any]', ctx.agent)  # a run always has an agent

    def cache_of(self, deps: object) -> dict[str, object]:
        """Return the cache of built agents: that of the deps, or of this run."""
        return deps.subagents if isinstance(deps, HasSubagents) else self._cache

    def is_gated(self, ctx: RunContext[object]) -> bool:
        """Return whether calls of the tool themselves may need approval, in addition to those of children."""
        return any(gate.may_require_approval(TOOL_NAME) for gate in find_capabilities(ctx, SupportsApprovalGate))

    def _inherited(self, ctx: RunContext[object]) -> Sequence[SupportsInheritance]:
        if self._inherits is None:
            self._inherits = find_capabilities(ctx, SupportsInheritance)
        return self._inherits


def _model(ctx: RunContext[object], subagent: Subagent | None, agent: AbstractAgent[Any, Any]) -> tuple[Any, bool]:
    """Return the model for the run of a child, `None` for its own, and whether it is the model of the parent.

    The model of the description takes precedence if it describes this agent, then that of the agent, then the parent's.
    """
    described = None if subagent is None else subagent.model
    has_own = agent.model is not None or agent.root_capability.get_model() is not None
    if described is not None and (not has_own or (subagent is not None and agent is subagent.agent)):
        return described, False
    if has_own and agent is not ctx.agent:
        return None, False
    return ctx.model, True


def _awaits_task(messages: Sequence[ModelMessage]) -> bool:
    """Return whether a call of the tool in the last response has no result."""
    returned: set[str] = set()
    for message in reversed(messages[-2:]):
        if isinstance(message, ModelResponse):
            calls = [part for part in message.parts if isinstance(part, ToolCallPart) and part.tool_name == TOOL_NAME]
            return any(part.tool_call_id not in returned for part in calls)
        returned |= {part.tool_call_id for part in message.parts if part.part_kind == 'tool-return'}
    return False
