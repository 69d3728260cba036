"""Pieces of a response that is streamed: text, calls and native calls."""

from __future__ import annotations

import pytest
from pydantic_ai import (
    BinaryImage,
    FinalResultEvent,
    FunctionToolCallEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.messages import (
    FilePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    ThinkingPart,
    ToolCallPart,
    ToolCallPartDelta,
)

from pydantic_deep.streaming import TextEvent, ThinkingEvent, ToolCallDeltaEvent, ToolCallEvent, ToolResultEvent
from pydantic_deep.testing import call
from tests.streaming.runs.conftest import only, told_by, translate

pytestmark = pytest.mark.anyio


async def test_empty_deltas_are_not_emitted() -> None:
    assert translate(PartStartEvent(index=0, part=TextPart('')), PartDeltaEvent(index=0, delta=TextPartDelta(''))) == []


async def test_call_is_emitted_in_deltas_then_whole_then_with_its_result() -> None:
    events = await told_by(call('write_todos', todos=[{'content': 'Look', 'status': 'pending'}]), 'Done')
    args = '{"todos":[{"content":"Look","status":"pending"}]}'
    pieces = only(ToolCallDeltaEvent, events)
    assert (pieces[0].id, pieces[0].name, ''.join(piece.args for piece in pieces)) == ('call-1', 'write_todos', args)
    assert only(ToolCallEvent, events) == [ToolCallEvent(id='call-1', name='write_todos', args=args, index=0)]
    assert only(ToolResultEvent, events) == [
        ToolResultEvent(
            id='call-1',
            name='write_todos',
            outcome='success',
            content='Saved. Nothing is done yet by saving it. Now do: Look',
        )
    ]


async def test_deltas_of_interleaved_calls_have_their_own_index() -> None:
    """004-31: interleaved calls retain their index, regardless of parts between them."""
    emitted = translate(
        PartStartEvent(index=0, part=TextPart('x')),
        PartStartEvent(index=1, part=ToolCallPart('a', tool_call_id='1')),
        PartStartEvent(index=2, part=ToolCallPart('b', {'x': 1}, tool_call_id='2')),
        PartDeltaEvent(index=1, delta=ToolCallPartDelta(args_delta='{"y"')),
        PartDeltaEvent(index=2, delta=ToolCallPartDelta(args_delta={'z': 2})),
        PartDeltaEvent(index=1, delta=ToolCallPartDelta(args_delta=':1}')),
        PartDeltaEvent(index=1, delta=ToolCallPartDelta(tool_name_delta='a')),
        FunctionToolCallEvent(ToolCallPart('b', {'x': 1}, tool_call_id='2')),
    )
    assert emitted[1:] == [
        ToolCallDeltaEvent(index=0, id='1', name='a'),
        ToolCallDeltaEvent(index=1, id='2', name='b', args='{"x":1}'),
        ToolCallDeltaEvent(index=0, args='{"y"'),
        ToolCallDeltaEvent(index=1, args='{"z":2}'),
        ToolCallDeltaEvent(index=0, args=':1}'),
        ToolCallEvent(id='2', name='b', args='{"x":1}', index=1),
    ]


async def test_native_calls_are_emitted_when_they_are_complete() -> None:
    native = NativeToolCallPart('web_search', {'q': 'x'}, tool_call_id='n')
    assert translate(
        PartStartEvent(index=0, part=native),
        PartDeltaEvent(index=0, delta=ToolCallPartDelta(args_delta='{}')),
        PartEndEvent(index=0, part=native),
        PartEndEvent(index=1, part=NativeToolReturnPart('web_search', 'found', tool_call_id='n')),
    ) == [
        ToolCallEvent(id='n', name='web_search', args='{"q":"x"}'),
        ToolResultEvent(id='n', name='web_search', outcome='success', content='found'),
    ]


async def test_irrelevant_parts_emit_no_events() -> None:
    picture = FilePart(BinaryImage(b'x', media_type='image/png'))
    assert (
        translate(
            FinalResultEvent(tool_name=None, tool_call_id=None),
            PartStartEvent(index=0, part=picture),
            PartEndEvent(index=0, part=TextPart('x')),
        )
        == []
    )


def test_halves_of_surrogate_pairs_are_joined_or_escaped() -> None:
    """A server has split its stream within a pair, and has cut off the thought within another one."""
    events = translate(
        PartStartEvent(index=0, part=ThinkingPart('think \ud83d')),
        PartEndEvent(index=0, part=ThinkingPart('think \ud83d')),
        PartStartEvent(index=1, part=TextPart('a \ud83d')),
        PartDeltaEvent(index=1, delta=TextPartDelta('\ude00 b')),
        PartDeltaEvent(index=1, delta=TextPartDelta(' c \ud83d')),
        PartEndEvent(index=1, part=TextPart('a \ud83d\ude00 b c \ud83d')),
    )
    assert [event.text for event in only(ThinkingEvent, events)] == ['think ', r'\ud83d']
    assert [event.text for event in only(TextEvent, events)] == ['a ', '😀 b', ' c ', r'\ud83d']
