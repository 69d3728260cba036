"""Paths in a git configuration that git runs or obeys (git-config(1)). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

_SECTION = re.compile(r'\[\s*([\w.-]+)\s*(?:"(?:[^"\\]|\\.)*")?\s*\]')

_VARIABLE = re.compile(r'([A-Za-z][\w-]*)\s*=\s*(.*)')


def referenced_paths(data: bytes) -> Iterator[tuple[Literal['hooks', 'include'], str]]:
    """Yield the paths that a configuration refers to, as written, except those in a home directory.

    Args:
        data: The contents of the file.

    Yields:
        The kind of the path, and the path. `core.hooksPath` is relative to the work tree, an included file to the
        configuration.
    """
    section = ''
    for line in data.decode(errors='surrogateescape').replace('\\\n', '').splitlines():
        text = line.strip()
        while match := _SECTION.match(text):
            section = match[1].lower()
            text = text[match.end() :].strip()
        variable = _VARIABLE.match(text)
        if variable is None:
            continue
        name, value = variable[1].lower(), _unquoted(variable[2])
        if not value or value.startswith(('~', '%')):
            continue
        if section == 'core' and name == 'hookspath':
            yield 'hooks', value
        elif section in ('include', 'includeif') and name == 'path':
            yield 'include', value


def _unquoted(value: str) -> str:
    """Return a value without quotes, escapes and comments."""
    unquoted: list[str] = []
    is_quoted = False
    characters = iter(value)
    for character in characters:
        if character == '\\':
            unquoted.append(next(characters, ''))
        elif character == '"':
            is_quoted = not is_quoted
        elif character in '#;' and not is_quoted:
            break
        else:
            unquoted.append(character)
    return ''.join(unquoted).strip()
