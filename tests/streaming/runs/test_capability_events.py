"""Events of capabilities in the stream of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from pydantic_ai import CapabilityEvent

from pydantic_deep.budgets import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from pydantic_deep.loops import RepeatedCallEvent
from pydantic_deep.streaming import BudgetEvent, RunEvents, StatusEvent, SummarizedEvent
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.summarization import HistorySummarizedEvent
from tests.streaming.runs.conftest import translate

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class TideEvent(CapabilityEvent, namespace='streaming_tests', name='tide'):
    """A third-party capability event."""


@pytest.mark.parametrize(
    ('event', 'expected'),
    [
        (
            HistorySummarizedEvent(
                reason='tokens', replaced_messages=8, tokens_before=1200, tokens_after=300, is_plain=True, error='No.'
            ),
            SummarizedEvent(
                reason='tokens', replaced_messages=8, tokens_before=1200, tokens_after=300, is_plain=True, error='No.'
            ),
        ),
        (
            BudgetWarningEvent(scope='run', measure='tokens', limit=Decimal(1000), used=Decimal(800)),
            BudgetEvent(kind='warning', scope='run', measure='tokens', limit=1000, used=800),
        ),
        (
            LastAnswerEvent(scope='conversation', measure='cost', limit=Decimal(1), used=Decimal('0.95')),
            BudgetEvent(kind='last_answer', scope='conversation', measure='cost', limit=1.0, used=0.95),
        ),
        (
            BudgetUnknownEvent(measure='cost', model_name='m'),
            BudgetEvent(kind='unknown', measure='cost', model='m'),
        ),
        (BudgetUnknownEvent(measure='tokens', model_name=''), BudgetEvent(kind='unknown', measure='tokens')),
        (
            RepeatedCallEvent(tool='ls', count=3),
            StatusEvent(kind='loops.repeated_call', text='ls had the same result 3 times.'),
        ),
        (TideEvent(), StatusEvent(kind='streaming_tests.tide', text='streaming_tests.tide happened.')),
    ],
)
async def test_known_capability_events_are_typed_and_others_have_a_status(
    event: CapabilityEvent, expected: SummarizedEvent | BudgetEvent | StatusEvent
) -> None:
    nested = SubagentEvent(path=('x',), conversation_id='k', event=event)
    assert translate(event, nested) == [expected, replace(expected, path=['x'])]


@pytest.mark.parametrize(('shows_errors', 'expected'), [(False, 'AuthError'), (True, 'AuthError: key sk-1')])
async def test_exception_messages_are_emitted_only_on_request(shows_errors: bool, expected: str) -> None:
    """Exceptions of a summarizer come from application code, and may contain private data."""
    summarized = HistorySummarizedEvent(
        reason='tokens',
        replaced_messages=8,
        tokens_before=9,
        tokens_after=3,
        is_plain=True,
        error='AuthError: key sk-1',
    )
    (event,) = RunEvents(shows_errors=shows_errors).translate(summarized)
    assert isinstance(event, SummarizedEvent)
    assert event.error == expected
