"""Whether a call would change a file that is protected, whoever provides its tool."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.protection import is_protected
from pydantic_deep_backends.resolving import canonical_path

PATH_ARGUMENTS: Final = frozenset(
    (
        'path', 'paths', 'file', 'files', 'filename', 'file_name', 'filepath', 'file_path', 'file_paths', 'output_path',
        'target', 'target_path', 'target_file', 'destination', 'destination_path', 'dest', 'dst', 'new_path', 'old_path',
        'source', 'source_path', 'src',
    )
)  # fmt: skip
"""What arguments of tools are called that name the files that are written, moved or removed."""

_FAILURES: Final = (OSError, BackendError, WorkspaceError, ValueError)
"""What is raised for a path that cannot be used; the tool says better what is wrong with it."""


def written_paths(args: Mapping[str, Any]) -> list[str]:
    """Return the paths that the arguments of a call name."""
    found: list[str] = []
    for name in PATH_ARGUMENTS.intersection(args):
        value: object = args[name]
        named = cast('Sequence[object]', value) if isinstance(value, (list, tuple)) else [value]
        found += [each for each in named if isinstance(each, str)]
    return found


async def changes_protected(
    backend: BackendProtocol, patterns: Sequence[str], args: Mapping[str, Any], files: Sequence[str] | None
) -> bool:
    """Return whether a call would change a protected file.

    Args:
        backend: Where the files are.
        patterns: What is protected.
        args: The arguments of the call.
        files: The canonical paths that it touches; `None` to go by its arguments.
    """
    if not patterns:
        return False
    paths = list(files) if files is not None else await _canonical(backend, written_paths(args))
    for path in paths:
        if await is_protected(backend, path, patterns):
            return True
    return False


def refusal(args: Mapping[str, Any]) -> str:
    """Return what the model is told of a call that nobody can allow."""
    shown = ', '.join(display_path(path) for path in written_paths(args))
    return f'{shown} is protected: programs of this machine run or obey it. Only a person may change it.'


async def _canonical(backend: BackendProtocol, paths: Sequence[str]) -> list[str]:
    """Return the canonical paths of those that can be used."""
    found: list[str] = []
    for path in paths:
        spellings = {path, posixpath.normpath(path)} if '..' in path else {path}  # nobody knows how its tool reads it
        for spelling in spellings:
            with suppress(*_FAILURES):
                found.append(await canonical_path(backend, spelling))
    return found
