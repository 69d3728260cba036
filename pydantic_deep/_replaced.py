"""The messages that a summary stands for, and how they are kept beside it.

A summary is a `CompactionPart` in a request, as pydantic-ai has it: models are sent its `content` and nothing of its
`metadata`. There lies, under our key, what was used before and, where no store has them, the messages themselves, so
that a conversation that travels as JSON loses nothing. Not here: what makes a summary (`summarization`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeGuard, cast

from pydantic import TypeAdapter
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.usage import RunUsage

KEY: Final = 'pydantic_deep'
"""The key of ours in the metadata of a `CompactionPart`."""

_USAGE: Final = TypeAdapter(RunUsage)


def summary_part(
    text: str, replaced: Sequence[ModelMessage], *, keeps_messages: bool, reason: str, is_plain: bool
) -> CompactionPart:
    """Return the part that stands for messages.

    Args:
        text: What models are told of them.
        replaced: The messages; among them may be an earlier summary, whose messages are taken over.
        keeps_messages: Whether they are kept in the part; `False` where a store has them.
        reason: Why they were replaced.
        is_plain: Whether no model has written the text.
    """
    ours: dict[str, object] = {'reason': reason, 'is_plain': is_plain}
    ours['usage'] = _USAGE.dump_python(usage_of(replaced), mode='json', exclude_defaults=True)
    if keeps_messages:
        ours['messages'] = ModelMessagesTypeAdapter.dump_python(_whole(replaced), mode='json')
    return CompactionPart(content=text, metadata={KEY: ours})


def find_summary(messages: Sequence[ModelMessage]) -> CompactionPart | None:
    """Return our last summary in a history."""
    return next((part for message in reversed(messages) for part in message.parts if is_summary(part)), None)


def is_summary(part: object) -> TypeGuard[CompactionPart]:
    """Return whether a part is a summary of ours."""
    return isinstance(part, CompactionPart) and KEY in (part.metadata or {})


def replaced_messages(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages that the last summary of a history stands for, as far as they are kept in it."""
    part = find_summary(messages)
    kept = None if part is None else _ours(part).get('messages')
    return ModelMessagesTypeAdapter.validate_python(kept or [])


def usage_of(messages: Iterable[ModelMessage]) -> RunUsage:
    """Return what the responses of a history have used, those that a summary stands for included."""
    usage = RunUsage()
    for message in messages:
        if isinstance(message, ModelResponse):
            usage.requests += 1
            usage.incr(message.usage)
            continue
        for part in message.parts:
            if is_summary(part):
                usage = usage + _USAGE.validate_python(_ours(part).get('usage') or {})
    return usage


def _ours(part: CompactionPart) -> dict[str, object]:
    ours: object = (part.metadata or {}).get(KEY)
    return cast('dict[str, object]', ours) if isinstance(ours, dict) else {}


def _whole(replaced: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages with those that an earlier summary among them stands for, in its place and without it."""
    return [*replaced_messages(replaced), *(message for message in replaced if not any(map(is_summary, message.parts)))]
