"""What rides along in the run of every subagent: it counts what is used, and holds what a person has not answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.agent import ModelRequestNode
from pydantic_ai.capabilities import (
    AbstractCapability,
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

from pydantic_deep._messages.deferred_metadata import StillPending, parse_answer
from pydantic_deep._requests.observed_model import ObservedModel

from ._budget import Budgets

CHILD_RUN_ID = 'subagent_run'
"""The `id` under which the run of a subagent has this capability."""


@dataclass(kw_only=True)
class ChildRun(AbstractCapability[object]):
    """One run of one subagent. Made for that run, so it keeps its state itself."""

    id: str | None = CHILD_RUN_ID
    budgets: Budgets = ()
    """What the run draws on: its own budget first, then those of the delegations above it."""
    is_started: bool = False
    """Whether the run came as far as its capabilities."""
    has_deferred: bool = False
    """Whether a call of the run has to wait for a person."""
    _heard: list[RequestUsage] = field(default_factory=list[RequestUsage], init=False, repr=False)
    """What the answers to the last request have used, as far as it is not counted."""
    _was_asked: bool = field(default=False, init=False, repr=False)
    """Whether a model has answered the last request."""
    _model: ObservedModel | None = field(default=None, init=False, repr=False)
    _messages: Sequence[ModelMessage] = field(default=(), init=False, repr=False)
    """The history, with the last request, as long as its answer is not counted."""

    @property
    def delegation_usage(self) -> RunUsage:
        """What the delegation has used so far, with all that is below it."""
        return self.budgets[0].usage

    def add_usage(self, used: RunUsage | RequestUsage) -> None:
        """Count in this delegation and those above it what no request of the run has used."""
        for budget in self.budgets:
            budget.usage.incr(used)

    async def for_run(self, ctx: RunContext[object]) -> ChildRun:
        """Note that the run has started."""
        self.is_started = True
        return self

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Hear what is answered, whatever becomes of it."""
        if self._model is None or self._model.wrapped is not model:
            self._model = ObservedModel(model, self._hear)
        return self._model

    def _hear(self, response: ModelResponse | None, failed: Sequence[ModelRequestAttempt]) -> None:
        self._heard += [attempt.usage for attempt in failed if attempt.usage is not None]
        self._heard += [] if response is None else [response.usage]
        self._was_asked = self._was_asked or response is not None

    def _count_heard(self) -> None:
        """Count what answers have used; what they cost is known only after the request."""
        for budget in self.budgets:
            for usage in self._heard:
                budget.usage.incr(usage)
        self._heard = []

    def _count_request(self, response: ModelResponse) -> None:
        """Count a request, whose response is in the history now."""
        self._count_heard()
        for budget in self.budgets:
            budget.usage.requests += 1
            if not self._was_asked:  # a capability has answered in place of the model
                budget.usage.incr(response.usage)
        self._messages = ()

    async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Count the answer that a run ends in the middle of."""
        try:
            return await handler()
        except BaseException:
            self._count_heard()
            if self._messages and isinstance(last := self._messages[-1], ModelResponse) and last.parts:
                self._count_request(last)
            raise

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Refuse a request that a budget has no room for."""
        for budget in self.budgets:
            budget.check_before_request()
        self._was_asked, self._messages = False, ctx.messages
        return request_context

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count a response."""
        self._count_heard()
        return response

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Stop before acting on a response that was too much. It is in the history by now, to be reported."""
        if isinstance(node, ModelRequestNode) and isinstance(response := ctx.messages[-1], ModelResponse):
            self._count_request(response)
            for budget in self.budgets:
                budget.check_after_response(response)
        return result

    async def after_run(self, ctx: RunContext[object], *, result: Any) -> Any:
        """Warn where a limit could not be watched."""
        self.budgets[0].warn_of_what_is_unknown()
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
        """Count a tool call that succeeds, and refuse one that a budget has no room for."""
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
        """Hold a call that nobody has answered yet, whatever else the run has to say of it."""
        if ctx.tool_call_metadata and isinstance(held := parse_answer(ctx.tool_call_metadata), StillPending):
            raise (CallDeferred if tool_def.kind == 'external' else ApprovalRequired)(metadata=held.request)
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
        """Let a call that is held come as far as the hook above: it carries no arguments to run with."""
        if ctx.tool_call_metadata and isinstance(parse_answer(ctx.tool_call_metadata), StillPending):
            return {}
        raise error

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[object], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Note that there is something to wait for."""
        self.has_deferred = True
        return None
