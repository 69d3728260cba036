"""The tables of limits in the guides match the code."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from pydantic_deep.filesystem import _changes, _files, _listing, _render, _toolset, _window
from pydantic_deep.filesystem._capability import OFFLOAD_CHARS
from pydantic_deep.skills import Skills, _backend, _catalogue, _document, _scan
from pydantic_deep.skills import _files as _skill_files
from pydantic_deep_backends import SandboxLimits, search

MIB, MB = 1024 * 1024, 1_000_000

FILES: dict[str, list[float]] = {
    'one `read_file`': [signature(_toolset.read_file).parameters['limit'].default, _toolset.MAX_RESULT_CHARS],
    'a line among others': [_window.MAX_LINE_CHARS],
    'a file to read or search': [_files.MAX_READ_BYTES / MIB],
    'an image or PDF': [_toolset.MAX_MEDIA_BYTES / MB],
    'lines of one `grep`': [_toolset.MAX_GREP_LINES, _toolset.MAX_RESULT_CHARS],
    'entries of `ls`, files of `glob`': [_render.MAX_ENTRIES],
    'files and directories of one search': [search.MAX_ENTRIES],
    'time of one search': [search.MAX_SECONDS],
    'uploads in a notice': [_render.MAX_UPLOADS],
    'the notice of files': [_listing.MAX_LISTING_CHARS],
    'one `execute`': [
        signature(_toolset.execute).parameters['timeout_seconds'].default,
        _changes.MAX_TIMEOUT_SECONDS,
    ],
}

SKILLS: dict[str, list[float]] = {
    'the catalogue': [Skills().max_catalog_tokens, _catalogue.MAX_FOUND],
    'a `SKILL.md`, or a text file of a skill': [_document.MAX_DOCUMENT_BYTES / MIB],
    'the frontmatter': [_document.MAX_HEADER_CHARS],
    'levels of folders, with that of the skill': [_scan.MAX_DEPTH],
    'folders of one directory': [_scan.MAX_DIRECTORIES],
    'folders of one `BackendSkills`': [_backend.MAX_SKILLS],
    'files of a skill that are named': [_skill_files.MAX_FILES],
}

LIMITS = SandboxLimits()

SANDBOX: dict[str, list[float]] = {
    '`timeout_seconds`': [LIMITS.timeout_seconds, signature(_toolset.execute).parameters['timeout_seconds'].default],
    '`cpu_seconds`': [LIMITS.cpu_seconds],
    '`memory_bytes`': [LIMITS.memory_bytes / MIB],
    '`processes`': [LIMITS.processes],
    '`open_files`': [LIMITS.open_files],
    '`file_size_bytes`': [LIMITS.file_size_bytes / MIB],
    '`disk_bytes`, `disk_files`': [LIMITS.disk_bytes / MIB, LIMITS.disk_files],
    '`tmp_bytes`': [LIMITS.tmp_bytes / MIB],
    '`output_bytes`': [LIMITS.output_bytes / MIB],
}

GUIDES = Path(__file__).parent.parent.parent / 'docs/guides'


@pytest.mark.parametrize(('name', 'figures'), [('files', FILES), ('skills', SKILLS), ('sandbox', SANDBOX)])
def test_documented_limits_match_the_code(name: str, figures: dict[str, list[float]]) -> None:
    table = re.split('(?m)^##.*$', (GUIDES / f'{name}.md').read_text(encoding='utf-8').split('\n## Limits\n')[1])[0]
    rows = [line.split(' | ') for line in re.findall(r'^\| .*', table.split('\n|---')[1], re.MULTILINE)]
    found = {
        row[0].removeprefix('| '): [float(f.replace(',', '')) for f in re.findall(r'[\d,]*\d', ' '.join(row[1:]))]
        for row in rows
    }
    assert found == figures


def test_readable_files_are_searchable() -> None:
    assert search.MAX_FILE_BYTES == _files.MAX_READ_BYTES


def test_documented_result_length_matches_the_code() -> None:
    guide = (GUIDES / 'files.md').read_text(encoding='utf-8')
    assert f'A text of more than {OFFLOAD_CHARS:,} characters' in guide
