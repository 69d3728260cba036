"""Serialization of an overlay as JSON for another process, and validated loading. A dump may be untrusted.

```text
{"format": 1,
 "entries": [{"path": "/a", "now": STATE, "was": STATE, "is_opaque": false}, …],
 "contents": {DIGEST: BASE64, …}}
STATE is null, {"kind": "directory"}, {"kind": "other", "mark": …} or {"kind": "file", "digest", "size", "is_searched"}
```
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from pydantic_deep_backends.errors import InvalidOverlayError
from pydantic_deep_backends.paths import is_within, parse_path
from pydantic_deep_backends.trees._nodes import FileVersion, digest_of

from ._layer import BaseVisibility, Content, Directory, Entry, Layer, Other, State

JsonValue: TypeAlias = 'list[JsonValue] | dict[str, JsonValue] | str | bool | int | float | None'
"""Any JSON value; identical to pydantic's type."""

FORMAT: Final = 1
"""The format that is written and accepted."""

MAX_LOAD_BYTES: Final = 512 * 1024 * 1024
"""Maximum number of bytes of contents to load: eight files of the largest size that grep reads."""

MAX_LOAD_ENTRIES: Final = 1_000_000
"""Maximum number of paths to load: as many as one search visits."""

_DIGEST: Final = re.compile('sha256:[0-9a-f]{64}')


def dump_layer(layer: Layer) -> JsonValue:
    """Return all entries of a layer, including contents."""
    whole, contents = dump_apart(layer)
    encoded: JsonValue = {digest: base64.b64encode(data).decode() for digest, data in contents.items()}
    return {**whole, 'contents': encoded}


def dump_apart(layer: Layer) -> tuple[dict[str, JsonValue], dict[str, bytes]]:
    """Return all entries of a layer, and their contents by digest."""
    contents: dict[str, bytes] = {}
    entries: list[JsonValue] = []
    for path, entry in layer.entries():
        for state in (entry.now, entry.was):
            if isinstance(state, Content) and state.data is not None:
                contents[state.version.digest] = state.data
        states: dict[str, JsonValue] = {'now': _dump_state(entry.now), 'was': _dump_state(entry.was)}
        entries.append({'path': path, **states, 'is_opaque': entry.is_opaque})
    return {'format': FORMAT, 'entries': entries}, contents


def load_into(layer: Layer, value: object) -> None:
    """Load a result of `dump_layer` into an empty layer.

    Raises:
        InvalidOverlayError: The value has another format.
    """
    whole = _check_format(value)
    _load_entries(layer, whole, _load_contents(_mapping(whole.get('contents'), '`contents`')))


def load_apart(layer: Layer, value: object, contents: Mapping[str, bytes]) -> None:
    """Load a result of `dump_apart` into an empty layer.

    Raises:
        InvalidOverlayError: The value has another format, or contents are missing or have another digest.
    """
    whole = _check_format(value)
    for digest, data in contents.items():
        _check_digest(digest, data)
    _load_entries(layer, whole, contents)


def _check_format(value: object) -> Mapping[str, object]:
    whole = _mapping(value, 'an overlay')
    if whole.get('format') != FORMAT:
        raise InvalidOverlayError(
            f'The format of the overlay is {whole.get("format")!r}, and this release reads {FORMAT}. '
            'Load it with the release that wrote it.'
        )
    return whole


def _load_entries(layer: Layer, whole: Mapping[str, object], contents: Mapping[str, bytes]) -> None:
    entries = whole.get('entries')
    if not isinstance(entries, list):
        raise InvalidOverlayError(f'`entries` is {_kind(entries)}. It must be a list.')
    items = cast('list[object]', entries)
    if len(items) > MAX_LOAD_ENTRIES:
        raise InvalidOverlayError(f'The overlay has {len(items):,} entries. At most {MAX_LOAD_ENTRIES:,} are loaded.')
    for item in items:
        _load_entry(layer, _mapping(item, 'an entry'), contents)
    for path, entry in layer.entries():
        _check_parent(layer, path, entry)


def relocate(value: object, old: str, new: str) -> object:
    """Return a dump for a base with the working directory `new` instead of `old`; other paths stay unchanged."""
    if old == new or not isinstance(value, dict):
        return value
    whole = cast('dict[str, object]', value)
    items = whole.get('entries')
    if not isinstance(items, list):
        return whole
    return {**whole, 'entries': [_relocate(item, old, new) for item in cast('list[object]', items)]}


