"""Forms of questions: from the schema of a server to fields, and from answers to values."""

from __future__ import annotations

import re
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_deep._messages.form_fields import FormField, form_fields, read_answer, suggested_answers


def fields_of(*required: str, **properties: Any) -> tuple[FormField, ...]:
    return form_fields({'type': 'object', 'properties': properties, 'required': [*required]})


ORDER = fields_of(
    'count',
    'size',
    count={'type': 'integer', 'title': 'Count', 'minimum': 1, 'maximum': 5},
    size={'type': 'string', 'oneOf': [{'const': 's', 'title': 'Small'}, {'const': 'l', 'title': 'Large'}]},
    extras={'type': 'array', 'items': {'type': 'string', 'enum': ['milk', 'sugar']}, 'maxItems': 2},
    gift={'type': 'boolean', 'default': False, 'description': 'Wrap it.'},
)


def test_fields_say_what_an_answer_may_be() -> None:
    """The hint of a field has its description, its limits, its default, and whether it is optional."""
    fields = fields_of(
        'name',
        name={'type': 'string', 'minLength': 2},
        mail={'type': 'string', 'format': 'email', 'maxLength': 50},
        price={'type': 'number', 'minimum': 0.5},
        size={'type': 'integer', 'maximum': 2**24},
    )
    assert [(field.label, field.hint) for field in [*ORDER, *fields]] == snapshot(
        [
            ('Count', 'integer, from 1 to 5'),
            ('size', ''),
            ('extras', 'several are possible, at most 2 choices, optional'),
            ('gift', 'Wrap it. yes or no, default false, optional'),
            ('name', 'at least 2 characters'),
            ('mail', 'email, at most 50 characters, optional'),
            ('price', 'number, at least 0.5, optional'),
            ('size', 'integer, at most 16777216, optional'),
        ]
    )


@pytest.mark.parametrize(
    'answer',
    [
        {'count': 2, 'size': 'l', 'extras': ['milk']},
        {'count': '2', 'size': 'Large', 'extras': 'milk', 'gift': None},
        '{"count": 2, "size": "l", "extras": ["milk"]}',
        'count: 2\nsize: Large\n\nextras: milk\ngift:',
    ],
)
def test_answers_are_objects_or_texts(answer: Any) -> None:
    """An answer may be an object, JSON, or a line for each field; values may be as a person writes or sees them."""
    assert read_answer(ORDER, answer) == {'count': 2, 'size': 'l', 'extras': ['milk'], 'gift': False}


@pytest.mark.parametrize(
    ('answer', 'problem'),
    [
        (
            'two large ones',
            'The answer has 4 fields: count, size, extras, gift. Write JSON, or a line `name: value` for each.',
        ),
        (3, 'The answer has 4 fields: count, size, extras, gift. Write JSON, or a line `name: value` for each.'),
        ({'count': 2}, "The field 'size' needs a value."),
        ({'count': '', 'size': 's'}, "The field 'count' needs a value."),
        ({'colour': 'red'}, "There is no field 'colour'. Fields: count, size, extras, gift."),
        ({'count': 6, 'size': 's'}, "The field 'count' does not accept '6': Input should be less than or equal to 5."),
        ({'count': 2, 'size': 'xl'}, "The field 'size' does not accept 'xl': Input should be 's' or 'l'."),
        (
            {'count': 2, 'size': 's', 'extras': ['tea']},
            "The field 'extras' does not accept \"['tea']\": Input should be 'milk' or 'sugar'.",
        ),
        (
            {'count': 2, 'size': 's', 'extras': 1},
            "The field 'extras' does not accept '1': Input should be a valid list.",
        ),
        (
            {'count': 2, 'size': 's', 'gift': 'perhaps'},
            "The field 'gift' does not accept 'perhaps': Input should be a valid boolean, unable to interpret input.",
        ),
    ],
)
def test_wrong_answers_are_refused_with_a_sentence(answer: Any, problem: str) -> None:
    """The sentence names the field, the value, and what it may be."""
    with pytest.raises(ValueError, match=f'^{re.escape(problem)}$'):
        read_answer(ORDER, answer)


