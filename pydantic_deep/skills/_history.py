"""Read from a message history which skills were loaded, and whether their instructions are still present. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ToolReturnPart

from pydantic_deep._messages.grants import LOAD_TOOL, Grant, parse_grant
from pydantic_deep._messages.summary_metadata import CarriedOver, carried_state

ROOM_ID = 'skills'
"""The `id` of the capability, under which a summary stores skill names."""

SKILL_KEY = 'skill'
"""Metadata key of a tool result with the name of the loaded skill."""

DIGEST_KEY = 'digest'
"""Metadata key of a tool result with the digest of the instructions."""

_HEAD_CHARS = 200
"""Number of characters that must match, as the result may have been shortened to its head and tail."""


def grants_in(messages: Sequence[ModelMessage]) -> dict[str, Grant]:
    """Return the grants of the skills that a conversation has loaded, by name. The last load of a skill counts."""
    grants: dict[str, Grant] = {}
    for _, metadata in _loads(messages):
        name, grant = metadata.get(SKILL_KEY), parse_grant(metadata)
        if isinstance(name, str):
            grants.pop(name, None)
            grants |= {} if grant is None else {name: grant}
    return grants


def loaded_names(messages: Sequence[ModelMessage]) -> set[str]:
    """Return the names of the skills that a conversation has loaded."""
    return {name for _, metadata in _loads(messages) if isinstance(name := metadata.get(SKILL_KEY), str)}


def carried_over(replaced: Sequence[ModelMessage]) -> CarriedOver:
    """Return the names of loaded skills for a summary, including those of an earlier summary.

    Instructions are not carried over: the model loads a skill again if it needs it. Until then its grants are void.
    """
    before = cast('list[str]', carried_state(replaced, ROOM_ID) or [])
    names = sorted({*before, *loaded_names(replaced)})
    if not names:
        return CarriedOver(text='')
    return CarriedOver(text=f'Skills loaded before: {", ".join(names)}.', state=cast('list[JsonValue]', names))


def is_loaded(messages: Sequence[ModelMessage], name: str, digest: str, body: str) -> bool:
    """Return whether a history contains the current instructions of a skill."""
    return any(
        metadata.get(SKILL_KEY) == name
        and metadata.get(DIGEST_KEY) == digest
        and isinstance(part.content, str)
        and part.content.startswith(body[:_HEAD_CHARS])
        for part, metadata in _loads(messages)
    )


def _loads(messages: Sequence[ModelMessage]) -> Iterator[tuple[ToolReturnPart, dict[str, object]]]:
    for message in messages:
        if message.kind == 'request':
            for part in message.parts:  # comparing kinds is fast, and this runs for every part of a long history
                if part.part_kind == 'tool-return' and part.tool_name == LOAD_TOOL and part.outcome == 'success':
                    metadata: object = part.metadata
                    if isinstance(metadata, dict):
                        yield part, cast('dict[str, object]', metadata)
