"""Rendering of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from inline_snapshot import snapshot

from pydantic_deep.filesystem._render import (
    MAX_ENTRIES,
    MAX_PROBLEMS,
    MAX_UPLOADS,
    render_command,
    render_entries,
    render_glob,
    render_grep,
    render_size,
    render_uploads,
)
from pydantic_deep_backends import CommandResult, FileEntry, GlobResult, GrepMatch, GrepResult, SearchProblem


@dataclass(frozen=True, kw_only=True)
class Given:
    path: str
    size_bytes: int = 12_100
    media_type: str = 'text/csv'
    encoding: str | None = 'utf-8'
    line_count: int | None = 340


def entry(name: str, size: int | None = None, *, is_dir: bool = False) -> FileEntry:
    return FileEntry(name=name, path=f'/{name}', is_dir=is_dir, size=size)


def matches(count: int) -> GrepResult:
    found = [GrepMatch(path=f'/{n % 2}.py', line_number=n, line=f'line {n}') for n in range(count)]
    found.sort(key=lambda match: match.path)
    return GrepResult(matches=tuple(found), counts={'/0.py': (count + 1) // 2, '/1.py': count // 2}, files_searched=9)


@pytest.mark.parametrize(
    ('size_bytes', 'text'),
    [(0, '0 bytes'), (999, '999 bytes'), (1_000, '1.0 KB'), (12_100, '12.1 KB'), (52_428_800, '52.4 MB')],
)
def test_size_uses_powers_of_thousand(size_bytes: int, text: str) -> None:
    assert render_size(size_bytes) == text


def test_entries_are_sorted_and_directories_end_with_a_slash() -> None:
    entries = [entry('src', is_dir=True), entry('pipe'), entry('a.txt', 5), entry('B.txt', 1_500)]
    assert render_entries('/', entries) == snapshot("""\
B.txt (1.5 KB)
a.txt (5 bytes)
pipe
src/\
""")


def test_name_cannot_forge_a_line() -> None:
    assert render_entries('/', [entry('a\n/etc/passwd\u202egnp.', 1)]) == snapshot(
        'a\\n/etc/passwd\\u202egnp. (1 byte)'
    )


def test_empty_directory_is_rendered() -> None:
    assert render_entries('/src', []) == '/src is empty.'


def test_number_of_entries_is_limited() -> None:
    lines = render_entries('/', [entry(f'{n:04}', 1) for n in range(MAX_ENTRIES + 7)]).split('\n')
    assert len(lines) == MAX_ENTRIES + 1
    assert lines[-2:] == snapshot(['0499 (1 byte)', '[500 of 507 entries; use glob for the others]'])


def test_glob_result_lists_files_and_problems() -> None:
    problems = (SearchProblem(path='/locked', reason='permission denied'),)
    assert render_glob(GlobResult(paths=('/a\nb.py', '/c.py'), problems=problems), '**') == snapshot("""\
/a\\nb.py
/c.py
[not searched: /locked (permission denied)]\
""")
    assert render_glob(GlobResult(paths=(), problems=problems), '**') == snapshot("""\
No files match.
[not searched: /locked (permission denied)]\
""")


def test_number_of_glob_paths_is_limited() -> None:
    paths = tuple(f'/{n:04}' for n in range(MAX_ENTRIES + 100))
    assert render_glob(GlobResult(paths=paths), '**').split('\n')[-2:] == snapshot(
        ['/0499', '[500 of 600 files; use a narrower pattern for the others]']
    )


def test_number_of_problems_is_limited() -> None:
    problems = tuple(SearchProblem(path=f'/{n}', reason='gone') for n in range(MAX_PROBLEMS + 3))
    assert render_glob(GlobResult(paths=('/a',), problems=problems), '**') == snapshot("""\
/a
[not searched: /0 (gone), /1 (gone), /2 (gone), /3 (gone), /4 (gone) and 3 more]\
""")


def test_matching_lines_are_grouped_by_file() -> None:
    assert render_grep(matches(5), 'content', max_chars=1000) == snapshot("""\
/0.py
0: line 0
2: line 2
4: line 4
/1.py
1: line 1
3: line 3\
""")


def test_number_of_matching_lines_is_limited() -> None:
    assert render_grep(matches(100), 'content', max_chars=30) == snapshot("""\
/0.py
0: line 0
2: line 2
[2 of 100 matches in 2 files; narrow the search]\
""")
    assert render_grep(matches(2), 'content', max_chars=1) == snapshot("""\
/0.py
0: line 0
[1 of 2 matches in 2 files; narrow the search]\
""")


def test_files_and_counts_are_rendered() -> None:
    assert render_grep(matches(5), 'files_with_matches', max_chars=1000) == '/0.py\n/1.py'
    assert render_grep(matches(5), 'count', max_chars=1000) == '/0.py: 3\n/1.py: 2'


@pytest.mark.parametrize('mode', ['files_with_matches', 'count'])
def test_number_of_files_and_counts_is_limited(mode: str) -> None:
    counts = {f'/{n:04}': 1 for n in range(MAX_ENTRIES + 1)}
    result = GrepResult(matches=(), counts=counts)
    render: Callable[..., str] = render_grep
    assert render(result, mode, max_chars=1000).split('\n')[-1] == '[500 of 501 files; narrow the search]'


def test_no_matches_reports_the_number_of_searched_files() -> None:
    assert render_grep(GrepResult(matches=(), counts={}, files_searched=1234), 'content', max_chars=9) == snapshot(
        'No matches in 1,234 files.'
    )


def test_command_shows_output_errors_and_exit_code() -> None:
    assert render_command(CommandResult(exit_code=2, stdout='out\n', stderr='err\n')) == 'out\nerr\n[exit code 2]'
    assert render_command(CommandResult(exit_code=0, stdout='out', stderr='')) == 'out'
    assert render_command(CommandResult(exit_code=0, stdout='', stderr='')) == snapshot('Done; nothing was printed.')


def test_uploads_show_known_details() -> None:
    uploads = [
        Given(path='/uploads/sales.csv'),
        Given(path='/uploads/one\nline.txt', line_count=1),
        Given(path='/uploads/logo.png', size_bytes=800, media_type='image/png', encoding=None, line_count=None),
    ]
    assert render_uploads(uploads) == snapshot("""\
- /uploads/sales.csv (12.1 KB, text/csv, utf-8, 340 lines)
- /uploads/one\\nline.txt (12.1 KB, text/csv, utf-8, 1 line)
- /uploads/logo.png (800 bytes, image/png)\
""")
    assert render_uploads([]) == ''


def test_number_of_uploads_is_limited() -> None:
    lines = render_uploads([Given(path=f'/uploads/{n}') for n in range(MAX_UPLOADS + 12)]).split('\n')
    assert (len(lines), lines[-1]) == (MAX_UPLOADS + 1, '- and 12 more')
