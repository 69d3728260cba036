"""Track the usage of a run and its subagents against budget limits. Independent of agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal

from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage, RunUsage

from ._errors import BudgetExceededError
from ._types import MEASURES, ZERO, Amounts, Measure, Scope, exact_seconds


@dataclass(kw_only=True)
class Limit:
    """One limit of a budget."""

    scope: Scope
    """Whether the limit applies to a run or a conversation."""
    measure: Measure
    """The measure that is limited."""
    limit: Decimal
    """The maximum amount of the measure."""
    is_warned: bool = False
    """Whether the model has been warned that this limit is nearly used up."""


@dataclass(kw_only=True)
class LastRequest:
    """The usage of the last request of a run, which predicts the usage of the next one."""

    amounts: Amounts = field(default_factory=lambda: amounts_of(RequestUsage()))
    """The usage of the request. Initially one request without further usage."""
    began_at: float = 0
    """The clock time at which the request started."""

    def note(self, usage: RequestUsage, now: float) -> None:
        """Record the usage of a request."""
        self.amounts = {**amounts_of(usage), 'seconds': exact_seconds(now - self.began_at)}

    def of(self, measure: Measure) -> Decimal:
        """Return the used amount of a measure."""
        return self.amounts.get(measure, ZERO)


@dataclass(kw_only=True)
class Account:
    """The usage of one run and its subagents, which share this account.

    The account reads the usage object that all of them share, so it includes everything that pydantic-ai counts. Only
    requests are counted here, when they start: the usage object counts them when they end, which is too late for
    parallel ones.
    """

    limits: Sequence[Limit]
    """The limits of all budgets that apply."""
    usage: RunUsage
    """The usage object of the run."""
    clock: Callable[[], float]
    """A monotonic clock, in seconds."""
    is_apart: bool = False
    """Whether `usage` includes a response only after this capability has seen it, as in a subagent."""
    before: Amounts = field(default_factory=dict[Measure, Decimal])
    """The usage of the conversation before this run."""
    earlier: Amounts = field(default_factory=dict[Measure, Decimal])
    """The usage of crashed attempts at this run."""
    begun: int = 0
    """The number of requests that the run and its subagents have started."""
    unknown: set[tuple[Measure, str]] = field(default_factory=set[tuple[Measure, str]])
    """Measures and models that could not be counted and have been reported."""

    def __post_init__(self) -> None:
        self._start = copy(self.usage)
        self._started_at = self.clock()
        self._elsewhere = 0
        """The number of requests in the usage object that did not start here, such as those of a summarizer or of a
        tool.
        """

    def in_run(self, measure: Measure) -> Decimal:
        """Return the amount of a measure that the run has used."""
        match measure:
            case 'tokens':
                return Decimal(self.usage.total_tokens - self._start.total_tokens)
            case 'requests':
                return Decimal(self.begun + max(self._elsewhere, self._ended - self.begun))
            case 'cost':
                return (self.usage.cost or ZERO) - (self._start.cost or ZERO)
            case _:
                return exact_seconds(self.clock() - self._started_at)

    @property
    def _ended(self) -> int:
        """The number of requests in the usage object, including completed ones that started here."""
        return self.usage.requests - self._start.requests

    def used(self, limit: Limit) -> Decimal:
        """Return the used amount of a limit."""
        before = (self.before if limit.scope == 'conversation' else self.earlier).get(limit.measure, ZERO)
        return before + self.in_run(limit.measure)

    def in_conversation(self) -> Amounts:
        """Return the usage of the conversation."""
        return added(self.before, {measure: self.in_run(measure) for measure in MEASURES})

    def begin(self, request: LastRequest, ancestors: Iterable[LastRequest] = ()) -> Limit | None:
        """Count a request that is about to start, or refuse it, as `last_limit` does.

        The check and the count are not separated by an `await`, so parallel requests cannot use the same remaining
        amount.
        """
        last = self.last_limit(request, ancestors)
        self.count_request()
        request.began_at = self.clock()
        return last

    def count_request(self) -> None:
        """Count a request that is about to start."""
        self._elsewhere = max(self._elsewhere, self._ended - self.begun)
        self.begun += 1

    def last_limit(self, request: LastRequest, ancestors: Iterable[LastRequest] = ()) -> Limit | None:
        """Return a limit that does not allow a further request after the next one; `None` if all do.

        Args:
            request: The last request of the run that makes the next one.
            ancestors: The last requests of its parent runs, up to the owner of this account. An amount for one response
                of each is reserved.

        Raises:
            BudgetExceededError: A limit does not allow the next request.
        """
        ancestors = tuple(ancestors)
        last: Limit | None = None
        for limit in self.limits:
            used = self.used(limit)
            left = limit.limit - used - sum((ancestor.of(limit.measure) for ancestor in ancestors), ZERO)
            if left <= 0:
                raise BudgetExceededError(
                    scope=limit.scope, measure=limit.measure, limit=limit.limit, used=used, is_inherited=bool(ancestors)
                )
            if last is None and left < 2 * request.of(limit.measure):
                last = limit
        return last

    def to_warn(self, warn_at: Decimal) -> Iterator[Limit]:
        """Yield limits of which at least the fraction `warn_at` is used, once each, and mark them as warned."""
        for limit in self.limits:
            if not limit.is_warned and self.used(limit) >= warn_at * limit.limit:
                limit.is_warned = True
                yield limit

    @property
    def warned(self) -> Amounts:
        """Limits of the conversation that the model has been warned about."""
        return {
            limit.measure: limit.limit for limit in self.limits if limit.is_warned and limit.scope == 'conversation'
        }

    def uncounted(
        self, responses: Iterable[ModelResponse], *, in_conversation: bool = False
    ) -> list[tuple[Measure, str]]:
        """Return measures that are limited but missing in responses, and the model names, if they were not reported
        before.

        Args:
            responses: The responses to check.
            in_conversation: Whether the responses are from earlier runs, so that only limits of the conversation apply.
        """
        measures = {limit.measure for limit in self.limits if limit.scope == 'conversation' or not in_conversation}
        missing: list[tuple[Measure, str]] = []
        for response in responses:
            for measure in _unknown(response.usage):
                key = (measure, response.model_name or '')
                if measure in measures and key not in self.unknown:
                    self.unknown.add(key)
                    missing.append(key)
        return missing


def amounts_of(usage: RunUsage | RequestUsage) -> Amounts:
    """Return usage as amounts. It does not include seconds."""
    return {'tokens': Decimal(usage.total_tokens), 'requests': Decimal(usage.requests), 'cost': usage.cost or ZERO}


def added(*several: Amounts) -> Amounts:
    """Return the sum of amounts."""
    return {measure: sum((amounts.get(measure, ZERO) for amounts in several), ZERO) for measure in MEASURES}


def _unknown(usage: RequestUsage) -> Iterator[Measure]:
    if usage.unmeasured_requests:
        yield 'tokens'
    if usage.cost is None:
        yield 'cost'
