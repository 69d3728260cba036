"""`redact`: what is written down for people to read, without the secrets in it.

By the names of keys, at any depth, and by the shapes of keys and passwords in any text, escaped ones included. What has
neither a telling name nor a known shape, such as a password in a sentence, is not found: this is the last net, and no
reason to show an agent what it must not know.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Final, Protocol, TypeAlias, cast, overload
from urllib.parse import unquote_to_bytes

import re2
from pydantic import JsonValue

from ._secrets import COUNTED_NAMES, SECRET_NAMES, SHAPES, Shape
from ._token_shapes import NAMED_SHAPES, TOKEN_SHAPES

Redact: TypeAlias = Callable[[JsonValue], JsonValue]
"""Returns a value without its secrets, such as `redact` and any `Redactor`."""

MAX_DEPTH: Final = 100
"""How deep a value is looked into; what lies deeper goes as a whole. No provider and no tool of ours nests like that."""

_MAX_KEYS: Final = 4096
"""How many keys are remembered: the same ones come again and again, but a hostile value has as many as it likes."""

_WORDS = re.compile(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+')
"""The words of a name: `apiKey`, `API_KEY` and `x-api-key` have the same last two."""


_SHORT_MEDIA: Final = 4096
"""How many characters of base64 are scanned like any text: in so few, bytes mostly do not look like a key."""

_TEXT_MEDIA: Final = ('text/', 'application/json', 'application/xml', 'application/x-ndjson', 'application/yaml')
"""How the types of media begin that are texts."""

_MAX_ENCODINGS: Final = 2
"""How often a text is decoded to look for secrets: each time takes as long as the text."""

_INVISIBLE = re.compile('[\u00ad\u200b-\u200d\u2060\ufeff]')
"""Characters that are not seen, and could stand in the middle of a secret."""

_ESCAPED = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))')
_PERCENT = re.compile(r'(?:%[0-9A-Fa-f]{2})+')
_ENTITY = re.compile(r'&(?:#|quot;|apos;|amp;|lt;|gt;|equals;|colon;)')
_MARKER = re.compile(rb'\[redacted: ([^\[\]\n]{1,80})\]')

_CODE = re.compile(
    rb'(?:None|True|False|none|null|true|false|nil|undefined|str|bytes|required|optional|\d{1,4}|\*+|\xe2\x80\xa6'
    rb'|[a-z_]+(?:\.[a-z_]+)+|[a-z_]*(?:password|passwd|passphrase|pwd|token|secret|key|value|input|cred|auth)[a-z_]*)[,;]?'
    rb'|[A-Za-z_][A-Za-z0-9_.]*[\[(].*|<[A-Za-z_]+>|\{+[A-Za-z_]*\}+|\$\{?[A-Za-z_]+\}?'
)
"""What programs assign to a name of a secret, and is none: constants, names, calls and placeholders."""


class _Match(Protocol):
    @property
    def lastindex(self) -> int | None: ...

    def span(self, group: int = 0) -> tuple[int, int]: ...


class _Regex(Protocol):
    @property
    def groupindex(self) -> Mapping[bytes, int]: ...

    def search(self, text: bytes) -> _Match | None: ...

    def finditer(self, text: bytes) -> Iterator[_Match]: ...


_Groups: TypeAlias = list[tuple[_Regex, list[tuple[Shape, _Regex]]]]
"""Shapes in groups, each with an expression that finds whether there is any of them in a text."""

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
    def _key(self) -> Callable[[str], str]:
        """Scans a key. The same keys come again and again, and each search gives up the interpreter's lock."""
        return lru_cache(_MAX_KEYS)(self._scan)

    @cached_property
    def _names(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_words(name) for name in (*SECRET_NAMES, *self.names))

    @cached_property
    def _shapes(self) -> _Groups:
        mine = (Shape(kind, expression) for kind, expression in self.patterns.items())
        return _groups([*SHAPES, *mine])

    @cached_property
    def _kinds(self) -> frozenset[str]:
        kinds = {*self.patterns, *(shape.kind for shape in SHAPES), _TOO_DEEP}
        kinds.update(kind for kind, _ in (*TOKEN_SHAPES, *NAMED_SHAPES))
        return frozenset(kinds | {' '.join(name) for name in self._names})

    def _redacted(self, value: JsonValue, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            return f'[redacted: {_TOO_DEEP}]'
        match value:
            case str():
                return self._text(value, depth)
            case dict():
                redacted = {self._key(key): self._of_key(key, item, depth) for key, item in value.items()}
                if value.get('kind') == 'binary' and (data := self._media(value)) is not None:
                    redacted['data'] = data
                for key in value.keys() & _VALUES if value.keys() & _NAMES else ():
                    redacted[key] = self._of_key(_name_in(value), value[key], depth)
                return redacted
            case list():
                return self._of_list(value, depth)
            case _:
                return value

    def _of_key(self, key: str, value: JsonValue, depth: int) -> JsonValue:
        name = self._secret_name(key)
        if name is None or value is None or isinstance(value, bool) or value in ('', [], {}):
            redacted = self._redacted(value, depth + 1)
            return self._beside(key, redacted) if isinstance(redacted, str) and _names_provider(key) else redacted
        if isinstance(value, int | float) and name in COUNTED_NAMES:
            return value
        return value if self._is_redacted(value) else f'[redacted: {name}]'

    def _is_redacted(self, value: JsonValue) -> bool:
        marker = _MARKER.fullmatch(value.encode('utf-8', 'surrogatepass')) if isinstance(value, str) else None
        return marker is not None and marker[1].decode() in self._kinds

    def _of_list(self, items: Sequence[JsonValue], depth: int) -> list[JsonValue]:
        """Return a list without its secrets; in one of pairs, or of arguments, a name stands before its value."""
        if all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in items):
            pairs = cast('list[tuple[str, JsonValue]]', items)
            return [[self._scan(name), self._of_key(name, value, depth)] for name, value in pairs]
        redacted: list[JsonValue] = []
        name = ''
        for item in items:
            flag = item if isinstance(item, str) and _FLAG.fullmatch(item) else ''
            redacted.append(self._of_key('' if flag else name, item, depth))
            name = flag
        texts = [item for item in redacted if isinstance(item, str)]
        if len(texts) == len(redacted) and any(item.startswith('-') for item in texts):
            command = self._scan('\t'.join(texts)).split('\t')
            return list(command) if len(command) == len(texts) else redacted
        return redacted

    def _media(self, value: dict[str, JsonValue]) -> str | None:
        """Return the data of media, of which a text has no secrets; `None` if they are none, and scanned as they stand."""
        data, media_type = value.get('data'), value.get('media_type')
        if not isinstance(data, str) or not isinstance(media_type, str):
            return None
        try:
            content = base64.b64decode(data, altchars=b'-_', validate='+' not in data and '/' not in data)
        except ValueError:
            return None
        if media_type.startswith(_TEXT_MEDIA):
            text = content.decode('utf-8', 'replace')
            redacted = self._text(text, 0)
            return data if redacted == text else base64.urlsafe_b64encode(redacted.encode()).decode()
        return None if len(data) < _SHORT_MEDIA else data

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
        """Return a text without what has the shape of a secret, also where its characters are escaped."""
        scanned = decoded = self._replaced(text)
        layers = 0
        while layers < _MAX_ENCODINGS and (plain := _decoded(decoded)) != decoded:
            layers += 1
            decoded = self._replaced(plain)
            if decoded != plain:
                scanned, layers = decoded, 0
        return scanned

    def _replaced(self, text: str) -> str:
        before = data = text.encode('utf-8', 'surrogatepass')
        if _named().search(data) is not None:
            data = self._without_any(data, _named_groups())
        data = self._without_any(data, self._shapes)
        for regex, shapes in _tokens():
            data = self._without(data, regex, shapes, None)
        return text if data is before else data.decode('utf-8', 'surrogatepass')

    def _without_any(self, data: bytes, groups: _Groups) -> bytes:
        for found, group in groups:
            if found.search(data) is not None:
                for shape, regex in group:
                    data = self._without(data, regex, [shape], regex.groupindex.get(b'secret', 0))
        return data

    def _beside(self, key: str, text: str) -> str:
        """Return a text without what is a secret beside the name of a provider, which its key has."""
        before = f'{key}='.encode('utf-8', 'surrogatepass')
        data = text.encode('utf-8', 'surrogatepass')
        return self._without_any(before + data, _named_groups()).removeprefix(before).decode('utf-8', 'surrogatepass')

    def _without(self, data: bytes, regex: _Regex, shapes: Sequence[Shape], group: int | None) -> bytes:
        """Return a text without the matches of an expression.

        Args:
            data: The text.
            regex: The expression.
            shapes: What it finds, by its groups if there are several.
            group: Which group is the secret; `None` for the one that matches.
        """
        pieces: list[bytes] = []
        end = 0
        for match in regex.finditer(data):
            index = (match.lastindex or 0) if group is None else group
            start, stop = match.span(index)
            shape = shapes[0 if group is not None else index - 1]
            if self._is_secret(shape, data, start, stop):
                pieces += (data[end:start], f'[redacted: {shape.kind}]'.encode())
                end = stop
        return b''.join((*pieces, data[end:])) if pieces else data

    def _is_secret(self, shape: Shape, data: bytes, start: int, stop: int) -> bool:
        marker = _MARKER.match(data, start)
        if marker is not None and marker.end() >= stop and marker[1].decode('utf-8', 'replace') in self._kinds:
            return False
        if shape.is_random and not any(byte in _MARKS for byte in data[start:stop]):
            return False
        return not (shape.is_code and _CODE.fullmatch(data, start, stop))


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