@pytest.mark.parametrize(
    ('schema', 'right', 'wrong'),
    [
        ({'type': 'string', 'format': 'email'}, 'ada@example.org', 'ada'),
        ({'type': 'string', 'format': 'uri'}, 'https://example.org', 'example'),
        ({'type': 'string', 'format': 'date'}, '2026-02-28', '2026-02-30'),
        ({'type': 'string', 'format': 'date-time'}, '2026-02-28T12:00:00Z', 'noon'),
        ({'type': 'string', 'pattern': '^[a-z]+$'}, 'ada', 'Ada'),
        ({'type': 'string', 'minLength': 2}, '{"a": 1}', 'a'),
        ({'type': 'number'}, 0.5, 'half'),
        ({'type': 'boolean'}, True, 'perhaps'),
        ({'type': 'string', 'enum': ['a', 'b'], 'enumNames': ['One', 'Two']}, 'a', 'Three'),
        ({'type': 'array', 'items': {'anyOf': [{'const': 'a', 'title': 'One'}]}}, ['a'], ['b']),
        ({'anyOf': [{'type': 'integer'}, {'type': 'null'}]}, 3, 'three'),
    ],
)
def test_every_kind_of_field_is_checked(schema: dict[str, Any], right: Any, wrong: Any) -> None:
    """The only value of an answer needs no name. Values keep their form, which the server checks too."""
    fields = fields_of('value', value=schema)
    assert read_answer(fields, right) == read_answer(fields, {'value': right}) == {'value': right}
    with pytest.raises(ValueError, match="The field 'value' does not accept"):
        read_answer(fields, wrong)


@pytest.mark.parametrize(
    ('schema', 'problem'),
    [
        ({'type': 'object'}, "The field 'value' has the type 'object', which MCP does not allow in a question."),
        ({'type': 'string', 'enum': ['']}, "The field 'value' has choices without values, which MCP does not allow."),
        ({'type': 'string', 'pattern': '(?=a)'}, "The field 'value' cannot be checked"),
        ({'type': ['string', 'null']}, "The field 'value' has a malformed schema."),
        ({'type': 'string', 'title': 5}, "The field 'value' has a malformed schema."),
        ({'type': 'array', 'items': True}, "The field 'value' has a malformed schema."),
        ({'type': 'integer', 'maximum': float('inf')}, "The field 'value' has a malformed schema."),
    ],
)
def test_forms_that_cannot_be_checked_are_refused(schema: dict[str, Any], problem: str) -> None:
    """Nested values, empty choices, patterns that do not run in linear time, and parts of wrong types: the question is
    refused with a sentence, and the connection to the server, which others use too, stays."""
    with pytest.raises(ValueError, match=problem):
        fields_of(value=schema)


def test_suggested_answers_are_those_of_the_only_field() -> None:
    """Questions without fields need consent, and several fields need an object."""
    choice = fields_of(size={'type': 'string', 'oneOf': [{'const': 's', 'title': 'Small'}]})
    assert [suggested_answers(fields) for fields in ((), fields_of(a={'type': 'boolean'}), choice, ORDER)] == [
        ('Continue',),
        ('Yes', 'No'),
        ('Small',),
        (),
    ]
    assert suggested_answers(fields_of(a={'type': 'string'})) == ()


def test_names_and_choices_may_be_answered_as_they_are_shown() -> None:
    """Invisible characters of a server are shown as escapes, and an answer may repeat those."""
    fields = fields_of(**{'a\u200b': {'type': 'string', 'enum': ['x\u200b']}})
    assert read_answer(fields, {'a\\u200b': 'x\\u200b'}) == {'a\u200b': 'x\u200b'}


def test_a_title_means_its_choice_even_if_another_choice_has_it_as_value() -> None:
    """People see titles, so an answer is first compared with all titles, and then with values."""
    fields = fields_of(floor={'type': 'string', 'enum': ['0', '1', '2'], 'enumNames': ['1', '2', '3']})
    assert [read_answer(fields, shown) for shown in ('1', '2', '3', '0')] == [{'floor': value} for value in '0120']


def test_all_choices_are_shown_by_their_values_if_titles_are_missing() -> None:
    """With fewer titles than choices, it is unknown which choice a title belongs to, and no choice may be hidden."""
    (field,) = fields_of(size={'type': 'string', 'enum': ['s', 'l'], 'enumNames': ['Small']})
    assert field.shown_choices == ('s', 'l')


def test_choices_with_commas_can_be_written_in_a_text() -> None:
    """Several choices in a text are separated by commas, and may contain commas themselves."""
    fields = fields_of(to={'type': 'array', 'items': {'type': 'string', 'enum': ['Paris, France', 'Bonn', 'Paris']}})
    for text, choices in (
        ('Paris, France', ['Paris, France']),
        ('Bonn , Paris, France,Paris', ['Bonn', 'Paris, France', 'Paris']),
    ):
        assert read_answer(fields, text) == {'to': choices}
    with pytest.raises(ValueError, match=r'does not accept "\[\'Paris, France\', \'Rome\'\]"'):
        read_answer(fields, 'Paris, France, Rome')
