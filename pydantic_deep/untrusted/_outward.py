"""Decide whether a call acts outside of the project, and which files belong to the project. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Any, Final, cast

from pydantic_ai import ToolDefinition

from pydantic_deep_backends.paths import is_within, resolve_path

OFFLOAD: Final = '/offload'
"""The directory of large results, as the file tools see it."""

UPLOADS: Final = 'uploads'
"""The directory of uploads in the working directory."""

_URL_NAMES: Final = frozenset(('url', 'urls', 'uri', 'uris', 'href', 'link', 'links', 'host', 'domain', 'endpoint'))
"""Words in the names of arguments that say where a request goes."""

_URL: Final = re.compile(r'://|\bwww\.', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TrustedFiles:
    """The files whose contents are trusted."""

    directories: Sequence[str]
    """The trusted directories and files."""
    uploads: str
    """The directory of uploads, which is trusted only if it is named."""

    def outside(self, paths: Sequence[str], text: str = '') -> list[str]:
        """Return the paths that are not trusted.

        Args:
            paths: Canonical paths of files, and of directories that were searched.
            text: The result of the search, to see whether it found uploads.
        """
        found = [self.uploads for path in paths if self._found_uploads(path, text)]
        return [*(path for path in paths if not self._contains(path)), *found]

    def _contains(self, path: str) -> bool:
        return any(
            is_within(path, directory)
            and all(is_within(directory, area) or not is_within(path, area) for area in (self.uploads, OFFLOAD))
            for directory in self.directories
        )

    def _found_uploads(self, directory: str, text: str) -> bool:
        """Return whether a search above the uploads found some. Each match has the path of its file."""
        return (
            is_within(self.uploads, directory)
            and directory != self.uploads
            and not self._contains(self.uploads)
            and re.search(rf'{re.escape(basename(self.uploads))}/\S', text) is not None
        )


def trusted_files(paths: Sequence[str], working_dir: str) -> TrustedFiles:
    """Return the trusted files.

    Args:
        paths: Directories and files, relative to the working directory or absolute.
        working_dir: The working directory.
    """
    return TrustedFiles(
        directories=[resolve_path(path, working_dir) for path in paths], uploads=resolve_path(UPLOADS, working_dir)
    )


def is_outward(
    tool_def: ToolDefinition, args: Mapping[str, Any], *, is_trusted: bool, outside: Sequence[str] | None
) -> bool:
    """Return whether a call could send something, or change anything outside of the project.

    Args:
        tool_def: The tool.
        args: The validated arguments.
        is_trusted: Whether the tool is trusted.
        outside: The files outside of the project that it touches; `None` if its files are unknown.
    """
    match (tool_def.metadata or {}).get('effect'):
        case 'read':
            return not is_trusted and _names_url(args)
        case 'write':
            return not is_trusted if outside is None else bool(outside)
        case _:
            return True


def _names_url(value: object, name: str = '') -> bool:
    """Return whether an argument is a URL, by its name or its value: the request for it can contain any data."""
    if isinstance(value, Mapping):
        return any(_names_url(item, str(key)) for key, item in cast('Mapping[object, object]', value).items())
    if isinstance(value, (list, tuple)):
        return any(_names_url(item, name) for item in cast('Sequence[object]', value))
    words = re.sub(r'(?<=[a-z])(?=[A-Z])', '_', name).lower().split('_')
    return value not in (None, '') and (not _URL_NAMES.isdisjoint(words) or _URL.search(str(value)) is not None)
