"""`.gitignore`: versions omit the same files as git, checked file by file."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_deep.versions import GitignoreRules
from pydantic_deep.versions.files._gitignore import left_out_by
from pydantic_deep_backends import LocalBackend, StateBackend, Tree

pytestmark = pytest.mark.anyio

NAMES = ('a', 'b', 'foo', 'x.log', 'y.py')

PATTERNS = (
    'foo', 'foo/', '/foo', 'a/foo', 'foo/*', 'foo/**', '**/foo', 'a/**/b', '*', '*.log', '!*.log', '!foo', '!foo/',
    '!*/', '/*', '!/a', '# foo', '', '   ', '\\!foo', 'f?o', '[ab]', '[!a]', 'foo   ', 'x.log\r', 'a/', '!a/b', '**/',
    '[ab', 'foo\\', '/', '!', '**', 'a/**',
)  # fmt: skip


async def left_out(ignore_files: Mapping[str, str], paths: list[str]) -> set[str]:
    backend = StateBackend({f'{directory}/.gitignore': text for directory, text in ignore_files.items()})
    return await left_out_by(await backend.snapshot(), backend.read_bytes, paths)


def left_out_by_git(directory: Path, ignore_files: Mapping[str, str], paths: list[str]) -> set[str]:
    """Return the paths that `git check-ignore` reports for existing files."""
    for path in paths:
        (directory / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (directory / path[1:]).touch()
    for at, text in ignore_files.items():
        (directory / at[1:]).mkdir(parents=True, exist_ok=True)
        (directory / at[1:] / '.gitignore').write_bytes(text.encode())
    environment = {'PATH': '/usr/bin:/bin', 'GIT_CONFIG_GLOBAL': '/dev/null', 'GIT_CONFIG_NOSYSTEM': '1'}
    subprocess.run(['git', 'init', '-q'], cwd=directory, check=True, env=environment)
    asked = '\0'.join(path[1:] for path in paths)
    found = subprocess.run(
        ['git', 'check-ignore', '-z', '--stdin'],
        input=asked, capture_output=True, text=True, cwd=directory, env=environment,
    )  # fmt: skip
    assert found.returncode in (0, 1), found.stderr
    return {f'/{path}' for path in found.stdout.split('\0') if path}


PATHS = sorted(
    {f'/{one}/{two}/{three}' for one in ('a', 'b', 'foo') for two in ('a', 'b', 'foo') for three in NAMES[3:]}
    | {f'/{one}/{name}' for one in ('a', 'b', 'foo') for name in NAMES[3:]}
    | {f'/{name}' for name in NAMES[3:]}
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(('', '/a', '/a/foo', '/foo')), st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=5)
    )
)
def test_the_same_files_are_ignored_as_by_git(
    tmp_path_factory: pytest.TempPathFactory, patterns: dict[str, list[str]]
) -> None:
    ignore_files = {directory: '\n'.join(lines) for directory, lines in patterns.items()}
    by_git = left_out_by_git(tmp_path_factory.mktemp('git'), ignore_files, PATHS)
    assert anyio.run(left_out, ignore_files, PATHS) == by_git


async def test_file_named_like_an_ignored_directory_is_treated_as_by_git(tmp_path: Path) -> None:
    ignore_files = {'': 'foo/\n*.log\n!foo', '/a': '!keep.log'}
    paths = ['/foo', '/a/keep.log', '/a/other.log', '/b/foo/x.log']
    assert await left_out(ignore_files, paths) == left_out_by_git(tmp_path, ignore_files, paths)
    assert await left_out(ignore_files, paths) == {'/a/other.log', '/b/foo/x.log'}


async def test_git_directories_are_ignored_at_every_depth() -> None:
    assert await left_out({}, ['/.git/config', '/a/.git/config', '/a/.git', '/.gitmodules']) == {
        '/.git/config', '/a/.git/config', '/a/.git',
    }  # fmt: skip


async def test_byte_order_mark_is_not_part_of_a_pattern() -> None:
    rules = GitignoreRules().with_ignore_file(b'\xef\xbb\xbffoo\n')
    assert rules.leaves_out('foo', is_dir=False)


async def test_rules_without_patterns_are_reused() -> None:
    rules = GitignoreRules()
    assert rules.with_ignore_file(b'# nothing\n\n') is rules
    assert rules.below('a') is rules


async def test_databases_that_programs_have_open_are_ignored(tmp_path: Path) -> None:
    """A directory `NAME.owners` marks them. No line of a `.gitignore` includes them again."""
    (tmp_path / '.gitignore').write_text('!*\n')
    (tmp_path / 'd').mkdir()
    for name in ('agents.db', '[a] #1!.db', 'alone.db', 'd/deep.db'):
        for suffix in ('', '-wal', '-shm', '-journal', '-notes'):
            (tmp_path / f'{name}{suffix}').touch()
    (tmp_path / 'two\nlines').touch()
    for name in ('agents.db', '[a] #1!.db', 'd/deep.db', 'two\nlines', 'missing', ''):
        (tmp_path / f'{name}.owners').mkdir()
        (tmp_path / f'{name}.owners/1').touch()
    tracker = LocalBackend(tmp_path).track(GitignoreRules(), max_file_bytes=1000)
    assert set((await tracker.capture(Tree())).tree) == {
        *(
            '/.gitignore',
            '/agents.db-notes',
            '/[a] #1!.db-notes',
            '/d/deep.db-notes',
            '/missing.owners/1',
            '/.owners/1',
        ),
        *('/alone.db', '/alone.db-wal', '/alone.db-shm', '/alone.db-journal', '/alone.db-notes'),
    }


async def test_other_files_beside_a_name_with_that_suffix_are_versioned(tmp_path: Path) -> None:
    """Only a directory `NAME.owners` beside a regular file marks a database: a list of owners hides neither its directory
    nor its file."""
    (tmp_path / 'api').mkdir()
    for name in ('api/main.py', 'api.owners', 'setup.py', 'setup.py.owners'):
        (tmp_path / name).touch()
    (tmp_path / 'web').mkdir()
    (tmp_path / 'web/page.ts').touch()
    (tmp_path / 'web.owners').mkdir()
    (tmp_path / 'web.owners/ada').touch()
    tracker = LocalBackend(tmp_path).track(GitignoreRules(), max_file_bytes=1000)
    captured = await tracker.capture(Tree())
    assert set(captured.tree) == {
        '/api/main.py',
        '/api.owners',
        '/setup.py',
        '/setup.py.owners',
        '/web/page.ts',
        '/web.owners/ada',
    }
    assert captured.in_use == []
