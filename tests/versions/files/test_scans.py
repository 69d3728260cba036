"""How often a turn and its commands go through the whole directory: each time for a reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep import SandboxBackend
from pydantic_deep.testing import call
from pydantic_deep_backends.local._capture import DirectoryCapture
from pydantic_deep_backends.local._protected_scan import ProtectedIndex
from pydantic_deep_backends.sandbox import _disk_usage as _disk
from tests.versions.conftest import MakeAgent

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'),
]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scans that are made: all of the walks over a directory, but for those that count what takes up the disk."""
    made: list[str] = []

    def count(name: str, walk: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            made.append(name)
            return walk(*args, **kwargs)

        return counted

    monkeypatch.setattr(DirectoryCapture, 'capture_all', count('files', DirectoryCapture.capture_all))
    monkeypatch.setattr(ProtectedIndex, 'scan', count('protected', ProtectedIndex.scan))
    monkeypatch.setattr(_disk.DiskWatch, '__call__', lambda self: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - how often it looks is a matter of time
    return made


async def test_a_command_scans_for_what_is_mounted_and_nothing_else(tmp_path: Path, scans: list[str]) -> None:
    backend = SandboxBackend(tmp_path)
    for _ in range(2):
        assert (await backend.run(['true'])).exit_code == 0
    assert scans == ['protected'] * 2


@pytest.mark.parametrize('commands', [0, 1, 3])
async def test_a_turn_scans_at_its_beginning_and_end_and_for_each_command(
    make: MakeAgent, tmp_path: Path, scans: list[str], commands: int
) -> None:
    """A command: what it must not change, before it, and what it has changed, after it. Nobody looks at the same twice."""
    agent = make(*[call('execute', command='true')] * commands, 'done')
    root = await agent.create(backend=SandboxBackend(tmp_path))
    scans.clear()
    await root.advance('go')
    assert scans == ['files', 'protected', *['protected', 'files'] * commands, 'protected', 'files']
