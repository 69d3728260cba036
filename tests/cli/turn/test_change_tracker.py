"""Detection of the files that a turn changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from pydantic_deep.cli.turn import _change_tracker
from pydantic_deep.cli.turn._change_tracker import ChangeTrackingBackend, ChangeTrackingSandbox, describe_change
from pydantic_deep.streaming import FileEvent
from pydantic_deep_backends import (
    BackendUnavailableError,
    CommandTimeoutError,
    FileChangedError,
    LocalBackend,
    SandboxBackend,
    digest_of,
)
from pydantic_deep_backends.protocol import Command, CommandResult

pytestmark = pytest.mark.anyio


async def test_changes_are_taken_once_and_counted_from_the_start(work: Path) -> None:
    backend = ChangeTrackingBackend(str(work))
    await backend.write_bytes('/poem.txt', b'rose\nlily\n')
    first = await backend.take_changes()
    await backend.write_bytes('/poem.txt', b'rose\nlily\noak\n')
    assert first == [FileEvent(path='/poem.txt', change='changed', added_lines=1, removed_lines=1)]
    assert await backend.take_changes() == [
        FileEvent(path='/poem.txt', change='changed', added_lines=2, removed_lines=1)
    ]
    assert await backend.take_changes() == []


async def test_compare_and_swap_is_a_change_unless_refused(work: Path) -> None:
    backend = ChangeTrackingBackend(str(work))
    await backend.compare_and_swap('/new.txt', b'a\n', expected=None)
    with pytest.raises(FileChangedError):
        await backend.compare_and_swap('/poem.txt', b'a\n', expected=digest_of(b'other'))
    assert await backend.all_changes() == [FileEvent(path='/new.txt', change='created', added_lines=1, removed_lines=0)]


async def test_symlink_and_target_are_one_changed_file(work: Path) -> None:
    (work / 'link.txt').symlink_to('poem.txt')
    backend = ChangeTrackingBackend(str(work))
    await backend.write_bytes('/link.txt', b'oak\n')
    await backend.write_bytes('/poem.txt', b'oak\nelm\n')
    assert [(c.path, c.added_lines, c.removed_lines) for c in await backend.all_changes()] == [('/poem.txt', 2, 2)]


async def test_restored_file_is_not_a_change(work: Path) -> None:
    backend = ChangeTrackingBackend(str(work))
    await backend.write_bytes('/poem.txt', b'')
    await backend.write_bytes('/poem.txt', b'rose\nviolet\n')
    assert await backend.take_changes() == []
    assert await backend.all_changes() == []


@pytest.mark.parametrize(
    ('before', 'after', 'expected'),
    [
        (None, None, None),
        (b'a', b'a', None),
        (None, b'a\nb\n', ('created', 2, 0)),
        (None, b'', ('created', 0, 0)),
        (b'a\nb\n', None, ('removed', 0, 2)),
        (b'a\nb\n', b'b\na\n', ('changed', 0, 0)),
        (b'a\na\n', b'a\n', ('changed', 0, 1)),
        (b'\xff\n', b'\xfe\n', ('changed', 1, 1)),
    ],
)
def test_change_counts_lines(before: bytes | None, after: bytes | None, expected: tuple[str, int, int] | None) -> None:
    change = describe_change('/f', before, after)
    assert (change and (change.change, change.added_lines, change.removed_lines)) == expected


@pytest.fixture
def skip_bwrap_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that knows its working directory without testing bubblewrap."""
    monkeypatch.setattr(SandboxBackend, 'working_dir', LocalBackend.working_dir)


@pytest.fixture(
    params=[
        'pretended',
        pytest.param(
            'isolated',
            marks=pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed'),
        ),
    ]
)
def sandbox(request: pytest.FixtureRequest, work: Path, monkeypatch: pytest.MonkeyPatch) -> ChangeTrackingSandbox:
    """A sandbox. The `pretended` one runs commands without bubblewrap; both track the directory."""

    async def run(self: SandboxBackend, command: str, **options: object) -> CommandResult:
        if not work.is_dir():
            raise BackendUnavailableError('There is no directory.')
        done = await anyio.run_process(command, cwd=work)
        return CommandResult(exit_code=done.returncode, stdout='', stderr='')

    if request.param == 'pretended':
        request.getfixturevalue('skip_bwrap_check')
        monkeypatch.setattr(SandboxBackend, 'run', run)
    monkeypatch.setattr(_change_tracker, 'SCAN_SECONDS', 600.0)  # the default of three seconds depends on the machine
    return ChangeTrackingSandbox(str(work), read_only={})


