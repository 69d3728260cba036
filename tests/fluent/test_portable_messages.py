"""Removal of configuration from messages, and from values that are not messages."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from pydantic_deep.fluent._portable_messages import portable


@pytest.mark.parametrize('value', ['text', None, 3, ['a'], {'kind': 'request'}, {'parts': 'none'}])
def test_values_that_are_not_messages_are_unchanged(value: JsonValue) -> None:
    assert portable(value) == value


def test_answer_to_an_unknown_tool_lists_no_tools() -> None:
    retry: JsonValue = {'cause': 'unknown_tool', 'attempt': 1, 'max_retries': 7}
    part: JsonValue = {
        'part_kind': 'tool-return',
        'tool_name': 'a',
        'content': "Available tools: 'CANARY'",
        'retry': retry,
    }

    assert portable({'kind': 'request', 'parts': [part]}) == {
        'kind': 'request',
        'parts': [
            {
                'part_kind': 'tool-return',
                'tool_name': 'a',
                'content': "Unknown tool name: 'a'.",
                'retry': {'cause': 'unknown_tool', 'attempt': 1},
            }
        ],
    }


def test_invalid_parts_are_preserved_and_configuration_is_removed() -> None:
    message: JsonValue = {
        'kind': 'request',
        'instructions': 'CANARY',
        'parts': [
            'text',
            {'part_kind': 'system-prompt', 'content': 'CANARY'},
            {'part_kind': 'user-prompt', 'content': 'Hi'},
        ],
    }

    assert portable(message) == {'kind': 'request', 'parts': ['text', {'part_kind': 'user-prompt', 'content': 'Hi'}]}
