"""Messages as JSON without the configuration of their agent, as a transcript has them. Pure.

A transcript says what was said and done. The instructions, system prompts, tools and settings of an agent, its model and
provider, and the ids of its runs belong to whoever runs it, and are set again where the transcript is loaded.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from pydantic_deep._messages.grants import GRANTS_KEY, LOAD_TOOL, parse_grant
from pydantic_deep._messages.summary_metadata import KEY as SUMMARY_KEY

_SAID_FIELDS: Final = ('kind', 'parts', 'timestamp', 'usage', 'finish_reason', 'state')
"""Fields of messages that a transcript has: what was said, when, how it ended and what it used. All others are left out,
also those that a later pydantic-ai adds. Parts that only one provider can read, such as signed thoughts, keep their own
`provider_name`: it says who may be sent them."""

_CONFIGURED_PARTS: Final = frozenset(
    {
        'system-prompt', 'instruction-baseline', 'instruction-delta', 'tool-availability-delta',
        'capability-load-delta', 'model-settings-delta',
    }
)  # fmt: skip
"""Kinds of parts that are left out: prompts of the agent, and changes of its instructions, tools and settings."""


def portable(message: JsonValue) -> JsonValue:
    """Return a message without configuration; what is no message, as it is."""
    if not isinstance(message, dict) or not isinstance(parts := message.get('parts'), list):
        return message
    said = {key: value for key, value in message.items() if key in _SAID_FIELDS}
    return {**said, 'parts': [_portable_part(part) for part in parts if not _is_configured(part)]}


def _is_configured(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get('part_kind') in _CONFIGURED_PARTS


def _portable_part(part: JsonValue) -> JsonValue:
    """Return a part without configuration: a result can hold instructions or name tools, and a summary whole messages."""
    if not isinstance(part, dict):
        return part
    part = _portable_retry(part)
    content, metadata = part.get('content'), part.get('metadata')
    if part.get('tool_kind') == 'capability-load' and isinstance(content, dict):
        return {**part, 'content': {key: value for key, value in content.items() if key != 'instructions'}}
    if part.get('tool_name') == LOAD_TOOL and isinstance(metadata, dict) and _is_granted_by_person(metadata):
        return {**part, 'metadata': {key: value for key, value in metadata.items() if key != GRANTS_KEY}}
    summary = metadata.get(SUMMARY_KEY) if isinstance(metadata, dict) else None
    if part.get('part_kind') == 'compaction' and isinstance(metadata, dict) and isinstance(summary, dict):
        return {**part, 'metadata': {**metadata, SUMMARY_KEY: _portable_summary(summary)}}
    return part


def _is_granted_by_person(metadata: dict[str, JsonValue]) -> bool:
    """Return whether a person has granted commands to a skill: for that conversation, and not for whoever has its file.

    What code granted stays, since the code of the agent that loads it decides again.
    """
    grant = parse_grant(metadata)
    return grant is not None and grant.by == 'person'


def _portable_retry(part: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a part without the limit of retries, and without the tools that the answer to an unknown one lists."""
    retry = part.get('retry')
    if not isinstance(retry, dict):
        return part
    said = {**part, 'retry': {key: value for key, value in retry.items() if key != 'max_retries'}}
    if retry.get('cause') == 'unknown_tool':
        said['content'] = f'Unknown tool name: {part.get("tool_name")!r}.'
    return said


def _portable_summary(summary: dict[str, JsonValue]) -> dict[str, JsonValue]:
    messages = summary.get('messages')
    return {**summary, 'messages': [portable(each) for each in messages]} if isinstance(messages, list) else summary
