"""Protected patterns that backends accept and expose."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep_backends import CompositeBackend, LocalBackend, OverlayBackend, SandboxBackend, StateBackend
from pydantic_deep_backends.protection import PROTECTED_FILES, SupportsProtection, is_git_name, protected_patterns_of


def test_single_string_of_patterns_is_refused(tmp_path: Path):
    with pytest.raises(TypeError, match='is the string'):
        LocalBackend(tmp_path, protected='.envrc')


def test_backends_expose_their_protected_patterns(tmp_path: Path):
    local = LocalBackend(tmp_path, protected=['a'])
    assert isinstance(local, SupportsProtection)
    assert local.in_directory(tmp_path).protected == ('a',)
    assert SandboxBackend(tmp_path, protected=['b']).in_directory(tmp_path).protected == ('b',)
    assert OverlayBackend(local).protected == ('a',)
    mounted = CompositeBackend(StateBackend(protected=['c']), {'/x': local})
    assert mounted.protected == ('c', 'a')
    assert isinstance(mounted, SupportsProtection)
    assert not isinstance(CompositeBackend(StateBackend(), {'/x': StateBackend()}), SupportsProtection)
    assert protected_patterns_of(object()) == PROTECTED_FILES
    assert is_git_name('.GIT')
    assert not is_git_name('git')
