"""Reports retries immediately. The stream of a run emits nothing while a request is retried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, on_event

from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.subagents import position_of

RetryCallback: TypeAlias = Callable[[ModelRetriedEvent, Sequence[str]], None]
"""Called with a retry and the path of subagents to its run."""


@dataclass(kw_only=True)
class RetryListener(AbstractCapability[object]):
    """Forwards the retries of all runs, including those of subagents, in a process with one user."""

    id: str | None = 'retry-listener'
    on_retry: RetryCallback = field(default=lambda event, path: None, repr=False, compare=False)
    """Receives each retry. Every turn sets its own callback."""

    def for_subagent(self) -> RetryListener:
        """Return this listener, which subagents share."""
        return self

    @on_event(ModelRetriedEvent)
    async def _forward(self, ctx: RunContext[object], event: ModelRetriedEvent) -> None:
        self.on_retry(event, position_of(ctx.metadata).path)