def _relocate(item: object, old: str, new: str) -> object:
    if not isinstance(item, dict):
        return item
    entry = cast('dict[str, object]', item)
    path = entry.get('path')
    if not isinstance(path, str) or not is_within(path, old):
        return entry
    return {**entry, 'path': new.rstrip('/') + path[len(old.rstrip('/')) :]}


def _dump_state(state: State) -> JsonValue:
    if state is None:
        return None
    if isinstance(state, Directory):
        return {'kind': 'directory'}
    if isinstance(state, Other):
        return {'kind': 'other', 'mark': state.mark}
    version = state.version
    return {'kind': 'file', 'digest': version.digest, 'size': version.size, 'is_searched': state.is_searched}


def _load_contents(encoded: Mapping[str, object]) -> dict[str, bytes]:
    size_bytes = sum(len(text) * 3 // 4 for text in encoded.values() if isinstance(text, str))
    if size_bytes > MAX_LOAD_BYTES:
        raise InvalidOverlayError(
            f'The overlay has {size_bytes:,} bytes of contents. At most {MAX_LOAD_BYTES:,} are loaded.'
        )
    contents: dict[str, bytes] = {}
    for digest, text in encoded.items():
        if not isinstance(text, str):
            raise InvalidOverlayError(f'The contents {digest!r} are {_kind(text)}. They must be base64.')
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidOverlayError(f'The contents {digest!r} are not base64: {error}.') from error
        _check_digest(digest, data)
        contents[digest] = data
    return contents


def _check_digest(digest: str, data: bytes) -> None:
    if digest_of(data) != digest:
        raise InvalidOverlayError(f'The contents {digest!r} have another digest. Dump the overlay again.')


def _load_entry(layer: Layer, item: Mapping[str, object], contents: Mapping[str, bytes]) -> None:
    path = item.get('path')
    if not isinstance(path, str):
        raise InvalidOverlayError(f'The path of an entry is {_kind(path)}. It must be a string.')
    try:
        parsed = parse_path(path)
    except ValueError as error:
        raise InvalidOverlayError(str(error)) from error
    if parsed != path or path == '/':
        raise InvalidOverlayError(f'{path!r} is not a canonical path of a file or directory below `/`.')
    if layer.get(path) is not None:
        raise InvalidOverlayError(f'{path!r} is in the overlay twice.')
    now = _load_state(path, item.get('now'), contents)
    is_opaque = item.get('is_opaque')
    if isinstance(now, Other) or (isinstance(now, Content) and now.data is None):
        raise InvalidOverlayError(f'The overlay has no contents for the file {path!r}.')
    if not isinstance(is_opaque, bool):
        raise InvalidOverlayError(f'`is_opaque` of {path!r} is {_kind(is_opaque)}. It must be true or false.')
    layer.set(path, Entry(now=now, was=_load_state(path, item.get('was'), contents), is_opaque=is_opaque))


def _load_state(path: str, value: object, contents: Mapping[str, bytes]) -> State:
    if value is None:
        return None
    match _mapping(value, f'the state of {path!r}'):
        case {'kind': 'directory'}:
            return Directory()
        case {'kind': 'other', 'mark': str(mark)}:
            return Other(mark=mark)
        case {'kind': 'file', 'digest': str(digest), 'size': int(size), 'is_searched': bool(is_searched)}:
            data = contents.get(digest)
            if data is not None:
                return Content.of(data)
            if size < 0 or _DIGEST.fullmatch(digest) is None:
                raise InvalidOverlayError(f'{digest!r} with {size:,} bytes is not a version of the file {path!r}.')
            return Content(version=FileVersion(digest=digest, size=size), data=None, is_searched=is_searched)
        case other:
            raise InvalidOverlayError(f'The state of {path!r} is not a directory, other or file: {str(other)[:200]}.')


def _check_parent(layer: Layer, path: str, entry: Entry) -> None:
    """Raise if the parent of a path is a file or was removed."""
    parent = path.rpartition('/')[0]
    if entry.now is None or not parent:
        return
    above = layer.look(parent)
    if not (isinstance(above.now, Directory) if isinstance(above, Entry) else above is BaseVisibility.BASE):
        raise InvalidOverlayError(f'The overlay has {path!r} but not its parent directory.')


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InvalidOverlayError(f'{name[0].upper()}{name[1:]} is {_kind(value)}. It must be an object.')
    return cast('dict[str, object]', value)


def _kind(value: object) -> str:
    return 'missing' if value is None else type(value).__name__
