"""`redact`: remove secrets from values that are logged or stored.

Secrets are detected by the names of keys, at any depth, and by the formats of API keys and passwords in any text,
including escaped text. Secrets without a telltale name or a known format, such as a password in a sentence, are not
detected: this is a last line of defense, so do not give an agent secrets that it does not need.
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

from pydantic_deep._checks import check_object, check_strings

from ._secrets import COUNTED_NAMES, SECRET_NAMES, SHAPES, Shape
from ._token_shapes import named_shapes, token_shapes

Redact: TypeAlias = Callable[[JsonValue], JsonValue]
"""Returns a value with secrets redacted: `redact` or any `Redactor`."""

MAX_DEPTH: Final = 100
"""Maximum depth that is scanned. Deeper values are redacted as a whole; no provider and none of our tools nests this
deep.
"""

_MAX_KEYS: Final = 4096
"""Maximum number of cached keys. Keys repeat, but a malicious value may contain any number of them."""

_WORDS = re.compile(r'[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+')
"""Matches the words of a name, so that `apiKey`, `API_KEY` and `x-api-key` end with the same two."""


_SHORT_MEDIA: Final = 4096
"""Maximum length of base64 that is scanned like text. In longer data, random bytes would often look like a key."""

_TEXT_MEDIA: Final = ('text/', 'application/json', 'application/xml', 'application/x-ndjson', 'application/yaml')
"""Prefixes of media types that contain text."""

_MAX_ENCODINGS: Final = 2
"""Maximum number of decoding passes over a text. Each takes time proportional to its length."""

_INVISIBLE = re.compile('[\u00ad\u200b-\u200d\u2060\ufeff]')
"""Invisible characters, which could interrupt a secret."""

_ESCAPED = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))')
_PERCENT = re.compile(r'(?:%[0-9A-Fa-f]{2})+')
_ENTITY = re.compile(r'&(?:#|quot;|apos;|amp;|lt;|gt;|equals;|colon;)')
_MARKER = re.compile(rb'\[redacted: ([^\[\]\n]{1,80})\]')

_CODE = re.compile(
    rb'(?:None|True|False|none|null|true|false|nil|undefined|str|bytes|required|optional|\d{1,4}|\*+|\xe2\x80\xa6'
    rb'|[a-z_]+(?:\.[a-z_]+)+|[a-z_]*(?:password|passwd|passphrase|pwd|token|secret|key|value|input|cred|auth)[a-z_]*)[,;]?'
    rb'|[A-Za-z_][A-Za-z0-9_.]*[\[(].*|<[A-Za-z_]+>|\{+[A-Za-z_]*\}+|\$\{?[A-Za-z_]+\}?'
)
"""Code assigned to a variable with a secret's name that is not a secret: constants, names, calls and placeholders."""


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
"""Formats in groups, each with an expression that matches if any format of the group does."""

