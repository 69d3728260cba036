"""Protected files: patterns, read-only mounts in sandboxes, and detection of changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import pydantic_deep_backends.sandbox._backend as sandbox_module
from pydantic_deep_backends import CompositeBackend, LocalBackend, OverlayBackend, SandboxBackend, StateBackend
from pydantic_deep_backends.errors import SandboxUnavailableError
from pydantic_deep_backends.local import _protected_scan as scan_module
from pydantic_deep_backends.local._protected_scan import MAX_READ_BYTES
from pydantic_deep_backends.protection import (
    PROTECTED_FILES,
    ProtectedChange,
    SupportsProtection,
    compare_protected,
    is_git_name,
    is_protected,
    protected_patterns_of,
)
from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.sandbox import _bwrap as bwrap

from .conftest import git

pytestmark = pytest.mark.anyio

needs_bwrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)

COMMIT = 'git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m message'


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob('*')) if path.is_file()}


def test_single_string_of_patterns_is_refused(tmp_path: Path):
    with pytest.raises(TypeError, match='is the string'):
        LocalBackend(tmp_path, protected='.envrc')


def test_backends_expose_their_protected_patterns(tmp_path: Path):
    local = LocalBackend(tmp_path, protected=['a'])
    assert isinstance(local, SupportsProtection)
    assert local.in_directory(tmp_path).protected == ('a',)
    assert SandboxBackend(tmp_path, protected=['b']).in_directory(tmp_path).protected == ('b',)
    assert OverlayBackend(local).protected == ('a',)
    mounted = CompositeBackend(StateBackend(protected=['c']), {'/x': local})
    assert mounted.protected == ('c', 'a')
    assert isinstance(mounted, SupportsProtection)
    assert not isinstance(CompositeBackend(StateBackend(), {'/x': StateBackend()}), SupportsProtection)
    assert protected_patterns_of(object()) == PROTECTED_FILES
    assert is_git_name('.GIT')
    assert not is_git_name('git')


async def test_protected_file_states_detect_every_change(repository: Path):
    """States cover contents, the executable bit, links and file types. Sample hooks and unprotected files have none."""
    backend = LocalBackend(repository)
    hooks = repository / '.git' / 'hooks'
    (hooks / 'old').write_text('#!/bin/sh\n')
    (repository / '.envrc').write_text('a')
    (repository / 'sub').mkdir()
    before = await backend.protected_files()
    assert '/.git/config' in before
    assert '/vendor/lib/.git/config' in before
    assert not [path for path in before if path.endswith('.sample') or 'objects' in path or path == '/notes.md']
    (repository / '.envrc').write_text('b')
    (hooks / 'old').chmod(0o755)
    (repository / '.vscode' / 'settings.json').unlink()
    (repository / 'sub' / '.envrc').symlink_to('/etc/hostname')
    os.mkfifo(repository / 'sub' / '.gitattributes')
    (repository / 'sub' / '.git').write_text('gitdir: ../evil\n')
    with (repository / 'AGENTS.md').open('wb') as large:
        large.truncate(MAX_READ_BYTES + 1)
    after = await backend.protected_files()
    assert compare_protected(before, after) == (
        ProtectedChange(path='/.envrc', change='changed'),
        ProtectedChange(path='/.git/hooks/old', change='changed'),
        ProtectedChange(path='/.vscode/settings.json', change='removed'),
        ProtectedChange(path='/AGENTS.md', change='added'),
        ProtectedChange(path='/sub/.envrc', change='added'),
        ProtectedChange(path='/sub/.git', change='added'),
        ProtectedChange(path='/sub/.gitattributes', change='added'),
    )
    assert compare_protected(after, await backend.protected_files()) == ()


async def test_unchanged_protected_files_are_not_scanned_again(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """A second scan reads only new files. The index has a fake clock, so that no time has to pass."""
    backend = LocalBackend(repository)
    index = backend._protected_index  # pyright: ignore[reportPrivateUsage] - only its clock is set
    index.clock = lambda: 2**62
    before = await backend.protected_files()
    listed: list[int] = []
    read: list[str] = []
    list_entries, contents = scan_module.list_entries, scan_module._contents  # pyright: ignore[reportPrivateUsage] - counted below

    def counted_list(directory: int) -> list[os.DirEntry[str]]:
        listed.append(directory)
        return list_entries(directory)

    def counted_read(directory: int, name: str) -> bytes:
        read.append(name)
        return contents(directory, name)

    # Counted inside the scan module: no public operation reports reads.
    monkeypatch.setattr(scan_module, 'list_entries', counted_list)
    monkeypatch.setattr(scan_module, '_contents', counted_read)
    assert await backend.protected_files() == before
    assert len(listed) == 5  # the protected directories: hooks and info of each repository, and .vscode
    assert set(read) == {'config'}  # read for the paths that they name, not for their state
    (repository / '.envrc').write_text('new')
    assert compare_protected(before, await backend.protected_files()) == (
        ProtectedChange(path='/.envrc', change='added'),
    )
    assert '.envrc' in read


async def test_unreadable_protected_file_has_a_state(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Root can read everything, so the read failure is simulated."""

    def fail(directory: int, name: str) -> bytes:
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(scan_module, '_contents', fail)
    states = await LocalBackend(repository).protected_files()
    assert states['/.git/config'] == 'unreadable: Permission denied'


