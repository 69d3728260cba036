"""`BaseCapability`: the hooks around a run and its events, which cost nothing if a capability does not override them."""

from __future__ import annotations

from collections.abc import AsyncIterable
from types import CoroutineType
from typing import Any, cast

from pydantic_ai import AgentRunResult, AgentStreamEvent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.tools import AgentDepsT


class BaseCapability(AbstractCapability[AgentDepsT]):
    """A capability that adds no layer to a run, nor to its stream of events, unless it overrides the hook.

    The hooks of `AbstractCapability` do nothing, but are coroutines and async generators that last as long as the run.
    Each keeps a copy of the context, and an agent has a dozen capabilities.
    """

    def wrap_run(
        self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler
    ) -> CoroutineType[Any, Any, AgentRunResult[Any]]:
        """Return the run as it is."""
        return cast('CoroutineType[Any, Any, AgentRunResult[Any]]', handler())  # pydantic-ai awaits it once

    def wrap_run_event_stream(
        self, ctx: RunContext[AgentDepsT], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        """Return the events as they are."""
        return stream

    @property
    def has_wrap_run_event_stream(self) -> bool:
        """Whether a subclass overrides `wrap_run_event_stream`."""
        return type(self).wrap_run_event_stream is not BaseCapability.wrap_run_event_stream
