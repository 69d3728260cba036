"""Hard links to files outside of the directory are not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend, SandboxBackend, SearchProblem, Tree, digest_of
from pydantic_deep_backends.tracking import DirectoryRules

pytestmark = pytest.mark.anyio


class Everything:
    """Ignores nothing, and must not be given ignore files."""

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        raise AssertionError(data)

    def below(self, name: str) -> DirectoryRules:
        return self

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        return False


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with a hard link to a file outside, and a file with two names inside."""
    root = tmp_path / 'root'
    (root / 'deep' / 'er').mkdir(parents=True)
    (tmp_path / 'secret').write_text('canary\n')
    os.link(tmp_path / 'secret', root / 'deep' / 'linked')
    (root / 'one').write_text('canary inside\n')
    os.link(root / 'one', root / 'deep' / 'er' / 'two')
    (root / 'by-name').symlink_to('deep/linked')
    return root


@pytest.mark.parametrize('kind', [LocalBackend, SandboxBackend])
async def test_hard_link_to_an_outside_file_is_not_read(root: Path, kind: type[LocalBackend]):
    """No operation returns the contents of a file with a name outside of the directory. A file with all names inside is
    readable."""
    backend = kind(root)
    for path in ('/workspace/deep/linked', '/workspace/by-name'):
        name = path if kind is SandboxBackend else path.removeprefix('/workspace')
        with pytest.raises(PermissionError, match='hard link'):
            await backend.read_bytes(name)
        with pytest.raises(PermissionError, match='hard link'):
            await backend.compare_and_swap(name, b'x', expected=digest_of(b'canary\n'))
        with pytest.raises(PermissionError, match='hard link'):
            await backend.grep('canary', name)
    top = '/workspace' if kind is SandboxBackend else ''
    assert await backend.read_bytes(f'{top}/deep/er/two') == b'canary inside\n'
    found = await backend.grep('canary', top or '/')
    assert {match.path for match in found.matches} == {f'{top}/one', f'{top}/deep/er/two'}
    assert {problem.path for problem in found.problems} == {f'{top}/deep/linked', f'{top}/by-name'}
    assert all(isinstance(problem, SearchProblem) for problem in found.problems)
    assert list(await backend.snapshot()) == ['/deep/er/two', '/one']


async def test_hard_links_are_readable_if_allowed(root: Path):
    backend = LocalBackend(root, allow_hard_links=True)
    assert await backend.read_bytes('/deep/linked') == b'canary\n'
    assert await backend.in_directory(root).read_bytes('/deep/linked') == b'canary\n'
    assert await SandboxBackend(root, allow_hard_links=True).in_directory(root).read_bytes('/workspace/by-name')


async def test_write_replaces_a_hard_link_to_an_outside_file(root: Path, tmp_path: Path):
    backend = LocalBackend(root)
    await backend.write_bytes('/deep/linked', b'mine')
    assert await backend.read_bytes('/deep/linked') == b'mine'
    assert (tmp_path / 'secret').read_text() == 'canary\n'


async def test_tracking_and_ignore_rules_skip_outside_hard_links(root: Path, tmp_path: Path):
    """Captures omit and report such a file. A `.gitignore` of this kind is ignored."""
    os.link(tmp_path / 'secret', root / 'deep' / '.gitignore')
    tracker = LocalBackend(root).track(Everything(), max_file_bytes=1000)
    captured = await tracker.capture(Tree())
    assert list(captured.tree) == ['/deep/er/two', '/one']
    assert {(file.path, file.reason) for file in captured.omitted} == {
        ('/deep/linked', 'unreadable'),
        ('/deep/.gitignore', 'unreadable'),
    }
