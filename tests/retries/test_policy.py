"""Classification of retried errors, and the delay before a retry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)
from pydantic_ai.messages import ModelResponse

from pydantic_deep.retries import CutAnswerError, Retries
from pydantic_deep.retries._policy import (
    FINISH_REASON_PROVIDERS,
    Policy,
    asked_seconds,
    backoff_seconds,
    lacks_finish_reason,
    reason_to_retry,
)
from pydantic_deep.testing import ScriptExhaustedError

from .conftest import Waits, whole


def http(kind: type[ModelAPIError] | None, status: int, **headers: str) -> ModelHTTPError:
    """Return the error that pydantic-ai raises for an HTTP status."""
    named = {name.replace('_', '-'): value for name, value in headers.items()}
    return ModelHTTPError.for_category(kind, status_code=status, model_name='m', body='secret', headers=named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ('error', 'reason'),
    [
        (http(ModelRateLimitError, 429), 'rate limited (429)'),
        (http(ModelOverloadedError, 529), 'overloaded (529)'),
        (http(ModelUnavailableError, 503), 'unavailable (503)'),
        (http(ModelServerError, 500), 'server error (500)'),
        (http(None, 408), 'timed out (408)'),
        (http(None, 409), 'conflict (409)'),
        (http(None, 429), 'rate limited (429)'),
        (http(None, 500), 'server error (500)'),
        (http(None, 503), 'unavailable (503)'),
        (http(None, 529), 'overloaded (529)'),
        (http(None, 418, x_should_retry='true'), 'failed (418)'),
        (ModelOverloadedError('m', 'secret', in_stream=True), 'overloaded'),
        (ModelConnectionError('m', 'secret'), 'connection lost'),
        (ModelTimeoutError('m', 'secret'), 'timed out'),
        (CutAnswerError('m', 'openai'), 'the answer was cut'),
        (ModelAPIError('m', 'secret'), 'unreadable answer'),
        (UnexpectedModelBehavior('secret'), 'unreadable answer'),
    ],
)
def test_transient_errors_are_retried_and_described_without_content(error: Exception, reason: str) -> None:
    assert reason_to_retry(error) == reason


@pytest.mark.parametrize(
    'error',
    [
        http(ModelRequestRejectedError, 400),
        http(ModelAuthenticationError, 401),
        http(ModelNotFoundError, 404),
        http(ModelContextWindowExceededError, 400),
        http(ModelQuotaExceededError, 429),
        http(ModelRequestRejectedError, 400, x_should_retry='true'),
        http(ModelRateLimitError, 429, x_should_retry='false'),
        http(None, 418),
        ModelRequestTimeout('m', 5),
        ContentFilterError('blocked'),
        UsageLimitExceeded('enough'),
        ValueError('something else'),
    ],
    ids=lambda error: type(error).__name__,
)
def test_permanent_errors_are_not_retried(error: Exception) -> None:
    assert reason_to_retry(error) is None


def group(*errors: Exception) -> FallbackExceptionGroup:
    return FallbackExceptionGroup('All models failed', errors)


def test_fallback_is_retried_if_any_of_its_errors_is_transient() -> None:
    rejected, busy = http(ModelRequestRejectedError, 400), http(ModelOverloadedError, 529)
    assert reason_to_retry(group(rejected, busy)) == 'every model failed, one of them: overloaded (529)'
    assert reason_to_retry(group(rejected, rejected)) is None


def test_delay_requested_by_the_provider_is_used() -> None:
    slow, soon = http(ModelRateLimitError, 429, retry_after='40'), http(ModelRateLimitError, 429, retry_after_ms='1500')
    refused = http(ModelRequestRejectedError, 400, retry_after='1')
    assert asked_seconds(slow) == 40
    assert asked_seconds(soon) == 1.5
    assert asked_seconds(group(slow, soon, refused, http(ModelServerError, 500))) == 1.5
    assert asked_seconds(group(http(ModelServerError, 500))) is None
    assert asked_seconds(UnexpectedModelBehavior('x')) is None


def test_delays_double_up_to_thirty_seconds() -> None:
    assert [backoff_seconds(attempt) for attempt in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff_seconds(10_000) == 30


WHOLE = whole('hello')


def policy(**options: object) -> Policy:
    """Return the default policy, with delays that take no real time."""
    waits = Waits()
    made = Policy(
        attempts=3,
        max_seconds=1,
        finish_reason_from=FINISH_REASON_PROVIDERS,
        sleep=waits.sleep,
        random=lambda: 0.5,
        clock=waits.clock.monotonic,
    )
    return replace(made, **options)


@pytest.mark.parametrize('provider', sorted(FINISH_REASON_PROVIDERS))
def test_stream_without_a_finish_reason_is_truncated(provider: str) -> None:
    response = replace(WHOLE, provider_name=provider)
    half = replace(response, provider_details=None)
    assert not policy().is_cut(response, system=provider, streamed=True)
    assert policy().is_cut(half, system=provider, streamed=True)
    assert policy().is_cut(half, system=f'fallback:groq,{provider}', streamed=True)
    assert policy().is_cut(replace(half, provider_details={'timestamp': 1}), system=provider, streamed=True)
    # A non-streamed response is complete if it parses, except with Anthropic, which may have streamed it.
    assert policy().is_cut(half, system=provider, streamed=False) is (provider == 'anthropic')


def test_provider_not_in_finish_reason_from_is_not_checked() -> None:
    half = replace(WHOLE, provider_details=None)
    assert not policy(finish_reason_from=frozenset({'google'})).is_cut(half, system='openai', streamed=True)


@pytest.mark.parametrize(
    'response',
    [
        replace(WHOLE, provider_details={'refusal': 'no'}, finish_reason='content_filter'),
        replace(WHOLE, provider_details=None, state='suspended'),
        replace(WHOLE, provider_details=None, state='interrupted'),
    ],
    ids=['refused', 'goes on at the provider', 'stopped by the user'],
)
def test_unfinished_or_refused_response_is_not_truncated(response: ModelResponse) -> None:
    assert not lacks_finish_reason(response)


@pytest.mark.parametrize(
    ('provider', 'system'),
    [(None, 'function'), ('ollama', 'ollama'), ('openai', 'function'), ('anthropic', 'scripted')],
)
def test_response_of_an_unknown_provider_or_test_model_is_not_truncated(provider: str | None, system: str) -> None:
    response = replace(WHOLE, provider_name=provider, provider_details=None)
    assert not policy().is_cut(response, system=system, streamed=True)
    assert not policy().is_cut(response, system=system, streamed=False)


def test_untyped_error_is_retried_only_for_known_providers() -> None:
    assert policy().reason_for(AssertionError(), system='anthropic') == 'unreadable answer'
    assert policy().reason_for(AttributeError('x'), system='fallback:groq,openai') == 'unreadable answer'
    assert policy().reason_for(AssertionError(), system='function') is None
    assert policy().reason_for(ScriptExhaustedError(1, []), system='openai') is None


def test_delay_is_randomized() -> None:
    assert policy().wait_seconds(ModelAPIError('m', 'x'), attempt=3) == 1.0


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'attempts': 0}, '`attempts` is 0'),
        ({'max_seconds': -1.0}, '`max_seconds` is -1.0'),
        ({'finish_reason_from': 'openai'}, "`finish_reason_from` is 'openai'"),
        ({'sleep': 1}, 'sleep: it is of type `int`. Pass a function'),
    ],
)
def test_invalid_limits_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Retries(**options)  # type: ignore[arg-type]
