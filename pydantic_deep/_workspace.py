"""The workspace of a run: `ctx.workspace` is `deps.backend`, and a run without deps gets new ones.

The capabilities of pydantic-ai and of `pydantic-ai-harness` work on `ctx.workspace`. `as_workspace` adapts a backend to
the interface of a workspace. In a run of a deep agent, the workspace has no `ref`: the deps determine where the files
are. So a conversation is not bound to the directory in which it began, and its history contains no path of a machine.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_ai import InstructionPart, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceBackend,
    WorkspaceReadOnlyError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep_backends import BackendProtocol, BackendRef, Command, SupportsCommands
from pydantic_deep_backends.errors import BackendUnavailableError, CommandTimeoutError, ReadOnlyError

from ._checks import check_backend, check_class
from ._workflow_check import check_not_in_workflow
from .deps import DeepAgentDeps


def as_workspace(backend: BackendProtocol) -> WorkspaceBackend:
    """Return a backend as a pydantic-ai workspace, for `agent.run(workspace=…)` of any agent.

    A workspace is returned unchanged. The result can run commands only if the backend can.

    Raises:
        ValidationError: It is not a backend.
    """
    check_backend('backend', backend)
    ref = backend.ref
    if not isinstance(ref, BackendRef):
        return cast('WorkspaceBackend', backend)
    return _adapt(backend, WorkspaceRef(provider=f'pydantic-deep-{ref.provider}', id=ref.id))


@dataclass(kw_only=True)
class DepsWorkspace(BaseCapability[DeepAgentDeps]):
    """Provides `deps.backend` as the workspace of a run, and new deps for a run without any.

    New deps last as long as the run, and reach its tools and toolsets. In your own hooks and instruction functions,
    `ctx.deps` is still `None`: pass deps to the run if you use them there.

    Raises:
        ValidationError: `deps_type` is not `DeepAgentDeps` or a subclass of it.
        UserError: At the start of a run: its deps are not a `deps_type`, or it has none and `deps_type` requires
            arguments; or it is inside a durable workflow.
        WorkspaceUnavailableError: At the start of a run: the directory of its files is missing.
    """

    id: str | None = 'deps'
    deps_type: type[DeepAgentDeps] = DeepAgentDeps
    """The class of valid deps, and of new ones."""
    _fresh: DeepAgentDeps | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_class('deps_type', self.deps_type, DeepAgentDeps)

    def get_workspace(self, ctx: RunContext[DeepAgentDeps], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the backend of the deps; `None` if `ref` refers to another workspace."""
        backend = _backend_of(self._deps_of(ctx))
        workspace = _adapt(backend, None) if isinstance(backend.ref, BackendRef) else as_workspace(backend)
        return workspace if ref is None or ref == workspace.ref else None

    async def for_run(self, ctx: RunContext[DeepAgentDeps]) -> DepsWorkspace:
        """Return the instance for this run, with new deps on its workspace if the run has none."""
        check_not_in_workflow(ctx)
        if _given(ctx) is not None:
            return self
        workspace = ctx.workspace.backend
        fresh = self._make()
        # The workspace is an adapter of `get_workspace`, or an object that the caller passed as `workspace=`.
        fresh.backend = workspace.backend if isinstance(workspace, _Files) else cast('BackendProtocol', workspace)
        run = replace(self)
        run._fresh = fresh
        return run

    async def before_run(self, ctx: RunContext[DeepAgentDeps]) -> None:
        """Raise if the directory of the files is missing: only the caller can fix that, not the model."""
        await ctx.workspace.working_dir()

    def _deps_of(self, ctx: RunContext[DeepAgentDeps]) -> DeepAgentDeps:
        """Return the deps of the run, or new ones. Checks their type, as pydantic-ai does not."""
        deps: object = _given(ctx)
        if deps is None:
            return self._fresh or self._make()
        if not isinstance(deps, self.deps_type):
            wanted = self.deps_type.__name__
            if isinstance(deps, type):
                make = deps.__name__ if issubclass(deps, self.deps_type) else wanted
                raise UserError(
                    f'`deps` is the class {deps.__name__}, and this agent needs an object of {wanted}. '
                    f'Call the class: `deps={make}()`.'
                )
            got = type(deps).__name__
            raise UserError(f'`deps` is {got}, and this agent needs {wanted}. Pass an object of it.')
        return deps

    def _make(self) -> DeepAgentDeps:
        try:
            return self.deps_type()
        except TypeError as error:
            name = self.deps_type.__name__
            raise UserError(f'The run has no `deps`, and {name}() cannot make them: {error}. Pass `deps=`.') from error

    def get_wrapper_toolset(self, toolset: AbstractToolset[DeepAgentDeps]) -> AbstractToolset[DeepAgentDeps] | None:
        """Pass new deps to the tools of a run without deps."""
        return None if self._fresh is None else _WithDeps(toolset, deps=self._fresh)


