"""What the model may call."""

from collections.abc import Callable
from typing import cast

from pydantic_ai import FunctionToolset, RunContext
from pydantic_deep_backends.protocol import BackendProtocol


def build_toolset(
    backend: BackendProtocol | Callable[[RunContext[object]], BackendProtocol] | None,
) -> FunctionToolset[object]:
    """Return the toolset."""

    def files(ctx: RunContext[object]) -> BackendProtocol:
        if isinstance(backend, BackendProtocol):
            return backend
        if backend is not None:
            return backend(ctx)
        return cast('BackendProtocol', getattr(ctx.deps, 'backend', None) or ctx.workspace)

    async def read_file(ctx: RunContext[object], path: str) -> str:
        """Read a file."""
        return (await files(ctx).read_bytes(path)).decode()

    async def write_file(ctx: RunContext[object], path: str, content: str) -> str:
        """Create or replace a file."""
        await files(ctx).write_bytes(path, content.encode())
        return f'Wrote {path}.'

    toolset = FunctionToolset[object](id='filesystem')
    toolset.add_function(read_file, metadata={'effect': 'read'})
    toolset.add_function(write_file, metadata={'effect': 'write'})
    return toolset
