"""Results of glob and grep for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.workspaces import FileEntry, LocalWorkspaceBackend

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import StateBackend

pytestmark = pytest.mark.anyio

Play: TypeAlias = Callable[..., Awaitable[list[str]]]

FILES = {
    '/src/a.py': 'import os\n\n\ndef area(width):\n    return width\n',
    '/src/lib/b.py': 'def area():\n    pass\n',
    '/readme.md': 'The area of a circle\n',
    '/logo.bin': b'\0area',
}


async def test_glob_finds_files_by_name(play: Play) -> None:
    assert await play(
        StateBackend(FILES),
        call('glob', pattern='**/*.py'),
        call('glob', pattern='*.py', path='src'),
        call('glob', pattern='*.rs'),
        call('glob', pattern='**/*.rs'),
        call('glob', pattern='**', path='src/lib/none'),
        call('glob', pattern='*.\nrs'),
    ) == snapshot(
        [
            """\
/src/a.py
/src/lib/b.py\
""",
            '/src/a.py',
            'No files match. Use **/*.rs to look in directories below too.',
            'No files match.',
            'failed: /src/lib/none does not exist. /src/lib has b.py.',
            'No files match. Use **/*.\\nrs to look in directories below too.',
        ]
    )


@pytest.mark.parametrize(
    ('glob', 'found'),
    [
        ('*.py', '/src/a.py: 1\n/src/lib/b.py: 1'),
        ('{a,readme}.*', '/readme.md: 1\n/src/a.py: 1'),
        ('**', '/readme.md: 1\n/src/a.py: 1\n/src/lib/b.py: 1'),
        ('src/*.py', '/src/a.py: 1'),
        ('./*', '/readme.md: 1'),
    ],
)
async def test_grep_glob_without_a_slash_matches_names_at_any_depth(play: Play, glob: str, found: str) -> None:
    results = await play(StateBackend(FILES), call('grep', pattern='area', glob=glob, output_mode='count'))
    assert results == [found]


@pytest.mark.parametrize(
    ('path', 'glob', 'found'),
    [
        ('src', 'src/*.py', '/src/a.py: 1'),
        ('/src', '/src/**/*.py', '/src/a.py: 1\n/src/lib/b.py: 1'),
        ('src/lib', './src/lib/*', '/src/lib/b.py: 1'),
        ('src/lib', 'lib/*', '/src/lib/b.py: 1'),
        ('src', 'src/src/*.py', 'No matches in 0 files.'),
        ('src', 'lib/*.md', 'No matches in 0 files.'),
        ('src', '**/src', 'No matches in 0 files.'),
    ],
)
async def test_pattern_may_begin_with_the_directory_of_the_search(play: Play, path: str, glob: str, found: str) -> None:
    """Models write patterns relative to the working directory, as for ripgrep, although they also pass `path`."""
    results = await play(
        StateBackend(FILES),
        call('grep', pattern='area', path=path, glob=glob, output_mode='count'),
        call('glob', pattern=glob, path=path),
    )
    assert [result.replace(': 1', '').replace('matches in 0 files', 'files match') for result in results] == [
        found.replace(': 1', '').replace('matches in 0 files', 'files match')
    ] * 2


async def test_pattern_that_matches_is_not_taken_for_one_with_the_directory(play: Play) -> None:
    files = {'/docs/docs/deep.md': 'area', '/docs/flat.md': 'area'}
    assert (
        await play(
            StateBackend(files),
            call('grep', pattern='area', path='docs', glob='docs/*.md', output_mode='files_with_matches'),
            call('glob', pattern='docs/*.md', path='docs'),
        )
        == ['/docs/docs/deep.md'] * 2
    )


async def test_grep_glob_applies_to_a_single_file(play: Play) -> None:
    results = await play(
        StateBackend(FILES),
        call('grep', pattern='area', path='src/a.py', glob='*.py', output_mode='count'),
        call('grep', pattern='area', glob=''),
    )
    assert results == snapshot(
        [
            '/src/a.py: 1',
            "retried: '' is not a valid pattern: it names no file, and only files are found. Use `**`.",
        ]
    )


async def test_grep_groups_lines_by_file(play: Play) -> None:
    assert await play(StateBackend(FILES), call('grep', pattern='area')) == snapshot(
        [
            """\
