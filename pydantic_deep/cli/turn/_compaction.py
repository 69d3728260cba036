"""The summary of a conversation on request, instead of when its history is too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import CapabilityOrdering
from pydantic_ai.messages import CompactionPart, ModelMessage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.summarization import Summarization
from pydantic_deep.tokens import count_message, count_tokens_approximately

from ._runtime import Output


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """A history with a summary in place of its beginning."""

    messages: Sequence[ModelMessage]
    """The whole history."""
    replaced: int
    """The number of messages that the summary replaces."""
    tokens_before: int
    """Estimated tokens of the messages before."""
    tokens_after: int
    """Estimated tokens of the messages now."""


async def compact(
    agent: AbstractAgent[DeepAgentDeps, Output], deps: DeepAgentDeps, messages: Sequence[ModelMessage]
) -> Compaction | None:
    """Summarize the beginning of a history with the agent's own `Summarization`.

    Returns:
        The history; `None` if the agent does not summarize, or if a summary would not shorten the history.
    """
    if not messages:
        return None
    try:
        await agent.run(message_history=messages, deps=deps, capabilities=[_CompactionRequest()])
    except _StoppedError as stopped:
        first, *tail = stopped.messages
    else:  # pragma: no cover - the capability stops every run
        raise AssertionError('a run without a request has ended')
    if first == messages[0] or not any(isinstance(part, CompactionPart) for part in first.parts):
        return None
    replaced = messages.index(tail[0])  # the tail also has the request that was not sent
    compacted = [first, *messages[replaced:]]
    before, after = _tokens(messages), _tokens(compacted)
    if after >= before:
        return None
    return Compaction(messages=compacted, replaced=replaced, tokens_before=before, tokens_after=after)


def _tokens(messages: Sequence[ModelMessage]) -> int:
    return sum(count_message(message, count_tokens_approximately) for message in messages)


class _StoppedError(Exception):
    """The run has reached its first request."""

    def __init__(self, messages: list[ModelMessage]) -> None:
        self.messages = messages


@dataclass(kw_only=True)
class _CompactionRequest(BaseCapability[object]):
    """Has a run summarize its history, and stops it before it sends a request.

    It is a `SupportsSummaryReplay` that reports an overflow and has no recorded summary.
    """

    id: str | None = 'compaction-request'

    def get_ordering(self) -> CapabilityOrdering:
        """Run after `Summarization`, which is innermost too."""
        return CapabilityOrdering(position='innermost', wrapped_by=[Summarization])

    def has_overflowed(self) -> bool:
        """Return that the next request needs a summary."""
        return True

    def next_summary(self) -> None:
        """Return that there is no recorded summary."""

    def may_request_summary(self) -> bool:
        """Return that a model writes it."""
        return True

    async def before_model_request(self, ctx: RunContext[object], request_context: ModelRequestContext) -> NoReturn:
        """Stop the run."""
        raise _StoppedError(list(ctx.messages))
