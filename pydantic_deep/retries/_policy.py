"""Which failures are retried, and after which delay. Pure: independent of models."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

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

from pydantic_deep.errors import ValidationError

from ._errors import CutAnswerError

FINISH_REASON_PROVIDERS = frozenset({'openai', 'anthropic', 'google', 'google-cloud'})
"""Providers, by `ModelResponse.provider_name`, that end each stream with a finish reason.

OpenAI chat: `finish_reason` of the last chunk with a choice,
https://platform.openai.com/docs/api-reference/chat-streaming. OpenAI Responses: `response.completed`, `.incomplete` or
`.failed`, https://platform.openai.com/docs/api-reference/responses-streaming.

Anthropic: `stop_reason` in `message_delta`, https://docs.claude.com/en/docs/build-with-claude/streaming.

Google: `finishReason` of a candidate ("if empty, the model has not stopped generating tokens"),
https://ai.google.dev/api/generate-content#candidate.

Other providers with one of these APIs are not listed, as some of them do not send a finish reason.
"""

_READ_STREAMS_ANYWAY = frozenset({'anthropic'})
"""Providers that may stream even if the run does not: Anthropic's SDK requires a stream for a large `max_tokens`.
Without a stream, a response that can be parsed is complete.
"""

BASE_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0
"""The maximum delay starts at the first value and doubles up to the second. OpenAI's and Anthropic's SDKs start the
same.
"""

_NEVER = (ModelRequestRejectedError, ModelQuotaExceededError, ModelRequestTimeout)
"""Errors that are not retried: the same request would fail again, or its time limit is exceeded."""

_REASONS: tuple[tuple[type[ModelAPIError], str], ...] = (
    (CutAnswerError, 'the answer was cut'),
    (ModelRateLimitError, 'rate limited'),
    (ModelOverloadedError, 'overloaded'),
    (ModelUnavailableError, 'unavailable'),
    (ModelServerError, 'server error'),
    (ModelTimeoutError, 'timed out'),
    (ModelConnectionError, 'connection lost'),
)
"""Transient errors and their descriptions, narrower classes first."""

_STATUS_REASONS = {408: 'timed out', 409: 'conflict', 429: 'rate limited', 503: 'unavailable', 529: 'overloaded'}
"""Transient HTTP status codes. pydantic-ai has no class for the first two; models of others may use none at all."""

_UNREADABLE = 'unreadable answer'

_UNTYPED = (AssertionError, AttributeError)
"""Errors that pydantic-ai's stream parsers raise for invalid events: an Anthropic stream that does not start with
`message_start`, or an OpenAI chunk that is `null`.
"""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The retry policy. Its fields are those of `Retries`."""

    attempts: int
    max_seconds: float
    finish_reason_from: frozenset[str]
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]
    clock: Callable[[], float]

    def reason_for(self, error: Exception, *, system: str) -> str | None:
        """Return why a failed request should be retried; `None` if it should not.

        Args:
            error: The error of the request.
            system: The `Model.system` of the model. For unknown systems, such as test doubles, untyped errors are not
                retried.
        """
        if type(error) in _UNTYPED:
            return _UNREADABLE if self.finish_reason_from & names_in(system) else None
        return reason_to_retry(error)

    def wait_seconds(self, error: Exception, *, attempt: int) -> float:
        """Return the delay after a failed attempt in seconds: the one that the provider asks for, or a random backoff."""
        asked = asked_seconds(error)
        return self.random() * backoff_seconds(attempt) if asked is None else asked

    async def wait(self, seconds: float) -> None:
        """Wait between two attempts."""
        waiting = cast('object', self.sleep(seconds))
        if not isinstance(waiting, Awaitable):
            advice = 'Pass an `async` function, such as `anyio.sleep`.'
            raise ValidationError('sleep', f'it returned {waiting!r}, which cannot be awaited. {advice}')
        await waiting

    def is_cut(self, response: ModelResponse, *, system: str, streamed: bool) -> bool:
        """Return whether the stream of a response ended before the response was complete.

        Args:
            response: The response as it was received.
            system: The `Model.system` of the model. A response of a different provider comes from a test double.
            streamed: Whether the response was streamed.
        """
        if not lacks_finish_reason(response) or response.provider_name not in names_in(system):
            return False
        providers = self.finish_reason_from
        return response.provider_name in (providers if streamed else providers & _READ_STREAMS_ANYWAY)


def reason_to_retry(error: Exception) -> str | None:
    """Return why a request with a pydantic-ai error should be retried; `None` if it should not."""
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
    reason = reason or _STATUS_REASONS.get(error.status_code, 'server error' if error.status_code >= 500 else None)
    hint = error.provider_retry_hint
    if hint is False or (reason is None and hint is None):
        return None
    return f'{reason or "failed"} ({error.status_code})'


def asked_seconds(error: Exception) -> float | None:
    """Return the delay in seconds that the provider asks for with `Retry-After`; `None` if it does not.

    For a `FallbackModel`, the shortest delay of its models counts.
    """
    if isinstance(error, FallbackExceptionGroup):
        worth = [failure for failure in error.exceptions if reason_to_retry(failure)]
        asked = [asked_seconds(failure) for failure in worth]
        return min((seconds for seconds in asked if seconds is not None), default=None)
    return error.retry_after if isinstance(error, ModelAPIError) else None


def backoff_seconds(attempt: int) -> float:
    """Return the maximum delay after a failed attempt in seconds, where the first attempt is 1.

    The actual delay is random between 0 and this maximum, so that clients do not retry simultaneously ("full jitter":
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    return min(MAX_BACKOFF_SECONDS, BASE_SECONDS * 2 ** min(attempt - 1, 16))


def lacks_finish_reason(response: ModelResponse) -> bool:
    """Return whether a response has no finish reason.

    pydantic-ai stores the provider's finish reason in `provider_details`, and sets `finish_reason` to `'stop'` even if
    there was none. Refusals and blocked prompts have only `finish_reason`. Responses that the user interrupted, or that
    continue at the provider, are not finished.
    """
    if 'finish_reason' in (response.provider_details or {}) or response.finish_reason == 'content_filter':
        return False
    return response.state not in ('interrupted', 'suspended')


def names_in(system: str) -> frozenset[str]:
    """Return the provider names in `Model.system`: one, or all those of a `FallbackModel`."""
    return frozenset(re.split('[:,]', system))
