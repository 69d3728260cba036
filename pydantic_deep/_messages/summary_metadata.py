"""Metadata of a summary: usage, carried state and, without a store, the replaced messages.

A summary is a `CompactionPart` of pydantic-ai. A model receives its `content`, but not its `metadata`, which contains
our data under one key, so that a conversation serialized as JSON is complete. Summaries are created in `summarization`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeGuard, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelMessagesTypeAdapter, ModelResponse, SystemPromptPart
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep._messages.usage_json import usage_adapter

KEY: Final = 'pydantic_deep'
"""Our key in the metadata of a `CompactionPart`."""


@dataclass(frozen=True, kw_only=True)
class CarriedOver:
    """State of a capability that must survive when a summary replaces messages."""

    text: str
    """One or more lines for the model, included in the summary; empty for none."""
    state: JsonValue = None
    """State for the capability to read later."""


@dataclass(frozen=True, kw_only=True)
class SummaryMetadata:
    """The data that our summary stores besides its text."""

    reason: str
    """The reason for replacing messages."""
    is_plain: bool
    """Whether the text was written without a model."""
    goal: str
    """The first request of the user."""
    latest: str = ''
    """The last request of the user."""
    written: str = ''
    """The last text written by a model, which is reused if no model can write one."""
    carried: Mapping[str, JsonValue]
    """State of capabilities, keyed by their `id`."""
    usage: RunUsage
    """Usage of the responses among the replaced messages, of those before them, and of the summary itself."""
    messages: Sequence[ModelMessage] | None
    """The replaced messages, including those that an earlier summary replaced; `None` if a store has them."""

    def part(self, text: str) -> CompactionPart:
        """Return the summary with this text."""
        ours = _adapter().dump_python(self, mode='json', exclude_none=True)
        return CompactionPart(content=text, metadata={KEY: ours})


def find_summary(messages: Sequence[ModelMessage]) -> CompactionPart | None:
    """Return our last summary in a history; `None` if there is none."""
    return next((part for message in reversed(messages) for part in message.parts if is_summary(part)), None)


def is_summary(part: object) -> TypeGuard[CompactionPart]:
    """Return whether a part is one of our summaries."""
    return isinstance(part, CompactionPart) and KEY in (part.metadata or {})


def read_summary(part: CompactionPart) -> SummaryMetadata:
    """Return the metadata of one of our summaries. This parses the replaced messages, at a cost that grows with their
    size.
    """
    return _adapter().validate_python({'messages': None, **_ours(part)})


def replaced_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages that the last summary of a history replaced, if it contains them."""
    part = find_summary(messages)
    stored = None if part is None else _ours(part).get('messages')
    return ModelMessagesTypeAdapter.validate_python(stored or [])


def carried_state(messages: Sequence[ModelMessage], id: str) -> JsonValue:
    """Return the state that a capability carried over with the last summary; `None` if there is none."""
    part = find_summary(messages)
    return None if part is None else carried_states(part).get(id)


def carried_states(part: CompactionPart) -> Mapping[str, JsonValue]:
    """Return the states that capabilities carried over with one of our summaries, keyed by their `id`."""
    carried = _ours(part).get('carried')
    return cast('dict[str, JsonValue]', carried) if isinstance(carried, dict) else {}


def usage_of(messages: Iterable[ModelMessage]) -> RunUsage:
    """Return the usage of all responses of a history, including those that a summary replaced."""
    usage = RunUsage()
    for message in messages:
        summary = next(filter(is_summary, message.parts), None)
        if summary is not None:  # the usage of a provider's summary is included in it
            usage = usage + usage_adapter().validate_python(_ours(summary).get('usage') or {})
        elif isinstance(message, ModelResponse):
            usage.requests += 1
            usage.incr(message.usage)
            for attempt in message.failed_attempts or ():  # these were billed
                usage.incr(attempt.usage or RequestUsage())
    return usage


def whole(replaced: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return messages with an earlier summary among them replaced by the messages that it contains."""
    messages = list(replaced)
    return [*replaced_messages(messages), *without_summaries(messages)]


def without_summaries(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return messages without our summaries, whose content is stored elsewhere. Other parts beside a summary remain."""
    return [remaining for message in messages if (remaining := _without_summary(message)) is not None]


def _without_summary(message: ModelMessage) -> ModelMessage | None:
    """Return a message without its summary; `None` if only the agent's system prompts would remain."""
    if not any(map(is_summary, message.parts)):
        return message
    if isinstance(message, ModelResponse):
        return None  # a summary by the provider
    rest = [part for part in message.parts if not is_summary(part)]
    is_all = all(isinstance(part, SystemPromptPart) for part in rest)
    return None if is_all else replace(message, parts=rest)


def _ours(part: CompactionPart) -> dict[str, object]:
    ours: object = (part.metadata or {}).get(KEY)
    return cast('dict[str, object]', ours) if isinstance(ours, dict) else {}


@cache
def _adapter() -> TypeAdapter[SummaryMetadata]:
    """Return the adapter, created on first use: creating it on import would make the import slow."""
    return TypeAdapter(SummaryMetadata)
