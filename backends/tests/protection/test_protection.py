"""Protected files: which they are, that commands of a sandbox cannot change them, and that what changed is known."""

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


def test_a_string_is_no_list_of_patterns(tmp_path: Path):
    with pytest.raises(TypeError, match='is the string'):
        LocalBackend(tmp_path, protected='.envrc')


def test_backends_say_what_they_protect(tmp_path: Path):
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


async def test_the_state_of_protected_files_tells_every_change(repository: Path):
    """Contents, the right to be executed, links and kinds are told apart; samples of hooks and other files are not."""
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


async def test_what_was_not_changed_is_neither_listed_nor_read_again(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """A scan after another costs what is new. The clock is the index's own, so that no time must pass."""
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

    # Counted where they are used: no public operation tells what was read.
    monkeypatch.setattr(scan_module, 'list_entries', counted_list)
    monkeypatch.setattr(scan_module, '_contents', counted_read)
    assert await backend.protected_files() == before
    assert len(listed) == 5  # what is in protected directories: hooks and info of each repository, and .vscode
    assert set(read) == {'config'}  # for what it names, and not for its state
    (repository / '.envrc').write_text('new')
    assert compare_protected(before, await backend.protected_files()) == (
        ProtectedChange(path='/.envrc', change='added'),
    )
    assert '.envrc' in read


async def test_what_cannot_be_read_has_a_state(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Root reads everything, so the failure of a read is made."""

    def fail(directory: int, name: str) -> bytes:
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(scan_module, '_contents', fail)
    states = await LocalBackend(repository).protected_files()
    assert states['/.git/config'] == 'unreadable: Permission denied'


@needs_bwrap
async def test_a_commit_works_in_a_sandbox_and_the_configuration_is_read_only(repository: Path):
    """The sandbox mounts what exists of the protected files read-only, so that `git commit` inside still works."""
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
async def test_a_command_changes_nothing_that_programs_of_the_host_run_or_obey(repository: Path, command: str):
    """What exists of the protected files stays as it was, whatever a command does to it or to the directories above."""
    backend = SandboxBackend(repository)
    before = await backend.protected_files()
    await backend.run(command, shell=True)
    after = await backend.protected_files()
    assert {path: after.get(path) for path in before} == before
    assert 'evil' not in ''.join(
        data.decode(errors='replace') for path, data in files_of(repository).items() if f'/{path}' in before
    )


@needs_bwrap
async def test_new_protected_files_of_a_command_are_told(repository: Path):
    """What a command makes anew cannot be mounted before: a repository with `core.fsmonitor` is told of."""
    backend = SandboxBackend(repository)
    before = await backend.protected_files()
    await backend.run('git init -q new && git -C new config core.fsmonitor evil && echo x > .envrc', shell=True)
    changes = compare_protected(before, await backend.protected_files())
    assert [each.path for each in changes] == ['/.envrc', '/new/.git/config', '/new/.git/info/exclude']
    # From now on they are there, and cannot be changed either.
    again = await backend.run('git -C new config core.fsmonitor worse; echo y > .envrc', shell=True)
    assert again.exit_code != 0
    assert (repository / '.envrc').read_text() == 'x\n'


@needs_bwrap
async def test_a_rename_above_other_protected_files_is_told(repository: Path):
    """Directories above the settings of an editor can be moved; what is in their place then is told."""
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
async def test_an_empty_list_protects_nothing(repository: Path):
    backend = SandboxBackend(repository, protected=())
    done = await backend.run('git config a.b c && mv .git .git2', shell=True)
    assert done.exit_code == 0
    assert await backend.protected_files() == {}


@needs_bwrap
async def test_names_that_are_no_text_and_long_paths_are_mounted_or_told(tmp_path: Path):
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
async def test_the_nearest_files_are_mounted_if_there_are_too_many(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Made small: what the number is in truth takes a second of each command."""
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
async def test_a_link_that_is_put_in_the_way_shows_nothing_of_the_host(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another command may put a link in the place of a directory between the look and the mount. The look is replaced,
    because that moment cannot be hit otherwise."""
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
async def test_a_composite_tells_of_the_directory_in_which_commands_run(repository: Path):
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


async def test_what_vanishes_during_a_scan_is_not_there(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Removed between the listing and the look: that moment cannot be hit otherwise."""
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