@needs_bwrap
async def test_commit_works_in_a_sandbox_with_a_read_only_git_config(repository: Path):
    """The sandbox mounts existing protected files read-only, so `git commit` still works."""
    backend = SandboxBackend(repository)
    done = await backend.run(f'git add notes.md && {COMMIT} && git log --format=%s', shell=True)
    assert (done.exit_code, done.stdout) == (0, 'message\n')
    refused = await backend.run('git config core.fsmonitor /tmp/evil', shell=True)
    assert refused.exit_code != 0
    assert git(repository, 'log', '--format=%s') == 'message\n'


ATTACKS = [
    'echo "[core] fsmonitor = evil" >> .git/config',
    'echo "[core] fsmonitor = evil" > new && mv -f new .git/config',
    'rm -f .git/config; echo "[core] fsmonitor = evil" > .git/config',
    'echo evil > .git/hooks/pre-commit',
    'mv .git .git2 && cp -r .git2 .git && echo "[core] fsmonitor = evil" >> .git/config',
    'mv .git .git2; mkdir .git; echo "[core] fsmonitor = evil" > .git/config; mv .git2/* .git',
    'rm -rf .git/hooks; mkdir .git/hooks; echo evil > .git/hooks/pre-commit',
    'rm -rf .git; echo "gitdir: evil" > .git',
    'mv vendor vendor2; mkdir -p vendor/lib/.git; echo "[core] fsmonitor = evil" > vendor/lib/.git/config',
    'mv vendor/lib vendor/lib2; mkdir -p vendor/lib/.git; echo "[core] fsmonitor = evil" > vendor/lib/.git/config',
    'echo evil > .vscode/tasks.json',
    'mv .vscode v; mkdir .vscode; echo evil > .vscode/settings.json',
    'ln -s .git/config link; echo "[core] fsmonitor = evil" >> link',
    'ln .git/config link && echo "[core] fsmonitor = evil" >> link',
    'ln -sfn /tmp .git/hooks; ln -sfT /tmp .git/hooks',
    'chmod 777 .git/config; truncate -s 0 .git/config',
    'perl -e \'rename ".git", "x" and mkdir ".git"; rename "vendor", "y" and mkdir "vendor"\'',
]


@needs_bwrap
@pytest.mark.parametrize('command', ATTACKS)
async def test_command_cannot_change_existing_protected_files(repository: Path, command: str):
    """Existing protected files remain unchanged by any command, even if it moves their parent directories."""
    backend = SandboxBackend(repository)
    before = await backend.protected_files()
    await backend.run(command, shell=True)
    after = await backend.protected_files()
    assert {path: after.get(path) for path in before} == before
    assert 'evil' not in ''.join(
        data.decode(errors='replace') for path, data in files_of(repository).items() if f'/{path}' in before
    )


@needs_bwrap
async def test_new_protected_files_of_a_command_are_reported(repository: Path):
    """Protected files that a command creates cannot be mounted in advance, so they are reported."""
    backend = SandboxBackend(repository)
    before = await backend.protected_files()
    await backend.run('git init -q new && git -C new config core.fsmonitor evil && echo x > .envrc', shell=True)
    changes = compare_protected(before, await backend.protected_files())
    assert [each.path for each in changes] == ['/.envrc', '/new/.git/config', '/new/.git/info/exclude']
    # From now on they exist and are mounted read-only.
    again = await backend.run('git -C new config core.fsmonitor worse; echo y > .envrc', shell=True)
    assert again.exit_code != 0
    assert (repository / '.envrc').read_text() == 'x\n'


@needs_bwrap
async def test_rename_above_protected_files_is_reported(repository: Path):
    """A parent directory of editor settings can be moved. The changed files are reported."""
    (repository / 'app' / '.vscode').mkdir(parents=True)
    (repository / 'app' / '.vscode' / 'settings.json').write_text('{}')
    backend = SandboxBackend(repository)
    before = await backend.protected_files()
    await backend.run('mv app old && mkdir -p app/.vscode && echo evil > app/.vscode/settings.json', shell=True)
    assert compare_protected(before, await backend.protected_files()) == (
        ProtectedChange(path='/app/.vscode/settings.json', change='changed'),
        ProtectedChange(path='/old/.vscode/settings.json', change='added'),
    )


@needs_bwrap
async def test_empty_list_of_patterns_protects_nothing(repository: Path):
    backend = SandboxBackend(repository, protected=())
    done = await backend.run('git config a.b c && mv .git .git2', shell=True)
    assert done.exit_code == 0
    assert await backend.protected_files() == {}


