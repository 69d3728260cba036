"""The files of a turn: commits, scans and edits between turns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep import DeepAgentDeps, LocalBackend, SandboxBackend, StateBackend
from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.testing import Answer, call
from pydantic_deep.versions import AgentVersion
from pydantic_deep_backends.local._capture import DirectoryCapture
from pydantic_deep_backends.local._protected_scan import ProtectedIndex
from pydantic_deep_backends.sandbox import _disk_usage as _disk
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('where', ['memory', 'directory'])
async def test_each_step_that_changes_files_adds_one_commit(
    make: MakeAgent, store: SpyStore, tmp_path: Path, where: str
):
    backend = StateBackend() if where == 'memory' else LocalBackend(tmp_path)
    root = await make(*(call('write_file', path=f'/{index}', content='x') for index in range(4)), 'done').create(
        backend=backend
    )
    store.commits.clear()

    turn = await root.advance('a')

    assert len(store.commits) == 2 + 4
    told = [(each.status, each.tree) for commit in store.commits for each in commit.calls]
    trees = [step.tree for step in await turn.steps()]
    assert [tree for status, tree in told if status == 'done'] == [*trees[1:], turn.tree]


needs_bwrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)


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


@needs_bwrap
async def test_command_scans_only_for_protected_files(tmp_path: Path, scans: list[str]) -> None:
    backend = SandboxBackend(tmp_path)
    for _ in range(2):
        assert (await backend.run(['true'])).exit_code == 0
    assert scans == ['protected'] * 2


@pytest.mark.parametrize('commands', [0, 1, 3])
@needs_bwrap
async def test_turn_scans_at_its_start_and_end_and_for_each_command(
    make: MakeAgent, tmp_path: Path, scans: list[str], commands: int
) -> None:
    """A command is scanned before and after, for protected files and for changes, without repetition."""
    agent = make(*[call('execute', command='true')] * commands, 'done')
    root = await agent.create(backend=SandboxBackend(tmp_path))
    scans.clear()
    await root.advance('go')
    assert scans == ['files', 'protected', *['protected', 'files'] * commands, 'protected', 'files']


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def read(version: AgentVersion[DeepAgentDeps, str], path: str) -> str:
    return (await (await version.files()).read_bytes(path)).decode()


async def test_edits_between_turns_are_a_separate_version(make: MakeAgent, tmp_path: Path):
    agent = make(put('/a.txt', 'one'), 'done', 'two')
    first = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'mine.txt').write_text('by hand')

    second = await first.advance('more')

    lineage = await second.lineage()
    assert [version.kind for version in lineage] == ['root', 'turn', 'edit', 'turn']
    edit = lineage[2]
    assert (edit.parent_id, edit.message_count) == (first.id, first.message_count)
    assert await read(edit, '/mine.txt') == 'by hand'
    assert '/mine.txt' not in await first.file_tree()
    assert (await first.diff(edit)).messages_added == []
    assert [file.path for file in (await first.diff(edit)).files] == ['/mine.txt']


async def test_edit_that_cannot_be_stored_releases_the_directory(make: MakeAgent, store: SpyStore, tmp_path: Path):
    agent = make(put('/a.txt', 'a'), 'done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    (tmp_path / 'mine.txt').write_text('by hand')
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.versions else None

    with pytest.raises(StoreUnavailableError):
        await root.advance('go')

    store.refuse = lambda commit: None
    turn = await root.advance('go')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.txt', 'mine.txt']
    assert [version.kind for version in await turn.lineage()] == ['root', 'edit', 'turn']
