"""The attempts at one request: how many, what each came to, what they were billed."""

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

_NO_USE = 'this failure would come again'


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Another attempt that will be made."""

    attempt: int
    """Its number; the first of a request is 1."""
    reason: str
    delay_seconds: float


@dataclass(kw_only=True)
class Attempts:
    """What was tried for one request."""

    model: Model
    policy: Policy
    count: int = field(default=0, init=False)
    """How many have begun."""
    failed: list[ModelRequestAttempt] = field(default_factory=list[ModelRequestAttempt], init=False)
    """Those after which another one came."""
    _reasons: list[str] = field(default_factory=list[str], init=False)
    _first_at: float = field(init=False)
    _begun_at: float = field(init=False)
    _timestamp: datetime = field(init=False)

    def begin(self) -> None:
        """Begin the next attempt."""
        self._timestamp, self._begun_at = datetime.now(UTC), self.policy.clock()
        if not self.count:
            self._first_at = self._begun_at
        self.count += 1

    def check(self, response: ModelResponse, *, streamed: bool) -> None:
        """Refuse a response that was cut.

        Args:
            response: All that came.
            streamed: Whether a stream was asked for.

        Raises:
            CutAnswerError: It was.
        """
        if self.policy.is_cut(response, system=self.model.system, streamed=streamed):
            raise CutAnswerError(response.model_name or self.model.model_name, response.provider_name or '')

    def settle(self, response: ModelResponse) -> ModelResponse:
        """Return a whole response with what was tried before it."""
        if not self.failed:
            return response
        return replace(response, failed_attempts=[*self.failed, *(response.failed_attempts or [])])

    def fail(self, error: Exception, partial: ModelResponse | None) -> Retry | None:
        """Note that the attempt failed, and return the next one; `None` if there is none, which the error then says.

        Args:
            error: What it raised.
            partial: What had arrived of its response.
        """
        reason = self.policy.reason_for(error, system=self.model.system)
        if reason is None or (partial is not None and partial.state == 'suspended'):  # the job goes on over there
            return self._give_up(error, _NO_USE)
        if self.count >= self.policy.attempts:
            return self._give_up(error, f'`attempts` is {self.policy.attempts}')
        delay = self.policy.wait_seconds(error, attempt=self.count)
        left = self.policy.max_seconds - (self.policy.clock() - self._first_at)
        if delay > left:
            return self._give_up(error, f'the next is due in {delay:.1f} s, with {left:.1f} s of `max_seconds` left')
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
        """Return the attempts that were billed and of which no response will tell, because the last one failed too.

        pydantic-ai counts those that an error of a `FallbackModel` tells of; it is given ours to tell of as well.
        """
        if isinstance(error, FallbackExceptionGroup):
            error.attempts = [*self.failed, *error.attempts]
            return []
        attempts = [*self.failed, *self._records(error, '', partial)]
        return [attempt for attempt in attempts if attempt.usage is not None]

    def _records(self, error: Exception, reason: str, partial: ModelResponse | None) -> list[ModelRequestAttempt]:
        """Return the record of the attempt that failed, after those that a `FallbackModel` made within it."""
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

    def _give_up(self, error: Exception, why: str) -> None:
        """Say in the error how often was asked, and why no more; of one that came at once there is nothing to say."""
        if why == _NO_USE and self.count == 1:
            return
        before = f', after: {", ".join(self._reasons)}' if self._reasons else ''
        error.add_note(f'pydantic-deep: attempt {self.count} at this request was the last{before}; {why}.')


def _billed(partial: ModelResponse | None) -> RequestUsage | None:
    """Return what the provider has reported for a response, with its price where there is one."""
    if partial is None or not partial.usage.has_values():
        return None
    usage = copy(partial.usage)
    if usage.cost is None and partial.model_name:
        with suppress(LookupError, ValueError):  # no price is known, or not all of the usage
            usage.cost = partial.cost().total_price
    return usage
