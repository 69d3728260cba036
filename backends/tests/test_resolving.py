"""Paths from user or model input, resolved to absolute and canonical ones."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import StateBackend
from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.paths import parse_path, resolve_path
from pydantic_deep_backends.resolving import absolute_path, canonical_path

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('path', ['..', '/..', '/a/../..', '/x/../../f', '/a/b/../../../a'])
async def test_path_above_the_root_is_refused(path: str) -> None:
    backend = StateBackend({'/a/b/f': ''})
    with pytest.raises(InvalidPathError, match=r'leads above `/`'):
        await absolute_path(backend, path)
    with pytest.raises(InvalidPathError, match=r'leads above `/`'):
        await canonical_path(backend, path)


async def test_relative_path_can_start_at_another_directory() -> None:
    backend = StateBackend({'/a/b/f': '', '/a/f': ''})
    assert await absolute_path(backend, '../f', directory='/a/b') == '/a/f'
    assert await canonical_path(backend, '../f', directory='/a/b') == '/a/f'
    assert resolve_path('../f', '/a/b', climbs=True) == parse_path('/a//b/../f', climbs=True) == '/a/b/../f'
