"""Discovery of skills in directories, and diagnostics about the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep.skills import Skill, SkillDirectory, discover_skills
from pydantic_deep.skills import _scan as scan

from .conftest import codes


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of files opened from now on."""
    paths: list[str] = []
    real = os.open

    def counting(path: str, flags: int) -> int:
        paths.append(path)
        return real(path, flags)

    monkeypatch.setattr(scan.os, 'open', counting)
    return paths


def test_discovered_skill_has_frontmatter_but_no_body(write_skill: Callable[..., Path], tmp_path: Path) -> None:
    fields = (
        'description: Use this skill when you test.\nlicense: MIT\ncompatibility: Needs git\n'
        'metadata:\n  version: "1.10"\nallowed-tools: Read Bash(git status *)\ndisable-model-invocation: true'
    )
    directory = write_skill('pdf', fields, files=['a.md'])
    catalog = discover_skills([tmp_path / 'skills'])
    assert catalog.skills == {
        'pdf': Skill(
            'pdf',
            'Use this skill when you test.',
            directory=directory,
            allowed_tools=('Read', 'Bash(git status *)'),
            license='MIT',
            compatibility='Needs git',
            metadata={'version': '1.10'},
            scope='project',
            source=str(directory / 'SKILL.md'),
            is_hidden=True,
        )
    }
    skill = catalog.skills['pdf']
    assert (skill.frontmatter_loaded, skill.body, skill.files) == (True, None, None)
    assert catalog.diagnostics == ()


def test_directory_can_be_a_skill_itself(write_skill: Callable[..., Path]) -> None:
    assert list(discover_skills([write_skill('pdf')]).skills) == ['pdf']


def test_skills_can_be_sorted_into_folders(write_skill: Callable[..., Path], tmp_path: Path) -> None:
    write_skill('a', root='skills/x/y/z')
    write_skill('b', root='skills/x/y/z/deeper')
    write_skill('c', root='skills/.git')
    write_skill('d', root='skills/node_modules')
    write_skill('.e')
    write_skill('f', root='skills/.e/inside')
    catalog = discover_skills([tmp_path / 'skills'])
    assert list(catalog.skills) == ['.e', 'a']


def test_skills_are_ordered_by_scope_and_name(write_skill: Callable[..., Path], tmp_path: Path) -> None:
    for root, names in {'one': 'cab', 'two': 'de'}.items():
        for name in names:
            write_skill(name, root=root)
    catalog = discover_skills([SkillDirectory(tmp_path / 'one', scope='bundled'), tmp_path / 'two'])
    assert list(catalog.skills) == ['d', 'e', 'a', 'b', 'c']


@pytest.mark.parametrize('order', [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_project_scope_precedes_user_and_bundled(
    write_skill: Callable[..., Path], tmp_path: Path, order: tuple[int, ...]
) -> None:
    directories = [
        SkillDirectory(write_skill('pdf', root='project').parent),
        SkillDirectory(write_skill('pdf', root='user').parent, scope='user'),
        SkillDirectory(write_skill('pdf', root='bundled').parent, scope='bundled'),
    ]
    catalog = discover_skills([directories[index] for index in order])
    assert catalog.skills['pdf'].scope == 'project'
    used = tmp_path / 'project/pdf/SKILL.md'
    assert [(d.path, d.code, d.severity) for d in catalog.diagnostics] == [
        (str(tmp_path / scope / 'pdf/SKILL.md'), 'shadowed', 'warning') for scope in ('user', 'bundled')
    ]
    assert str(used) in catalog.diagnostics[0].message


def test_first_directory_wins_within_a_scope(write_skill: Callable[..., Path], tmp_path: Path) -> None:
    first, second = (write_skill('pdf', root=root).parent for root in ('b', 'a'))
    assert discover_skills([first, second]).skills['pdf'].directory == tmp_path / 'b/pdf'


def test_link_to_a_skill_is_the_same_skill(write_skill: Callable[..., Path], tmp_path: Path) -> None:
    """Programs of several vendors share skills by links: nothing is reported."""
    write_skill('pdf', root='a')
    (tmp_path / 'b').mkdir()
    (tmp_path / 'b/pdf').symlink_to(tmp_path / 'a/pdf')
    (tmp_path / 'c').symlink_to(tmp_path / 'a')
    catalog = discover_skills([tmp_path / 'b', tmp_path / 'a', tmp_path / 'c'])
    assert (list(catalog.skills), catalog.diagnostics) == (['pdf'], ())


def test_equivalent_unicode_names_are_equal(write_skill: Callable[..., Path], tmp_path: Path) -> None:
    write_skill('cafe\u0301', root='a')
    write_skill('caf\u00e9', root='b')
    catalog = discover_skills([tmp_path / 'a', tmp_path / 'b'])
    assert list(catalog.skills) == ['caf\u00e9']
    assert 'shadowed' in codes(catalog)


def test_untrusted_skills_are_reported_and_not_used(write_skill: Callable[..., Path]) -> None:
    catalog = discover_skills([SkillDirectory(write_skill('pdf').parent, trusted=False)])
    assert (dict(catalog.skills), codes(catalog)) == ({}, ['untrusted'])


def test_missing_required_directory_is_reported(tmp_path: Path) -> None:
    assert codes(discover_skills([tmp_path / 'none'])) == ['missing-directory']
    assert codes(discover_skills([SkillDirectory(tmp_path / 'none', is_required=False)])) == []


def test_home_directory_is_expanded(
    write_skill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill('pdf')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert list(discover_skills([SkillDirectory('~/skills')]).skills) == ['pdf']


def test_single_path_instead_of_a_sequence_is_refused() -> None:
    with pytest.raises(TypeError, match='Pass a sequence'):
        discover_skills('skills')


def test_second_scan_opens_no_file(write_skill: Callable[..., Path], tmp_path: Path, opened: list[str]) -> None:
    for number in range(20):
        write_skill(f'skill-{number}', 'description: "no: yaml: but bounded"' if number % 2 else 'description: Fine.')
    first = discover_skills([tmp_path / 'skills'])
    assert len(opened) == 20
    second = discover_skills([tmp_path / 'skills'])
    assert len(opened) == 20
    assert second == first
    assert scan.parse_file.cache_info().misses == 20


def test_only_a_changed_file_is_read_again(write_skill: Callable[..., Path], tmp_path: Path, opened: list[str]) -> None:
    directory = write_skill('a')
    write_skill('b')
    discover_skills([tmp_path / 'skills'])
    file = directory / 'SKILL.md'
    file.write_text(file.read_text().replace('test', 'work'))
    os.utime(file, ns=(0, 0))
    opened.clear()
    assert discover_skills([tmp_path / 'skills']).skills['a'].description == 'Use this skill when you work.'
    assert opened == [str(file)]


def test_only_the_head_of_a_long_file_is_read(
    write_skill: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill('a', body='x' * 100_000)
    read: list[int] = []
    real = os.read

    def counting(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(scan.os, 'read', counting)
    assert 'a' in discover_skills([tmp_path / 'skills']).skills
    assert read == [8192]


def test_cache_of_parsed_files_is_bounded() -> None:
    assert scan.parse_file.cache_info().maxsize == scan.MAX_KEPT