@needs_bwrap
async def test_undecodable_names_and_long_paths_are_mounted_or_reported(tmp_path: Path):
    odd = os.fsencode(tmp_path) + b'/\xff \n\\040'
    os.mkdir(odd)
    Path(os.fsdecode(odd), '.envrc').write_text('a')
    deep = tmp_path
    for _ in range(13):
        deep /= 'd' * 250
        os.mkdir(deep)
    Path(deep, '.envrc').write_text('a')
    backend = SandboxBackend(tmp_path)
    before = await backend.protected_files()
    await backend.run(
        'for f in */.envrc; do echo b > "$f"; done; find . -path "./d*" -name .envrc -exec sh -c \'echo b > "$1"\' - {} \\;',
        shell=True,
    )
    assert Path(os.fsdecode(odd), '.envrc').read_text() == 'a'
    changes = compare_protected(before, await backend.protected_files())
    assert [each.change for each in changes] == ['changed']


@needs_bwrap
async def test_nearest_protected_files_are_mounted_above_the_limit(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """The limit is lowered, because the real one adds a second to each command."""
    monkeypatch.setattr(sandbox_module, 'MAX_MOUNTS', 14)
    for place in ('.', 'a', 'b', 'c'):
        (repository / place).mkdir(exist_ok=True)
        (repository / place / '.envrc').write_text('old\n')
    backend = SandboxBackend(repository)
    before = await backend.protected_files()
    await backend.run(
        'for f in .envrc */.envrc .git/config vendor/lib/.git/config; do echo new >> $f; done', shell=True
    )
    changed = [each.path for each in compare_protected(before, await backend.protected_files())]
    assert changed
    assert not {'/.envrc', '/.git/config', '/vendor/lib/.git/config'} & {*changed}


@needs_bwrap
async def test_link_swapped_before_the_mount_exposes_no_host_file(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Another command can replace a directory by a link between the scan and the mount. The scan is patched, because
    that race cannot be triggered reliably."""
    (repository / 'swapped').symlink_to('vendor')
    (repository / 'vendor' / '.envrc').write_text('x')
    backend = SandboxBackend(repository)
    looks: list[bwrap.Mounts] = [(('swapped/.envrc', True),), (('missing/.envrc', True),), (('.vscode', True),)]
    monkeypatch.setattr(backend, '_mounts', lambda: looks.pop(0))
    done = await backend.run('echo x > .vscode/x', shell=True)
    assert 'Read-only' in done.stderr
    assert looks == []
    monkeypatch.setattr(backend, '_mounts', lambda: (('swapped/.envrc', True),))
    with pytest.raises(SandboxUnavailableError, match=r"'swapped/.envrc' was moved"):
        await backend.run('true', shell=True)
    table = b'1 0 8:1 /home/w /workspace rw - ext4 a rw\n2 1 8:1 %s /workspace/a\\040b/.envrc ro - ext4 a rw\n'
    bwrap._check_mounts(table % b'/home/w/a\\040b/.envrc', (('a b/.envrc', True),))  # pyright: ignore[reportPrivateUsage] - a race
    with pytest.raises(bwrap.MovedMountError):
        bwrap._check_mounts(table % b'/elsewhere/.envrc', (('a b/.envrc', True),))  # pyright: ignore[reportPrivateUsage] - a race


@needs_bwrap
async def test_composite_reports_protected_files_of_its_parts(repository: Path):
    mounted = CompositeBackend(SandboxBackend(repository), {'/memory': StateBackend()})
    assert isinstance(mounted, SupportsProtection)
    before: Mapping[str, str] = await mounted.protected_files()
    assert '/workspace/.git/config' in before
    assert await is_protected(mounted, '/workspace/.vscode', PROTECTED_FILES)
    assert await is_protected(mounted, '/memory/.envrc', PROTECTED_FILES)
    local: Callable[[Path], BackendProtocol] = lambda root: LocalBackend(root, allow_commands=True)  # noqa: E731
    mounted = CompositeBackend(local(repository), {'/memory': StateBackend()})
    assert isinstance(mounted, SupportsProtection)
    assert f'{repository}/.git/config' in await mounted.protected_files()
    assert await is_protected(mounted, f'{repository}/.git', ['.git/config'])
    mounted = CompositeBackend(StateBackend(), {'/m': LocalBackend(repository)})
    assert isinstance(mounted, SupportsProtection)
    assert '/m/.git/config' in await mounted.protected_files()


async def test_files_that_vanish_during_a_scan_are_absent(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Removed between listing and stat. The race is simulated, because it cannot be triggered reliably."""
    (repository / '.envrc').write_text('')
    list_entries = scan_module.list_entries

    def vanishing(directory: int) -> list[os.DirEntry[str]]:
        entries = list_entries(directory)
        (repository / '.envrc').unlink(missing_ok=True)
        shutil.rmtree(repository / 'vendor', ignore_errors=True)
        return entries

    monkeypatch.setattr(scan_module, 'list_entries', vanishing)
    states = await LocalBackend(repository).protected_files()
    assert '/.git/config' in states
    assert not [path for path in states if path.startswith(('/.envrc', '/vendor'))]
