"""Halves of surrogate pairs in messages: joined if adjacent, otherwise escaped, and nothing else is changed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest
from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart

from pydantic_deep._messages.half_characters import PieceJoiner, join_halves, repair, repair_result
from pydantic_deep._messages.message_json import dump_message


@dataclass
class Page:
    title: object


@pytest.mark.parametrize(
    ('text', 'joined'),
    [
        ('plain', 'plain'),
        ('é 😀', 'é 😀'),
        ('\ud83d\ude00!', '😀!'),
        ('a\ud83d', 'a\\ud83d'),
        ('\ude00\ud83d', '\\ude00\\ud83d'),
        ('\ud83d\ud83d\ude00', '\\ud83d😀'),
    ],
)
def test_pairs_are_joined_and_single_halves_escaped(text: str, joined: str) -> None:
    assert join_halves(text) == joined


@pytest.mark.parametrize(
    ('content', 'repaired'),
    [
        ('\ud83d\ude00', '😀'),
        ({'\ud83d': 1, 'b': ['\ude00', 2]}, {'\\ud83d': 1, 'b': ['\\ude00', 2]}),
        (('a', '\ud83d'), ['a', '\\ud83d']),
        (frozenset(['\ud83d']), ['\\ud83d']),
        ([Page('\ud83d')], [{'title': '\\ud83d'}]),
        (Page({'\ud83d': '\ud83d\ude00'}), {'title': {'\\ud83d': '😀'}}),
    ],
)
def test_results_of_tools_are_repaired_in_a_copy(content: object, repaired: object) -> None:
    before = repr(content)
    message = ModelRequest([ToolReturnPart('fetch', content, 'c')])
    repair([message])
    (part,) = message.parts
    assert isinstance(part, ToolReturnPart)
    assert part.content == repaired
    assert repr(content) == before
    assert dump_message(message)


@pytest.mark.parametrize(
    'content',
    [
        'é',
        {'a': ['😀', 1.5, None]},
        ('a',),
        {'a'},
        Page('é'),
        Decimal('1.5'),
        BinaryContent(b'\xff', media_type='image/png'),
    ],
)
def test_other_results_stay_the_same_objects(content: object) -> None:
    message = ModelRequest(
        [ToolReturnPart('fetch', content, 'c'), UserPromptPart([BinaryContent(b'1', media_type='image/png')])]
    )
    before = [dict(vars(part)) for part in message.parts]
    repair([message])
    assert all(
        vars(part)[name] is value
        for part, old in zip(message.parts, before, strict=True)
        for name, value in old.items()
    )


def test_responses_and_instructions_are_repaired() -> None:
    response = ModelResponse([TextPart('\ud83d\ude00'), ToolCallPart('f\ud83d', {'a': '\ude00'}, 'c')])
    request = ModelRequest([], instructions='Be \ud83d')
    repair([response, request])
    text, called = response.parts
    assert isinstance(text, TextPart)
    assert isinstance(called, ToolCallPart)
    assert (text.content, called.tool_name, called.args) == ('😀', 'f\\ud83d', {'a': '\\ude00'})
    assert request.instructions == 'Be \\ud83d'


def test_message_is_repaired_when_it_is_serialized() -> None:
    message = ModelResponse([TextPart('a\ud83d')])
    assert b'a\\\\ud83d' in dump_message(message)
    assert message.text == 'a\\ud83d'


@pytest.mark.parametrize(
    ('pieces', 'joined'),
    [
        (['a', 'é', 'b'], ['a', 'é', 'b']),
        (['a\ud83d', '\ude00b'], ['a', '😀b']),
        (['a\ud83d', 'b'], ['a', '\\ud83db']),
        (['\ud83d', '\ud83d', '\ude00'], ['', '\\ud83d', '😀']),
        (['a\ud83d'], ['a', '\\ud83d']),
        (['\ude00'], ['\\ude00']),
    ],
)
def test_pairs_are_joined_across_pieces(pieces: list[str], joined: list[str]) -> None:
    """The pieces concatenate to the repaired text, and no piece has half of a pair."""
    joiner = PieceJoiner()
    received = [joiner.add(piece) for piece in pieces]
    rest = joiner.end()
    assert received + [rest] * bool(rest) == joined
    assert ''.join(received) + rest == join_halves(''.join(pieces))


def test_result_with_content_and_metadata_is_repaired() -> None:
    result = ToolReturn('\ud83d\ude00', content=['\ud83d'], metadata={'a': '\ude00'})
    assert repair_result(result) == ToolReturn('😀', content=['\\ud83d'], metadata={'a': '\\ude00'})
    assert repair_result(ok := ToolReturn('é')) is ok
