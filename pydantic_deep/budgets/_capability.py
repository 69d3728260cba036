"""The capability that limits runs and conversations by budgets, for any pydantic-ai agent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeVar, cast

from pydantic_ai import ModelRequestContext, RunContext, ToolDefinition, UserError
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ValidatedToolArgs
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, ToolCallPart
from pydantic_ai.usage import RunUsage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._requests.last_answer import LastAnswer
from pydantic_deep.extensions import SupportsDelegationUsage, SupportsRecovery, find_capabilities

from ._account import Account, LastRequest, Limit, added, amounts_of
from ._errors import BudgetExceededError
from ._events import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from ._stamp import Before, Stamp, read_before, stamped
from ._types import ZERO, Budget, Measure, Scope, render_use

_EventT = TypeVar('_EventT', BudgetWarningEvent, LastAnswerEvent)

_LOGGER = logging.getLogger('pydantic_deep')

LAST_ANSWER = 'The budget ends: this is your last answer, without tools. Say what is done and what is left.'
"""The message to the model when the budget allows only one more request."""

NO_TOOLS = 'The budget ends: no tool runs any more.'
"""The tool result if the model calls a tool anyway."""


@dataclass(kw_only=True)
class Budgets(BaseCapability[object]):
    """Limits for runs and conversations: `Budgets(run=Budget(tokens=200_000), warn_at=0.8)`.

    When the fraction `warn_at` of a limit is used, the model is warned once. When the budget allows about one more
    request, the model is instructed to give its final answer and cannot call tools any more. If a budget is exceeded
    nevertheless, `BudgetExceededError` is raised before the next request. A request that has started is completed, so
    tokens, cost and seconds may exceed their limit by one response for each run in progress. The number of requests
    never exceeds its limit; a request counts once, regardless of retries.

    The budgets of a run include its subagents. These may have budgets of their own in addition (`Subagent(…,
    capabilities=[Budgets(run=…)])`), and an amount for the parent's final response is reserved. A subagent that exceeds
    its own budget is a failed tool result for its parent. `Subagent.usage_limits`, in contrast, has no warning and no
    final response; it also limits tool calls, and counts a delegation to its end, including pauses for approval.

    A run that resumes after an approval is a new run of the same conversation. The usage of a conversation is stored in
    the metadata of its responses. Usage after the last response of a run is lost, except for that of subagents that
    completed or paused. A run that `recover` resumes after a crash is the same run: the usage of the crashed process
    counts, except for its seconds.

    pydantic-ai itself stops a run after 50 requests, unless `usage_limits=UsageLimits(request_limit=…)` is passed.
    Usage of agents that your tools run is counted, after their requests end, if the tools pass `usage=ctx.usage`.

    Raises:
        ValueError: Neither budget is set, or `warn_at` is not above 0 and at most 1.
    """

    id: str | None = 'budgets'
    run: Budget | None = None
    """The limits of one run, including its subagents."""
    conversation: Budget | None = None
    """The limits of all runs of a conversation together."""
    warn_at: float = 0.8
    """The fraction of a limit at which the model is warned. With 1, there is only the final-answer message."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    """A monotonic clock in seconds; replace it in tests."""
    _account: Account | None = field(default=None, init=False, repr=False, compare=False)
    _above: tuple[LastRequest, ...] = field(default=(), init=False, repr=False, compare=False)
    _last_request: LastRequest = field(default_factory=LastRequest, init=False, repr=False, compare=False)
    _last_answer: LastAnswer = field(
        default_factory=lambda: LastAnswer(refusal=NO_TOOLS), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.defer_loading:
            raise UserError('`Budgets` cannot have `defer_loading`: nothing would be counted until the model loads it.')
        for name, budget in (('run', self.run), ('conversation', self.conversation)):
            if budget is not None and not isinstance(cast('object', budget), Budget):
                raise ValueError(f'`{name}` is {budget!r}. Pass `Budget(tokens=…)`.')
        if self.run is None and self.conversation is None:
            raise ValueError('`Budgets()` has no limits. Set `run=Budget(…)` or `conversation=Budget(…)`.')
        if not isinstance(cast('object', self.warn_at), int | float) or not 0 < self.warn_at <= 1:
            raise ValueError(f'`warn_at` is {self.warn_at!r}. Use a fraction above 0 and at most 1.')

    def __repr__(self) -> str:
        fields = [
            f'{name}={budget}' for name, budget in (('run', self.run), ('conversation', self.conversation)) if budget
        ]
        account = self._account
        if account is not None:
            used = [
                f'{render_use(limit.measure, account.used(limit), limit.limit)} of the {limit.scope}'
                for limit in account.limits
            ]
            fields.append(f'used: {", ".join(used)}')
        return f'Budgets({", ".join(fields)})'

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Budgets:
        """Raise: a second instance would be ambiguous.

        Raises:
            UserError: Always, as this method is called for more than one instance.
        """
        raise UserError(f'An agent has {len(capabilities)} `Budgets`. Use one, with both `run` and `conversation`.')

    def get_ordering(self) -> CapabilityOrdering:
        """Run innermost, so that nothing but the model is awaited between the check and the request."""
        return CapabilityOrdering(position='innermost')

    def for_subagent(self) -> Budgets:
        """Return the instance for the run of a subagent, which shares the account of this run."""
        inherited = replace(self, id=None)
        if self._account is not None:
            inherited._account, inherited._above = self._account, (*self._above, self._last_request)
        return inherited

    async def for_run(self, ctx: RunContext[object]) -> Budgets:
        """Return a copy with the state of this run."""
        run = replace(self)
        run._account, run._above = self._account, self._above
        return run

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Open the account of the run, with the earlier usage of the conversation."""
        delegation = next(iter(find_capabilities(ctx, SupportsDelegationUsage)), None)
        recovers = next(iter(find_capabilities(ctx, SupportsRecovery)), None)
        if self._account is not None:
            if delegation is not None and len(self._above) == 1:
                # The subagent resumes after an approval. Its earlier usage is in no response of the parent
                # conversation.
                lost = RunUsage() if recovers is None else recovers.lost_usage  # already in the usage of the run
                self._account.before = added(self._account.before, amounts_of(delegation.delegation_usage - lost))
            return
        usage = ctx.usage if delegation is None else delegation.delegation_usage
        self._account = Account(limits=self._limits(), usage=usage, clock=self.clock, is_apart=delegation is not None)
        if recovers is not None:
            self._account.earlier = amounts_of(recovers.earlier_usage)
        if self.conversation is not None:
            before = read_before(ctx.messages, self.id or '')
            if recovers is not None:
                before = replace(before, used=added(before.used, amounts_of(recovers.lost_usage)))
            await self._load_earlier_usage(ctx, before)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Start a request if the budgets allow it, and warn the model if they are nearly used up.

        Raises:
            BudgetExceededError: The budgets do not allow the request.
        """
        account = self._opened
        last = account.begin(self._last_request, self._above)
        warnings = [] if self._above else list(account.to_warn(Decimal(str(self.warn_at))))
        for limit in warnings:
            await ctx.emit(_event(BudgetWarningEvent, account, limit))
        if last is not None:
            if self._last_answer.announce(ctx, request_context, LAST_ANSWER):
                await ctx.emit(_event(LastAnswerEvent, account, last))
        elif warnings:
            ctx.enqueue(SystemPromptPart(_warning(account, warnings)))
        return request_context

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Fail tool calls of the final response, which the model was instructed not to make."""
        self._last_answer.refuse_call()
        return args

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record the usage of the request, and write the usage of the conversation into the response."""
        account = self._opened
        self._last_request.note(response.usage, self.clock())
        await self._report_unknown(ctx, account.uncounted([response]))
        if not self._is_of_conversation:
            return response
        used = account.in_conversation()
        if account.is_apart:
            used = added(used, {**amounts_of(response.usage), 'requests': ZERO})
        return stamped(response, Stamp(used=used, warned=account.warned))

    def admits_extra_request(self) -> bool:
        """Return whether the next request of the run would not be its last one, so that a summary may be requested."""
        try:
            return self._opened.last_limit(self._last_request, self._above) is None
        except BudgetExceededError:
            return False

    def count_extra_request(self) -> None:
        """Count a request for a summary."""
        self._opened.count_request()

    def add_earlier_usage(self, used: RunUsage) -> None:
        """Add the usage of subagents before they paused, which no response of the conversation contains."""
        if not self._above:
            self._opened.before = added(self._opened.before, amounts_of(used))

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the usage of the conversation, for the summary that replaces the responses that contained it."""
        if not self._is_of_conversation:
            return CarriedOver(text='')
        stamp = Stamp(used=self._opened.in_conversation(), warned=self._opened.warned)
        return CarriedOver(text='', state=stamp.model_dump(mode='json'))

    @property
    def _is_of_conversation(self) -> bool:
        """Whether the conversation budget applies to this run itself, and not to a parent run."""
        return self.conversation is not None and not self._above

    @property
    def _opened(self) -> Account:
        """The account of the run, which `before_run` opens."""
        return cast('Account', self._account)

    def _limits(self) -> list[Limit]:
        budgets: dict[Scope, Budget | None] = {'run': self.run, 'conversation': self.conversation}
        return [
            Limit(scope=scope, measure=measure, limit=limit)
            for scope, budget in budgets.items()
            if budget is not None
            for measure, limit in budget.limits.items()
        ]

    async def _load_earlier_usage(self, ctx: RunContext[object], before: Before) -> None:
        """Load the usage and the warnings of earlier runs of the conversation."""
        account = self._opened
        account.before = before.used
        for limit in account.limits:
            limit.is_warned = limit.scope == 'conversation' and before.warned.get(limit.measure) == limit.limit
        await self._report_unknown(ctx, account.uncounted(before.unstamped, in_conversation=True))

    async def _report_unknown(self, ctx: RunContext[object], unknown: Sequence[tuple[Measure, str]]) -> None:
        """Report missing usage, so that it is not mistaken for zero."""
        for measure, model_name in unknown:
            _LOGGER.warning(
                'The %s of a response of model %r is unknown and does not count in the budget', measure, model_name
            )
            await ctx.emit(BudgetUnknownEvent(measure=measure, model_name=model_name))


def _event(event_type: type[_EventT], account: Account, limit: Limit) -> _EventT:
    return event_type(scope=limit.scope, measure=limit.measure, limit=limit.limit, used=account.used(limit))


def _warning(account: Account, limits: Sequence[Limit]) -> str:
    """Return the warning to the model about used budgets."""
    usages = [render_use(limit.measure, account.used(limit), limit.limit) for limit in limits]
    return f'Budget used: {", ".join(usages)}. Finish soon.'