@dataclass
class _WithDeps(WrapperToolset[DeepAgentDeps]):
    """Passes `deps` to the wrapped tools, instead of the `None` of the run."""

    deps: DeepAgentDeps

    async def get_tools(self, ctx: RunContext[DeepAgentDeps]) -> dict[str, ToolsetTool[DeepAgentDeps]]:
        return await super().get_tools(replace(ctx, deps=self.deps))

    async def get_instructions(
        self, ctx: RunContext[DeepAgentDeps]
    ) -> str | InstructionPart | Sequence[str | InstructionPart] | None:
        return await super().get_instructions(replace(ctx, deps=self.deps))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DeepAgentDeps], tool: ToolsetTool[DeepAgentDeps]
    ) -> Any:
        return await super().call_tool(name, tool_args, replace(ctx, deps=self.deps), tool)


def _given(ctx: RunContext[DeepAgentDeps]) -> DeepAgentDeps | None:
    """Return the deps of the run; `None` if the caller passed none, which the type of `ctx.deps` excludes."""
    return cast('DeepAgentDeps | None', ctx.deps)


def _backend_of(deps: DeepAgentDeps) -> BackendProtocol:
    """Return the backend of deps. Raises `UserError` if it is not a backend."""
    backend: object = deps.backend
    if isinstance(backend, type) or not hasattr(backend, 'ref'):
        given = f'the class {backend.__name__}' if isinstance(backend, type) else type(backend).__name__
        raise UserError(
            f'{type(deps).__name__}.backend is {given}, which is not a backend. '
            'Pass `DeepAgentDeps(backend=…)` with a backend such as `LocalBackend(directory)`.'
        )
    return backend


def _adapt(backend: BackendProtocol, ref: WorkspaceRef | None) -> _Files:
    kind = _FilesAndCommands if isinstance(backend, SupportsCommands) else _Files
    return kind(backend=backend, ref=ref)


@dataclass(kw_only=True)
class _Files:
    """Adapts a backend: forwards each method, and converts values and errors to those of pydantic-ai."""

    backend: BackendProtocol
    ref: WorkspaceRef | None

    async def working_dir(self) -> str:
        with _workspace_errors():
            return await self.backend.working_dir()

    async def read_bytes(self, path: str) -> bytes:
        with _workspace_errors():
            return await self.backend.read_bytes(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        with _workspace_errors():
            await self.backend.write_bytes(path, data)

    async def stat(self, path: str) -> FileEntry:
        with _workspace_errors():
            found = await self.backend.stat(path)
        return FileEntry(name=found.name, path=found.path, is_dir=found.is_dir, size=found.size)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        with _workspace_errors():
            entries = await self.backend.list_dir(path)
        return [FileEntry(name=e.name, path=e.path, is_dir=e.is_dir, size=e.size) for e in entries]

    async def make_dir(self, path: str) -> None:
        with _workspace_errors():
            await self.backend.make_dir(path)

    async def remove(self, path: str) -> None:
        with _workspace_errors():
            await self.backend.remove(path)

    async def exists(self, path: str) -> bool:
        with _workspace_errors():
            return await self.backend.exists(path)

    async def realpath(self, path: str) -> str:
        with _workspace_errors():
            return await self.backend.realpath(path)


class _FilesAndCommands(_Files):
    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        backend = cast('SupportsCommands', self.backend)
        with _workspace_errors():
            result = await backend.run(command, shell=shell, env=env, timeout=timeout)
        return CommandResult(exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)


@contextmanager
def _workspace_errors() -> Generator[None]:
    try:
        yield
    except ReadOnlyError as error:
        raise WorkspaceReadOnlyError(str(error)) from error
    except BackendUnavailableError as error:
        raise WorkspaceUnavailableError(str(error)) from error
    except CommandTimeoutError as error:
        raise WorkspaceTimeoutError(str(error), stdout=error.stdout, stderr=error.stderr) from error
