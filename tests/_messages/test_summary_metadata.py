"""Metadata of summaries in a history."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import (
    KEY,
    SummaryMetadata,
    carried_state,
    find_summary,
    is_summary,
    replaced_messages,
    usage_of,
    whole,
)


def test_images_in_replaced_messages_are_preserved() -> None:
    image = BinaryContent(b'\x89PNG', media_type='image/png')
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(['see', image])])]
    part = SummaryMetadata(
        reason='tokens', is_plain=False, goal='', carried={}, usage=RunUsage(), messages=messages
    ).part('x')
    kept: list[ModelMessage] = [ModelRequest(parts=[part])]
    again = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(kept))
    (found,) = replaced_messages(again)
    assert ModelMessagesTypeAdapter.dump_json([found]) == ModelMessagesTypeAdapter.dump_json(messages)
    assert whole([*again, *messages]) == [found, *messages]


def test_history_without_a_summary_has_no_replaced_messages() -> None:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart('hi')])]
    assert find_summary(messages) is None
    assert replaced_messages(messages) == []
    assert carried_state(messages, 'todos') is None
    assert usage_of(messages) == RunUsage()


@pytest.mark.parametrize('metadata', [None, {}, {'other': 1}])
def test_compaction_part_of_another_library_is_not_a_summary(metadata: dict[str, Any] | None) -> None:
    assert not is_summary(CompactionPart(content='x', metadata=metadata))


@pytest.mark.parametrize('ours', [None, 'text', {}, {'usage': None}])
def test_invalid_summary_metadata_are_ignored(ours: object) -> None:
    messages: list[ModelMessage] = [ModelRequest(parts=[CompactionPart(content='x', metadata={KEY: ours})])]
    assert replaced_messages(messages) == []
    assert carried_state(messages, 'todos') is None
    assert usage_of(messages) == RunUsage()
