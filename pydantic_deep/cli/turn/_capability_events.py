"""Events of capabilities (summarization, retries, budgets) as events of the turn."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai import AgentStreamEvent

from pydantic_deep import summarization
from pydantic_deep.budgets import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from pydantic_deep.cli._events import BudgetEvent, RetriedEvent, SummarizedEvent
from pydantic_deep.retries import ModelRetriedEvent

from ._budget import TurnBudget, budget_event


def capability_event(
    event: AgentStreamEvent, budget: TurnBudget, *, answer_text: str = '', path: Sequence[str] = ()
) -> SummarizedEvent | RetriedEvent | BudgetEvent | None:
    """Return the event of the turn for a capability's event; `None` for events that are not reported.

    Args:
        event: An event of a run.
        budget: That of the turn.
        answer_text: The text of the current answer that was emitted so far.
        path: The subagents that lead to the run.
    """
    match event:
        case summarization.HistorySummarizedEvent():
            return SummarizedEvent(
                path=[*path],
                reason=event.reason,
                replaced_messages=event.replaced_messages,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
                is_plain=event.is_plain,
                error=event.error,
            )
        case ModelRetriedEvent():
            return RetriedEvent(
                path=[*path],
                attempt=event.attempt,
                attempts=event.attempts,
                reason=event.reason,
                delay_seconds=event.delay_seconds,
                void_text=answer_text if event.is_void else '',
            )
        case BudgetWarningEvent() | LastAnswerEvent() | BudgetUnknownEvent():
            return budget_event(event, budget, path)
        case _:
            return None
