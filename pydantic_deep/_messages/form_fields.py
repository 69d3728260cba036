"""Questions with fields: the form that a person fills in, and its values. Pure.

The fields are those that MCP allows for a question of a server (elicitation): texts, numbers, flags and choices, without
nesting. https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import SchemaError

from pydantic_deep._text.escapes import visible

FieldKind: TypeAlias = Literal['text', 'integer', 'number', 'flag', 'choice', 'choices']
"""A text, a number, yes or no, one of several choices, or any number of them."""

_KINDS: Final[dict[str, FieldKind]] = {'integer': 'integer', 'number': 'number', 'boolean': 'flag'}
"""The kinds of JSON Schema types that have no further variants."""

_EMAIL: Final = re.compile(r'[^@\s]+@[^@\s]+')
"""Matches texts that may be addresses. Whether there is a mailbox, only a mail shows."""

CONSENT: Final = 'Continue'
"""The answer to a question without fields."""

FLAG_CHOICES: Final = ('Yes', 'No')
"""Suggested answers to a question with one flag."""


class FormField(BaseModel):
    """A field of a question."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, defer_build=True)

    name: str
    """The name of the value."""
    kind: FieldKind
    """The kind of the value."""
    title: str = ''
    """The label for people. If it is empty, the name is shown."""
    description: str = ''
    """What the value is for."""
    is_required: bool = True
    """Whether an answer needs the value."""
    choices: tuple[str, ...] = ()
    """The values to choose from."""
    titles: tuple[str, ...] = ()
    """The choices as people see them, in the same order; empty if they are the values."""
    default: JsonValue = None
    """The value of an answer without one."""
    format: str | None = None
    """The format of a text: `email`, `uri`, `date` or `date-time`. Others are not checked."""
    pattern: str | None = None
    """A regular expression that a text matches."""
    minimum: float | None = None
    """The smallest number, or the minimum number of characters or choices."""
    maximum: float | None = None
    """The largest number, or the maximum number of characters or choices."""

    @property
    def label(self) -> str:
        """The title, or the name."""
        return self.title or self.name

    @property
    def shown_choices(self) -> tuple[str, ...]:
        """The choices as people see them."""
        return self.titles or self.choices

    @property
    def hint(self) -> str:
        """What an answer may be, for people."""
        low, high = (None if limit is None else f'{limit:.15g}' for limit in (self.minimum, self.maximum))
        unit = {'text': ' characters', 'choices': ' choices'}.get(self.kind, '')
        limits = {
            (True, True): f'from {low} to {high}{unit}',
            (True, False): f'at least {low}{unit}',
            (False, True): f'at most {high}{unit}',
        }.get((low is not None, high is not None), '')
        kind = {'flag': 'yes or no', 'choices': 'several are possible'}.get(self.kind, self.kind)
        parts = [
            '' if self.kind in ('text', 'choice') else kind,
            self.format or '',
            limits,
            '' if self.default is None else f'default {json.dumps(self.default, ensure_ascii=False)}',
            '' if self.is_required else 'optional',
        ]
        return '. '.join(filter(None, [self.description.rstrip('.'), ', '.join(filter(None, parts))]))


class _Form(BaseModel):
    """The JSON Schema of an answer."""

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    properties: dict[str, dict[str, Any]] = {}
    required: list[str] = []


