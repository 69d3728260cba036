"""What is worth another attempt, and how long to wait before it: decided on values, without a model."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelResponse

from ._errors import CutAnswerError

FINISH_REASON_PROVIDERS = frozenset({'openai', 'anthropic', 'google', 'google-cloud'})
"""Providers, by `ModelResponse.provider_name`, that end each stream with the reason why the answer ended.

OpenAI chat: `finish_reason` of the last chunk with a choice, https://platform.openai.com/docs/api-reference/chat-streaming.
OpenAI Responses: `response.completed`, `.incomplete` or `.failed`,
https://platform.openai.com/docs/api-reference/responses-streaming.
Anthropic: `stop_reason` in `message_delta`, https://docs.claude.com/en/docs/build-with-claude/streaming.
Google: `finishReason` of a candidate ("if empty, the model has not stopped generating tokens"),
https://ai.google.dev/api/generate-content#candidate.
Others that speak one of these APIs do not all keep to it, so they are not here.
"""

_READ_STREAMS_ANYWAY = frozenset({'anthropic'})
"""Providers whose model may read a stream where the run does not: Anthropic's SDK requires one for a large
`max_tokens`. Where no stream is read, an answer that can be parsed is whole.
"""

BASE_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0
"""The first wait is at most the one and doubles up to the other; OpenAI's and Anthropic's SDKs begin so too."""

_NEVER = (ModelRequestRejectedError, ModelQuotaExceededError, ModelRequestTimeout)
"""The same request would fail again, or its time is up."""

_REASONS: tuple[tuple[type[ModelAPIError], str], ...] = (
    (CutAnswerError, 'the answer was cut'),
    (ModelRateLimitError, 'rate limited'),
    (ModelOverloadedError, 'overloaded'),
    (ModelUnavailableError, 'unavailable'),
    (ModelServerError, 'server error'),
    (ModelTimeoutError, 'timed out'),
    (ModelConnectionError, 'connection lost'),
)
"""What passes, the narrower class first."""

_STATUS_REASONS = {408: 'timed out', 409: 'conflict'}
"""Statuses without a class of their own that OpenAI's and Anthropic's SDKs ask again for."""

_UNREADABLE = 'unreadable answer'

_UNTYPED = (AssertionError, AttributeError)
"""What pydantic-ai's readers of streams raise, instead of an error of its own, for events that should not be: a stream
of Anthropic that does not begin with `message_start`, a chunk of OpenAI that is `null`.
"""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When to ask again. The fields are those of `Retries`."""

    attempts: int
    max_seconds: float
    finish_reason_from: frozenset[str]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    clock: Callable[[], float]

    def reason_for(self, error: Exception, *, system: str) -> str | None:
        """Return in words why a request that failed so is worth another attempt; `None` if it is not.

        Args:
            error: What the request raised.
            system: Of the model that was asked. Only of one whose wire is known is an untyped error one of the wire:
                in a double it is a failed test.
        """
        if type(error) in _UNTYPED:
            return _UNREADABLE if self.finish_reason_from & names_in(system) else None
        return reason_to_retry(error)

    def wait_seconds(self, error: Exception, *, attempt: int) -> float:
        """Return how long to wait after a failed attempt, the first being 1: as the provider asks, if it does."""
        asked = asked_seconds(error)
        return self.random() * backoff_seconds(attempt) if asked is None else asked

    def is_cut(self, response: ModelResponse, *, system: str, streamed: bool) -> bool:
        """Return whether the stream of a response ended before the answer did.

        Args:
            response: All that came.
            system: Of the model that was asked. A response that says another one is made up, by a double.
            streamed: Whether a stream was asked for.
        """
        if not lacks_finish_reason(response) or response.provider_name not in names_in(system):
            return False
        providers = self.finish_reason_from
        return response.provider_name in (providers if streamed else providers & _READ_STREAMS_ANYWAY)


def reason_to_retry(error: Exception) -> str | None:
    """Return in words why a request that failed with an error of pydantic-ai is worth another attempt."""
    if isinstance(error, FallbackExceptionGroup):
        reasons = (reason_to_retry(failure) for failure in error.exceptions)
        return next((f'every model failed, one of them: {reason}' for reason in reasons if reason), None)
    if type(error) is UnexpectedModelBehavior or type(error) is ModelAPIError:
        return _UNREADABLE
    if not isinstance(error, ModelAPIError) or isinstance(error, _NEVER):
        return None
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)
    if not isinstance(error, ModelHTTPError):
        return reason
    reason = reason or _STATUS_REASONS.get(error.status_code)
    hint = error.provider_retry_hint
    if hint is False or (reason is None and hint is None):
        return None
    return f'{reason or "failed"} ({error.status_code})'


def asked_seconds(error: Exception) -> float | None:
    """Return how long the provider asks to wait, by `Retry-After` in seconds or as a date; `None` if it does not say.

    Of several models the one that may be asked first counts.
    """
    if isinstance(error, FallbackExceptionGroup):
        worth = [failure for failure in error.exceptions if reason_to_retry(failure)]
        asked = [asked_seconds(failure) for failure in worth]
        return min((seconds for seconds in asked if seconds is not None), default=None)
    return error.retry_after if isinstance(error, ModelAPIError) else None


def backoff_seconds(attempt: int) -> float:
    """Return the longest wait after a failed attempt, the first being 1.

    The wait itself is drawn between 0 and this, so that clients that failed together do not come back together
    ("full jitter": https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    return min(MAX_BACKOFF_SECONDS, BASE_SECONDS * 2 ** min(attempt - 1, 16))


def lacks_finish_reason(response: ModelResponse) -> bool:
    """Return whether a response is without the reason for which it ended.

    pydantic-ai keeps that reason, as it came, in `provider_details`; in `finish_reason` it writes `'stop'` also where
    none came. A refusal and a blocked prompt have `finish_reason` alone. What the user has stopped, or what goes on
    at the provider, has not ended.
    """
    if 'finish_reason' in (response.provider_details or {}) or response.finish_reason == 'content_filter':
        return False
    return response.state not in ('interrupted', 'suspended')


def names_in(system: str) -> frozenset[str]:
    """Return the names of the providers in `Model.system`: one, or all those of a `FallbackModel`."""
    return frozenset(re.split('[:,]', system))
