"""What a history says of skills: which were loaded, and whether the text of one is still there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ToolReturnPart

from pydantic_deep._messages.grants import LOAD_TOOL, Grant, parse_grant
from pydantic_deep._messages.summary_metadata import CarriedOver, carried_state

ROOM_ID = 'skills'
"""The `id` of the room, under which a summary keeps names."""

SKILL_KEY = 'skill'
"""The key of a tool result's metadata that says which skill's instructions it holds."""

DIGEST_KEY = 'digest'
"""The key that says which text they were."""

_HEAD_CHARS = 200
"""How much of a text must still be there: a result may have been cut to its head and tail since."""


def grants_in(messages: Sequence[ModelMessage]) -> dict[str, Grant]:
    """Return what the skills that a conversation has loaded were granted, by name. What was loaded last counts."""
    grants: dict[str, Grant] = {}
    for _, metadata in _loads(messages):
        name, grant = metadata.get(SKILL_KEY), parse_grant(metadata)
        if isinstance(name, str):
            grants.pop(name, None)
            grants |= {} if grant is None else {name: grant}
    return grants


def loaded_names(messages: Sequence[ModelMessage]) -> set[str]:
    """Return the names of the skills whose instructions a conversation has loaded."""
    return {name for _, metadata in _loads(messages) if isinstance(name := metadata.get(SKILL_KEY), str)}


def carried_over(replaced: Sequence[ModelMessage]) -> CarriedOver:
    """Return what a summary has of skills: their names, those of an earlier summary included.

    Not their instructions: the model loads again what it still needs. Until then nothing is allowed by them.
    """
    before = cast('list[str]', carried_state(replaced, ROOM_ID) or [])
    names = sorted({*before, *loaded_names(replaced)})
    if not names:
        return CarriedOver(text='')
    return CarriedOver(text=f'Skills loaded before: {", ".join(names)}.', state=cast('list[JsonValue]', names))


def is_loaded(messages: Sequence[ModelMessage], name: str, digest: str, body: str) -> bool:
    """Return whether the instructions of a skill, as they are now, stand in a history."""
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
            for part in message.parts:  # by kinds: this is asked of every part of a long history
                if part.part_kind == 'tool-return' and part.tool_name == LOAD_TOOL and part.outcome == 'success':
                    metadata: object = part.metadata
                    if isinstance(metadata, dict):
                        yield part, cast('dict[str, object]', metadata)
