"""Number of full directory scans of a turn and its commands: none is redundant."""

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
    """The scans that were made: all directory walks except those that measure disk usage."""
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


async def test_command_scans_only_for_protected_files(tmp_path: Path, scans: list[str]) -> None:
    backend = SandboxBackend(tmp_path)
    for _ in range(2):
        assert (await backend.run(['true'])).exit_code == 0
    assert scans == ['protected'] * 2


@pytest.mark.parametrize('commands', [0, 1, 3])
async def test_turn_scans_at_its_start_and_end_and_for_each_command(
    make: MakeAgent, tmp_path: Path, scans: list[str], commands: int
) -> None:
    """A command is scanned before and after, for protected files and for changes, without repetition."""
    agent = make(*[call('execute', command='true')] * commands, 'done')
    root = await agent.create(backend=SandboxBackend(tmp_path))
    scans.clear()
    await root.advance('go')
    assert scans == ['files', 'protected', *['protected', 'files'] * commands, 'protected', 'files']
