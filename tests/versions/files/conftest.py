"""Helpers for tests of directories: a version with files, and changes of its directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep.store import Commit, Store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import AgentVersion, VersionedAgent, workspace_key
from pydantic_deep.versions.files._backend_descriptions import describe_backend
from pydantic_deep_backends import BackendProtocol, FileVersion, Tree, digest_of

FILES = {'a.txt': 'one', 'sub/b.txt': 'two'}


def writes(path: str, content: str) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': content}, tool_call_id=f'w{path}')


def agent_of(store: Store, *answers: Any) -> VersionedAgent[Any, Any]:
    return VersionedAgent(create_deep_agent(ScriptedModel(*answers, *['done'] * 9)), store)


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def read(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob('*')) if path.is_file()}


async def files_of(version: AgentVersion[Any, Any]) -> dict[str, str]:
    files = await version.files()
    return {path[1:]: (await files.read_bytes(path)).decode() for path in await version.file_tree()}


async def edits(store: Store) -> int:
    return sum(each.kind == 'edit' for each in await store.versions(limit=100))


async def begun(store: Store, root: Path, backend: BackendProtocol | None = None) -> AgentVersion[Any, Any]:
    """Return a version with files, created by a turn in a directory."""
    write(root, {'a.txt': 'one'})
    agent = agent_of(store, writes('/sub/b.txt', 'two'))
    version = await (await agent.create(backend=backend or LocalBackend(root))).advance('first')
    assert read(root) == FILES
    return version


def made_anew(root: Path) -> None:
    """Replace the directory by another one at the same path."""
    aside = root.with_name('aside')
    root.rename(aside)
    shutil.rmtree(aside)
    root.mkdir()


async def forget_identity(store: Store, root: Path) -> None:
    """Remove the identity from the record, as in releases without identities."""
    held = await store.workspace(key_of(LocalBackend(root)))
    assert held is not None
    await store.commit(Commit(workspaces=[held._replace(identity=None)]))


def key_of(backend: BackendProtocol) -> str:
    described = describe_backend(backend)
    assert described is not None
    return workspace_key(described)


class Blobs:
    """Contents by digest, like a store."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def __call__(self, digest: str) -> bytes:
        return self.data[digest]

    def tree(self, **files: str) -> Tree:
        """Return a tree of these files, with `_` in their names replaced by `/`."""
        versions: dict[str, FileVersion] = {}
        for name, text in files.items():
            digest = digest_of(text.encode())
            self.data[digest] = text.encode()
            versions['/' + name.replace('_', '/')] = FileVersion(digest=digest, size=len(text))
        return Tree.of(versions)


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()
