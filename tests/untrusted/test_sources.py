"""Sources of untrusted content in messages."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import ToolDefinition
from pydantic_ai.messages import (
    CompactionPart,
    ModelRequest,
    ModelResponse,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)

from pydantic_deep.untrusted._sources import find_sources, mark_part, render_reason

TOOLS = {
    'fetch': ToolDefinition(name='fetch'),
    'clock': ToolDefinition(name='clock', metadata={'trusted': True}),
    'guess': ToolDefinition(name='guess', metadata={'trusted': 'yes'}),
    'search_tools': ToolDefinition(name='search_tools', tool_kind='tool-search'),
    'web': ToolDefinition(name='web', tool_kind='shop.search'),
}


def found(part: Any, *trusted_tools: str) -> list[str]:
    is_response = isinstance(part, (NativeToolReturnPart, TextPart))
    parts: list[Any] = [part]
    message = ModelResponse(parts) if is_response else ModelRequest(parts)
    return [*find_sources([message], TOOLS, trusted_tools)]


@pytest.mark.parametrize(
    ('part', 'sources'),
    [
        (ToolReturnPart('fetch', 'a', 'c'), ['fetch']),
        (ToolReturnPart('fetch', 'a', 'c', outcome='failed'), ['fetch']),
        (ToolReturnPart('fetch', 'a', 'c', outcome='retried'), ['fetch']),
        (ToolReturnPart('fetch', [{'loc': ['url']}], 'c', outcome='retried'), []),
        (ToolReturnPart('fetch', 'a', 'c', outcome='denied'), []),
        (ToolReturnPart('fetch', 'a', 'c', outcome='interrupted'), []),
        (ToolReturnPart('fetch', 'a', 'c', metadata={'pydantic_deep': {'kind': 'answered'}}), []),
        (ToolReturnPart('clock', 'a', 'c'), []),
        (ToolReturnPart('clock', 'a', 'c', metadata={'untrusted': ['read_file /a']}), ['read_file /a']),
        (ToolReturnPart('clock', 'a', 'c', metadata={'untrusted': True}), ['clock']),
        (ToolReturnPart('clock', 'a', 'c', metadata={'untrusted': []}), []),
        (ToolReturnPart('clock', 'a', 'c', metadata='own'), []),
        (ToolReturnPart('guess', 'a', 'c'), ['guess']),
        (ToolReturnPart('search_tools', 'a', 'c'), []),
        (ToolReturnPart('web', 'a', 'c'), ['web']),
        (ToolReturnPart('unknown', 'a', 'c'), []),
        (NativeToolReturnPart('web_search', 'a', 'c'), ['web_search']),
        (NativeToolReturnPart('tool_search', {'discovered_tools': []}, 'c', tool_kind='tool-search'), []),
        (CompactionPart(content='a'), ['a summary by the provider']),
        (
            CompactionPart(content='a', metadata={'pydantic_deep': {'carried': {'x': {'untrusted': ['fetch']}}}}),
            ['fetch'],
        ),
        (CompactionPart(content='a', metadata={'pydantic_deep': {'carried': {'x': {'untrusted': 1}, 'y': 2}}}), []),
        (CompactionPart(content='a', metadata={'pydantic_deep': {}}), []),
        (UserPromptPart('a'), []),
        (TextPart('a'), []),
    ],
)
def test_sources_of_a_part(part: Any, sources: list[str]) -> None:
    assert found(part) == sources


def test_named_tools_are_trusted() -> None:
    assert found(ToolReturnPart('fetch', 'a', 'c'), 'fetch') == []


def test_reason_names_few_sources_without_invisible_characters() -> None:
    assert render_reason([f'read_file /{i}\n\u202e' for i in range(7)]) == (
        'Untrusted content was read before this call, which may obey it: '
        + ', '.join(f'read_file /{i}\\n\\u202e' for i in range(5))
        + ' and 2 more.'
    )


def test_feedback_on_an_output_has_no_metadata() -> None:
    part = RetryFeedbackPart(content='a', retry=RetryInfo(cause='no_output'))
    mark_part(part, ['fetch'])
    assert part == RetryFeedbackPart(content='a', retry=RetryInfo(cause='no_output'), timestamp=part.timestamp)
