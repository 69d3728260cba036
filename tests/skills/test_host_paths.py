"""Paths of local skill directories, as seen by a run."""

from __future__ import annotations

from pathlib import Path

from pydantic_deep.skills._host_paths import file_paths
from pydantic_deep_backends import LocalBackend, WrapperBackend


class AnonymousBackend(WrapperBackend):
    """A third-party adapter with its own identity."""

    @property
    def ref(self) -> object:
        return 'anonymous'


def test_directory_is_found_behind_a_wrapper_with_another_ref(tmp_path: Path) -> None:
    backend = AnonymousBackend(LocalBackend(tmp_path))
    assert list(file_paths(str(tmp_path.resolve() / 'skills'), backend)) == ['/skills']
    assert list(file_paths('/elsewhere/skills', backend)) == []
