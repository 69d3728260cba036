"""What the agent plugs in: budgets as one capability, for any pydantic-ai agent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeVar, cast

from pydantic_ai import ModelRequestContext, RunContext, ToolDefinition, UserError
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ValidatedToolArgs
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, ToolCallPart
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep.extensions import SupportsDelegationUsage, SupportsRecovery, find_capabilities

from ._account import Account, Limit, Pace, added, amounts_of
from ._events import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from ._stamp import Before, Stamp, read_before, stamped
from ._types import ZERO, Budget, Measure, Scope, render_use

_EventT = TypeVar('_EventT', BudgetWarningEvent, LastAnswerEvent)

_LOGGER = logging.getLogger('pydantic_deep')

LAST_ANSWER = 'The budget ends: this is your last answer, without tools. Say what is done and what is left.'
"""What the model is told when there is room for one request."""

NO_TOOLS = 'The budget ends: no tool runs any more.'
"""What it is told if it calls one nevertheless."""


@dataclass(kw_only=True)
class Budgets(AbstractCapability[object]):
    """Limits of what a run and a conversation may use: `Budgets(run=Budget(tokens=200_000), warn_at=0.8)`.

    When `warn_at` of a limit is used, the model is told, once. When there is room for about one request more, it is
    told that this is its last answer, and may call no tools in it: the run ends with its own words. If a budget is used
    up nevertheless, `BudgetExceededError` is raised before the next request. A request that was begun is finished, so
    tokens, cost and seconds can be exceeded by one response, of each of the runs that are asking at that moment.
    Requests that a run and its subagents begin cannot be exceeded; one with its retries counts as one.

    The budgets of a run hold in its subagents, which count in them beside budgets of their own
    (`Subagent(…, capabilities=[Budgets(run=…)])`), and leave room for an answer of those above them. A subagent that
    has used up its own is a failed result for its parent. `Subagent.usage_limits` refuse without a warning or a last
    answer; they count tool calls too, and one delegation to its end, however often it waits for a person.

    A run that goes on after a person has answered is a new run; the conversation is the same. What the conversation has
    used is in the metadata of its responses; what came after the last one of a run is lost to it, but for what
    subagents have used that ended well or waited. A run that `recover` goes on with after a crash is the same run: what
    the crashed process had used counts, but for its seconds.

    pydantic-ai stops a run at 50 requests, whatever these budgets say, unless `usage_limits=UsageLimits(request_limit=…)`
    of the run says otherwise. What a tool of yours uses is counted if it passes `usage=ctx.usage` on,
    when it has ended.

    Raises:
        ValueError: There is neither budget, or `warn_at` is not above 0 and at most 1.
    """

    id: str | None = 'budgets'
    run: Budget | None = None
    """What one run may use, with all that is below it."""
    conversation: Budget | None = None
    """What all runs of a conversation may use together."""
    warn_at: float = 0.8
    """The part of a limit at which the model is told; with 1 it is told of its last answer only."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    """Seconds that never go back; for tests."""
    _account: Account | None = field(default=None, init=False, repr=False, compare=False)
    _above: tuple[Pace, ...] = field(default=(), init=False, repr=False, compare=False)
    _pace: Pace = field(default_factory=Pace, init=False, repr=False, compare=False)
    _is_last_told: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.defer_loading:
            raise UserError('`Budgets` cannot have `defer_loading`: nothing would count until the model loads them.')
        for name, budget in (('run', self.run), ('conversation', self.conversation)):
            if budget is not None and not isinstance(cast('object', budget), Budget):
                raise ValueError(f'`{name}` is {budget!r}. Write `Budget(tokens=…)`.')
        if self.run is None and self.conversation is None:
            raise ValueError('`Budgets()` limit nothing. Set `run=Budget(…)` or `conversation=Budget(…)`.')
        if not 0 < self.warn_at <= 1:
            raise ValueError(f'`warn_at` is {self.warn_at!r}. Use a part of a limit, above 0 and at most 1.')

    def __repr__(self) -> str:
        given = [
            f'{name}={budget}' for name, budget in (('run', self.run), ('conversation', self.conversation)) if budget
        ]
        account = self._account
        if account is not None:
            used = [
                f'{render_use(each.measure, account.used(each), each.limit)} of the {each.scope}'
                for each in account.limits
            ]
            given.append(f'used: {", ".join(used)}')
        return f'Budgets({", ".join(given)})'

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Budgets:
        """Refuse several: which of two limits holds is nobody's guess.

        Raises:
            UserError: Always; it is called where there are several.
        """
        raise UserError(f'An agent has {len(capabilities)} `Budgets`. Keep one: it has a `run` and a `conversation`.')

    def get_ordering(self) -> CapabilityOrdering:
        """Stand inside of others, so that nothing is awaited between the check and the request but the model."""
        return CapabilityOrdering(position='innermost')

    def for_subagent(self) -> Budgets:
        """Return what holds in the run of a subagent: the account of this run."""
        inherited = replace(self, id=None)
        if self._account is not None:
            inherited._account, inherited._above = self._account, (*self._above, self._pace)
        return inherited

    async def for_run(self, ctx: RunContext[object]) -> Budgets:
        """Return this run's instance."""
        run = replace(self)
        run._account, run._above = self._account, self._above
        return run

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Open the account of the run, with what the conversation has used before."""
        apart = next(iter(find_capabilities(ctx, SupportsDelegationUsage)), None)
        recovers = next(iter(find_capabilities(ctx, SupportsRecovery)), None)
        if self._account is not None:
            if apart is not None and len(self._above) == 1:
                # It waited for a person. What it had used by then is in no response of the conversation above.
                lost = RunUsage() if recovers is None else recovers.lost_usage  # which is in the usage of the run
                self._account.before = added(self._account.before, amounts_of(apart.delegation_usage - lost))
            return
        usage = ctx.usage if apart is None else apart.delegation_usage
        self._account = Account(limits=self._limits(), usage=usage, clock=self.clock, is_apart=apart is not None)
        if recovers is not None:
            self._account.earlier = amounts_of(recovers.earlier_usage)
        if self.conversation is not None:
            before = read_before(ctx.messages, self.id or '')
            if recovers is not None:
                before = replace(before, used=added(before.used, amounts_of(recovers.lost_usage)))
            await self._take_over(ctx, before)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Begin a request that fits, and tell the model what it must know of the end.

        Raises:
            BudgetExceededError: It does not fit.
        """
        account = self._opened
        last = account.begin(self._pace, self._above)
        warnings = [] if self._above else list(account.to_warn(Decimal(str(self.warn_at))))
        for limit in warnings:
            await ctx.emit(_event(BudgetWarningEvent, account, limit))
        if last is not None:
            await self._end(ctx, request_context, last)
        elif warnings:
            ctx.enqueue(SystemPromptPart(_warning(account, warnings)))
        return request_context

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Run no tool that the last answer calls, though it was told not to."""
        if self._is_last_told:
            raise ToolFailed(NO_TOOLS)
        return args

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Note what the request took, and write into the response what the conversation has used."""
        account = self._opened
        self._pace.note(response.usage, self.clock())
        await self._tell_unknown(ctx, account.uncounted([response]))
        if not self._is_of_conversation:
            return response
        used = account.in_conversation()
        if account.is_apart:
            used = added(used, {**amounts_of(response.usage), 'requests': ZERO})
        return stamped(response, Stamp(used=used, warned=account.warned))

    def add_earlier_usage(self, used: RunUsage) -> None:
        """Count what subagents of this run have used before they waited: no response of the conversation has it."""
        if not self._above:
            self._opened.before = added(self._opened.before, amounts_of(used))

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return what the conversation has used, for a summary that stands for the responses in which it was written."""
        if not self._is_of_conversation:
            return CarriedOver(text='')
        stamp = Stamp(used=self._opened.in_conversation(), warned=self._opened.warned)
        return CarriedOver(text='', state=stamp.model_dump(mode='json'))

    @property
    def _is_of_conversation(self) -> bool:
        """Whether it counts the conversation of the run that it is in, and not of one above it."""
        return self.conversation is not None and not self._above

    async def _end(self, ctx: RunContext[object], request_context: ModelRequestContext, last: Limit) -> None:
        """Make this request the last one: the tools stay declared, for the cached prefix, and may not be called."""
        settings: dict[str, object] = {**(request_context.model_settings or {})}
        is_told = self._is_last_told or settings.get('tool_choice') == 'none'  # by the budgets of the run above
        request_context.model_settings = cast('ModelSettings', {**settings, 'tool_choice': 'none'})
        if not is_told:
            ctx.enqueue(SystemPromptPart(LAST_ANSWER, scope='request'))  # a later run has a budget of its own
        if not self._is_last_told:
            self._is_last_told = True
            await ctx.emit(_event(LastAnswerEvent, self._opened, last))

    @property
    def _opened(self) -> Account:
        """The account of the run, which is open before anything else happens in it."""
        return cast('Account', self._account)

    def _limits(self) -> list[Limit]:
        budgets: dict[Scope, Budget | None] = {'run': self.run, 'conversation': self.conversation}
        return [
            Limit(scope=scope, measure=measure, limit=limit)
            for scope, budget in budgets.items()
            if budget is not None
            for measure, limit in budget.limits.items()
        ]

    async def _take_over(self, ctx: RunContext[object], before: Before) -> None:
        """Take over what earlier runs of the conversation have used and were told."""
        account = self._opened
        account.before = before.used
        for limit in account.limits:
            limit.is_warned = limit.scope == 'conversation' and before.warned.get(limit.measure) == limit.limit
        await self._tell_unknown(ctx, account.uncounted(before.unstamped, in_conversation=True))

    async def _tell_unknown(self, ctx: RunContext[object], unknown: Sequence[tuple[Measure, str]]) -> None:
        """Say what could not be counted: it must not pass for nothing."""
        for measure, model_name in unknown:
            _LOGGER.warning(
                'The %s of a response of model %r is not known, and its budget goes on without', measure, model_name
            )
            await ctx.emit(BudgetUnknownEvent(measure=measure, model_name=model_name))


def _event(event_type: type[_EventT], account: Account, limit: Limit) -> _EventT:
    return event_type(scope=limit.scope, measure=limit.measure, limit=limit.limit, used=account.used(limit))


def _warning(account: Account, limits: Sequence[Limit]) -> str:
    """Return the line by which the model knows that it should come to an end."""
    told = [render_use(each.measure, account.used(each), each.limit) for each in limits]
    return f'Budget used: {", ".join(told)}. Finish soon.'
