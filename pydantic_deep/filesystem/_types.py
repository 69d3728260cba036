"""The nouns of the room: where files come from, and what the model is told of uploads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.workspaces import WorkspaceBackend

from pydantic_deep_backends.protocol import BackendProtocol

AnyBackend: TypeAlias = BackendProtocol | WorkspaceBackend
"""A backend, or a third party's workspace; one that only runs commands gets file operations from pydantic-ai."""

BackendSource: TypeAlias = AnyBackend | Callable[[RunContext[object]], AnyBackend]
"""A backend, or a function that finds it for a run."""

OutputMode: TypeAlias = Literal['content', 'files_with_matches', 'count']
"""What grep answers with: the lines, the files, or the number of lines in each file."""


class UploadLike(Protocol):
    """What is known of a file that a user gave."""

    @property
    def path(self) -> str:
        """Where the agent finds it."""
        ...

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        ...

    @property
    def media_type(self) -> str:
        """What it is."""
        ...

    @property
    def encoding(self) -> str | None:
        """The codec of a text."""
        ...

    @property
    def line_count(self) -> int | None:
        """The number of lines of a text."""
        ...


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a window on a text begins. Both numbers begin at 1."""

    line: int
    """The line."""
    char: int = 1
    """The character in that line."""
