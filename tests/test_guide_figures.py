"""The table of limits in the guide on files names the limits of the code."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from pydantic_deep.filesystem import _files, _render, _toolset, _window
from pydantic_deep.filesystem._capability import OFFLOAD_CHARS
from pydantic_deep_backends import search

MIB, MB = 1024 * 1024, 1_000_000

FIGURES: dict[str, list[float]] = {
    'one `read_file`': [signature(_toolset.read_file).parameters['limit'].default, _toolset.MAX_RESULT_CHARS],
    'a line among others': [_window.MAX_LINE_CHARS],
    'a file to read or search': [_files.MAX_FILE_BYTES / MIB],
    'an image or PDF': [_toolset.MAX_MEDIA_BYTES / MB],
    'lines of one `grep`': [_toolset.MAX_GREP_LINES, _toolset.MAX_RESULT_CHARS],
    'entries of `ls`, files of `glob`': [_render.MAX_ENTRIES],
    'files and directories of one search': [search.MAX_ENTRIES],
    'uploads in a notice': [_render.MAX_UPLOADS],
    'one `execute`': [
        signature(_toolset.execute).parameters['timeout_seconds'].default,
        _toolset.MAX_TIMEOUT_SECONDS,
    ],
}


@pytest.fixture(scope='module')
def guide() -> str:
    return (Path(__file__).parent.parent / 'docs/guides/files.md').read_text(encoding='utf-8')


def test_the_limits_are_those_of_the_code(guide: str) -> None:
    table = guide[guide.index('## Limits') : guide.index('### Long results')]
    rows = [line.split(' | ') for line in table.splitlines() if re.match(r'\| [^-w]', line)]
    figures = {
        row[0].removeprefix('| '): [float(f.replace(',', '')) for f in re.findall(r'[\d,]*\d', row[1])] for row in rows
    }
    assert figures == FIGURES
    assert search.MAX_FILE_BYTES == _files.MAX_FILE_BYTES


def test_a_long_result_is_as_long_as_in_the_code(guide: str) -> None:
    assert f'A text of more than {OFFLOAD_CHARS:,} characters' in guide
