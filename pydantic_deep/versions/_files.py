"""The files of one run: what its deps have as backend, and how their tree is taken after each step.

The seam between the recorder, which stores trees, and backends, which have files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic_deep_backends import BackendProtocol, Tree


@dataclass(frozen=True, kw_only=True)
class OmittedFile:
    """A file that no version has."""

    path: str
    """Its path in trees."""
    reason: Literal['too large', 'unreadable']
    """Files that `.gitignore` names are left out without being listed."""
    size_bytes: int | None
    """Its size, if it could be told."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The files at one moment."""

    tree: Tree
    """All of them that are versioned. Its paths begin at the root of the files, wherever that appears."""
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents, by digest, of files that were not in the tree before or had others there."""
    omitted: Sequence[OmittedFile] = ()
    """What is too large, or could not be read."""


class RunFiles(Protocol):
    """The files of one run."""

    @property
    def backend(self) -> BackendProtocol:
        """What the deps of the run get."""
        ...

    async def capture(self, before: Tree, *, is_full: bool = False) -> Captured:
        """Return the files now. `before` must be the tree of the capture before this one, or that of the beginning.

        Costs what was written since, unless a command ran or `is_full` asks to look at everything.
        """
        ...

    async def aclose(self) -> None:
        """Remove what was made for the run alone."""
        ...
