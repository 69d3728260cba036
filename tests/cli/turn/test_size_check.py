"""Directories that are too large: their files are not stored in versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pydantic_deep import LocalBackend
from pydantic_deep.cli.turn import _size_check
from pydantic_deep.cli.turn._size_check import fits_in_versions
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

Invoke = Callable[..., Result]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
ALLOW = '--approvals=allow'


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def last(result: Result) -> dict[str, Any]:
    """Return the last event."""
    return json.loads(result.stdout.splitlines()[-1])


async def test_size_check_counts_only_versioned_files(work: Path) -> None:
    (work / '.git').mkdir()
    (work / '.git' / 'object').write_bytes(b'x' * 100)
    (work / '.gitignore').write_text('out/\n*.log\n')
    (work / 'out').mkdir()
    (work / 'out' / 'big').write_bytes(b'x' * 100)
    (work / 'src').mkdir()
    (work / 'src' / 'a.log').write_bytes(b'x' * 100)
    (work / 'src' / 'a.py').write_bytes(b'x' * 10)
    (work / 'src' / 'link').symlink_to('a.py')
    backend = LocalBackend(work)
    assert await fits_in_versions(backend, max_files=3, max_bytes=33)
    assert not await fits_in_versions(backend, max_files=2, max_bytes=33)
    assert not await fits_in_versions(backend, max_files=3, max_bytes=32)


async def test_size_check_does_not_count_a_store_in_the_directory(work: Path) -> None:
    """The store of the versions may be in the directory. No version contains it, so its size ends none."""
    async with open_store(f'sqlite:///{work}/agents.db'):
        assert await fits_in_versions(LocalBackend(work), max_files=2, max_bytes=100)


async def test_unreadable_directory_counts_as_empty(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(_size_check.os, 'scandir', refuse)
    assert await fits_in_versions(LocalBackend(work), max_files=0, max_bytes=0)


def test_large_directory_stores_only_the_conversation(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, work: Path
) -> None:
    monkeypatch.setattr(_size_check, 'MAX_FILES', 0)
    monkeypatch.setattr(fits_in_versions, '__kwdefaults__', {'max_files': 0, 'max_bytes': 0})
    first = invoke('run', 'One', ALLOW, model=ScriptedModel(EDIT, 'First.'))
    assert 'The directory is too large to store its files in versions: only the conversation is stored.' in first.stderr
    model = ScriptedModel(WRITE, 'Second.')
    second = last(invoke('run', 'Two', '--continue', ALLOW, '--json', model=model))
    assert (second['workspace']['has_files'], second['workspace']['is_in_directory'], (work / 'new.txt').exists()) == (
        False,
        True,
        True,
    )
    assert len(model.requests[0].messages) == 5
    rows = document(invoke('log', '--json'))
    assert [(row['files_changed'], row['is_head']) for row in rows] == [(None, True), (None, False), (None, False)]
    back = invoke('rewind', 'HEAD~')
    assert back.stdout.splitlines()[1] == 'The version has no files; the directory is unchanged.'
    assert document(invoke('log', '--json'))[1]['is_head']
    assert invoke('checkout', 'HEAD').stderr.endswith('it has none: they were not versioned.\n')
