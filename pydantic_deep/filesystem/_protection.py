"""Detect calls that would change a protected file, for any tool."""

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
"""Argument names by which tools refer to files that they write, move or delete."""

_FAILURES: Final = (OSError, BackendError, WorkspaceError, ValueError)
"""Errors for unusable paths. The tool reports them in more detail."""


def written_paths(args: Mapping[str, Any]) -> list[str]:
    """Return the paths in the arguments of a call."""
    paths: list[str] = []
    for name in PATH_ARGUMENTS.intersection(args):
        value: object = args[name]
        named = cast('Sequence[object]', value) if isinstance(value, (list, tuple)) else [value]
        paths += [item for item in named if isinstance(item, str)]
    return paths


async def changes_protected(
    backend: BackendProtocol, patterns: Sequence[str], args: Mapping[str, Any], files: Sequence[str] | None
) -> bool:
    """Return whether a call would change a protected file.

    Args:
        backend: The backend with the files.
        patterns: The patterns of protected files.
        args: The arguments of the call.
        files: The canonical paths that the call touches; `None` to derive them from the arguments.
    """
    if not patterns:
        return False
    paths = list(files) if files is not None else await _canonical(backend, written_paths(args))
    for path in paths:
        if await is_protected(backend, path, patterns):
            return True
    return False


def refusal(args: Mapping[str, Any]) -> str:
    """Return the error message to the model for a call that nobody can approve."""
    shown = ', '.join(display_path(path) for path in written_paths(args))
    return f'{shown} is protected: programs of this machine run or obey it. Only a person may change it.'


async def _canonical(backend: BackendProtocol, paths: Sequence[str]) -> list[str]:
    """Return the canonical paths, without those that cannot be resolved."""
    canonical_paths: list[str] = []
    for path in paths:
        # It is unknown how the tool resolves `..`.
        spellings = {path, posixpath.normpath(path)} if '..' in path else {path}
        for spelling in spellings:
            with suppress(*_FAILURES):
                canonical_paths.append(await canonical_path(backend, spelling))
    return canonical_paths
