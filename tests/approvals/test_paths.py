"""Matching of canonical paths with the glob patterns of a rule."""

from __future__ import annotations

import pytest

from pydantic_deep.approvals._paths import allows_path, denies_path
from pydantic_deep_backends.errors import InvalidPatternError


@pytest.mark.parametrize(
    ('pattern', 'path'),
    [
        ('/src/**', '/src/a/b.py'),
        ('/src/*.py', '/src/a.py'),
        ('docs/**', '/a/docs/b.md'),
        ('*.lock', '/uv.lock'),
        ('*.lock', '/a/b/uv.lock'),
        ('.env', '/a/.env'),
        ('/.github/**', '/.github/x.yml'),
    ],
)
def test_allow_and_deny_match_from_the_root_or_at_any_depth(pattern: str, path: str) -> None:
    assert allows_path(pattern, path)
    assert denies_path(pattern, path)


@pytest.mark.parametrize(
    ('pattern', 'path'),
    [('/src/**', '/lib/src/a.py'), ('/src/*.py', '/src/a/b.py'), ('*.lock', '/uv.lock2'), ('/src/**', '/srcs/a')],
)
def test_allow_and_deny_do_not_match_other_paths(pattern: str, path: str) -> None:
    assert not allows_path(pattern, path)
    assert not denies_path(pattern, path)


@pytest.mark.parametrize(
    ('pattern', 'path'),
    [
        ('/secrets/**', '/secrets/.key'),
        ('*env', '/a/.env'),
        ('**', '/.a/.b'),
        ('secrets', '/a/secrets/key'),
        ('caf\u00e9', '/cafe\u0301'),
        ('cafe\u0301', '/caf\u00e9'),
    ],
)
def test_deny_also_matches_hidden_names_directories_and_other_spellings(pattern: str, path: str) -> None:
    assert denies_path(pattern, path)
    assert not allows_path(pattern, path)


def test_invalid_glob_raises() -> None:
    with pytest.raises(InvalidPatternError):
        denies_path('/a/../b', '/b')
