"""Protected files in a sandbox: mounted read-only, and reported if they are new or moved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import pydantic_deep_backends.sandbox._backend as sandbox_module
from backends.tests.conftest import git
from pydantic_deep_backends import SandboxBackend
from pydantic_deep_backends.errors import SandboxUnavailableError
from pydantic_deep_backends.protection import ProtectedChange, compare_protected
from pydantic_deep_backends.sandbox import _bwrap as bwrap

pytestmark = pytest.mark.anyio

needs_bwrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)

COMMIT = 'git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m message'


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob('*')) if path.is_file()}


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
