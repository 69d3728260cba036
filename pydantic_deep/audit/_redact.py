"""`redact`: what is written down for people to read, without the secrets in it.

By the names of keys, at any depth, and by the shapes of keys and passwords in any text. What has neither a telling name
nor a known shape, such as a password in a sentence, is not found: this is the last net, and no reason to show an agent
what it must not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Final, Protocol, TypeAlias, cast, overload

import re2
from pydantic import JsonValue

from ._secrets import COUNTED_NAMES, SECRET_NAMES, SHAPES, Shape

Redact: TypeAlias = Callable[[JsonValue], JsonValue]
"""Returns a value without its secrets, such as `redact` and any `Redactor`."""

MAX_DEPTH: Final = 100
"""How deep a value is looked into; what lies deeper goes as a whole. No provider and no tool of ours nests like that."""

_MAX_KEYS: Final = 4096
"""How many keys are remembered: the same ones come again and again, but a hostile value has as many as it likes."""

_WORDS = re.compile(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+')
"""The words of a name: `apiKey`, `API_KEY` and `x-api-key` have the same last two."""


class _Match(Protocol):
    def span(self, group: int = 0) -> tuple[int, int]: ...


class _Regex(Protocol):
    @property
    def groupindex(self) -> Mapping[bytes, int]: ...

    def search(self, text: bytes) -> _Match | None: ...

    def finditer(self, text: bytes) -> Iterator[_Match]: ...


# google-re2 ships no types: these three lines give it some.
_COMPILE = cast('Callable[[bytes, object], _Regex]', re2.compile)  # pyright: ignore[reportUnknownMemberType]
_RE2_ERROR = cast('type[Exception]', re2.error)  # pyright: ignore[reportUnknownMemberType]
_LATIN1 = cast('object', re2.Options.Encoding.LATIN1)  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Finds secrets of yours too: `Redactor(names=['pin'], patterns={'acme key': r'acme_[a-z0-9]{20}'})`.

    Raises:
        ValueError: A pattern is no expression of RE2.
    """

    names: Collection[str] = ()
    """Names of keys whose values are secret, beside those that are known; `card number` stands for `cardNumber` too."""
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Expressions of RE2 for secrets in texts, by the kind that stands in their place."""

    def __post_init__(self) -> None:
        """Compile the patterns now, and not when a run ends."""
        _ = self._shapes

    @overload
    def __call__(self, value: str) -> str: ...
    @overload
    def __call__(self, value: JsonValue) -> JsonValue: ...
    def __call__(self, value: JsonValue) -> JsonValue:
        """Return a value of JSON, or a text, with `[redacted: kind]` for each secret in it; it is not changed itself."""
        return self._redacted(value, 0)

    @cached_property
    def _secret_name(self) -> Callable[[str], str | None]:
        return lru_cache(_MAX_KEYS)(self._read_name)

    @cached_property
    def _names(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_words(name) for name in (*SECRET_NAMES, *self.names))

    @cached_property
    def _shapes(self) -> tuple[_Regex, list[tuple[Shape, _Regex]]]:
        """One expression that finds whether there is any, for there mostly is none, and one for each."""
        shapes = [*SHAPES, *(Shape(kind, expression) for kind, expression in self.patterns.items())]
        regexes = [(shape, _compile(shape.expression)) for shape in shapes]
        unnamed = '|'.join(f'(?:{shape.expression.replace("?P<secret>", "?:")})' for shape in shapes)
        return _compile(unnamed), regexes

    def _redacted(self, value: JsonValue, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            return '[redacted: too deep]'
        match value:
            case str():
                return self._text(value, depth)
            case dict():
                redacted = {self._scan(key): self._of_key(key, item, depth) for key, item in value.items()}
                if value.get('kind') == 'binary' and 'data' in value:  # base64: what looks like a key in it is none
                    redacted['data'] = value['data']
                return redacted
            case list():
                return [self._redacted(item, depth + 1) for item in value]
            case _:
                return value

    def _of_key(self, key: str, value: JsonValue, depth: int) -> JsonValue:
        name = self._secret_name(key)
        if name is None or value is None or isinstance(value, bool) or value in ('', [], {}):
            return self._redacted(value, depth + 1)
        if isinstance(value, int | float) and name in COUNTED_NAMES:
            return value
        return value if _is_redacted(value) else f'[redacted: {name}]'

    def _read_name(self, key: str) -> str | None:
        """Return which name of a secret a key has: as its last words, or before others unless it counts something."""
        words = _words(key)
        for start in range(len(words)):
            for stop in range(start + 1, len(words) + 1):
                found = words[start:stop]
                if found in self._names and (stop == len(words) or ' '.join(found) not in COUNTED_NAMES):
                    return ' '.join(found)
        return None

    def _text(self, text: str, depth: int) -> str:
        """Return a text without its secrets; one that is JSON, such as arguments of a call, is looked into."""
        if text.lstrip()[:1] in ('{', '['):
            try:
                document = cast('JsonValue', json.loads(text))
            except (ValueError, RecursionError):
                return self._scan(text)
            redacted = self._redacted(document, depth + 1)
            if redacted != document:
                return json.dumps(redacted, ensure_ascii=False)
        return self._scan(text)

    def _scan(self, text: str) -> str:
        """Return a text without what has the shape of a secret."""
        found, shapes = self._shapes
        data = text.encode('utf-8', 'surrogatepass')
        if found.search(data) is None:
            return text
        for shape, regex in shapes:
            data = _replace(shape, regex, data)
        return data.decode('utf-8', 'surrogatepass')


_REDACTOR = cache(Redactor)


@overload
def redact(value: str) -> str: ...
@overload
def redact(value: JsonValue) -> JsonValue: ...
def redact(value: JsonValue) -> JsonValue:
    """Return a value of JSON, or a text, with `[redacted: kind]` for each secret in it; it is not changed itself.

    Args:
        value: A text, or what JSON can hold; texts in it that are JSON themselves are looked into.
    """
    return _REDACTOR()(value)


def _replace(shape: Shape, regex: _Regex, data: bytes) -> bytes:
    pieces: list[bytes] = []
    end = 0
    group = regex.groupindex.get(b'secret', 0)
    for match in regex.finditer(data):
        start, stop = match.span(group)
        if not shape.is_random or any(byte in _MARKS for byte in data[start:stop]):
            pieces += (data[end:start], f'[redacted: {shape.kind}]'.encode())
            end = stop
    return b''.join((*pieces, data[end:]))


_MARKS: Final = frozenset(b'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ')
"""What keys that were drawn at random have, all but never none of, and words in the middle of a text mostly not."""


def _compile(expression: str) -> _Regex:
    options = re2.Options()
    options.encoding = _LATIN1  # bytes: a text that is no valid Unicode is scanned too
    options.log_errors = False
    try:
        return _COMPILE(expression.encode(), options)
    except _RE2_ERROR:
        raise ValueError(f'{expression!r} is no expression of RE2. See github.com/google/re2/wiki/Syntax.') from None


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORDS.findall(name))


def _is_redacted(value: JsonValue) -> bool:
    return isinstance(value, str) and value.startswith('[redacted: ') and value.endswith(']')