def _decoded(text: str) -> str:
    """Return a text without one layer of escapes: those of URLs, of HTML and of JSON, and characters that are not seen."""
    text = text if text.isascii() else _INVISIBLE.sub('', text)
    if '%' in text:
        text = _PERCENT.sub(lambda found: unquote_to_bytes(found[0]).decode('utf-8', 'replace'), text)
    if '\\' in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2], 16)), text)
    return html.unescape(text) if _ENTITY.search(text) else text


def _name_in(value: Mapping[str, JsonValue]) -> str:
    """Return what an object calls the value in it, such as `{'name': …, 'value': …}`."""
    names = (value[key] for key in _NAMES if isinstance(value.get(key), str))
    return cast('str', next(names, ''))


_TOO_DEEP: Final = 'too deep'
_NAMES: Final = frozenset({'name', 'key', 'header', 'field', 'variable', 'Name', 'Key'})
_VALUES: Final = frozenset({'value', 'Value'})
_FLAG = re.compile(r'--?[A-Za-z][A-Za-z0-9_-]*')

_HAS_WORDS = re.compile(r'\[[^\]]*(?:_|\\w)[^\]]*\]')
"""The expression of a token of which the middle can be words with something between them."""

_GROUP: Final = 16
"""How many shapes are looked for at once."""


