"""What a run and everything below it have used, against the limits of its budgets. Without agents."""

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
    """One limit of one budget."""

    scope: Scope
    """Whose budget it is."""
    measure: Measure
    """What it limits."""
    limit: Decimal
    """Its limit."""
    is_warned: bool = False
    """Whether the model has been told that it comes to its end."""


@dataclass(kw_only=True)
class Pace:
    """What the last request of one run took, by which is told whether another one fits."""

    amounts: Amounts = field(default_factory=lambda: amounts_of(RequestUsage()))
    """What it took: before the first one, a request and nothing else."""
    began_at: float = 0
    """When it began, by the clock."""

    def note(self, usage: RequestUsage, now: float) -> None:
        """Note what a request has taken."""
        self.amounts = {**amounts_of(usage), 'seconds': exact_seconds(now - self.began_at)}

    def of(self, measure: Measure) -> Decimal:
        """Return what it took of a measure."""
        return self.amounts.get(measure, ZERO)


@dataclass(kw_only=True)
class Account:
    """What one run and everything below it have used. Its subagents work on the same one.

    It reads the usage object that they all share, so that nothing that is counted there is missing here. Requests it
    counts itself when they begin: the usage object has them when they have ended, too late for those side by side.
    """

    limits: Sequence[Limit]
    """The limits that it is held against."""
    usage: RunUsage
    """The object in which the run's use is counted."""
    clock: Callable[[], float]
    """Seconds that never go back."""
    is_apart: bool = False
    """Whether `usage` is told of a response only after this room: so it is in a subagent."""
    before: Amounts = field(default_factory=dict[Measure, Decimal])
    """What the conversation has used before this run."""
    earlier: Amounts = field(default_factory=dict[Measure, Decimal])
    """What crashed attempts at this run have used."""
    begun: int = 0
    """How many requests the run and those below it have begun."""
    unknown: set[tuple[Measure, str]] = field(default_factory=set[tuple[Measure, str]])
    """What could not be counted of which model, as far as it was told."""

    def __post_init__(self) -> None:
        self._start = copy(self.usage)
        self._started_at = self.clock()
        self._elsewhere = 0
        """How many requests are in the usage object that did not begin here: of a summarizer, of a run in a tool."""

    def in_run(self, measure: Measure) -> Decimal:
        """Return what the run has used of a measure."""
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
        """How many requests are in the usage object: those that have begun here among them when they have ended."""
        return self.usage.requests - self._start.requests

    def used(self, limit: Limit) -> Decimal:
        """Return what is used of a limit."""
        before = (self.before if limit.scope == 'conversation' else self.earlier).get(limit.measure, ZERO)
        return before + self.in_run(limit.measure)

    def in_conversation(self) -> Amounts:
        """Return what the conversation has used."""
        return added(self.before, {measure: self.in_run(measure) for measure in MEASURES})

    def begin(self, pace: Pace, above: Iterable[Pace] = ()) -> Limit | None:
        """Count a request that begins now, or refuse it.

        Nothing is awaited between the check and the count, so of those side by side no two take the same room.

        Args:
            pace: The run that asks.
            above: The runs between it and the one whose account this is, that one included: room for an answer of
                each is kept.

        Returns:
            A limit that has no room for a request after this one; `None` where all have.

        Raises:
            BudgetExceededError: A limit has no room for this one.
        """
        above = tuple(above)
        last: Limit | None = None
        for limit in self.limits:
            used = self.used(limit)
            left = limit.limit - used - sum((each.of(limit.measure) for each in above), ZERO)
            if left <= 0:
                raise BudgetExceededError(
                    scope=limit.scope, measure=limit.measure, limit=limit.limit, used=used, is_inherited=bool(above)
                )
            if last is None and left < 2 * pace.of(limit.measure):
                last = limit
        self._elsewhere = max(self._elsewhere, self._ended - self.begun)
        self.begun += 1
        pace.began_at = self.clock()
        return last

    def to_warn(self, warn_at: Decimal) -> Iterator[Limit]:
        """Yield the limits of which that part is used and nobody was told, and note that somebody is now."""
        for limit in self.limits:
            if not limit.is_warned and self.used(limit) >= warn_at * limit.limit:
                limit.is_warned = True
                yield limit

    @property
    def warned(self) -> Amounts:
        """The limits of the conversation of which the model was told."""
        return {each.measure: each.limit for each in self.limits if each.is_warned and each.scope == 'conversation'}

    def uncounted(
        self, responses: Iterable[ModelResponse], *, in_conversation: bool = False
    ) -> list[tuple[Measure, str]]:
        """Return what is limited and could not be counted in responses, as far as it is new; note that it was told.

        Args:
            responses: The responses.
            in_conversation: Whether they are of earlier runs, and count only where the conversation is limited.
        """
        measures = {limit.measure for limit in self.limits if limit.scope == 'conversation' or not in_conversation}
        found: list[tuple[Measure, str]] = []
        for response in responses:
            for measure in _unknown(response.usage):
                key = (measure, response.model_name or '')
                if measure in measures and key not in self.unknown:
                    self.unknown.add(key)
                    found.append(key)
        return found


def amounts_of(usage: RunUsage | RequestUsage) -> Amounts:
    """Return a usage as amounts; it knows no seconds."""
    return {'tokens': Decimal(usage.total_tokens), 'requests': Decimal(usage.requests), 'cost': usage.cost or ZERO}


def added(*several: Amounts) -> Amounts:
    """Return the sum of amounts."""
    return {measure: sum((each.get(measure, ZERO) for each in several), ZERO) for measure in MEASURES}


def _unknown(usage: RequestUsage) -> Iterator[Measure]:
    if usage.unmeasured_requests:
        yield 'tokens'
    if usage.cost is None:
        yield 'cost'
