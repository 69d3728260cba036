"""An overlay as a pydantic-ai workspace: its conformance suite, and a merge into a pydantic-ai workspace."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pydantic_ai.workspaces import LocalWorkspaceBackend, SupportsCommands, WorkspaceBackend
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from pydantic_deep import LocalBackend, StateBackend, as_workspace
from pydantic_deep_backends import BackendProtocol, OverlayBackend

pytestmark = pytest.mark.anyio


class OverlaySuite(WorkspaceBackendSuite):
    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return False


class TestOverlayOfState(OverlaySuite):
    @pytest.fixture
    def backend(self) -> WorkspaceBackend:
        return as_workspace(OverlayBackend(StateBackend()))


class TestOverlayOfLocal(OverlaySuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(OverlayBackend(LocalBackend(tmp_path)))


class TestOverlayOfWorkspace(OverlaySuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(OverlayBackend(cast('BackendProtocol', LocalWorkspaceBackend(tmp_path))))


async def test_overlay_of_a_workspace_merges_into_it(tmp_path: Path) -> None:
    tmp_path = tmp_path.resolve()
    (tmp_path / 'a.txt').write_text('one\ntwo\nthree\n')
    (tmp_path / 'old').mkdir()
    (tmp_path / 'old/b.txt').write_text('b')
    overlay = OverlayBackend(cast('BackendProtocol', LocalWorkspaceBackend(tmp_path)))
    assert not isinstance(as_workspace(overlay), SupportsCommands)
    await overlay.write_bytes(f'{tmp_path}/a.txt', b'ONE\ntwo\nthree\n')
    await overlay.write_bytes(f'{tmp_path}/new/c.txt', b'c')
    await overlay.remove(f'{tmp_path}/old')
    (tmp_path / 'a.txt').write_text('one\ntwo\nTHREE\n')
    merged = await overlay.merge()
    assert merged.changed == (f'{tmp_path}/a.txt', f'{tmp_path}/new/c.txt')
    assert merged.removed == (f'{tmp_path}/old/b.txt',)
    assert merged.conflicts == ()
    assert (tmp_path / 'a.txt').read_text() == 'ONE\ntwo\nTHREE\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.txt', 'new']
