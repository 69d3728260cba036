"""Plan mode as a capability: it refuses calls that may change something until a person accepts the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from pydantic_ai import AgentToolset, FunctionToolset, ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturn

from pydantic_deep._checks import check_flags
from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep._messages.headings import PLAN_MODE_HEADING
from pydantic_deep._messages.notice import Notice, first_requests
from pydantic_deep._messages.notice_order import SendsNotices
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._pause_check import check_can_pause
from pydantic_deep._toolsets.tool_schema import ToolSchema

from ._history import (
    ID,
    OFF,
    ON,
    PLAN_KEY,
    TOOL_NAME,
    Mode,
    carried_over,
    last_mode,
    last_switch,
    messages_after,
    requested_mode,
)

REFUSED: Final = (
    'Plan mode is on: this call may change something and did not run. Only read until the plan is accepted.'
)
"""The result of a call that may change something."""

NOT_ON: Final = 'Plan mode is off. Carry out the task.'
"""The result of a plan that nobody asked for."""

ACCEPTED: Final = 'The user accepted this plan. Carry it out.'
"""The result of an accepted plan."""


EMPTY: Final = 'A plan needs text. Nobody was asked.'
"""The result of an empty plan."""


@dataclass(kw_only=True)
class PlanMode(SendsNotices):
    """Keep the agent from changing anything until a person accepts its plan.

    In plan mode the model can call tools that declare the effect `read`, `write_todos`, `task`, whose subagents are
    bound in the same way, and `propose_plan`, which pauses the run as a pending approval. `Approve()` accepts the plan
    and ends the mode, `Edit({'plan': …})` does so with changes, `Deny.because('…')` and `Respond('…')` ask for another
    plan. All other calls fail, whatever rules and grants allow.

    The mode and the plan are in the messages, so versions, branches and replays have them, and summaries retain them.
    A prompt switches the mode with `with_plan_mode`.
    """

    id: str | None = ID
    starts_on: bool = True
    """Whether a conversation begins in plan mode."""
    _above: PlanMode | None = field(default=None, init=False, repr=False, compare=False)
    """The instance of the parent's run."""
    _mode: Mode | None = field(default=None, init=False, repr=False, compare=False)
    """The mode; `None` if nothing has switched it yet."""
    _last: ModelMessage | None = field(default=None, init=False, repr=False, compare=False)
    """The last message that was searched for switches; `None` before the first request."""

    def __post_init__(self) -> None:
        """Validate the option.

        Raises:
            ValidationError: `starts_on` is not a bool.
        """
        check_flags(starts_on=self.starts_on)

    @property
    def _is_on(self) -> bool:
        return self._mode == 'on' if self._above is None else self._above._is_on

    async def for_run(self, ctx: RunContext[object]) -> PlanMode:
        """Return an instance for this run, with the mode of its history."""
        run = replace(self)
        run._above, run._mode = self._above, last_mode(ctx.messages)
        return run

    def for_subagent(self) -> PlanMode:
        """Return the instance for the run of a subagent, which has the mode of this run.

        It replaces the subagent's own one by its id: the general-purpose subagent is the agent itself.
        """
        inherited = replace(self)
        inherited._above = self
        return inherited

    def get_toolset(self) -> AgentToolset[object] | None:
        """Return the toolset with `propose_plan`. Subagents do not have it."""
        return _toolset() if self._above is None else None

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Check that the run can pause.

        Raises:
            UserError: It has no approvals.
        """
        check_can_pause(ctx, 'PlanMode')

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Read switches from the new messages. Switch the mode as the prompt requests, and inform the model before it."""
        if self._above is not None:
            return request_context
        if self._last is None and ctx.prompt is not None:
            known, default = self._mode, 'on' if self.starts_on else 'off'
            self._mode = requested_mode(ctx.prompt) or known or default
            notice = Notice(heading=PLAN_MODE_HEADING, known=ON if known == 'on' else OFF)
            notice.add_to(first_requests(ctx, request_context), ON if self._is_on else OFF)
        else:
            # From the messages, because a recovered run and a replay do not call the tool again.
            new = messages_after(ctx.messages, self._last)
            self._mode = last_mode(new) if len(new) == len(ctx.messages) else last_switch(new) or self._mode
        self._last = ctx.messages[-1]
        return request_context

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Refuse a call that may change something, and an empty plan, before anybody is asked about it."""
        self._check(tool_def)
        plan = args.get('plan') if tool_def.name == TOOL_NAME and self._above is None else None
        if isinstance(plan, str) and not plan.strip():  # a call that a person answered has other arguments
            raise ToolFailed(EMPTY)
        return args

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Refuse a call that was not validated, or that was approved before the mode was switched on."""
        self._check(tool_def)
        return await handler(args)

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the mode and the plan, as a summary may replace the messages that contain them."""
        return carried_over(replaced)

    def _check(self, tool_def: ToolDefinition) -> None:
        if tool_def.name == TOOL_NAME and self._above is None:
            if not self._is_on:
                raise ToolFailed(NOT_ON)
        elif self._is_on and not _is_harmless(tool_def):
            raise ToolFailed(REFUSED)


def has_plan_mode(agent: AbstractAgent[Any, Any]) -> bool:
    """Return whether an agent has the capability."""
    capabilities: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(capabilities.append)
    return any(isinstance(capability, PlanMode) for capability in capabilities)


async def propose_plan(plan: str) -> ToolReturn[str]:
    """In plan mode: propose the plan, in Markdown, to the user."""
    return ToolReturn(ACCEPTED, metadata={PLAN_KEY: plan})


def _is_harmless(tool_def: ToolDefinition) -> bool:
    """Return whether calls of a tool change no more than the todos of the agent."""
    metadata = tool_def.metadata or {}
    effect, writes = metadata.get('effect'), metadata.get('writes')
    return effect == 'read' or writes == 'deps' or DELEGATES in metadata or tool_def.tool_kind == 'tool-search'


@cache
def _toolset() -> FunctionToolset[object]:
    toolset = FunctionToolset[object](id=ID, schema_generator=ToolSchema)
    metadata = {'effect': 'read', 'trusted': True}
    toolset.add_function(propose_plan, name=TOOL_NAME, requires_approval=True, metadata=metadata)
    return toolset
