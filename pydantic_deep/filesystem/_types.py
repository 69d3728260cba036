"""Types of this capability: sources of files, and uploads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.workspaces import WorkspaceBackend

from pydantic_deep_backends.protocol import BackendProtocol

AnyBackend: TypeAlias = BackendProtocol | WorkspaceBackend
"""A backend, or a third-party workspace. pydantic-ai adds file operations to one that only runs commands."""

BackendSource: TypeAlias = AnyBackend | Callable[[RunContext[object]], AnyBackend]
"""A backend, or a function that returns it for the context of a run."""

OutputMode: TypeAlias = Literal['content', 'files_with_matches', 'count']
"""The output of grep: the lines, the files, or the number of lines in each file."""


class UploadLike(Protocol):
    """A file that a user uploaded."""

    @property
    def path(self) -> str:
        """The path where the agent finds the file."""
        ...

    @property
    def size_bytes(self) -> int:
        """The size in bytes."""
        ...

    @property
    def media_type(self) -> str:
        """The media type, such as `text/csv`."""
        ...

    @property
    def encoding(self) -> str | None:
        """The encoding of a text file; `None` for other files."""
        ...

    @property
    def line_count(self) -> int | None:
        """The number of lines of a text file; `None` for other files."""
        ...


@dataclass(frozen=True, kw_only=True)
class Position:
    """The start of a section of a text. Both numbers start at 1."""

    line: int
    """The number of the line."""
    char: int = 1
    """The character within the line."""
