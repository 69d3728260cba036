"""Which backend a run works on: the one given, else that of deps, else the run's workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.workspaces import SupportsCommands as WorkspaceCommands
from pydantic_ai.workspaces import Workspace, WorkspaceBackend

from pydantic_deep_backends.protocol import BackendProtocol, SupportsCommands

from ._types import BackendSource, HasBackend


def find_backend(given: BackendSource | None, ctx: RunContext[object]) -> BackendProtocol:
    """Return the backend of a run.

    Raises:
        UserError: There is none, or what is there is no backend.
    """
    if given is not None:
        source = cast('object', given)
        if isinstance(source, WorkspaceBackend):  # every backend has its members, whatever its `ref` is
            return _as_backend(source)
        return _as_backend(cast('Callable[[RunContext[object]], object]', given)(ctx))
    if isinstance(ctx.deps, HasBackend):
        return _as_backend(ctx.deps.backend)
    if ctx.workspace.attached:
        return cast('BackendProtocol', ctx.workspace)
    raise UserError(
        'The `Filesystem` capability has no files to work on. Pass `Filesystem(backend=…)`, deps with a `backend`, '
        'or `workspace=` to the run.'
    )


def commands_of(backend: BackendProtocol) -> SupportsCommands | None:
    """Return the backend if it runs commands; a workspace has the method either way."""
    if isinstance(backend, Workspace):
        runs = isinstance(backend.backend, WorkspaceCommands) and not backend.read_only
        return cast('SupportsCommands', backend) if runs else None
    return backend if isinstance(backend, SupportsCommands) else None


def _as_backend(found: object) -> BackendProtocol:
    if isinstance(found, BackendProtocol):
        return found
    if isinstance(found, WorkspaceBackend):  # it lacks links or files: pydantic-ai adds what can be added
        return cast('BackendProtocol', Workspace(found))
    raise UserError(
        f'{type(found).__name__} is no backend: it lacks members of `BackendProtocol`. '
        'Pass a backend of `pydantic_deep_backends`, or a pydantic-ai workspace backend.'
    )
