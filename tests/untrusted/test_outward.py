"""Calls that act outside of the project, and the files that belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic_ai import ToolDefinition

from pydantic_deep.deps import UPLOADS
from pydantic_deep.filesystem._files import OFFLOAD
from pydantic_deep.untrusted import _outward
from pydantic_deep.untrusted._outward import is_outward, trusted_files


def test_directories_are_those_of_the_files() -> None:
    assert (_outward.UPLOADS, _outward.OFFLOAD) == (UPLOADS, OFFLOAD)


@pytest.mark.parametrize(
    ('effect', 'args', 'is_trusted', 'outside', 'expected'),
    [
        ('external', {}, True, [], True),
        (None, {}, True, [], True),
        ('unknown', {}, True, [], True),
        ('read', {'topic': 'tides'}, False, None, False),
        ('read', {'topic': 'https://eve.example'}, False, None, True),
        ('read', {'topic': 'www.eve.example'}, False, None, True),
        ('read', {'queries': [{'topic': 'tides'}, {'topic': 'ftp://eve.example'}]}, False, None, True),
        ('read', {'url': 'eve.example'}, False, None, True),
        ('read', {'baseUrl': 'eve.example'}, False, None, True),
        ('read', {'page_urls': ['eve.example']}, False, None, True),
        ('read', {'url': None, 'link': ''}, False, None, False),
        ('read', {'curl': 'no', 'count': 3}, False, None, False),
        ('read', {'url': 'eve.example'}, True, None, False),
        ('write', {}, False, [], False),
        ('write', {}, False, ['/etc'], True),
        ('write', {}, True, ['/etc'], True),
        ('write', {}, False, None, True),
        ('write', {}, True, None, False),
    ],
)
def test_outward_calls(
    effect: str | None, args: Mapping[str, Any], is_trusted: bool, outside: Sequence[str] | None, expected: bool
) -> None:
    tool = ToolDefinition(name='tool', metadata=None if effect is None else {'effect': effect})
    assert is_outward(tool, args, is_trusted=is_trusted, outside=outside) is expected


@pytest.mark.parametrize(
    ('trusted', 'paths', 'text', 'outside'),
    [
        (['.'], ['/project/a'], '', []),
        (['.'], ['/other/a'], '', ['/other/a']),
        (['.'], ['/project/uploads/a'], '', ['/project/uploads/a']),
        (['.', 'uploads'], ['/project/uploads/a'], '', []),
        (['uploads/mine'], ['/project/uploads/mine/a', '/project/uploads/a'], '', ['/project/uploads/a']),
        (['/'], ['/offload/a', '/other'], '', ['/offload/a']),
        (['/', '/offload'], ['/offload/a'], '', []),
        (['.'], ['/project'], 'uploads/\nsrc/', []),
        (['.'], ['/project'], 'uploads/a.txt:1:text', ['/project/uploads']),
        (['.', 'uploads'], ['/project'], 'uploads/a.txt:1:text', []),
        (['.'], ['/project/src'], 'uploads/a.txt', []),
        (['.'], ['/'], 'uploads/a.txt', ['/', '/project/uploads']),
        ([], ['/project/a'], '', ['/project/a']),
    ],
)
def test_files_outside_of_the_project(
    trusted: Sequence[str], paths: Sequence[str], text: str, outside: Sequence[str]
) -> None:
    assert trusted_files(trusted, '/project').outside(paths, text) == outside
