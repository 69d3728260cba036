"""What the agent plugs in: one policy of retries over all providers, as one capability for any pydantic-ai agent."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import anyio
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequestAttempt
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep.extensions import SupportsHistory, find_capabilities

from ._attempts import Retry
from ._events import ModelRetriedEvent
from ._model import RetriedModel
from ._policy import FINISH_REASON_PROVIDERS, Policy


@dataclass(kw_only=True)
class Retries(AbstractCapability[object]):
    """Asks a model again where a failure passes, and where an answer was cut.

    A failure passes if the provider was overloaded, unavailable, rate limited or failed itself, if the connection was
    lost, also in mid-stream, and if what came cannot be read. A rejected request, a used-up quota and a blocked
    answer do not pass. An answer is cut if its stream ends without the finish reason that its provider always sends;
    pydantic-ai takes it as complete. Tools run once the answer is whole, so none runs twice.

    Each retry is logged by the logger `pydantic_deep`, as a warning, and emitted as a `ModelRetriedEvent`. What failed
    attempts were billed is in `ModelResponse.failed_attempts` and counts in the usage of the run. The last error is
    raised, with a note that says how many attempts there were.

    The SDKs of OpenAI and Anthropic try three times themselves, within each attempt. With the model setting
    `max_retries=0` they leave it to this policy. The setting `request_timeout` ends a request with all its attempts.
    A subagent has the policy of its parent, also where it has one of its own.
    """

    id: str | None = 'retries'
    attempts: int = 3
    """How often a model is asked at most for one answer, the first time counted in; 1 asks once, and still refuses
    answers that were cut.
    """
    max_seconds: float = 120.0
    """No attempt begins later than this after the first. Where a provider asks to wait for longer, none is made."""
    finish_reason_from: Collection[str] = FINISH_REASON_PROVIDERS
    """Providers, by their names in pydantic-ai, whose streams always end with a finish reason, so that one without was
    cut. Leave out `'openai'` for a server that speaks its API and never sends one.
    """
    sleep: Callable[[float], Awaitable[None]] = field(default=anyio.sleep, repr=False)
    """Waits so many seconds between attempts."""
    random: Callable[[], float] = field(default=random.random, repr=False)
    """Draws from 0 to 1 which part of the longest wait is waited, so that clients do not come back together."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    """Tells seconds that never go back."""
    _ctx: RunContext[object] | None = field(default=None, init=False, repr=False)
    _wrapper: RetriedModel | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing.

        Raises:
            ValueError: A limit is too small.
        """
        if self.attempts < 1:
            raise ValueError(f'`attempts` is {self.attempts}. Use at least 1, which asks once.')
        if self.max_seconds < 0:
            raise ValueError(
                f'`max_seconds` is {self.max_seconds}. Use at least 0, which makes no second attempt wait.'
            )
        if isinstance(self.finish_reason_from, str):
            raise ValueError(f"`finish_reason_from` is {self.finish_reason_from!r}. Use a set: `{{'openai'}}`.")

    def for_subagent(self) -> Retries:
        """Return what holds in the run of a subagent: the same."""
        return self

    async def for_run(self, ctx: RunContext[object]) -> Retries:
        """Return this run's instance."""
        return replace(self)

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Keep the run that retries are told to."""
        self._ctx = ctx

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return a model that asks this one again, the same one as before; `None` if it does so already."""
        if isinstance(model, RetriedModel):
            return None
        if self._wrapper is None or self._wrapper.wrapped is not model:
            policy = Policy(
                attempts=self.attempts,
                max_seconds=self.max_seconds,
                finish_reason_from=frozenset(() if _plays(model) else self.finish_reason_from),
                sleep=self.sleep,
                random=self.random,
                clock=self.clock,
            )
            self._wrapper = RetriedModel(model, policy, self._tell, self._bill)
        return self._wrapper

    async def _tell(self, retry: Retry, is_void: bool) -> None:
        """Emit a retry, where there is a run to tell."""
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
        """Count what no response will tell of."""
        if self._ctx is None:
            return
        for attempt in attempts:
            self._ctx.usage.incr(cast('RequestUsage', attempt.usage))
        for keeper in find_capabilities(self._ctx, SupportsHistory):
            keeper.record_billed_attempts(attempts)


def _plays(model: Model) -> bool:
    """Return whether a model of the test kit stands behind this one: its answers are whole, whatever is in them."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return isinstance(model, CannedModel)
