"""Select the backend of a run: the configured one, that of deps, or the workspace of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.workspaces import SupportsCommands as WorkspaceCommands
from pydantic_ai.workspaces import SupportsFilesystem, Workspace, WorkspaceBackend

from pydantic_deep_backends.protocol import BackendProtocol, SupportsCommands

from ._types import BackendSource


def source_of(given: BackendSource | None, ctx: RunContext[object]) -> object:
    """Return the object that provides the files of a run. This is cheap, as it runs before each tool call.

    Raises:
        UserError: The run has no files.
    """
    if given is not None:
        # Every backend has the members of this protocol. Anything else here is a function.
        if isinstance(cast('object', given), WorkspaceBackend):
            return given
        return cast('Callable[[RunContext[object]], object]', given)(ctx)
    own: object = getattr(ctx.deps, 'backend', None)  # by name, as deps may be any object
    if own is not None:
        return own
    if ctx.workspace.attached:
        return ctx.workspace
    raise UserError(
        'The `Filesystem` capability has no files to work on. Pass `Filesystem(backend=…)`, deps with a `backend`, '
        'or `workspace=` to the run.'
    )


def as_backend(source: object) -> BackendProtocol:
    """Return a source of files as a backend.

    Raises:
        UserError: The source is not a backend.
    """
    if isinstance(source, BackendProtocol) and not isinstance(source, Workspace):
        return source
    # It may lack links or file operations, and pydantic-ai adds the missing ones.
    if isinstance(source, WorkspaceBackend):
        workspace = source if isinstance(source, Workspace) else Workspace(source)
        if isinstance(workspace.backend, (SupportsFilesystem, WorkspaceCommands)):
            return cast('BackendProtocol', workspace)
    raise UserError(
        f'{_name_of(source)} is not a backend: it has neither the members of `BackendProtocol` nor files or commands. '
        'Pass a backend of `pydantic_deep_backends`, or a pydantic-ai workspace backend with files.'
    )


def commands_of(backend: BackendProtocol) -> SupportsCommands | None:
    """Return the backend if it can run commands. A `Workspace` has the method in any case."""
    if isinstance(backend, Workspace):
        runs = isinstance(backend.backend, WorkspaceCommands) and not backend.read_only
        return cast('SupportsCommands', backend) if runs else None
    return backend if isinstance(backend, SupportsCommands) else None


def _name_of(source: object) -> str:
    return type(source.backend if isinstance(source, Workspace) else source).__name__
