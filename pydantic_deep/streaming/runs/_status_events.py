"""What the rooms of an agent tell while it runs, as `StatusEvent`s: sentences that are no part of the answer. Pure."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai import CapabilityEvent

from pydantic_deep.budgets import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent, Measure
from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.streaming._events import StatusEvent
from pydantic_deep.summarization import HistorySummarizedEvent


def status_of(event: CapabilityEvent, *, path: tuple[str, ...] = (), said: str = '') -> StatusEvent:
    """Return what is told of an event of a capability; of one that is not known here, that it happened.

    Args:
        event: The event.
        path: The subagents that lead to the run.
        said: What of the answer that is being given was told.
    """
    kind, text = _describe(event)
    void_text = said if isinstance(event, ModelRetriedEvent) and event.is_void else ''
    return StatusEvent(kind=kind, text=text, void_text=void_text, path=list(path))


def _describe(event: CapabilityEvent) -> tuple[str, str]:
    match event:
        case HistorySummarizedEvent():
            return 'summarized', _describe_summary(event)
        case ModelRetriedEvent():
            pause = f' in {event.delay_seconds:.1f} s' if event.delay_seconds else ''
            return 'retried', f'Attempt {event.attempt} of {event.attempts}{pause}: {event.reason}.'
        case BudgetWarningEvent() | LastAnswerEvent():
            more = ' There is room for one answer more.' if isinstance(event, LastAnswerEvent) else ''
            used, limit = _amount(event.measure, event.used), _amount(event.measure, event.limit)
            return 'budget', f'{used} of {limit} of the budget for this {event.scope} are used.{more}'
        case BudgetUnknownEvent():
            whose = f' of {event.model_name}' if event.model_name else ''
            return (
                'budget',
                f'How much an answer{whose} used is not known ({event.measure}): the budget goes on without.',
            )
        case _:
            return event.kind, f'{event.kind} happened.'


def _describe_summary(event: HistorySummarizedEvent) -> str:
    messages = '1 message was' if event.replaced_messages == 1 else f'{event.replaced_messages} messages were'
    plain = ' No model could write the summary.' if event.is_plain else ''
    return f'{messages} summarized: {event.tokens_before:,} to {event.tokens_after:,} tokens.{plain}'


def _amount(measure: Measure, amount: Decimal) -> str:
    return f'${amount:,.4f}' if measure == 'cost' else f'{amount:,.0f} {measure}'