def form_fields(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields that the JSON Schema of an answer describes.

    Raises:
        ValueError: A field is of a kind that MCP does not allow.
    """
    form = _Form.model_validate(schema)
    return tuple(
        _checked_field(name, field, is_required=name in form.required) for name, field in form.properties.items()
    )


def read_answer(fields: Sequence[FormField], answer: JsonValue) -> dict[str, JsonValue]:
    """Return the values of an answer, as the server expects them.

    An answer is an object with the values, the only value, or a text: JSON, or a line `name: value` for each field.
    Numbers, flags and choices may be texts, as a person writes them.

    Raises:
        ValueError: The answer does not fit the fields. Without fields, any answer but `CONSENT` and an empty object may
            mean that the person does not consent.
    """
    if not fields:
        if answer != {} and str(answer).strip().casefold() != CONSENT.casefold():
            raise ValueError(f'Answer {CONSENT!r} to agree, or decline.')
        return {}
    by_name = {name: field for field in fields for name in (field.name, visible(field.name, one_line=True))}
    given = _given(fields, answer)
    if unknown := given.keys() - by_name.keys():
        raise ValueError(
            f'There is no field {sorted(unknown)[0]!r}. Fields: {", ".join(field.name for field in fields)}.'
        )
    values = {by_name[name].name: value for name, value in given.items() if value not in (None, '')}
    read: dict[str, JsonValue] = {}
    for field in fields:
        value = values.get(field.name, field.default)
        if value is not None:
            read[field.name] = _read(field, value)
        elif field.is_required:
            raise ValueError(f'The field {field.name!r} needs a value.')
    return read


def suggested_answers(fields: Sequence[FormField]) -> tuple[str, ...]:
    """Return suggested answers to a question: the choices of its only field, and `Continue` if it has no fields."""
    if not fields:
        return (CONSENT,)
    if len(fields) > 1:
        return ()
    return {'flag': FLAG_CHOICES, 'choice': fields[0].shown_choices}.get(fields[0].kind, ())


def _checked_field(name: str, schema: dict[str, Any], *, is_required: bool) -> FormField:
    try:
        field = _field(name, schema, is_required=is_required)
        TypeAdapter(_type(field))
    except SchemaError as error:
        raise ValueError(f'The field {name!r} cannot be checked: {error}.') from None
    except (AttributeError, TypeError, OverflowError, ValidationError):  # any part may have any JSON type
        raise ValueError(f'The field {name!r} has a malformed schema.') from None
    return field


def _field(name: str, schema: dict[str, Any], *, is_required: bool) -> FormField:
    """Return one field. A value that may be `null` is an optional one, as Python servers write them."""
    kinds: list[dict[str, Any]] = [kind for kind in schema.get('anyOf', ()) if kind.get('type') != 'null']
    if len(kinds) == 1:
        schema = {**schema, 'anyOf': [], **kinds[0]}
    kind, choices, titles = _kind(name, schema)
    low, high = {'text': ('minLength', 'maxLength'), 'choices': ('minItems', 'maxItems')}.get(
        kind, ('minimum', 'maximum')
    )
    return FormField(
        name=name,
        kind=kind,
        title=schema.get('title', ''),
        description=schema.get('description', ''),
        is_required=is_required,
        choices=choices,
        titles=titles,
        default=schema.get('default'),
        format=schema.get('format'),
        pattern=schema.get('pattern'),
        minimum=schema.get(low),
        maximum=schema.get(high),
    )


def _kind(name: str, schema: dict[str, Any]) -> tuple[FieldKind, tuple[str, ...], tuple[str, ...]]:
    """Return the kind of a field, its choices and their titles."""
    kind = schema.get('type')
    items: dict[str, Any] = schema.get('items', {}) if kind == 'array' else schema
    titled: list[dict[str, str]] = items.get('oneOf') or items.get('anyOf') or []
    choices = tuple(items.get('enum') or (choice.get('const', '') for choice in titled))
    titles = tuple(schema.get('enumNames') or (choice.get('title', '') for choice in titled))
    if not all(choices):
        raise ValueError(f'The field {name!r} has choices without values, which MCP does not allow.')
    if choices:
        return (
            ('choices' if kind == 'array' else 'choice'),
            choices,
            titles if all(titles) and len(titles) == len(choices) else (),
        )
    if kind == 'string':
        return 'text', (), ()
    if kind not in _KINDS:
        raise ValueError(f'The field {name!r} has the type {kind!r}, which MCP does not allow in a question.')
    return _KINDS[kind], (), ()


def _given(fields: Sequence[FormField], answer: JsonValue) -> Mapping[str, JsonValue]:
    """Return the values of an answer by name, before they are checked."""
    if isinstance(answer, dict):
        return answer
    if isinstance(answer, str):
        parsed = _parse_json(answer)
        if isinstance(parsed, dict) and (len(fields) > 1 or parsed.keys() <= {field.name for field in fields}):
            return cast('dict[str, JsonValue]', parsed)
    if len(fields) == 1:
        return {fields[0].name: answer}
    lines = [line.partition(':') for line in str(answer).splitlines() if line.strip()]
    if not isinstance(answer, str) or not all(colon for _, colon, _ in lines):
        names = ', '.join(field.name for field in fields)
        raise ValueError(f'The answer has {len(fields)} fields: {names}. Write JSON, or a line `name: value` for each.')
    return {name.strip(): value.strip() for name, _, value in lines}


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(field: FormField, value: JsonValue) -> JsonValue:
    """Return the value of a field.

    Raises:
        ValueError: It is not valid.
    """
    if field.kind == 'choices':
        value = _split(field, value) if isinstance(value, str) else value
        value = [_choice(field, each) for each in value] if isinstance(value, list) else value
    elif field.kind == 'choice':
        value = _choice(field, value)
    try:
        return TypeAdapter[JsonValue](_type(field)).validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]['msg']
        raise ValueError(f'The field {field.name!r} does not accept {str(value)[:200]!r}: {problem}.') from None


def _split(field: FormField, text: str) -> list[JsonValue]:
    """Return the choices in a text with commas, which may be in the choices too."""
    names = {name for choice in (*field.choices, *field.titles) for name in (choice, visible(choice, one_line=True))}
    known = '|'.join(map(re.escape, sorted(names, key=len, reverse=True)))
    return [name or other.strip() for name, other in re.findall(rf'\s*(?:({known})\s*|([^,]*)),', f'{text},')]


def _choice(field: FormField, value: JsonValue) -> JsonValue:
    """Return the value of a choice, which may be given as people see it: what they see may be the value of another one."""
    for names in (field.shown_choices, field.choices):
        for choice, name in zip(field.choices, names, strict=True):
            if value in (name, visible(name, one_line=True)):
                return choice
    return value


def _type(field: FormField) -> Any:
    """Return the type of the value of a field."""
    low, high = field.minimum, field.maximum
    sizes = Field(min_length=None if low is None else int(low), max_length=None if high is None else int(high))
    match field.kind:
        case 'text':
            checks = AfterValidator(lambda text: _check_format(text, field.format))
            return Annotated[str, sizes, Field(pattern=field.pattern), checks]
        case 'choices':
            return Annotated[list[Literal[field.choices]], sizes]
        case 'choice':
            return Literal[field.choices]
        case 'flag':
            return bool
        case _:
            number: Any = {'integer': int, 'number': float}[field.kind]
            return Annotated[number, Field(ge=low, le=high, allow_inf_nan=False)]


def _check_format(text: str, format: str | None) -> str:
    """Return a text of a format.

    Raises:
        ValueError: It has another format.
    """
    match format:
        case 'email' if not _EMAIL.fullmatch(text):
            raise ValueError('it is not an email address')
        case 'uri':
            AnyUrl(text)
        case 'date':
            date.fromisoformat(text)
        case 'date-time':
            datetime.fromisoformat(text)
        case _:
            pass
    return text
