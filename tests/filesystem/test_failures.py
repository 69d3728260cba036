"""Errors of a backend as results for the model."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from pydantic_deep.testing import call
from pydantic_deep_backends import BackendError, StateBackend

from .conftest import Play

pytestmark = pytest.mark.anyio


async def test_reading_a_directory_suggests_ls(play: Play) -> None:
    backend = StateBackend({'/src/a.py': ''})
    assert await play(backend, call('read_file', path='src'), call('ls', path='src/a.py')) == snapshot(
        [
            'retried: /src is a directory. Use ls, or name a file.',
            'retried: /src/a.py: it, or a parent of it, is a file and not a directory.',
        ]
    )


@pytest.mark.parametrize(
    ('error', 'said'),
    [
        (OSError(5, 'Input/output error', '/home/someone/a'), 'failed: /a: Input/output error.'),
        (OSError("not a regular file: '/a'"), "failed: /a: not a regular file: '/a'."),
        (OSError(), 'failed: /a: OSError.'),
        (BackendError('The disk is gone.'), 'failed: The disk is gone.'),
    ],
)
async def test_failed_read_reports_its_reason(play: Play, error: Exception, said: str) -> None:
    class Broken(StateBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise error

    assert await play(Broken({'/a': 'x'}), call('read_file', path='a')) == [said]


@pytest.mark.parametrize(
    'path',
    ['../x', '/a/../../x', '~/x', 'a\0b', 'a\\b', 'C:\\x', 'C:/x', '//srv/x', 'a\nb', 'x' * 300, '/x' * 3000],
)
@pytest.mark.parametrize('tool', ['read_file', 'ls'])
async def test_invalid_path_is_refused_in_one_sentence(play: Play, tool: str, path: str) -> None:
    [said] = await play(StateBackend({'/x': 'secret'}), call(tool, path=path))
    assert said.startswith('retried: ')
    assert 'is not a valid path: ' in said
    assert 'Traceback' not in said
    assert len(said) < 600
