"""What a person said to begin a turn: as JSON, and where it stands in the messages of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelRequest, UserContent, UserPromptPart

Prompt = str | Sequence[UserContent]
"""What a user says: text, or text with media."""

MAX_PROMPT_BYTES = 64 * 1024
"""The largest prompt that is stored again where a capability has rewritten it: larger ones are rewritten to be shorter."""


def encode_prompt(prompt: Prompt) -> bytes:
    """Return what a user said as JSON."""
    return _prompts().dump_json(prompt)


def decode_prompt(data: bytes) -> Prompt:
    """Return what a user said from its JSON."""
    return _prompts().validate_json(data)


def note_of(prompt: Prompt, messages: Sequence[ModelMessage], run_id: str) -> JsonValue:
    """Return what to note of a prompt so that `prompt_from` finds it; `None` if it is found without a note.

    Capabilities add words of the user's role to a request, and rewrite those of the user.
    """
    found = prompts_of(messages, {run_id})
    same = [index for index, each in enumerate(found) if _is_same(each, prompt)]
    if same:
        return None if same[-1] == len(found) - 1 else same[-1]
    kept = encode_prompt(prompt)
    return {'prompt': kept.decode()} if len(kept) <= MAX_PROMPT_BYTES else None


def prompt_from(note: JsonValue, messages: Sequence[ModelMessage], run_ids: Collection[str]) -> Prompt | None:
    """Return what the user said in the first request of a run; `None` if it began without.

    Args:
        note: What `note_of` returned for the first request.
        messages: The history, with what was replaced in it.
        run_ids: The run, and those that it goes on with.
    """
    if isinstance(note, dict):
        return decode_prompt(cast('str', note['prompt']).encode())
    found = prompts_of(messages, run_ids)
    return found[note if isinstance(note, int) else -1] if found else None


def prompts_of(messages: Sequence[ModelMessage], run_ids: Collection[str]) -> list[Prompt]:
    """Return all words of the user's role in the first request of a run."""
    own = (each for each in messages if isinstance(each, ModelRequest) and each.run_id in run_ids)
    first = next(own, ModelRequest(parts=[]))
    return [part.content for part in first.parts if isinstance(part, UserPromptPart)]


def _is_same(content: Prompt, prompt: Prompt) -> bool:
    if isinstance(content, str) or isinstance(prompt, str):
        return content == prompt
    return list(content) == list(prompt)


@cache
def _prompts() -> TypeAdapter[Prompt]:
    return TypeAdapter(str | Sequence[UserContent])
