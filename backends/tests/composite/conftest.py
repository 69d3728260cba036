"""Fixtures and helpers for composite backend tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic_deep_backends import BackendProtocol, FileEntryLike, LocalBackend, StateBackend, WrapperBackend


class Plain(WrapperBackend):
    """Only the members of `BackendProtocol`, with a configurable ref and a working directory."""

    capabilities = ()

    def __init__(self, files: Mapping[str, bytes | str] | None = None, *, ref: object = None) -> None:
        super().__init__(StateBackend(files))
        self._ref = ref
        self.lists = 0

    @property
    def ref(self) -> object:
        return self._ref

    async def working_dir(self) -> str:
        return '/'

    async def list_dir(self, path: str) -> Sequence[FileEntryLike]:
        self.lists += 1
        return await super().list_dir(path)


def shown_elsewhere(root: Path) -> LocalBackend:
    """Return a backend with commands, whose directory appears at its real path. Represents `SandboxBackend` too."""
    return LocalBackend(root, allow_commands=True)


async def names_in(backend: BackendProtocol, path: str) -> list[str]:
    return [entry.name for entry in await backend.list_dir(path)]
