"""The part of an answer by a schema that is certain while the model writes it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from pydantic_deep.server.compat._written_answer import WrittenAnswer

ITEM: dict[str, Any] = {'type': 'object', 'properties': {'n': {'type': 'integer', 'minimum': 0}}, 'required': ['n']}
SCHEMA: dict[str, Any] = {
    'type': 'object',
    'title': 'Report',
    'properties': {
        'title': {'type': 'string', 'description': 'Free text.'},
        'kind': {'enum': ['long', 'short']},
        'code': {'type': 'string', 'maxLength': 3},
        'items': {'type': 'array', 'items': {'$ref': '#/$defs/Item'}},
        'more': {'type': ['string', 'null']},
        'any': {},
    },
    'required': ['title'],
    'additionalProperties': False,
    '$defs': {'Item': ITEM},
}


def parts(text: str, schema: dict[str, Any] = SCHEMA, *, size: int = 1) -> list[str]:
    """Return the texts that become certain while a text is written."""
    answer = WrittenAnswer(schema)
    answer.begin()
    sent = [answer.add(text[start : start + size]) for start in range(0, len(text), size)]
    return [part for part in sent if part]


def test_strings_without_constraints_follow_as_they_are_written() -> None:
    assert parts('{"title": "Hi \\u00e9\\n"}') == ['{"title":"', 'H', 'i', ' ', 'é', '\\n', '"', '}']


@pytest.mark.parametrize(
    ('text', 'certain'),
    [
        ('{"kind":"long","title":"a"}', ['{"kind":"long"', ',"title":"', 'a', '"', '}']),
        ('{"code":"abcd","title":"a"}', []),
        ('{"kind":"wide","title":"a"}', []),
        ('{ "items" : [ {"n": 12} , {"n": 3}', ['{"items":[{"n":12}', ',{"n":3}']),
        ('{"items":[{"n":1},{"n":-1}', ['{"items":[{"n":1}']),
        ('{"items":[]}', ['{"items":[]']),
        ('{"items":[{}', []),
        ('{"any":"a","more":null,"title":"', ['{"any":"', 'a', '"', ',"more":null', ',"title":"']),
        ('{"any":{"b":[1.50,1e2]},"title":"', ['{"any":{"b":[1.5,100.0]}', ',"title":"']),
        ('{"other":1}', []),
        ('{"title":"a","title":"b"}', ['{"title":"', 'a', '"']),
        ('{"title":3}', []),
        ('{"title":"a"]', ['{"title":"', 'a', '"']),
        ('{"title":"a" "more":null}', ['{"title":"', 'a', '"']),
        ('{title:"a"}', []),
        ('{"title" "a"}', []),
        ('{"any":NaN,', []),
        ('{"any":[NaN],', []),
        ('{"any":["\\ud83d"],', []),
        ('{"any":["\ud83d"],', []),
        ('{"any":3.25,"title":"', ['{"any":3.25', ',"title":"']),
        ('{"any":-0.5e-3,"title":"', ['{"any":-0.0005', ',"title":"']),
        ('{"any":3.,"title":"', []),
        ('{"title":"a\\ud83d and more than 12"', ['{"title":"', 'a']),
        ('{"title":"a\\x"}', ['{"title":"', 'a']),
        ('{"title":"a\nb"}', ['{"title":"', 'a']),
        ('{"title":"\\ud83d\\ude00"', ['{"title":"', '😀', '"']),
        ('{"title":"a\ud83d"}', ['{"title":"', 'a']),
        ('Here is the answer', []),
        ('[]', []),
    ],
)
def test_only_what_is_valid_so_far_is_certain(text: str, certain: list[str]) -> None:
    assert parts(text) == certain


@pytest.mark.parametrize(
    ('schema', 'text', 'certain'),
    [
        ({'type': 'array', 'items': {'type': 'string'}}, '{"response": ["a", "b"]}', '["a","b"]'),
        ({'type': 'array'}, '{"response": [1, {"a": 2}]}', '[1,{"a":2}]'),
        ({'type': 'string'}, '{"response": "a"}', '"a"'),
        ({'type': 'integer'}, '{"response": 12}', '12'),
        ({'type': 'number'}, '{"response": 12.5}', '12.5'),
        ({'type': 'integer'}, '{"answer": 12}', ''),
        ({'type': 'integer'}, '[12]', ''),
        ({'$ref': '#/$defs/Item', '$defs': {'Item': ITEM}}, '{"n": 1}', '{"n":1}'),
        ({'type': 'object'}, '{"a": "b", "c": {"d": "e"}}', '{"a":"b","c":{"d":"e"}}'),
        ({'type': 'object', 'minProperties': 2}, '{"a": 1}', ''),
        ({'type': 'object', 'minProperties': 1}, '{"a": 1}', '{"a":1}'),
        ({'type': 'object', 'properties': {'a': {'$ref': '#/properties/b'}, 'b': {}}}, '{"a": 1}', ''),
        ({'type': 'object', 'properties': {'a': {'$ref': '#/$defs/No'}}, '$defs': {}}, '{"a": 1}', ''),
        ({'type': 'object', 'properties': {'a': {'$ref': 'http://localhost/a'}}}, '{"a": 1}', ''),
    ],
)
def test_root_of_the_schema_may_be_anything(schema: dict[str, Any], text: str, certain: str) -> None:
    """pydantic-ai has the model write an output that is no object into an object."""
    assert ''.join(parts(text, schema)) == certain


def test_nesting_that_python_cannot_parse_is_never_certain() -> None:
    assert parts('{"a":' + '[' * 200_000, {'type': 'object'}, size=50_000) == []


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 4))
def test_number_is_certain_only_as_a_whole(number: float, size: int) -> None:
    """A piece of an answer may end before the fraction or the exponent of a number, or within them."""
    assert (
        ''.join(parts(f'{{"any":{number!r},"title":"a"}}', size=size))
        == to_json({'any': number, 'title': 'a'}).decode()
    )


def test_large_answer_in_one_piece_is_certain_at_once() -> None:
    text = to_json({'title': 'a', 'items': [{'n': number} for number in range(2_000)]}).decode()
    assert ''.join(parts(text, size=len(text))) == text


def test_repeated_answer_continues_what_was_sent() -> None:
    answer = WrittenAnswer(SCHEMA)
    assert answer.add('{"title":') == ''  # no attempt has begun
    assert not answer.has_begun
    sent: list[str] = []
    for attempt in (
        '{"title": "a", "kind": "wide"',
        '{"title":"a","kind":"lo',
        '{ "title":"a", "kind":"long", "code":"x"}',
    ):
        answer.begin()
        sent += [answer.add(character) for character in attempt]
    assert answer.has_begun
    assert ''.join(sent) == '{"title":"a","kind":"long","code":"x"}'
    assert answer.rest_of('{"title":"a","kind":"long","code":"x"}') == ''


def test_answer_that_differs_from_what_was_sent_is_not_sent() -> None:
    answer = WrittenAnswer(SCHEMA)
    answer.begin()
    assert answer.add('{"title": "abc') == '{"title":"abc'
    answer.begin()
    assert [answer.add('{"title": "a'), answer.add('x'), answer.add('y"}')] == ['', '', '']
    assert answer.rest_of('{"title":"axy"}') is None
    assert answer.rest_of(None) is None
    assert answer.rest_of('{"title":"abcd"}') == 'd"}'


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
documents = st.fixed_dictionaries(
    {},
    optional={
        'title': st.text() | values,
        'kind': st.sampled_from(['long', 'short', 'wide']),
        'code': st.text(max_size=4),
        'items': st.lists(st.fixed_dictionaries({'n': st.integers(-1, 9)}) | values, max_size=3),
        'more': values,
        'any': values,
        'other': values,
    },
)


@given(documents, st.booleans(), st.sampled_from([None, 1]), st.integers(1, 9))
@settings(max_examples=50)
def test_what_is_certain_is_the_beginning_of_the_output(
    document: Any, is_ascii: bool, indent: int | None, size: int
) -> None:
    """However the model writes a document, only the beginning of its compact form is certain, and never all of it if it is
    invalid."""
    certain = ''.join(parts(json.dumps(document, ensure_ascii=is_ascii, indent=indent), size=size))
    compact = to_json(document).decode()

    assert compact.startswith(certain)
    assert certain != compact or jsonschema_rs.is_valid(SCHEMA, document)
