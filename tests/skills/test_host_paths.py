"""The paths at which a run sees the local directories of skills."""

from __future__ import annotations

from pathlib import Path

from pydantic_deep.skills._host_paths import file_paths
from pydantic_deep_backends import LocalBackend, WrapperBackend


class AnonymousBackend(WrapperBackend):
    """A third party's adapter with an identity of its own."""

    @property
    def ref(self) -> object:
        return 'anonymous'


def test_a_directory_is_found_behind_a_wrapper_with_another_identity(tmp_path: Path) -> None:
    backend = AnonymousBackend(LocalBackend(tmp_path))
    assert list(file_paths(str(tmp_path.resolve() / 'skills'), backend)) == ['/skills']
    assert list(file_paths('/elsewhere/skills', backend)) == []
