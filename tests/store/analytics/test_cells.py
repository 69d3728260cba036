"""Conversion of messages and deps into rows of the replica. Invalid values are omitted."""

from __future__ import annotations

import json

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from pydantic_deep.store import new_id
from pydantic_deep.store.analytics._cells import Cells, message_cells, todo_cells
from pydantic_deep.store.analytics._schema import MESSAGES
from pydantic_deep.store.sql import _codec, _keys

pytestmark = pytest.mark.slow

ID = new_id()


def parsed(body: bytes, id: str = ID) -> tuple[dict[str, object], list[Cells]]:
    row = (7, _keys.pack_id(id), _keys.pack_id('c'), _keys.pack_id('b'), 3, _codec.encode(body))
    cells, returns = message_cells(row)
    return dict(zip(MESSAGES.columns, cells, strict=True)), returns


def of(message: ModelMessage) -> tuple[dict[str, object], list[Cells]]:
    return parsed(ModelMessagesTypeAdapter.dump_json([message])[1:-1])


def test_prompt_has_its_text_and_counts_its_media() -> None:
    content = [
        'Look.',
        ImageUrl(url='https://example.com/a.png'),
        BinaryContent(data=b'x', media_type='image/png'),
        TextContent('Well?', metadata={'id': 1}),
    ]
    cells, returns = of(ModelRequest(parts=[SystemPromptPart('Be kind.'), UserPromptPart(content)]))
    assert (cells['role'], cells['text'], cells['part_count'], cells['media_count']) == ('user', 'Look.\n\nWell?', 2, 2)
    assert returns == []


def test_response_has_its_model_and_tokens() -> None:
    parts = [ThinkingPart('Hm.'), TextPart('Yes.'), ToolCallPart('ls', {'path': '/'}), ToolCallPart('ls', '{}')]
    response = ModelResponse(parts=parts, model_name='m', usage=RequestUsage(input_tokens=3, output_tokens=4))
    cells, _ = of(response)
    assert (cells['role'], cells['text'], cells['part_count'], cells['tool_call_count']) == ('assistant', 'Yes.', 4, 2)
    assert (cells['model'], cells['input_tokens'], cells['output_tokens']) == ('m', 3, 4)


def test_tool_return_is_a_text_and_a_result() -> None:
    parts = [ToolReturnPart('ls', ['a', {'b': 1}], tool_call_id='x'), ToolReturnPart('ls', None, tool_call_id='y')]
    cells, returns = of(ModelRequest(parts=parts))
    assert (cells['role'], cells['text']) == ('tool', 'a\n\n{"b": 1}')
    assert returns == [(7, 'c', 'x', '["a", {"b": 1}]'), (7, 'c', 'y', 'null')]


def test_request_with_only_instructions_has_the_system_role() -> None:
    assert of(ModelRequest(parts=[SystemPromptPart('Be kind.')]))[0]['role'] == 'system'


def test_timestamp_of_a_message_is_taken_from_its_id() -> None:
    assert parsed(b'{}', '01890000-0000-7000-8000-000000000000')[0]['created_at'] == 0x018900000000 * 1000


@pytest.mark.parametrize('id', ['m', '01890000-0000-4000-8000-000000000000', 'zzzzzzzz-0000-7000-8000-000000000000'])
def test_id_without_a_timestamp_gives_none(id: str) -> None:
    assert parsed(b'{}', id)[0]['created_at'] is None


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'\xff',
        b'[]',
        b'null',
        b'{"parts": 1}',
        b'{"parts": [1, null, {}]}',
        b'[' * 100_000,
    ],
)
def test_invalid_message_is_empty(body: bytes) -> None:
    cells, returns = parsed(body)
    assert (cells['role'], cells['text'], cells['part_count'], returns) == ('system', '', 0, [])


def test_invalid_values_are_omitted() -> None:
    body = b'{"kind":"response","model_name":1,"usage":{"input_tokens":"3","output_tokens":1e400,"x":99999999999999999999}}'
    cells, _ = parsed(body)
    assert (cells['model'], cells['input_tokens'], cells['output_tokens']) == (None, 0, 0)
    huge = parsed(b'{"usage":{"input_tokens":99999999999999999999,"output_tokens":-1}}')[0]
    assert (huge['input_tokens'], huge['output_tokens']) == (0, 0)


def test_lone_surrogate_is_replaced() -> None:
    body = b'{"parts":[{"part_kind":"text","content":"a\\ud800b"}]}'
    assert parsed(body)[0]['text'] == 'a?b'


def test_todos_keep_their_order_and_invalid_ones_are_omitted() -> None:
    deps = json.dumps({'todos': [{'content': 'Read', 'status': 'pending'}, 3, {'content': 4}]}).encode()
    assert list(todo_cells('d', deps)) == [('d', 0, 'Read', 'pending'), ('d', 2, None, None)]
    assert list(todo_cells('d', b'\xff')) == []
