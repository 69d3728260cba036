"""Commands of `LocalBackend` that another place runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend, SupportsCommands
from pydantic_deep_backends.protocol import CommandResult

pytestmark = pytest.mark.anyio


class Elsewhere:
    """Records commands, and writes a file for each."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Sequence[str], Mapping[str, str], float | None]] = []

    async def __call__(
        self, directory: str, arguments: Sequence[str], *, env: Mapping[str, str], timeout: float | None
    ) -> CommandResult:
        self.commands.append((directory, arguments, env, timeout))
        (Path(directory) / 'made').write_text('made')
        return CommandResult(exit_code=0, stdout='', stderr='')


async def test_runner_gets_checked_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner receives the real directory and an argument list, on every system."""
    monkeypatch.setattr('sys.platform', 'darwin')
    runner = Elsewhere()
    backend = LocalBackend(tmp_path, runner=runner)
    assert isinstance(backend, SupportsCommands)
    assert backend.allows_commands
    assert await backend.working_dir() == str(tmp_path.resolve())
    tree = await backend.snapshot()
    await backend.run('make it', shell=True, env={'A': 'b'}, timeout=5)
    await backend.in_directory(tmp_path).run(['make'])  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - set on the instance
    directory = str(tmp_path.resolve())
    assert runner.commands == [
        (directory, ['/bin/sh', '-c', 'make it'], {'A': 'b'}, 5),
        (directory, ['make'], {}, None),
    ]
    assert [*(await backend.changes(tree)).added] == ['/made']


async def test_wrong_commands_do_not_reach_the_runner(tmp_path: Path) -> None:
    """Arguments are checked as for other commands."""
    runner = Elsewhere()
    backend = LocalBackend(tmp_path, runner=runner)
    assert isinstance(backend, SupportsCommands)
    with pytest.raises(TypeError, match='Pass `shell=True`'):
        await backend.run('make it')
    with pytest.raises(ValueError, match='`timeout` is -1'):
        await backend.run(['make'], timeout=-1)
    assert runner.commands == []
