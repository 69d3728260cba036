"""Tool call arguments as YAML that a person can edit, with long texts as block scalars. Pure.

Only the types of JSON are parsed: `yes`, `0o17` and `2026-01-01` are strings, as they are for the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

import yaml
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from pydantic_deep._text.escapes import visible
from pydantic_deep.errors import DeepAgentError

_ARGS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    'string': str,
    'integer': int,
    'number': (int, float),
    'boolean': bool,
    'array': list,
    'object': dict,
    'null': type(None),
}
"""Python types by type name of JSON schema."""


class InvalidArgumentsError(DeepAgentError, ValueError):
    """The text is not valid arguments, or not JSON."""


def render_arguments(args: Mapping[str, JsonValue]) -> str:
    """Return arguments as YAML that `parse_arguments` converts back to equal arguments."""
    text = ''.join(_entry(name, value) for name, value in args.items()) or '{}\n'
    try:
        is_same = parse_arguments(text) == args
    except InvalidArgumentsError:
        is_same = False
    return text if is_same else _dump_yaml(dict(args))


def parse_json(text: str) -> JsonValue:
    """Parse a JSON value.

    Raises:
        InvalidArgumentsError: The text is not JSON. `NaN` is not.
    """
    try:
        return cast('JsonValue', from_json(text, allow_inf_nan=False))
    except ValueError as error:
        raise InvalidArgumentsError(f'This is not JSON: {error}.') from error


def parse_arguments(text: str) -> dict[str, JsonValue]:
    """Parse arguments from YAML.

    Raises:
        InvalidArgumentsError: The text is not YAML, or not a mapping of names to JSON values.
    """
    try:
        value: object = yaml.load(text, _Loader)  # noqa: S506 - a restricted SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidArgumentsError(f'This is not YAML: {_yaml_error_message(error)}') from error
    try:
        return _ARGS.validate_python(value, strict=True)
    except ValidationError as error:
        raise InvalidArgumentsError('These are not arguments. Write a line `name: value` for each.') from error


def find_schema_error(args: Mapping[str, JsonValue], schema: Mapping[str, Any]) -> str | None:
    """Return the first mismatch between arguments and the JSON schema of a tool, as a sentence; `None` if there is none.

    Only names, required arguments and plain types are checked. The tool validates the rest when it runs. A schema that
    names arguments and does not mention others, such as those of our tools, allows no others.
    """
    properties: Mapping[str, Mapping[str, Any]] = schema.get('properties', {})
    unknown = [name for name in args if name not in properties]
    if unknown and properties and schema.get('additionalProperties', False) is False:
        return f'There is no argument {unknown[0]!r}. Known: {", ".join(properties)}.'
    missing = [name for name in schema.get('required', ()) if name not in args]
    if missing:
        return f'The argument {missing[0]!r} is missing. Give all arguments, including unchanged ones.'
    for name, value in args.items():
        type_name = properties.get(name, {}).get('type')
        if isinstance(type_name, str) and type_name in _TYPES and not _has_type(value, type_name):
            return f'The argument {name!r} is {json.dumps(value)}, and must be of type {type_name}.'
    return None


def _has_type(value: JsonValue, type_name: str) -> bool:
    """Return whether a value has a type of JSON schema."""
    if isinstance(value, bool):
        return type_name == 'boolean'
    if isinstance(value, float) and type_name == 'integer':
        return value.is_integer()
    return isinstance(value, _TYPES[type_name])


def _entry(name: str, value: JsonValue) -> str:
    if not isinstance(value, str) or '\n' not in value or visible(value) != value:
        return _dump_yaml({name: value})
    chomping = '-' if not value.endswith('\n') else '+' if value.endswith('\n\n') or value == '\n' else ''
    lines = value.removesuffix('\n').split('\n')
    key = _dump_yaml({name: None}).removesuffix(' null\n')
    return f'{key} |2{chomping}\n' + ''.join(f'  {line}\n' for line in lines)


def _dump_yaml(args: dict[str, Any]) -> str:
    """Return YAML with invisible characters escaped."""
    text = json.dumps(args, ensure_ascii=False)
    return yaml.dump(args, Dumper=_Dumper, allow_unicode=visible(text) == text, sort_keys=False, width=2**31)


def _yaml_error_message(error: Exception) -> str:
    """Return the problem and its line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f'line {error.problem_mark.line + 1}: {error.problem or error.context}.'
    return ' '.join(str(error).split()) + '.'


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full instead of as aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _Loader(yaml.SafeLoader):
    """Reads the types of JSON. Any other plain scalar is a string."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the interface of PyYAML


for _tag, _pattern, _first in (
    ('null', r'null|~|', ['n', '~', '']),
    ('bool', r'true|false', ['t', 'f']),
    ('int', r'-?(?:0|[1-9][0-9]*)', list('-0123456789')),
    ('float', r'-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?', list('-0123456789')),
):
    for _class in (_Loader, _Dumper):  # so that strings that look like numbers are quoted
        cast('Any', _class).add_implicit_resolver(f'tag:yaml.org,2002:{_tag}', re.compile(f'^(?:{_pattern})$'), _first)
