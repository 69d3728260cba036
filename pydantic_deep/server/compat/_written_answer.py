"""The part of an answer by a schema that is certain while the model writes it.

A client cannot take back a part of its answer, but the server may reject an answer of which parts are written: it is
invalid by the schema, the response was cut, or the request failed and is repeated. The model then writes it again. So the
client receives

- only what is valid so far. A value with constraints follows when it is complete and valid, and so do numbers. Objects and
  arrays of a plain schema follow piece by piece, and strings without constraints as they are written;
- the form of the final output, which is compact JSON. An answer that differs in white space or escapes is the same;
- after a rejection, only what continues the part that it has. Models repeat the valid part of a rejected answer, because
  they see it and the reason.

If the final output does not continue what was sent, the stream ends with an error, and the complete answer is in the
store. Text that was sent is therefore always the beginning of the final output, or followed by an error.

Alternatives: to send nothing before the answer is valid, which is no stream; to send each piece and end with an error
after each rejection, which fails requests that would succeed; to send a second answer after a mark, or in another item,
which every client would join to the first one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Final, NoReturn, TypeAlias, cast

import jsonschema_rs
from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, from_json, to_json

Schema: TypeAlias = Mapping[str, JsonValue]
"""A JSON schema."""

OUTPUT_TOOL: Final = 'final_result'
"""pydantic-ai's name for the tool whose arguments are the output."""

_WRAPPER: Final = 'response'
"""pydantic-ai's name for the only member of the object in which the model writes an output that is no object."""

_ANNOTATIONS: Final = frozenset(
    (
        'title',
        'description',
        'default',
        'examples',
        'deprecated',
        'readOnly',
        'writeOnly',
        '$comment',
        '$schema',
        '$defs',
    )
)
"""Keywords that constrain nothing."""

_GROWTH: Final = 1.1
"""A value that is incomplete is parsed again when it has grown by this factor, so that parsing takes linear time."""

_CHARACTERS: Final = re.compile(
    r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r'|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*'
)
"""Complete characters of a string. Lone surrogates are not among them."""

_LONGEST_ESCAPE: Final = 12

_WHITE_SPACE: Final = re.compile(r'[ \t\r\n]*')


