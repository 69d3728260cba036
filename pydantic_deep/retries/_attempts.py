"""The attempts at one request: their number, errors and usage."""

from __future__ import annotations

import logging
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic_ai.exceptions import FallbackExceptionGroup
from pydantic_ai.messages import ModelRequestAttempt, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from ._errors import CutAnswerError
from ._policy import Policy

_LOGGER = logging.getLogger('pydantic_deep')

_NO_USE = 'the error is not transient'


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A further attempt that will be made."""

    attempt: int
    """The number of the attempt, starting at 1."""
    reason: str
    delay_seconds: float


@dataclass(kw_only=True)
class Attempts:
    """The attempts at one request."""

    model: Model
    policy: Policy
    count: int = field(default=0, init=False)
    """The number of attempts that have started."""
    failed: list[ModelRequestAttempt] = field(default_factory=list[ModelRequestAttempt], init=False)
    """Failed attempts that were followed by another one."""
    _reasons: list[str] = field(default_factory=list[str], init=False)
    _first_at: float = field(init=False)
    _begun_at: float = field(init=False)
    _timestamp: datetime = field(init=False)

    def begin(self) -> None:
        """Start the next attempt."""
        self._timestamp, self._begun_at = datetime.now(UTC), self.policy.clock()
        if not self.count:
            self._first_at = self._begun_at
        self.count += 1

    def check(self, response: ModelResponse, *, streamed: bool) -> None:
        """Raise if a response is incomplete.

        Args:
            response: The response as it was received.
            streamed: Whether the response was streamed.

        Raises:
            CutAnswerError: The response is incomplete.
        """
        if self.policy.is_cut(response, system=self.model.system, streamed=streamed):
            raise CutAnswerError(response.model_name or self.model.model_name, response.provider_name or '')

    def settle(self, response: ModelResponse) -> ModelResponse:
        """Return a complete response with the failed attempts before it."""
        if not self.failed:
            return response
        return replace(response, failed_attempts=[*self.failed, *(response.failed_attempts or [])])

    def fail(self, error: Exception, partial: ModelResponse | None) -> Retry | None:
        """Record a failed attempt, and return the next one. Without a next one, return `None` and add a note to the
        error.

        Args:
            error: The error of the attempt.
            partial: The part of the response that was received.
        """
        reason = self.policy.reason_for(error, system=self.model.system)
        if reason is None or (partial is not None and partial.state == 'suspended'):  # the provider continues the job
            return self._add_final_note(error, _NO_USE)
        if self.count >= self.policy.attempts:
            return self._add_final_note(error, f'`attempts` is {self.policy.attempts}')
        delay = self.policy.wait_seconds(error, attempt=self.count)
        left = self.policy.max_seconds - (self.policy.clock() - self._first_at)
        if delay > left:
            return self._add_final_note(
                error, f'the next would start in {delay:.1f} s, with {left:.1f} s of `max_seconds` left'
            )
        self._reasons.append(reason)
        self.failed += self._records(error, reason, partial)
        _LOGGER.warning(
            'A request to %s failed: %s. Attempt %d of %d follows in %.1f s.',
            self.model.model_name,
            reason,
            self.count + 1,
            self.policy.attempts,
            delay,
        )
        return Retry(attempt=self.count + 1, reason=reason, delay_seconds=delay)

    def unanswered(self, error: Exception, partial: ModelResponse | None) -> list[ModelRequestAttempt]:
        """Return billed attempts that no response will contain, because the last attempt failed, too.

        pydantic-ai counts the attempts in the error of a `FallbackModel`, so these are added to that error instead.
        """
        if isinstance(error, FallbackExceptionGroup):
            error.attempts = [*self.failed, *error.attempts]
            return []
        attempts = [*self.failed, *self._records(error, '', partial)]
        return [attempt for attempt in attempts if attempt.usage is not None]

    def _records(self, error: Exception, reason: str, partial: ModelResponse | None) -> list[ModelRequestAttempt]:
        """Return the records of a failed attempt, including those that a `FallbackModel` made within it."""
        if isinstance(error, FallbackExceptionGroup):
            return list(error.attempts)
        attempt = ModelRequestAttempt(
            model_name=(partial and partial.model_name) or self.model.model_name,
            provider_name=(partial and partial.provider_name) or self.model.system,
            outcome='error',
            error=f'{type(error).__name__}: {reason}',
            timestamp=self._timestamp,
            duration=timedelta(seconds=self.policy.clock() - self._begun_at),
            usage=_billed(partial),
        )
        return [*((partial and partial.failed_attempts) or ()), attempt]

    def _add_final_note(self, error: Exception, why: str) -> None:
        """Add a note to the error with the number of attempts and the reason to stop. A permanent first error gets
        none.
        """
        if why == _NO_USE and self.count == 1:
            return
        before = f', after: {", ".join(self._reasons)}' if self._reasons else ''
        error.add_note(f'pydantic-deep: attempt {self.count} at this request was the last{before}; {why}.')


def _billed(partial: ModelResponse | None) -> RequestUsage | None:
    """Return the usage that the provider reported for a response, with its cost if the price is known."""
    if partial is None or not partial.usage.has_values():
        return None
    usage = copy(partial.usage)
    if usage.cost is None and partial.model_name:
        with suppress(LookupError, ValueError):  # the price is unknown, or parts of the usage are
            usage.cost = partial.cost().total_price
    return usage
