"""Descriptions of failed runs. 004-32: an error is reported as an error, unlike in peers, where every failure ended as
a normal stop.
"""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    IncompleteToolCall,
    ModelAPIError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelTimeoutError,
    RunCancelled,
    RunTimedOut,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from pydantic_deep.budgets import BudgetExceededError
from pydantic_deep.errors import TurnOptionError
from pydantic_deep.retries import CutAnswerError
from pydantic_deep.streaming import EndEvent, RunEvents, describe_failure, dump_failure, load_failure


@pytest.mark.parametrize(
    ('error', 'kind', 'status'),
    [
        (RunTimedOut('x'), 'timed_out', 504),
        (RunCancelled('x'), 'cancelled', None),
        (asyncio.CancelledError(), 'cancelled', None),
        (
            BudgetExceededError(scope='run', measure='tokens', limit=Decimal(1), used=Decimal(1)),
            'budget_exceeded',
            429,
        ),
        (UsageLimitExceeded('x'), 'limit_exceeded', 429),
        (CutAnswerError('m', 'p'), 'truncated', 502),
        (IncompleteToolCall('x'), 'truncated', 502),
        (ModelAPIError('m', 'x'), 'provider_error', 502),
        (ModelHTTPError(429, 'm'), 'provider_error', 503),
        (ModelHTTPError(503, 'm'), 'provider_error', 503),
        (ModelRateLimitError('m', 'x'), 'provider_error', 503),
        (ModelHTTPError(401, 'm'), 'provider_error', 502),
        (ModelTimeoutError('m', 'x'), 'provider_error', 504),
        (FallbackExceptionGroup('x', [ValueError('y'), ModelAPIError('m', 'x')]), 'provider_error', 502),
        (ContentFilterError('x'), 'content_filter', 422),
        (UnexpectedModelBehavior('x'), 'unexpected_answer', 502),
        (TurnOptionError('tools', 'x'), 'invalid', 400),
        (UserError('x'), 'run_failed', 500),
        (ZeroDivisionError('x'), 'run_failed', 500),
    ],
)
def test_kind_of_a_failure_depends_on_its_type(error: BaseException, kind: str, status: int | None) -> None:
    failure = describe_failure(error)
    assert (failure.kind, failure.status) == (kind, status)
    assert load_failure(dump_failure(error)) == failure


def test_stored_message_is_cut_and_the_event_is_not() -> None:
    """The store has the beginning of a long message; readers get the same event as while the run was running."""
    stored = json.loads(dump_failure(UserError('x' * 400), max_chars=10))
    assert (stored['type'], stored['message'], stored['event']['message']) == ('UserError', 'x' * 10, 'x' * 400)


def test_errors_of_older_releases_are_named_by_their_type() -> None:
    """They have no event, and their message may reveal internals."""
    event = load_failure('{"type": "KeyError", "message": "secret"}')
    assert event == describe_failure(KeyError('secret'))


@pytest.mark.parametrize(
    ('error', 'status'),
    [(RunCancelled('x'), 'interrupted'), (asyncio.CancelledError(), 'interrupted'), (UserError('x'), 'failed')],
)
def test_cancelled_run_is_interrupted_and_any_other_error_is_failed(error: BaseException, status: str) -> None:
    end = RunEvents().fail(error)[-1]
    assert isinstance(end, EndEvent)
    assert (end.status, end.finish_reason) == (status, 'error')


@pytest.mark.parametrize('kind', [ContentFilterError, UnexpectedModelBehavior])
def test_body_of_an_answer_is_not_part_of_the_message(kind: type[UnexpectedModelBehavior]) -> None:
    """pydantic-ai appends the body to the text of the error. It may contain thoughts and names of the provider."""
    assert describe_failure(kind('Refused.', body='{"thought": "private"}')).message == 'Refused.'


@pytest.mark.parametrize(
    'said',
    [
        'Incorrect API key provided: sk-proj-abcdefghijkl.',
        'Bad key AIzaSyabcdefghijklmnop',
        'Refused Bearer abcdef.ghijkl=',
        'Refused pd_0198abcd_secretsecret',
    ],
)
def test_api_keys_are_redacted(said: str) -> None:
    message = describe_failure(UserError(said)).message
    assert '…' in message
    assert 'abcd' not in message
    assert 'ghijkl' not in message


@pytest.mark.parametrize(
    ('body', 'message'),
    [
        ({'error': {'message': 'No such model.'}}, "'m' answered with HTTP 400: No such model."),
        ({'message': 'No.', 'request': 'private'}, "'m' answered with HTTP 400: No."),
        ('<html>private</html>', "'m' answered with HTTP 400."),
        (None, "'m' answered with HTTP 400."),
    ],
)
def test_only_the_message_of_a_provider_error_is_reported(body: object, message: str) -> None:
    assert describe_failure(ModelHTTPError(400, 'm', body)).message == message


def test_similar_model_is_suggested() -> None:
    error = ModelHTTPError(404, 'gpt-5o')
    error.suggested_model_id = 'gpt-5'
    assert describe_failure(error).message == "'gpt-5o' answered with HTTP 404. Did you mean 'gpt-5'?"


def test_long_message_is_truncated_and_has_one_line() -> None:
    message = describe_failure(UserError('a\nb ' + 'x' * 600)).message
    assert message.startswith('a b x')
    assert message.endswith('x…')
    assert len(message) == 500


def test_cancellation_message_says_that_completed_work_is_preserved() -> None:
    for error in (asyncio.CancelledError(), RunCancelled('The agent run was cancelled.')):
        for event in (describe_failure(error), load_failure(dump_failure(error))):
            assert (event.kind, event.message) == ('cancelled', 'The run was cancelled. Completed work is preserved.')