/readme.md
1: The area of a circle
/src/a.py
4: def area(width):
/src/lib/b.py
1: def area():\
"""
        ]
    )


async def test_grep_shows_files_or_counts(play: Play) -> None:
    assert await play(
        StateBackend(FILES),
        call('grep', pattern='area', output_mode='files_with_matches'),
        call('grep', pattern='area', output_mode='count', glob='**/*.py'),
        call('grep', pattern='area', path='/src/a.py'),
        call('grep', pattern='zebra'),
    ) == snapshot(
        [
            """\
/readme.md
/src/a.py
/src/lib/b.py\
""",
            """\
/src/a.py: 1
/src/lib/b.py: 1\
""",
            """\
/src/a.py
4: def area(width):\
""",
            'No matches in 3 files.',
        ]
    )


async def test_invalid_pattern_is_retried(play: Play) -> None:
    results = await play(
        StateBackend(FILES),
        call('grep', pattern='('),
        call('grep', pattern=r'(a)\1'),
        call('glob', pattern='[a'),
        call('grep', pattern='a', path='nowhere'),
        call('glob', pattern='*', path='readme.md'),
        call('grep', pattern='a', path='../x'),
    )
    assert [text.partition(': ')[0] for text in results] == [
        'retried',
        'retried',
        'retried',
        'failed',
        'retried',
        'retried',
    ]


async def test_hostile_regex_is_answered(play: Play) -> None:
    backend = StateBackend({'/a.txt': 'a' * 5_000 + '!\n'})
    assert await play(backend, call('grep', pattern='(a+)+$')) == ['No matches in 1 file.']


async def test_many_long_lines_are_limited(play: Play) -> None:
    backend = StateBackend({'/a.txt': ('x' * 500 + '\n') * 1_000})
    [found] = await play(backend, call('grep', pattern='x'))
    assert len(found) < 41_000
    assert found.endswith('of 1,000 matches in 1 file; narrow the search]')


async def test_unreadable_directory_does_not_hide_other_matches(tmp_path: Path) -> None:
    class Locked(LocalWorkspaceBackend):
        async def list_dir(self, path: str) -> Sequence[FileEntry]:
            if path.endswith('/locked'):
                raise PermissionError(13, 'Permission denied', path)
            return await super().list_dir(path)

    (tmp_path / 'locked').mkdir()
    (tmp_path / 'a.txt').write_text('needle')
    model = ScriptedModel(call('grep', pattern='needle'), call('glob', pattern='**'), 'done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=Locked(tmp_path))
    found = [str(part.content).replace(str(tmp_path), '') for part in model.requests[-1].tool_returns]
    assert found == snapshot(
        [
            """\
/a.txt
1: needle
[not searched: /locked (Permission denied)]\
""",
            """\
/a.txt
[not searched: /locked (Permission denied)]\
""",
        ]
    )


async def test_workspace_without_search_is_searched(tmp_path: Path) -> None:
    (tmp_path / 'src').mkdir()
    (tmp_path / 'src' / 'a.py').write_text('import os\narea = 1\n')
    model = ScriptedModel(call('glob', pattern='**/*.py'), call('grep', pattern='^area', path='src'), 'done')
    await Agent(model, capabilities=[Filesystem()]).run('go', workspace=LocalWorkspaceBackend(tmp_path))
    found = [str(part.content).replace(str(tmp_path), '') for part in model.requests[-1].tool_returns]
    assert found == ['/src/a.py', '/src/a.py\n2: area = 1']