# google-re2 has no type stubs. These three lines declare the types.
_COMPILE = cast('Callable[[bytes, object], _Regex]', re2.compile)  # pyright: ignore[reportUnknownMemberType]
_RE2_ERROR = cast('type[Exception]', re2.error)  # pyright: ignore[reportUnknownMemberType]
_LATIN1 = cast('object', re2.Options.Encoding.LATIN1)  # pyright: ignore[reportUnknownMemberType]


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """A redactor with additional secrets: `Redactor(names=['pin'], patterns={'acme key': r'acme_[a-z0-9]{20}'})`.

    Raises:
        TypeError: `names` is not a list of texts.
        ValueError: A name has no letters or digits, or a pattern is not a valid RE2 expression.
    """

    names: Collection[str] = ()
    """Additional names of keys with secret values. `card number` also matches `cardNumber`."""
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    """RE2 expressions for secrets in text, keyed by the kind that replaces them: `[redacted: kind]`."""

    def __post_init__(self) -> None:
        """Check the names, and compile the patterns at construction, so that errors surface early."""
        check_strings('names', self.names)
        check_object('patterns', self.patterns, Mapping, "For example, `{'order': 'A-[0-9]+'}`.")
        if wordless := [name for name in self.names if not _words(name)]:
            raise ValueError(f'`names` has {wordless[0]!r}, which no key contains. Use letters or digits.')
        _ = self._shapes

    @overload
    def __call__(self, value: str) -> str: ...
    @overload
    def __call__(self, value: JsonValue) -> JsonValue: ...
    def __call__(self, value: JsonValue) -> JsonValue:
        """Return a JSON value with each secret replaced by `[redacted: kind]`. The given value is not modified."""
        return self._redacted(value, 0)

    @cached_property
    def _secret_name(self) -> Callable[[str], str | None]:
        return lru_cache(_MAX_KEYS)(self._read_name)

    @cached_property
    def _key(self) -> Callable[[str], str]:
        """Scan a key, with caching: keys repeat, and each search releases the GIL."""
        return lru_cache(_MAX_KEYS)(self._scan)

    @cached_property
    def _names(self) -> frozenset[tuple[str, ...]]:
        return frozenset(_words(name) for name in (*SECRET_NAMES, *self.names))

    @cached_property
    def _shapes(self) -> _Groups:
        custom = (Shape(kind, expression) for kind, expression in self.patterns.items())
        return _groups([*SHAPES, *custom])

    @cached_property
    def _kinds(self) -> frozenset[str]:
        kinds = {*self.patterns, *(shape.kind for shape in SHAPES), _TOO_DEEP}
        kinds.update(kind for kind, _ in (*token_shapes(), *named_shapes()))
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
        """Redact a list. In a list of pairs or of arguments, a name precedes its value."""
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
        """Return media data, redacted if it is text; `None` if it is not media and is scanned like any value."""
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
        """Return the secret's name in a key: its last words, or any earlier words unless they count something."""
        words = _words(key)
        for start in range(len(words)):
            for stop in range(start + 1, len(words) + 1):
                candidate = words[start:stop]
                if candidate in self._names and (stop == len(words) or ' '.join(candidate) not in COUNTED_NAMES):
                    return ' '.join(candidate)
        return None

    def _text(self, text: str, depth: int) -> str:
        """Redact a text. A text that is JSON, such as the arguments of a call, is parsed."""
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
        """Redact secrets with a known format in a text, including escaped ones."""
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
        for any_of_group, group in groups:
            if any_of_group.search(data) is not None:
                for shape, regex in group:
                    data = self._without(data, regex, [shape], regex.groupindex.get(b'secret', 0))
        return data

    def _beside(self, key: str, text: str) -> str:
        """Redact a value whose key names a provider, by the formats of that provider."""
        before = f'{key}='.encode('utf-8', 'surrogatepass')
        data = text.encode('utf-8', 'surrogatepass')
        return self._without_any(before + data, _named_groups()).removeprefix(before).decode('utf-8', 'surrogatepass')

    def _without(self, data: bytes, regex: _Regex, shapes: Sequence[Shape], group: int | None) -> bytes:
        """Redact the matches of an expression.

        Args:
            data: The text.
            regex: The expression.
            shapes: The formats that it matches, in the order of its groups if there are several.
            group: The group with the secret; `None` for the group that matched.
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
    """Return a JSON value with each secret replaced by `[redacted: kind]`. The given value is not modified.

    Args:
        value: A string or any JSON value. Strings that contain JSON are parsed.
    """
    return _REDACTOR()(value)


_MARKS: Final = frozenset(b'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ')
"""Characters that randomly generated keys almost always contain, unlike words in running text."""


def _compile(expression: str) -> _Regex:
    options = re2.Options()
    options.encoding = _LATIN1  # bytes, so that invalid Unicode is scanned too
    options.log_errors = False
    try:
        return _COMPILE(expression.encode(), options)
    except _RE2_ERROR:
        raise ValueError(
            f'{expression!r} is not a valid RE2 expression. See github.com/google/re2/wiki/Syntax.'
        ) from None


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORDS.findall(name))


def _decoded(text: str) -> str:
    """Remove one layer of URL, HTML and JSON escapes, and invisible characters."""
    text = text if text.isascii() else _INVISIBLE.sub('', text)
    if '%' in text:
        text = _PERCENT.sub(lambda match: unquote_to_bytes(match[0]).decode('utf-8', 'replace'), text)
    if '\\' in text:
        text = _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    return html.unescape(text) if _ENTITY.search(text) else text


def _name_in(value: Mapping[str, JsonValue]) -> str:
    """Return the name that an object gives its value, such as `{'name': …, 'value': …}`."""
    names = (value[key] for key in _NAMES if isinstance(value.get(key), str))
    return cast('str', next(names, ''))


_TOO_DEEP: Final = 'too deep'
_NAMES: Final = frozenset({'name', 'key', 'header', 'field', 'variable', 'Name', 'Key'})
_VALUES: Final = frozenset({'value', 'Value'})
_FLAG = re.compile(r'--?[A-Za-z][A-Za-z0-9_-]*')

_HAS_WORDS = re.compile(r'\[[^\]]*(?:_|\\w)[^\]]*\]')
"""Matches token expressions whose middle part can consist of separated words."""

_GROUP: Final = 16
"""Number of formats in one group expression."""


@cache
def _named_groups() -> _Groups:
    """Return the formats of values next to a provider's name. Hexadecimal formats need no further check, as no word
    matches.
    """
    return _groups([Shape(kind, expression, is_random='a-z' in expression) for kind, expression in named_shapes()])


@cache
def _named() -> _Regex:
    """Return an expression that matches where any of `_named_groups` may match. It rarely matches, which saves time."""
    names: dict[str, list[str]] = {}
    for name, start, rest in (expression.partition('[ \\t') for _, expression in named_shapes()):
        assigned = start + rest.partition('(?P<secret>')[0]
        names.setdefault(assigned, []).append(name.replace('?P<secret>', '?:'))
    return _compile(
        '|'.join(f'(?:{"|".join(names_of_provider)}){assigned}' for assigned, names_of_provider in names.items())
    )


@lru_cache(_MAX_KEYS)
def _names_provider(key: str) -> bool:
    return _named().search(f'{key}='.encode('utf-8', 'surrogatepass')) is not None


def _groups(shapes: Sequence[Shape]) -> _Groups:
    """Return formats in groups, each with an expression that matches if any of them does.

    One expression for all formats would exceed RE2's memory limit and become slow.
    """
    regexes = [(shape, _compile(shape.expression)) for shape in shapes]
    groups = [regexes[start : start + _GROUP] for start in range(0, len(regexes), _GROUP)]
    return [(_compile(_any_of(shape.expression for shape, _ in group)), group) for group in groups]


_TOKEN_GROUP: Final = 64
"""Maximum number of token formats in one expression. Beyond it, RE2 takes about a millisecond per match."""


@cache
def _tokens() -> list[tuple[_Regex, list[Shape]]]:
    """Return expressions that each match many token formats. The matching group identifies the format."""
    is_bounded = [
        expression.startswith('(?:^') for _, expression in token_shapes()
    ]  # expressions with and without a boundary are faster in separate groups
    tables: list[tuple[_Regex, list[Shape]]] = []
    for with_boundary in (True, False):
        table = [
            Shape(*shape, is_random=_HAS_WORDS.search(shape[1]) is not None)
            for shape, wanted in zip(token_shapes(), is_bounded, strict=True)
            if wanted is with_boundary
        ]
        for start in range(0, len(table), _TOKEN_GROUP):
            part = table[start : start + _TOKEN_GROUP]
            expressions = (f'(?:{shape.expression.replace("?P<secret>", "")})' for shape in part)
            tables.append((_compile('|'.join(expressions)), part))
    return tables


def _any_of(expressions: Iterable[str]) -> str:
    return '|'.join(f'(?:{expression.replace("?P<secret>", "?:")})' for expression in expressions)
