"""Tells of a retry when it is decided on: the stream of a run says nothing while nothing is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, on_event

from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.subagents._state import place_of

RetryCallback: TypeAlias = Callable[[ModelRetriedEvent, Sequence[str]], None]
"""Takes a retry, and the subagents that lead to the run."""


@dataclass(kw_only=True)
class RetryListener(AbstractCapability[object]):
    """Hears of retries in the runs of one person's process, those of subagents too."""

    id: str | None = 'retry-listener'
    on_retry: RetryCallback = field(default=lambda event, path: None, repr=False, compare=False)
    """Takes it; each turn sets its own."""

    def for_subagent(self) -> RetryListener:
        """Return what listens to the run of a subagent: the same."""
        return self

    @on_event(ModelRetriedEvent)
    async def _forward(self, ctx: RunContext[object], event: ModelRetriedEvent) -> None:
        self.on_retry(event, place_of(ctx.metadata).path)
