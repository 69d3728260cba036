"""The user prompt of a turn: as JSON, and its location in the messages of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelRequest, UserContent, UserPromptPart

Prompt = str | Sequence[UserContent]
"""A user prompt: text, or text with media."""

MAX_PROMPT_BYTES = 64 * 1024
"""Maximum size of a prompt that is stored again if a capability has rewritten it. Larger prompts are rewritten to be
shorter, so their originals are not stored.
"""


def encode_prompt(prompt: Prompt) -> bytes:
    """Return a prompt as JSON."""
    return _prompts().dump_json(prompt)


def decode_prompt(data: bytes) -> Prompt:
    """Return a prompt from its JSON."""
    return _prompts().validate_json(data)


def note_of(prompt: Prompt, messages: Sequence[ModelMessage], run_id: str) -> JsonValue:
    """Return a note with which `prompt_from` finds a prompt; `None` if it needs no note.

    Capabilities add user content to a request, and rewrite the user's prompt.
    """
    prompts = prompts_of(messages, {run_id})
    same = [index for index, candidate in enumerate(prompts) if _is_same(candidate, prompt)]
    if same:
        return None if same[-1] == len(prompts) - 1 else same[-1]
    encoded = encode_prompt(prompt)
    return {'prompt': encoded.decode()} if len(encoded) <= MAX_PROMPT_BYTES else None


def prompt_from(note: JsonValue, messages: Sequence[ModelMessage], run_ids: Collection[str]) -> Prompt | None:
    """Return the user prompt of a run; `None` if it began without one.

    Args:
        note: The result of `note_of` for the first request.
        messages: The history, including replaced messages.
        run_ids: The ids of the run and those that it resumes.
    """
    if isinstance(note, dict):
        return decode_prompt(cast('str', note['prompt']).encode())
    prompts = prompts_of(messages, run_ids)
    return prompts[note if isinstance(note, int) else -1] if prompts else None


def prompts_of(messages: Sequence[ModelMessage], run_ids: Collection[str]) -> list[Prompt]:
    """Return all user content in the first request of a run."""
    own = (message for message in messages if isinstance(message, ModelRequest) and message.run_id in run_ids)
    first = next(own, ModelRequest(parts=[]))
    return [part.content for part in first.parts if isinstance(part, UserPromptPart)]


def _is_same(content: Prompt, prompt: Prompt) -> bool:
    if isinstance(content, str) or isinstance(prompt, str):
        return content == prompt
    return list(content) == list(prompt)


@cache
def _prompts() -> TypeAdapter[Prompt]:
    return TypeAdapter(str | Sequence[UserContent])
