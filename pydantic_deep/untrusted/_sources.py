"""Find untrusted content in messages, and mark results with it. Pure.

The mark is in the metadata of the result, so it is part of the history, of versions and of the ledger. A result without
a mark counts too if the tool that has its name in this run is not trusted. This covers failures, whose metadata a
recovery does not restore, results of external tools, and histories from before the agent had the capability.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_ai import ToolDefinition, ToolReturn
from pydantic_ai.messages import CompactionPart, ModelMessage, NativeToolReturnPart, ToolReturnPart

from pydantic_deep._messages.deferred_metadata import DELEGATES, KEY
from pydantic_deep._messages.summary_metadata import carried_states, is_summary
from pydantic_deep._text.escapes import visible

MARK: Final = 'untrusted'
"""The key in the metadata of a result, with the list of sources of its untrusted content, or any other true value."""

TRUSTED: Final = 'trusted'
"""The key in the metadata of a tool whose results contain nothing that others wrote, besides files."""

FRAMEWORK_KINDS: Final = frozenset(('tool-search', 'capability-load'))
"""The kinds of pydantic-ai's own tools. Other kinds have a namespace."""

MAX_SOURCES: Final = 5
"""Maximum number of sources to name in a reason."""


def is_trusted(tool_def: ToolDefinition, trusted_tools: Collection[str]) -> bool:
    """Return whether the results of a tool are trusted, except for the files and subagents that contribute to them."""
    return (
        tool_def.name in trusted_tools
        or tool_def.tool_kind in FRAMEWORK_KINDS
        or _metadata(tool_def.metadata).get(TRUSTED) is True
        or is_delegating(tool_def)
    )


def is_delegating(tool_def: ToolDefinition) -> bool:
    """Return whether a tool runs subagents."""
    return _metadata(tool_def.metadata).get(DELEGATES) is True


def with_mark(result: object, sources: Sequence[str]) -> object:
    """Return the result of a tool with the sources of its untrusted content."""
    returned = cast('ToolReturn[object]', result) if isinstance(result, ToolReturn) else ToolReturn[object](result)
    metadata: object = returned.metadata
    if metadata is not None and not isinstance(metadata, Mapping):
        return returned  # the metadata is the application's own; the name of the tool marks the result
    return replace(returned, metadata={**_metadata(cast('object', metadata)), MARK: [*sources]})


def mark_part(part: object, sources: Sequence[str]) -> None:
    """Add the sources to the part of a failed call, which is in no message yet."""
    if isinstance(part, ToolReturnPart):
        part.metadata = {**_metadata(part.metadata), MARK: [*sources]}


def find_sources(
    messages: Iterable[ModelMessage], tools: Mapping[str, ToolDefinition], trusted_tools: Collection[str]
) -> Iterator[str]:
    """Yield the sources of untrusted content in messages: tools, with the path if it is a file.

    Args:
        messages: The messages.
        tools: The tools of the run.
        trusted_tools: The names of tools whose results are trusted.
    """
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                yield from _sources_of_result(part, tools.get(part.tool_name), trusted_tools)
            elif isinstance(part, NativeToolReturnPart):
                if part.tool_kind not in FRAMEWORK_KINDS:
                    yield part.tool_name
            elif is_summary(part):
                yield from carried_sources(part)
            elif isinstance(part, CompactionPart):
                yield 'a summary by the provider'  # what it replaced is unknown


def carried_sources(part: CompactionPart) -> list[str]:
    """Return the sources that a summary carries over, from this capability in any run: its `id` may differ."""
    states = [state[MARK] for state in carried_states(part).values() if isinstance(state, dict) and MARK in state]
    return [str(source) for state in states if isinstance(state, list) for source in state]


def render_reason(sources: Collection[str]) -> str:
    """Return the reason for an approval."""
    shown = ', '.join(visible(source, one_line=True) for source in [*sources][:MAX_SOURCES])
    more = f' and {len(sources) - MAX_SOURCES} more' if len(sources) > MAX_SOURCES else ''
    return f'Untrusted content was read before this call, which may obey it: {shown}{more}.'


def _sources_of_result(
    part: ToolReturnPart, tool_def: ToolDefinition | None, trusted_tools: Collection[str]
) -> list[str]:
    metadata = _metadata(part.metadata)
    mark: object = metadata.get(MARK)
    if mark:
        return [str(source) for source in cast('list[object]', mark)] if isinstance(mark, list) else [part.tool_name]
    if part.outcome in ('denied', 'interrupted') or KEY in metadata or tool_def is None:
        return []  # the text is that of a person or of the framework
    if part.outcome == 'retried' and not isinstance(part.content, str):
        return []  # invalid arguments: the text is the framework's
    # The report of a failed subagent contains its text, and a recovery does not restore its mark.
    has_failed_below = is_delegating(tool_def) and part.outcome != 'success'
    return [part.tool_name] if has_failed_below or not is_trusted(tool_def, trusted_tools) else []


def _metadata(value: object) -> Mapping[str, Any]:
    return cast('Mapping[str, Any]', value) if isinstance(value, Mapping) else {}
