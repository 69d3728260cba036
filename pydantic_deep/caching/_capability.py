"""The capability that compares each request with the previous one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.capabilities import CapabilityOrdering
from pydantic_ai.messages import ModelResponse

from pydantic_deep._capabilities.base import BaseCapability

from ._events import PrefixBrokenEvent
from ._prefix_comparison import Sent, find_break, instructions_of, sent_before

_LOGGER = logging.getLogger('pydantic_deep')


@dataclass(kw_only=True)
class CacheWatch(BaseCapability[object]):
    """Report when a request does not start with the complete previous request, on any agent.

    Providers charge about a tenth of the price for input that they have cached, but only for a common prefix of
    requests. Any change of an earlier message, a tool or the instructions makes everything after it cost the full
    price. This capability then emits a `PrefixBrokenEvent`, and logs it at level INFO unless a summary was the reason.
    It does not modify requests.

    The first request of a run is compared with the last one in its history, by messages and instructions. Identical
    message objects count as unchanged. To set the cache markers that some providers need, use
    `pydantic_ai.capabilities.Caching`.
    """

    id: str | None = 'cache_watch'
    _sent: Sent | None = field(default=None, init=False, repr=False, compare=False)
    """The last request of this run or, initially, of its history."""

    def get_ordering(self) -> CapabilityOrdering:
        """Run innermost, to see the request as it is sent."""
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> CacheWatch:
        """Return an instance for this run, with the last request of its history."""
        run = replace(self)
        run._sent = sent_before(ctx.messages)
        return run

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Compare the request, as it was sent, with the previous one."""
        model, messages = request_context.model, list(request_context.messages)
        sent = Sent(
            messages=messages,
            instructions=instructions_of(messages),
            model=f'{model.system}:{model.model_name}',
            settings=request_context.model_settings,
            parameters=request_context.model_request_parameters,
        )
        break_found = None if self._sent is None else find_break(self._sent, sent)
        self._sent = sent
        if break_found is not None:
            reason, detail = break_found
            await ctx.emit(PrefixBrokenEvent(reason=reason, detail=detail))
            if reason != 'summarized':
                _LOGGER.info('A request breaks the prefix that its provider has cached: %s (%s).', reason, detail)
        return response
