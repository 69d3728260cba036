"""What the agent plugs in: one look at each request."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import ModelResponse

from ._events import PrefixBrokenEvent
from ._prefix_comparison import Sent, find_break, instructions_of, sent_before

_LOGGER = logging.getLogger('pydantic_deep')


@dataclass(kw_only=True)
class CacheWatch(AbstractCapability[object]):
    """Says when a request does not begin with all of the one before it, on any agent.

    Providers charge a tenth for what they have read before, and only as far as a request begins like an earlier one.
    Whatever changes an earlier message, a tool or the instructions makes all that follows be paid for in full: this emits
    a `PrefixBrokenEvent` then, and logs it at INFO unless a summary was the reason. It changes nothing.

    The first request of a run is compared with the last one that its history tells of, by messages and instructions.
    Messages that are the same objects count as unchanged. `pydantic_ai.capabilities.Caching` sets the marks that some
    providers want.
    """

    id: str | None = 'cache_watch'
    _sent: Sent | None = field(default=None, init=False, repr=False, compare=False)
    """The last request of this run, or what the history tells of the one before it."""

    def get_ordering(self) -> CapabilityOrdering:
        """Come after all others: what they make of a request is what is sent."""
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> CacheWatch:
        """Return this run's instance, which knows what was sent before."""
        run = replace(self)
        run._sent = sent_before(ctx.messages)
        return run

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Compare the request with the one before it, now that it is known what was sent."""
        model, messages = request_context.model, list(request_context.messages)
        sent = Sent(
            messages=messages,
            instructions=instructions_of(messages),
            model=f'{model.system}:{model.model_name}',
            settings=request_context.model_settings,
            parameters=request_context.model_request_parameters,
        )
        found = None if self._sent is None else find_break(self._sent, sent)
        self._sent = sent
        if found is not None:
            reason, detail = found
            await ctx.emit(PrefixBrokenEvent(reason=reason, detail=detail))
            if reason != 'summarized':
                _LOGGER.info('A request breaks the prefix that its provider has cached: %s (%s).', reason, detail)
        return response