async def test_files_changed_by_a_command_are_detected(sandbox: ChangeTrackingSandbox, work: Path) -> None:
    (work / 'old.txt').write_text('old\n')
    await sandbox.run('echo a > new.txt; echo lily >> poem.txt; rm old.txt', shell=True)
    expected = [
        FileEvent(path='/workspace/new.txt', change='created', added_lines=1, removed_lines=0),
        FileEvent(path='/workspace/old.txt', change='removed', added_lines=None, removed_lines=None),
        FileEvent(path='/workspace/poem.txt', change='changed', added_lines=None, removed_lines=None),
    ]
    assert await sandbox.take_changes() == expected
    assert (await sandbox.all_changes(), sandbox.has_all_changes) == (expected, True)


async def test_lines_changed_by_a_tool_before_a_command_are_counted(sandbox: ChangeTrackingSandbox, work: Path) -> None:
    await sandbox.write_bytes('/workspace/poem.txt', b'rose\n')
    await sandbox.run('echo oak > poem.txt', shell=True)
    assert [(c.path, c.added_lines, c.removed_lines) for c in await sandbox.all_changes()] == [
        ('/workspace/poem.txt', 1, 2)
    ]


@pytest.mark.usefixtures('skip_bwrap_check')
async def test_files_changed_by_a_command_that_timed_out_are_detected(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_too_long(self: SandboxBackend, command: Command, **options: object) -> CommandResult:
        (work / 'new.txt').write_text('a\n')
        raise CommandTimeoutError('It took too long.', stdout='', stderr='')

    monkeypatch.setattr(SandboxBackend, 'run', run_too_long)  # avoids a real timeout
    backend = ChangeTrackingSandbox(str(work), read_only={})
    with pytest.raises(CommandTimeoutError):
        await backend.run(['anything'])
    assert [change.path for change in await backend.all_changes()] == ['/workspace/new.txt']


async def test_lines_of_a_large_file_are_not_counted(
    sandbox: ChangeTrackingSandbox, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_change_tracker, 'MAX_COUNTED_BYTES', 3)
    await sandbox.run('echo long > new.txt', shell=True)
    assert [change.added_lines for change in await sandbox.all_changes()] == [None]


@pytest.mark.parametrize('limit', [('MAX_FILES', 1), ('SCAN_SECONDS', 0)])
async def test_exceeded_scan_limit_is_reported(
    sandbox: ChangeTrackingSandbox, work: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, int]
) -> None:
    monkeypatch.setattr(_change_tracker, *limit)
    await sandbox.run('echo a > a; echo b > b', shell=True)
    await sandbox.run('echo c > c', shell=True)
    assert not sandbox.has_all_changes
    assert len(await sandbox.all_changes()) == (1 if limit[0] == 'MAX_FILES' else 0)


async def test_missing_directory_is_reported_as_incomplete(sandbox: ChangeTrackingSandbox, work: Path) -> None:
    await sandbox.run('echo a > a', shell=True)
    shutil.rmtree(work)
    with pytest.raises(BackendUnavailableError):
        await sandbox.run('echo b > b', shell=True)
    assert [change.path for change in await sandbox.all_changes()] == []
    assert not sandbox.has_all_changes


class TypingEditor:
    """An editor whose user types after each read."""

    def __init__(self) -> None:
        self.reads = 0
        self.written: list[tuple[str, str]] = []

    async def read(self, path: str) -> str | None:
        self.reads += 1
        return f'{self.reads}\n' if Path(path).exists() else None

    async def write(self, path: str, text: str) -> None:
        self.written.append((path, text))


async def test_compare_and_swap_compares_with_the_text_in_the_editor(work: Path) -> None:
    """A text that changed in the editor since it was read is a conflict, and nothing is written."""
    backend = ChangeTrackingBackend(str(work))
    backend.editor = editor = TypingEditor()
    expected = digest_of(await backend.read_bytes('/poem.txt'))
    with pytest.raises(FileChangedError):
        await backend.compare_and_swap('/poem.txt', b'new', expected=expected)
    with pytest.raises(IsADirectoryError):
        await backend.write_bytes('/', b'new')
    assert editor.written == []
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'


async def test_writes_are_made_in_the_editor_first(work: Path) -> None:
    """A text is written in the editor, with its real path, and other data on disk only."""
    backend = ChangeTrackingBackend(str(work))
    backend.editor = editor = TypingEditor()
    await backend.write_bytes('/a/b.txt', b'\xef\xbb\xbfnew')
    await backend.write_bytes('/a/c', b'\xff')
    await backend.compare_and_swap('/d.txt', b'd', expected=None)
    assert editor.written == [(str(work / 'a/b.txt'), 'new'), (str(work / 'd.txt'), 'd')]
    assert (work / 'a/b.txt').read_bytes() == b'\xef\xbb\xbfnew'
