"""The capability that retries transient model errors, for every provider and any pydantic-ai agent."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import anyio
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelRequestAttempt
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_functions, check_least, check_strings
from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep.extensions import SupportsBilledAttempts, find_capabilities

from ._attempts import Retry
from ._events import ModelRetriedEvent
from ._model import RetriedModel
from ._policy import FINISH_REASON_PROVIDERS, Policy


@dataclass(kw_only=True)
class Retries(BaseCapability[object]):
    """Retry transient model errors and incomplete responses, for every provider.

    These errors are transient: the provider was overloaded, unavailable, rate limited or had an internal error; the
    connection was lost, even in mid-stream; or the response could not be parsed. Rejected requests, exhausted quotas
    and blocked responses are not retried. A response is incomplete if its stream ends without the finish reason that
    its provider always sends, which pydantic-ai accepts as complete. Tools run after a response is complete, so none
    runs twice.

    Each retry is logged as a warning by the logger `pydantic_deep`, and emitted as a `ModelRetriedEvent`. The usage of
    failed attempts is in `ModelResponse.failed_attempts`, and counts in the usage of the run. When all attempts fail,
    the last error is raised with a note that contains the number of attempts.

    Within each attempt, the SDKs of OpenAI and Anthropic make three attempts themselves. The model setting
    `max_retries=0` leaves retries to this capability. The setting `request_timeout` limits a request including all its
    attempts. Subagents use the policy of their parent, even if they have one of their own.
    """

    id: str | None = 'retries'
    attempts: int = 3
    """Maximum number of attempts at one request, including the first. With 1, incomplete responses still raise an
    error.
    """
    max_seconds: float = 120.0
    """Maximum time between the start of the first and of the last attempt, in seconds. If a provider asks for a longer
    delay, there is no further attempt.
    """
    finish_reason_from: Collection[str] = FINISH_REASON_PROVIDERS
    """Providers, by their pydantic-ai names, whose streams always end with a finish reason, so that one without is
    incomplete. Remove `'openai'` for a server with a compatible API that does not send one.
    """
    sleep: Callable[[float], Awaitable[None]] = field(default=anyio.sleep, repr=False)
    """Sleeps for the given number of seconds between attempts."""
    random: Callable[[], float] = field(default=random.random, repr=False)
    """Returns a random fraction, from 0 to 1, of the maximum delay, so that clients do not retry simultaneously."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    """A monotonic clock in seconds."""
    _ctx: RunContext[object] | None = field(default=None, init=False, repr=False)
    _wrapper: RetriedModel | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate the options.

        Raises:
            ValueError: A limit is too small, `attempts` is not a whole number, or an option is not a function.
            TypeError: `finish_reason_from` is no list of strings.
        """
        check_least('attempts', self.attempts, 1)
        check_least('max_seconds', self.max_seconds, 0, is_whole=False)
        check_strings('finish_reason_from', self.finish_reason_from)
        check_functions(sleep=self.sleep, random=self.random, clock=self.clock)

    def for_subagent(self) -> Retries:
        """Return the instance for a subagent, which is this one."""
        return self

    async def for_run(self, ctx: RunContext[object]) -> Retries:
        """Return a copy with the state of this run."""
        return replace(self)

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Store the context of the run, which emits retry events."""
        self._ctx = ctx

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return a model that retries requests of this one, cached per model; `None` if it already retries."""
        if isinstance(model, RetriedModel):
            return None
        if self._wrapper is None or self._wrapper.wrapped is not model:
            policy = Policy(
                attempts=self.attempts,
                max_seconds=self.max_seconds,
                finish_reason_from=frozenset(() if _is_canned(model) else self.finish_reason_from),
                sleep=self.sleep,
                random=self.random,
                clock=self.clock,
            )
            self._wrapper = RetriedModel(model, policy, self._on_retry, self._bill)
        return self._wrapper

    async def _on_retry(self, retry: Retry, is_void: bool) -> None:
        """Emit a retry event if there is a run."""
        if self._ctx is not None:
            await self._ctx.emit(
                ModelRetriedEvent(
                    attempt=retry.attempt,
                    attempts=self.attempts,
                    reason=retry.reason,
                    delay_seconds=retry.delay_seconds,
                    is_void=is_void,
                )
            )

    def _bill(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Count usage that no response contains."""
        if self._ctx is None:
            return
        for attempt in attempts:
            self._ctx.usage.incr(cast('RequestUsage', attempt.usage))
        for recorder in find_capabilities(self._ctx, SupportsBilledAttempts):
            recorder.record_billed_attempts(attempts)


def _is_canned(model: Model) -> bool:
    """Return whether this model wraps a test model: its responses are always complete."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return isinstance(model, CannedModel)
