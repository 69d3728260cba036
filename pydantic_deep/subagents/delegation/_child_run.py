"""The capability in the run of every subagent, which counts usage and defers calls without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.agent import ModelRequestNode
from pydantic_ai.capabilities import (
    AgentNode,
    NodeResult,
    RawToolArgs,
    ValidatedToolArgs,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._messages.deferred_metadata import StillPending, parse_answer
from pydantic_deep._requests.observed_model import ObservedModel

from ._budget import Budgets

CHILD_RUN_ID = 'subagent_run'
"""The `id` of this capability in the run of a subagent."""


@dataclass(kw_only=True)
class ChildRun(BaseCapability[object]):
    """The state of one run of a subagent. It is created for that run."""

    id: str | None = CHILD_RUN_ID
    budgets: Budgets = ()
    """The budgets that apply to the run: its own first, then those of its parent delegations."""
    is_started: bool = False
    """Whether the run reached its capabilities."""
    has_deferred: bool = False
    """Whether a call of the run was deferred for approval."""
    _uncounted: list[RequestUsage] = field(default_factory=list[RequestUsage], init=False, repr=False)
    """Usage of responses to the last request that is not counted yet."""
    _has_model_response: bool = field(default=False, init=False, repr=False)
    """Whether a model responded to the last request."""
    _model: ObservedModel | None = field(default=None, init=False, repr=False)
    _messages: Sequence[ModelMessage] = field(default=(), init=False, repr=False)
    """The history with the last request, until its response is counted."""

    @property
    def delegation_usage(self) -> RunUsage:
        """The usage of the delegation so far, including nested ones."""
        return self.budgets[0].usage

    def add_usage(self, used: RunUsage | RequestUsage) -> None:
        """Add usage other than that of requests to this delegation and its parents."""
        for budget in self.budgets:
            budget.usage.incr(used)

    def admits_extra_request(self) -> bool:
        """Return whether the budgets allow a request besides the next one."""
        return all(budget.admits_extra_request() for budget in self.budgets)

    def count_extra_request(self) -> None:
        """Do nothing: `add_usage` counts requests when they end."""

    async def for_run(self, ctx: RunContext[object]) -> ChildRun:
        """Record that the run has started."""
        self.is_started = True
        return self

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Observe all responses, including those that are rejected later."""
        if self._model is None or self._model.wrapped is not model:
            self._model = ObservedModel(model, self._observe)
        return self._model

    def _observe(self, response: ModelResponse | None, failed: Sequence[ModelRequestAttempt]) -> None:
        self._uncounted += [attempt.usage for attempt in failed if attempt.usage is not None]
        self._uncounted += [] if response is None else [response.usage]
        self._has_model_response = self._has_model_response or response is not None

    def _count_observed(self) -> None:
        """Count the usage of responses. Their cost is known only after the request."""
        for budget in self.budgets:
            for usage in self._uncounted:
                budget.usage.incr(usage)
        self._uncounted = []

    def _count_request(self, response: ModelResponse) -> None:
        """Count a request with a response in the history."""
        self._count_observed()
        for budget in self.budgets:
            budget.usage.requests += 1
            if not self._has_model_response:  # a capability responded instead of the model
                budget.usage.incr(response.usage)
        self._messages = ()

    async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Count the last response of a run that ends abruptly."""
        try:
            return await handler()
        except BaseException:
            self._count_observed()
            if self._messages and isinstance(last := self._messages[-1], ModelResponse) and last.parts:
                self._count_request(last)
            raise

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Raise if a request would exceed a budget."""
        for budget in self.budgets:
            budget.check_before_request()
        self._has_model_response, self._messages = False, ctx.messages
        return request_context

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count the usage of a response."""
        self._count_observed()
        return response

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Raise if a response has exceeded a budget, before its tool calls run. The history already contains it, for
        the report.
        """
        if isinstance(node, ModelRequestNode) and isinstance(response := ctx.messages[-1], ModelResponse):
            self._count_request(response)
            for budget in self.budgets:
                budget.check_after_response(response)
        return result

    async def after_run(self, ctx: RunContext[object], *, result: Any) -> Any:
        """Warn if a limit could not be checked."""
        self.budgets[0].warn_of_unknown_cost()
        return result

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Count a successful tool call, and refuse one that would exceed a budget."""
        for budget in self.budgets:
            budget.check_before_tool_call()
        for budget in self.budgets:
            budget.running += 1
        try:
            result = await handler(args)
        finally:
            for budget in self.budgets:
                budget.running -= 1
        for budget in self.budgets:
            budget.usage.tool_calls += 1
        return result

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Defer a call without an answer, before any other check."""
        if ctx.tool_call_metadata and isinstance(answer := parse_answer(ctx.tool_call_metadata), StillPending):
            raise (CallDeferred if tool_def.kind == 'external' else ApprovalRequired)(metadata=answer.request)
        return args

    async def on_tool_validate_error(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        error: ValidationError | ModelRetry,
    ) -> ValidatedToolArgs:
        """Accept a call without an answer, which has no valid arguments, so that `after_tool_validate` can defer it."""
        if ctx.tool_call_metadata and isinstance(parse_answer(ctx.tool_call_metadata), StillPending):
            return {}
        raise error

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[object], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Record that a call was deferred."""
        self.has_deferred = True
        return None
