"""Metadata of a summary: usage, carried state and, where no store has them, the messages that it replaces.

A summary is a `CompactionPart` of pydantic-ai. A model receives its `content` and nothing of its `metadata`, which
holds our data under one key, so that a conversation serialized as JSON loses nothing. Not here: what creates a summary
(`summarization`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeGuard, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    SystemPromptPart,
)
from pydantic_ai.usage import RequestUsage, RunUsage

KEY: Final = 'pydantic_deep'
"""Our key in the metadata of a `CompactionPart`."""


@dataclass(frozen=True, kw_only=True)
class CarriedOver:
    """What a capability must not lose when a summary replaces messages."""

    text: str
    """A line or a few for the model, as part of the summary; empty for nothing."""
    state: JsonValue = None
    """What the capability reads back later."""


@dataclass(frozen=True, kw_only=True)
class SummaryMetadata:
    """What our summary stores besides its text."""

    reason: str
    """Why messages were replaced."""
    is_plain: bool
    """Whether no model has written the text."""
    goal: str
    """What the user asked for first."""
    latest: str = ''
    """What the user asked for last."""
    written: str = ''
    """What a model has written last: what stands where no model can write."""
    carried: Mapping[str, JsonValue]
    """The state of rooms, by the `id` of each."""
    usage: RunUsage
    """What the responses among the messages have used, those before them and the summary itself included."""
    messages: Sequence[ModelMessage] | None
    """The messages, those that an earlier summary among them stands for included; `None` where a store has them."""

    def part(self, text: str) -> CompactionPart:
        """Return the summary with that text."""
        ours = _adapter().dump_python(self, mode='json', exclude_none=True)
        return CompactionPart(content=text, metadata={KEY: ours})


def find_summary(messages: Sequence[ModelMessage]) -> CompactionPart | None:
    """Return our last summary in a history."""
    return next((part for message in reversed(messages) for part in message.parts if is_summary(part)), None)


def is_summary(part: object) -> TypeGuard[CompactionPart]:
    """Return whether a part is a summary of ours."""
    return isinstance(part, CompactionPart) and KEY in (part.metadata or {})


def read_summary(part: CompactionPart) -> SummaryMetadata:
    """Return what a summary of ours knows. Messages are read as they were written: that costs as much as they are."""
    return _adapter().validate_python({'messages': None, **_ours(part)})


def replaced_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages that the last summary of a history stands for, as far as they are kept in it."""
    part = find_summary(messages)
    kept = None if part is None else _ours(part).get('messages')
    return ModelMessagesTypeAdapter.validate_python(kept or [])


def carried_state(messages: Sequence[ModelMessage], id: str) -> JsonValue:
    """Return what a room has carried over with the last summary; `None` if nothing."""
    part = find_summary(messages)
    carried = None if part is None else _ours(part).get('carried')
    return cast('dict[str, JsonValue]', carried).get(id) if isinstance(carried, dict) else None


def usage_of(messages: Iterable[ModelMessage]) -> RunUsage:
    """Return what the responses of a history have used, those that a summary stands for included."""
    usage = RunUsage()
    for message in messages:
        summary = next(filter(is_summary, message.parts), None)
        if summary is not None:  # the usage of one that a provider has made is in it too
            usage = usage + _usage_adapter().validate_python(_ours(summary).get('usage') or {})
        elif isinstance(message, ModelResponse):
            usage.requests += 1
            usage.incr(message.usage)
            for attempt in message.failed_attempts or ():  # that were billed
                usage.incr(attempt.usage or RequestUsage())
    return usage


def whole(replaced: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return messages with those that an earlier summary among them stands for, in its place and without it."""
    messages = list(replaced)
    return [*replaced_messages(messages), *without_summaries(messages)]


def without_summaries(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return messages without summaries of ours: they say nothing that is not elsewhere, but what is beside them does."""
    return [kept for message in messages if (kept := _without_summary(message)) is not None]


def _without_summary(message: ModelMessage) -> ModelMessage | None:
    """Return a message without the summary in it; `None` if it has nothing else but the system prompts of the agent."""
    if not any(map(is_summary, message.parts)):
        return message
    if isinstance(message, ModelResponse):
        return None  # the provider's
    rest = [part for part in message.parts if not is_summary(part)]
    is_all = all(isinstance(part, SystemPromptPart) for part in rest)
    return None if is_all else replace(message, parts=rest)


def _ours(part: CompactionPart) -> dict[str, object]:
    ours: object = (part.metadata or {}).get(KEY)
    return cast('dict[str, object]', ours) if isinstance(ours, dict) else {}


@cache
def _adapter() -> TypeAdapter[SummaryMetadata]:
    """Return what reads and writes it; most programs never summarize, and to make this takes longer than an import may."""
    return TypeAdapter(SummaryMetadata)


@cache
def _usage_adapter() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)
