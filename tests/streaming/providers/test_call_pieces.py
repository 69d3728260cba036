"""The calls of an answer are limited in size."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from pydantic_deep.streaming import (
    AnthropicDecoder,
    ErrorEvent,
    Frame,
    GoogleDecoder,
    OpenaiDecoder,
    ToolCallDeltaEvent,
)

SomeDecoder = OpenaiDecoder | AnthropicDecoder | GoogleDecoder
DECODERS: list[Callable[..., SomeDecoder]] = [OpenaiDecoder, AnthropicDecoder, GoogleDecoder]


@pytest.mark.parametrize('make', DECODERS)
def test_buffered_calls_are_bounded(make: Callable[..., SomeDecoder]) -> None:
    """An endless stream of calls ends with an error once they exceed the limit."""
    decoder = make(max_call_chars=10_000)
    count = 0
    for index in range(1000):
        body: JsonValue = {
            'choices': [
                {'delta': {'tool_calls': [{'index': index, 'function': {'name': 'f', 'arguments': 'x' * 90}}]}}
            ],
            'candidates': [{'content': {'parts': [{'functionCall': {'name': 'f', 'args': {'x': 'x' * 80}}}]}}],
            'type': 'content_block_start',
            'index': index,
            'content_block': {'type': 'tool_use', 'name': 'f', 'input': {'x': 'x' * 80}},
        }
        events = decoder.decode(Frame(data=json.dumps(body)))
        count += sum(isinstance(event, ToolCallDeltaEvent) for event in events)

    assert 0 < count <= 20
    assert decoder.finish() == ()


def delta(_finish_reason: str | None = None, **fields: JsonValue) -> JsonValue:
    return {'id': 'x', 'choices': [{'index': 0, 'delta': fields, 'finish_reason': _finish_reason}]}


def piece(index: int | None, id: str | None, name: str | None, arguments: str) -> JsonValue:
    return {'index': index, 'id': id, 'function': {'name': name, 'arguments': arguments}}


def test_oversized_calls_are_an_error() -> None:
    decoder = OpenaiDecoder(max_call_chars=2000)
    first = decoder.decode(Frame(data=json.dumps(delta(tool_calls=[piece(0, 'a', 'f', 'x' * 1000)]))))
    second = decoder.decode(Frame(data=json.dumps(delta(content='Hi', tool_calls=[piece(0, None, None, 'x' * 1000)]))))

    assert [event.type for event in first] == ['start', 'tool_call_delta']
    assert [event.type for event in second] == ['text', 'error']
    assert isinstance(second[-1], ErrorEvent)
    assert second[-1].kind == 'too_large'
    assert decoder.finish() == ()


def test_many_small_calls_are_too_large() -> None:
    decoder = OpenaiDecoder(max_call_chars=2000)
    pieces = [piece(index, '', '', '') for index in range(5)]

    assert decoder.decode(Frame(data=json.dumps(delta(tool_calls=pieces))))[-1].type == 'error'
