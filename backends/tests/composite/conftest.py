"""Fixtures and helpers of the tests in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic_deep_backends import BackendProtocol, FileEntryLike, LocalBackend, StateBackend, WrapperBackend


class Plain(WrapperBackend):
    """The members of `BackendProtocol` and nothing else, with a ref and a working directory to choose."""

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
    """Stands for `SandboxBackend` too: a directory whose commands see it elsewhere than at the root."""
    return LocalBackend(root, allow_commands=True)


async def names_in(backend: BackendProtocol, path: str) -> list[str]:
    return [entry.name for entry in await backend.list_dir(path)]
