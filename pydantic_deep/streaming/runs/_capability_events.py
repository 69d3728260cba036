"""Translate capability events (summarization, retries, budgets, loops, third parties) into stream events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pydantic_ai import CapabilityEvent

from pydantic_deep.budgets import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent, Measure
from pydantic_deep.loops import RepeatedCallEvent
from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.streaming._events import BudgetEvent, RetriedEvent, StatusEvent, SummarizedEvent
from pydantic_deep.summarization import HistorySummarizedEvent


def capability_event(
    event: CapabilityEvent, *, path: Sequence[str] = (), answer_text: str = '', shows_errors: bool = False
) -> SummarizedEvent | RetriedEvent | BudgetEvent | StatusEvent:
    """Return the stream event for a capability event.

    Args:
        event: The event of the capability.
        path: Names of the subagents that lead to the run.
        answer_text: The text of the current response that was emitted so far.
        shows_errors: Whether the event has the messages of exceptions, which may hold internals of an application;
            otherwise it has only the names of the exceptions.
    """
    match event:
        case HistorySummarizedEvent():
            return SummarizedEvent(
                reason=event.reason,
                replaced_messages=event.replaced_messages,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
                is_plain=event.is_plain,
                error=event.error if event.error is None or shows_errors else event.error.partition(':')[0],
                path=list(path),
            )
        case ModelRetriedEvent():
            return RetriedEvent(
                attempt=event.attempt,
                attempts=event.attempts,
                reason=event.reason,
                delay_seconds=event.delay_seconds,
                void_text=answer_text if event.is_void else '',
                path=list(path),
            )
        case BudgetWarningEvent() | LastAnswerEvent():
            return BudgetEvent(
                kind='warning' if isinstance(event, BudgetWarningEvent) else 'last_answer',
                scope=event.scope,
                measure=event.measure,
                limit=_number(event.measure, event.limit),
                used=_number(event.measure, event.used),
                path=list(path),
            )
        case BudgetUnknownEvent():
            return BudgetEvent(kind='unknown', measure=event.measure, model=event.model_name or None, path=list(path))
        case RepeatedCallEvent():
            text = f'{event.tool} had the same result {event.count} times.'
            return StatusEvent(kind=event.kind, text=text, path=list(path))
        case _:
            return StatusEvent(kind=event.kind, text=f'{event.kind} happened.', path=list(path))


def _number(measure: Measure, amount: Decimal) -> int | float:
    return int(amount) if measure in ('tokens', 'requests') else float(amount)
