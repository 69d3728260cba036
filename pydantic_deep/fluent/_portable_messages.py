"""Messages as JSON without the configuration of their agent, for transcripts. Pure.

A transcript contains the content of a conversation. Instructions, system prompts, tools, settings, the model and
provider, and run ids belong to the agent, and are configured again where the transcript is loaded.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from pydantic_deep._messages.grants import GRANTS_KEY, LOAD_TOOL, parse_grant
from pydantic_deep._messages.summary_metadata import KEY as SUMMARY_KEY

_CONTENT_FIELDS: Final = ('kind', 'parts', 'timestamp', 'usage', 'finish_reason', 'state')
"""The message fields in a transcript: content, times, usage and completion. All others are removed, including those
that later pydantic-ai releases may add. Parts that only one provider can read, such as signed thinking, retain
`provider_name`, which determines who receives them.
"""

_CONFIGURED_PARTS: Final = frozenset(
    {
        'system-prompt', 'instruction-baseline', 'instruction-delta', 'tool-availability-delta',
        'capability-load-delta', 'model-settings-delta',
    }
)  # fmt: skip
"""Kinds of parts that are removed: system prompts, and changes of instructions, tools and settings."""


def portable(message: JsonValue) -> JsonValue:
    """Return a message without configuration. Values that are not messages are not changed."""
    if not isinstance(message, dict) or not isinstance(parts := message.get('parts'), list):
        return message
    content = {key: value for key, value in message.items() if key in _CONTENT_FIELDS}
    return {**content, 'parts': [_portable_part(part) for part in parts if not _is_configured(part)]}


def _is_configured(part: JsonValue) -> bool:
    return isinstance(part, dict) and part.get('part_kind') in _CONFIGURED_PARTS


def _portable_part(part: JsonValue) -> JsonValue:
    """Return a part without configuration: results can contain instructions or tool names, and summaries complete
    messages.
    """
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
    """Return whether a person granted commands to a skill. Such a grant is valid only for its own conversation.

    Grants by code remain, as the code of the loading agent decides about them again.
    """
    grant = parse_grant(metadata)
    return grant is not None and grant.by == 'person'


def _portable_retry(part: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a part without the retry limit, and without the list of tools in the response to an unknown one."""
    retry = part.get('retry')
    if not isinstance(retry, dict):
        return part
    portable_part = {**part, 'retry': {key: value for key, value in retry.items() if key != 'max_retries'}}
    if retry.get('cause') == 'unknown_tool':
        portable_part['content'] = f'Unknown tool name: {part.get("tool_name")!r}.'
    return portable_part


def _portable_summary(summary: dict[str, JsonValue]) -> dict[str, JsonValue]:
    messages = summary.get('messages')
    return (
        {**summary, 'messages': [portable(message) for message in messages]} if isinstance(messages, list) else summary
    )