@cache
def _named_groups() -> _Groups:
    """Return shapes of what stands beside the name of a provider; of hexadecimal digits, no word has such a length."""
    return _groups([Shape(kind, expression, is_random='a-z' in expression) for kind, expression in NAMED_SHAPES])


@cache
def _named() -> _Regex:
    """Return an expression that finds whether there may be any of `_named_groups`, of which there mostly is none."""
    names: dict[str, list[str]] = {}
    for name, start, rest in (expression.partition('[ \\t') for _, expression in NAMED_SHAPES):
        assigned = start + rest.partition('(?P<secret>')[0]
        names.setdefault(assigned, []).append(name.replace('?P<secret>', '?:'))
    return _compile('|'.join(f'(?:{"|".join(found)}){assigned}' for assigned, found in names.items()))


@lru_cache(_MAX_KEYS)
def _names_provider(key: str) -> bool:
    return _named().search(f'{key}='.encode('utf-8', 'surrogatepass')) is not None


def _groups(shapes: Sequence[Shape]) -> _Groups:
    """Return shapes in groups, each with an expression that finds whether there is any, for there mostly is none.

    All in one would take RE2 more memory than it gives itself, and it would become slow.
    """
    regexes = [(shape, _compile(shape.expression)) for shape in shapes]
    groups = [regexes[start : start + _GROUP] for start in range(0, len(regexes), _GROUP)]
    return [(_compile(_any_of(shape.expression for shape, _ in group)), group) for group in groups]


_TOKEN_GROUP: Final = 64
"""How many shapes of tokens are in one expression: of more, RE2 takes a millisecond for each that it finds."""


@cache
def _tokens() -> list[tuple[_Regex, list[Shape]]]:
    """Return expressions of which each finds many shapes of tokens: the group that has matched says which."""
    is_bounded = [expression.startswith('(?:^') for _, expression in TOKEN_SHAPES]  # these two kinds are fast apart
    tables: list[tuple[_Regex, list[Shape]]] = []
    for each in (True, False):
        table = [
            Shape(*shape, is_random=_HAS_WORDS.search(shape[1]) is not None)
            for shape, wanted in zip(TOKEN_SHAPES, is_bounded, strict=True)
            if wanted is each
        ]
        for start in range(0, len(table), _TOKEN_GROUP):
            part = table[start : start + _TOKEN_GROUP]
            expressions = (f'(?:{shape.expression.replace("?P<secret>", "")})' for shape in part)
            tables.append((_compile('|'.join(expressions)), part))
    return tables


def _any_of(expressions: Iterable[str]) -> str:
    return '|'.join(f'(?:{expression.replace("?P<secret>", "?:")})' for expression in expressions)