class WrittenAnswer:
    """The answer of one stream. Call `begin` for each attempt of the model, then `add` for each piece."""

    def __init__(self, schema: Schema) -> None:
        """Create an answer of which nothing was written.

        Args:
            schema: The schema of the output, which can be used: see `TurnOptions.output_schema`.
        """
        self._schema = schema
        self._sent: list[str] = []
        self._repeated, self._position = '', 0
        self._attempt: _Attempt | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the client has a part of the answer."""
        return bool(self._sent)

    def begin(self) -> None:
        """Begin an attempt. Until it has repeated what was sent, nothing is sent."""
        self._repeated, self._position = ''.join(self._sent), 0
        self._attempt = _Attempt(self._schema)

    def add(self, piece: str) -> str:
        """Add a piece of the attempt, and return the text that can be sent, often none."""
        if self._attempt is None:
            return ''
        text = self._attempt.add(piece)
        known = self._repeated[self._position : self._position + len(text)]
        if not text.startswith(known):
            self._attempt = None
            return ''
        self._position += len(known)
        text = text[len(known) :]
        if text:
            self._sent.append(text)
        return text

    def rest_of(self, output: str | None) -> str | None:
        """Return the part of the final output that was not sent; `None` if what was sent is not its beginning."""
        sent = ''.join(self._sent)
        return output[len(sent) :] if output is not None and output.startswith(sent) else None


class _UncertainError(Exception):
    """The rest of an attempt is malformed or invalid, or is not understood here."""


class _Attempt:
    """Reads one attempt, and collects the text that is certain.

    The methods that read are generators, which wait for the next piece at each `yield`. Their depth is that of the schema.
    """

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._text, self._at = '', 0
        self._held = ''
        self._certain: list[str] = []
        self._reading = self._read_root()

    def add(self, piece: str) -> str:
        """Add a piece, and return the text that became certain."""
        self._text, self._at = self._text[self._at :] + piece, 0
        with suppress(_UncertainError):  # the generator ends with it, so that nothing follows
            next(self._reading, None)
        certain = ''.join(self._certain)
        self._certain.clear()
        return certain

    def _read_root(self) -> Generator[None]:
        schema = self._resolved(self._root)
        if schema.get('type') == 'object':
            yield from self._read(schema)
        else:
            yield from self._skip('{')
            if (yield from self._read_key()) != _WRAPPER:
                raise _UncertainError
            yield from self._read(schema)

    def _read(self, schema: Schema) -> Generator[None]:
        """Read a value."""
        first = yield from self._peek()
        if first == '{' and _is_plain(schema, 'object', ('properties', 'required', 'additionalProperties')):
            yield from self._read_object(schema)
        elif first == '[' and _is_plain(schema, 'array', ('items',)):
            yield from self._read_array(schema)
        elif first == '"' and (_is_plain(schema, 'string') or _is_plain(schema, None)):
            yield from self._read_string()
        else:
            yield from self._read_whole(schema)

    def _read_object(self, schema: Schema) -> Generator[None]:
        properties = cast('Mapping[str, JsonValue]', schema.get('properties', {}))
        missing, seen = set(cast('list[str]', schema.get('required', []))), set[str]()
        yield from self._skip('{')
        self._hold('{')
        while (yield from self._peek()) != '}':
            if seen:
                yield from self._skip(',')
            key = yield from self._read_key()
            if key in seen:
                raise _UncertainError
            self._hold(f'{"," if seen else ""}{_render(key)}:')
            seen.add(key)
            yield from self._read(self._resolved(properties.get(key, schema.get('additionalProperties', True))))
        if missing - seen:
            raise _UncertainError
        yield from self._skip('}')
        self._emit('}')

    def _read_array(self, schema: Schema) -> Generator[None]:
        items = self._resolved(schema.get('items', True))
        yield from self._skip('[')
        self._hold('[')
        has_items = False
        while (yield from self._peek()) != ']':
            if has_items:
                yield from self._skip(',')
                self._hold(',')
            yield from self._read(items)
            has_items = True
        yield from self._skip(']')
        self._emit(']')

    def _read_string(self) -> Generator[None]:
        yield from self._skip('"')
        self._emit('"')
        while True:
            characters = cast('re.Match[str]', _CHARACTERS.match(self._text, self._at))
            if characters[0]:
                self._emit(_render(json.loads(f'"{characters[0]}"'))[1:-1])
            self._at = characters.end()
            rest = len(self._text) - self._at
            if rest and self._text[self._at] == '"':
                break
            if rest >= _LONGEST_ESCAPE or (rest and self._text[self._at] != '\\'):
                raise _UncertainError
            yield
        self._at += 1
        self._emit('"')

    def _read_whole(self, schema: Schema) -> Generator[None]:
        """Read a value that is certain when it is complete and valid."""
        value = yield from self._read_complete()
        try:
            validator = _validator(schema, self._root)
        except ValueError:  # a reference to a part that is not here
            raise _UncertainError from None
        if not validator.is_valid(value):
            raise _UncertainError
        self._emit(_render(value))

    def _read_complete(self) -> Generator[None, None, JsonValue]:
        """Return the next value when it is complete."""
        yield from self._peek()
        needed = 1
        while True:
            size = len(self._text) - self._at
            if size >= needed:
                end = _end_of_value(self._text, self._at)
                if end is not None:
                    return self._parse(end)
                needed = int(size * _GROWTH) + 1
            yield

    def _parse(self, end: int) -> JsonValue:
        start, self._at = self._at, end
        try:
            return from_json(self._text[start:end])
        except (ValueError, TypeError):  # pydantic refuses it in the output too, such as a lone surrogate
            raise _UncertainError from None

    def _read_key(self) -> Generator[None, None, str]:
        if (yield from self._peek()) != '"':
            raise _UncertainError
        key = yield from self._read_complete()
        yield from self._skip(':')
        return cast('str', key)

    def _skip(self, character: str) -> Generator[None]:
        if (yield from self._peek()) != character:
            raise _UncertainError
        self._at += 1

    def _peek(self) -> Generator[None, None, str]:
        """Return the next character that is no white space."""
        while True:
            self._at = cast('re.Match[str]', _WHITE_SPACE.match(self._text, self._at)).end()
            if self._at < len(self._text):
                return self._text[self._at]
            yield

    def _hold(self, text: str) -> None:
        """Emit text before the next one that is certain."""
        self._held += text

    def _emit(self, text: str) -> None:
        self._certain.append(self._held + text)
        self._held = ''

    def _resolved(self, schema: JsonValue | Schema) -> Schema:
        """Return a schema, without a reference to a definition."""
        if schema is False:
            raise _UncertainError
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get('$ref')
        definitions = self._root.get('$defs')
        if isinstance(reference, str) and isinstance(definitions, dict) and _is_plain(schema, None, ('$ref',)):
            definition = definitions.get(reference.removeprefix('#/$defs/'))
            return schema if definition is None else self._resolved(definition)
        return schema


def _is_plain(schema: Schema, type: str | None, keywords: tuple[str, ...] = ()) -> bool:
    """Return whether a schema has a type, and constrains nothing else but by some keywords."""
    return schema.get('type') == type and schema.keys() <= _ANNOTATIONS.union(keywords, ('type',))


def _validator(schema: Schema, root: Schema) -> jsonschema_rs.Validator:
    shared = {name: root[name] for name in ('$defs', '$schema') if name in root}
    return jsonschema_rs.validator_for(
        {**shared, **schema}, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f'The reference {uri!r} is not fetched.')


def _end_of_value(text: str, start: int) -> int | None:
    """Return the end of the value that starts at a position; `None` if it is incomplete."""
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    # The decoder ends a number before an incomplete fraction or exponent, such as `3.` or `1e-`.
    return end if text[start] in '{["' or (end < len(text) and text[end] not in '.eE') else None


def _raise(constant: str) -> NoReturn:
    raise _UncertainError(constant)


_DECODER: Final = json.JSONDecoder(parse_constant=_raise)
"""Refuses `NaN` and infinity, which are no JSON."""


def _render(value: JsonValue) -> str:
    try:
        return to_json(value).decode()
    except PydanticSerializationError:  # a lone surrogate
        raise _UncertainError from None
