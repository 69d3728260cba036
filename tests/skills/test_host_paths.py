"""Paths of local skill directories, as seen by a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pydantic_deep.skills._host_paths import file_paths
from pydantic_deep.testing import call
from pydantic_deep_backends import CompositeBackend, LocalBackend, StateBackend, WrapperBackend
from pydantic_deep_backends.sandbox import SandboxBackend

from .conftest import Deps, Play, WriteSkill

pytestmark = pytest.mark.anyio


class AnonymousBackend(WrapperBackend):
    """A third-party adapter with its own identity."""

    @property
    def ref(self) -> object:
        return 'anonymous'


def test_directory_is_found_behind_a_wrapper_with_another_ref(tmp_path: Path) -> None:
    backend = AnonymousBackend(LocalBackend(tmp_path))
    assert list(file_paths(str(tmp_path.resolve() / 'skills'), backend)) == ['/skills']
    assert list(file_paths('/elsewhere/skills', backend)) == []


@dataclass
class Mounted:
    """A backend that shows local directories under other names, like a sandbox."""

    backend: StateBackend
    directory: Path

    def path_of(self, host_path: str) -> str | None:
        is_inside = Path(host_path).is_relative_to(self.directory)
        return f'/mnt/{Path(host_path).relative_to(self.directory)}' if is_inside else None


async def test_directory_exposed_by_the_backend_is_named(play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
    write_skill('pdf', files=['a.md'])
    write_skill('bare', body='Hi.')
    skills = [tmp_path / 'skills']
    calls = call('load_skill', name='pdf'), call('load_skill', name='bare')
    mounted = Mounted(StateBackend(), tmp_path / 'skills')
    assert await play(skills, *calls, deps=Deps(mounted)) == [
        "# Do it\n\n[Files, read with load_skill('pdf', file) and run in /mnt/pdf: a.md]",
        'Hi.\n\n[Directory: /mnt/bare]',
    ]
    assert (await play(skills, *calls, deps=Deps(LocalBackend(tmp_path))))[0].endswith('[Files in /skills/pdf: a.md]')
    sandbox = SandboxBackend(tmp_path)
    assert (await play(skills, *calls, deps=Deps(sandbox)))[0].endswith('[Files in /workspace/skills/pdf: a.md]')
    composite = CompositeBackend(StateBackend(), {'/work': LocalBackend(tmp_path / 'skills/pdf')})
    assert (await play(skills, *calls, deps=Deps(composite)))[0].endswith('[Files in /work: a.md]')
    wrapped: object = Mounted(StateBackend(), tmp_path / 'skills')
    for _ in range(5):
        wrapped = Deps(wrapped)
    assert 'not to be run here' in (await play(skills, *calls, deps=Deps(wrapped)))[0]  # too deeply wrapped to be found
    elsewhere = Mounted(StateBackend(), tmp_path / 'elsewhere')
    assert 'not to be run here' in (await play(skills, *calls, deps=Deps(elsewhere)))[0]
