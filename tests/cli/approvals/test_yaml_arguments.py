"""Tool call arguments as editable YAML."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import JsonValue

from pydantic_deep.cli.approvals._yaml_arguments import (
    InvalidArgumentsError,
    find_schema_error,
    parse_arguments,
    render_arguments,
)

TEXTS = (
    st.text()
    | st.text('ab \n\t:#|>-"\'0{[\u202e\x85\r', max_size=12)
    | st.sampled_from(['1e5', 'yes', '<<', '~', '=', '0x1f'])
)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
@example({'a': '\ufffe\nb'})
@example({'k' * 200: 'a\nb'})
def test_rendered_arguments_parse_back_unchanged(args: dict[str, JsonValue]) -> None:
    assert parse_arguments(render_arguments(args)) == args


def test_multiline_strings_are_rendered_as_blocks() -> None:
    args: dict[str, JsonValue] = {
        'path': '/Makefile',
        'content': 'all:\n  cc x.c  \n\n  done ü\n',
        'open': 'a\nb',
        'gap': 'a\n\n',
        'n': 2,
        'deep': {'k': ['v']},
    }
    assert render_arguments(args) == snapshot("""\
path: /Makefile
content: |2
  all:
    cc x.c  \n\
  \n\
    done ü
open: |2-
  a
  b
gap: |2+
  a
  \n\
n: 2
deep:
  k:
  - v
""")


def test_invisible_characters_are_escaped_in_yaml() -> None:
    text = render_arguments({'a': 'x\n\u202ey\u200b\n', 'b': '\x1b'})
    assert text == snapshot("""\
a: "x\\n\\u202Ey\\u200B\\n"
b: "\\e"
""")


@pytest.mark.parametrize(
    ('text', 'args'),
    [
        ('a: yes\nb: 2026-01-01\nc: 0o17\nd: 007', {'a': 'yes', 'b': '2026-01-01', 'c': '0o17', 'd': '007'}),
        ('a: true\nb: -2\nc: 1.5e3\nd: null\ne:', {'a': True, 'b': -2, 'c': 1500.0, 'd': None, 'e': None}),
        ('{"a": [1, {"b": "c"}]}', {'a': [1, {'b': 'c'}]}),
        ('a: |\n  x\n  y\n', {'a': 'x\ny\n'}),
    ],
)
def test_yaml_scalars_are_parsed_with_json_types(text: str, args: dict[str, JsonValue]) -> None:
    assert parse_arguments(text) == args


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        ('a: b: c', 'This is not YAML: line 1: mapping values are not allowed here.'),
        ('a: [1', "This is not YAML: line 1: expected ',' or ']', but got '<stream end>'."),
        ('a: !!python/object:os.system x', 'This is not YAML: line 1: could not determine a constructor'),
        ('a: \x00', 'This is not YAML: unacceptable character'),
        ('', 'These are not arguments. Write a line `name: value` for each.'),
        ('- a', 'These are not arguments.'),
        ('1: a', 'These are not arguments.'),
        ('a: !!binary aGk=', 'These are not arguments.'),
        ('[' * 5000, 'This is not YAML: '),
    ],
)
def test_invalid_arguments_raise_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        parse_arguments(text)
    assert str(caught.value).startswith(problem)


SCHEMA = {
    'properties': {
        'path': {'type': 'string'},
        'limit': {'type': 'integer'},
        'part': {'type': 'number'},
        'is_all': {'type': 'boolean'},
        'names': {'type': 'array', 'items': {'type': 'string'}},
        'glob': {'anyOf': [{'type': 'string'}, {'type': 'null'}]},
        'odd': {'type': 'tuple'},
        'either': {'type': ['string', 'null']},
    },
    'required': ['path'],
    'additionalProperties': False,
}


@pytest.mark.parametrize(
    ('args', 'misfit'),
    [
        ({'path': '/a', 'limit': 3, 'part': 0.5, 'is_all': True, 'names': [1], 'glob': 3, 'odd': 3, 'either': 3}, None),
        ({'path': '/a', 'limit': 3.0, 'part': 1}, None),
        ({'pth': '/a'}, "There is no argument 'pth'. Known: path, limit, part, is_all, names, glob, odd, either."),
        ({}, "The argument 'path' is missing. Give all arguments, including unchanged ones."),
        ({'path': 3}, "The argument 'path' is 3, and must be of type string."),
        ({'path': None}, "The argument 'path' is null, and must be of type string."),
        ({'path': '/a', 'limit': True}, "The argument 'limit' is true, and must be of type integer."),
        ({'path': '/a', 'limit': 0.5}, "The argument 'limit' is 0.5, and must be of type integer."),
        ({'path': '/a', 'is_all': 1}, "The argument 'is_all' is 1, and must be of type boolean."),
    ],
)
def test_schema_errors_are_found(args: dict[str, JsonValue], misfit: str | None) -> None:
    assert find_schema_error(args, SCHEMA) == misfit


def test_schema_that_mentions_no_other_arguments_allows_none() -> None:
    schema = {'properties': {'path': {'type': 'string'}}}
    assert find_schema_error({'pth': '/a'}, schema) == "There is no argument 'pth'. Known: path."
    assert find_schema_error({'pth': '/a'}, {**schema, 'additionalProperties': True}) is None


def test_empty_schema_accepts_any_arguments() -> None:
    assert find_schema_error({'a': 1}, {}) is None


def test_deeply_nested_arguments_are_rendered_but_not_parsed() -> None:
    """Arguments nested deeper than the limit are displayed, but an edit of them is refused."""
    deep: JsonValue = []
    for _ in range(300):
        deep = [deep]

    text = render_arguments({'deep': deep})

    assert text.startswith('deep:')
    assert text.count('-') == 300
    with pytest.raises(InvalidArgumentsError):
        parse_arguments(text)
