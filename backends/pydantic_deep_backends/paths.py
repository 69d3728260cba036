"""Virtual paths: parsing, comparison and display.

A path is absolute and POSIX, and belongs to a backend, not to a machine. It is parsed once, on entry, and never changed
after validation. Everything here is a pure function of strings. Paths are compared by components, so `/memory` is not
inside `/mem`.

Not here: symbolic links, `..` and the real file system. Only the backend can resolve those (`resolving`).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import cast

from .errors import InvalidPathError

MAX_PATH_BYTES = 4096
"""Maximum length of a path in UTF-8 bytes: Linux's `PATH_MAX`."""

MAX_COMPONENT_BYTES = 255
"""Maximum length of a name in UTF-8 bytes: `NAME_MAX` of the common file systems."""

_CONTROL = re.compile('[\x00-\x1f\x7f-\x9f]')
_DRIVE = re.compile('[A-Za-z]:')
_INVISIBLE_CATEGORIES = frozenset({'Cc', 'Cf', 'Cs', 'Zl', 'Zp'})
_INVISIBLE = re.compile(
    '[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]'
)
"""Characters outside of these categories that are zero-width or blank: fillers and variation selectors."""


def parse_path(path: str, *, climbs: bool = False) -> str:
    """Return the canonical form of an absolute path: `/`, or `/a/b` without empty and `.` components.

    Names are not interpreted: `foo..bar`, `...`, `%2e%2e`, trailing spaces and any script are valid.

    Args:
        path: The path.
        climbs: Whether `..` is allowed and stays in the result. Only the backend can resolve it, because of symbolic
            links. Resolve the path with `pydantic_deep_backends.resolving` before any decision about it.

    Raises:
        InvalidPathError: The path is relative, contains `..`, is too long, or is written for another system (backslash,
            drive, `//host`, `~`); the reason says how to write it instead.
        TypeError: It is not a string.
    """
    if not isinstance(cast('object', path), str):
        raise TypeError(f"{path!r} is not a path of a backend. Pass a string, such as '/notes/plan.md'.")
    return _parsed(path, climbs)


@lru_cache(maxsize=1024)  # one tool call parses the same path many times
def _parsed(path: str, climbs: bool) -> str:
    reason = _problem(path, climbs=climbs)
    if reason is not None:
        raise InvalidPathError(path, reason)
    is_canonical = '//' not in path and '/.' not in path and not path.endswith('/')
    return path if is_canonical else '/' + '/'.join(path_parts(path))


def path_problem(path: str) -> str | None:
    """Return why `parse_path` refuses a path and how to fix it, or `None` if the path is valid."""
    return _problem(path, climbs=False)


def _problem(path: str, *, climbs: bool) -> str | None:
    reason = _foreign_start(path)
    if reason is not None:
        return reason
    if not path.startswith('/'):
        return 'it is relative. Start it with `/`.'
    control = _CONTROL.search(path)
    if control is not None:
        return f'it contains the control character {control.group()!r}. Use a name without it.'
    if '\\' in path:
        return 'it contains a backslash. Write `/` between directories.'
    if not climbs and '..' in path and '..' in path_parts(path):
        return 'it contains `..`. Write the path from `/` without it.'
    return _wrong_size(path)


def resolve_path(path: str, working_dir: str, *, climbs: bool = False) -> str:
    """Return the absolute path for `path` in `working_dir`; `''` and `.` mean the directory itself.

    Args:
        path: An absolute or a relative path.
        working_dir: The absolute directory that relative paths start from.
        climbs: Whether `..` is allowed, as for `parse_path`.

    Raises:
        InvalidPathError: As for `parse_path`; a relative path that begins with `~` or a drive is refused too.
    """
    if path.startswith('/'):
        return parse_path(path, climbs=climbs)
    if path:
        reason = _foreign_start(path)
        if reason is not None:
            raise InvalidPathError(path, reason)
    return parse_path(f'{working_dir}/{path}' if working_dir != '/' else f'/{path}', climbs=climbs)


def is_within(path: str, directory: str) -> bool:
    """Return whether `path` is `directory` or lies under it. Both must be canonical."""
    return directory == '/' or path == directory or path.startswith(directory + '/')


def relative_to(path: str, directory: str) -> str:
    """Return `path` relative to `directory`: `a/b`, or `''` for the directory itself. Both must be canonical.

    Raises:
        ValueError: `path` is not within `directory`.
    """
    if not is_within(path, directory):
        raise ValueError(f'{path!r} is not within {directory!r}. Check with `is_within` first.')
    return path[len(directory) :].lstrip('/')


def path_parts(path: str) -> tuple[str, ...]:
    """Return the names in a path, without empty and `.` components: `('a', 'b')` for `/a/b`, `()` for `/`."""
    return tuple(part for part in path.split('/') if part not in ('', '.'))


def display_path(path: str) -> str:
    r"""Return the path on one line, for a person or a model to read.

    Line ends, control, bidirectional and zero-width characters are escaped (`\n`, `\u202e`), so that a name cannot
    imitate another line or another name. All other characters are unchanged.
    """
    if path.isascii() and path.isprintable():
        return path
    return ''.join(_escaped(char) if _is_invisible(char) else char for char in path)


def _foreign_start(path: str) -> str | None:
    """Return why the beginning of a path, relative or absolute, is refused, or `None` if it is valid."""
    if path.startswith('//'):
        return 'it begins with `//`. Start it with a single `/`.'
    first = next((part for part in path[:MAX_PATH_BYTES].split('/') if part not in ('', '.')), '')
    if _DRIVE.match(first):
        return 'it begins with a drive. Paths are POSIX: write `/directory/file`.'
    if first.startswith('~'):
        return 'it begins with `~`, and there is no home directory here. Write the path from `/`.'
    return None


def _wrong_size(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return 'it contains a lone surrogate. Use a name that is valid Unicode.'
    if len(encoded) > MAX_PATH_BYTES:
        return f'it is {len(encoded):,} bytes long. At most {MAX_PATH_BYTES:,} are allowed.'
    longest = max(map(len, encoded.split(b'/')))
    if longest > MAX_COMPONENT_BYTES:
        return f'a name in it is {longest:,} bytes long. At most {MAX_COMPONENT_BYTES} are allowed.'
    return None


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE_CATEGORIES or _INVISIBLE.match(char) is not None


def _escaped(char: str) -> str:
    return char.encode('unicode_escape').decode()
