"""Scans of a directory: links, races and bounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep.skills import _scan as scan
from pydantic_deep.skills import discover_skills

from .conftest import codes


def test_number_of_scanned_folders_is_limited(
    write_skill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, 'MAX_DIRECTORIES', 3)
    for name in 'abcde':
        write_skill(name, root=f'skills/{name}')
    catalog = discover_skills([tmp_path / 'skills'])
    assert list(catalog.skills) == ['a']
    assert [(d.code, d.path) for d in catalog.diagnostics] == [('too-many', str(tmp_path / 'skills/b'))]


class TestLinks:
    def test_link_inside_the_directories_is_followed(self, write_skill: Callable[..., Path], tmp_path: Path) -> None:
        write_skill('real', 'description: There.', root='elsewhere')
        (tmp_path / 'skills').mkdir()
        (tmp_path / 'skills/real').symlink_to(tmp_path / 'elsewhere/real')
        catalog = discover_skills([tmp_path / 'skills', tmp_path / 'elsewhere'])
        assert catalog.skills['real'].directory == tmp_path / 'elsewhere/real'

    def test_link_to_outside_is_refused(self, write_skill: Callable[..., Path], tmp_path: Path) -> None:
        write_skill('real', root='elsewhere')
        write_skill('good')
        (tmp_path / 'skills/real').symlink_to(tmp_path / 'elsewhere/real')
        catalog = discover_skills([tmp_path / 'skills'])
        assert list(catalog.skills) == ['good']
        assert codes(catalog) == ['link-outside']

    def test_link_to_the_skills_directory_is_not_a_skill(
        self, write_skill: Callable[..., Path], tmp_path: Path
    ) -> None:
        write_skill('good')
        (tmp_path / 'skills/all').symlink_to(tmp_path / 'skills')
        assert codes(discover_skills([tmp_path / 'skills'])) == ['link-outside']

    def test_linked_skill_file_is_read_at_its_target(self, write_skill: Callable[..., Path], tmp_path: Path) -> None:
        good = write_skill('good')
        (tmp_path / 'skills/good2').mkdir()
        (tmp_path / 'skills/good2/SKILL.md').symlink_to('../common.md')
        (good / 'SKILL.md').rename(tmp_path / 'skills/common.md')
        skill = discover_skills([tmp_path / 'skills']).skills['good']
        assert skill.source == str(tmp_path / 'skills/common.md')
        assert skill.directory == tmp_path / 'skills/good2'

    def test_linked_skill_file_outside_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / 'secret').write_text('---\ndescription: root:x:0\n---\n')
        (tmp_path / 'skills/bad').mkdir(parents=True)
        (tmp_path / 'skills/bad/SKILL.md').symlink_to(tmp_path / 'secret')
        catalog = discover_skills([tmp_path / 'skills'])
        assert (dict(catalog.skills), codes(catalog)) == ({}, ['link-outside'])

    def test_link_to_a_folder_without_a_skill_is_reported(
        self, write_skill: Callable[..., Path], tmp_path: Path
    ) -> None:
        write_skill('good')
        (tmp_path / 'skills/.none').mkdir()
        (tmp_path / 'skills/link').symlink_to('.none')
        assert codes(discover_skills([tmp_path / 'skills'])) == ['no-skill-file']


class TestRaces:
    """Directories that change during a scan. Simulated with stubs, because the timing cannot be controlled."""

    def test_file_replaced_by_a_fifo_is_not_read(
        self, write_skill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = write_skill('a')
        file, lstat = str(directory / 'SKILL.md'), os.lstat
        real = lstat(file)

        def before(path: str) -> os.stat_result:
            return real if path == file else lstat(path)

        (directory / 'SKILL.md').unlink()
        os.mkfifo(directory / 'SKILL.md')
        monkeypatch.setattr(scan.os, 'lstat', before)
        assert codes(discover_skills([tmp_path / 'skills'])) == ['not-a-file']

    def test_an_unreadable_file_is_reported(
        self, write_skill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_skill('a')

        def refusing(path: str, flags: int) -> int:
            raise PermissionError(13, 'Permission denied', path)

        monkeypatch.setattr(scan.os, 'open', refusing)
        catalog = discover_skills([tmp_path / 'skills'])
        assert [d.message for d in catalog.diagnostics] == ['It cannot be read: Permission denied.']

    def test_an_unreadable_directory_is_reported(
        self, write_skill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_skill('good')
        (tmp_path / 'skills/closed').mkdir()
        real = os.scandir

        def refusing(path: str) -> object:
            if path.endswith('closed'):
                raise PermissionError(13, 'Permission denied', path)
            return real(path)

        monkeypatch.setattr(scan.os, 'scandir', refusing)
        catalog = discover_skills([tmp_path / 'skills'])
        assert list(catalog.skills) == ['good']
        assert [d.message for d in catalog.diagnostics] == ['The directory cannot be read: Permission denied.']
