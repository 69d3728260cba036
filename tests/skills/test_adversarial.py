"""A library of valid, broken and hostile skills: all valid ones load, and each bad one is reported."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from pydantic_deep.skills import SkillCatalog, discover_skills, validate_skill

Make: TypeAlias = Callable[[Path], object]

D = 'description: Use this skill when you test.'


def text(content: str | bytes) -> Make:
    """Make a folder with these contents in `SKILL.md`."""

    def make(directory: Path) -> None:
        directory.mkdir()
        data = content if isinstance(content, bytes) else content.encode()
        (directory / 'SKILL.md').write_bytes(data.replace(b'NAME', directory.name.encode()))

    return make


def fields(content: str) -> Make:
    """Make a skill with these frontmatter lines besides its name."""
    return text(f'---\nname: NAME\n{content}\n---\nbody\n')


def special(make: Callable[[Path], object]) -> Make:
    """Make a folder with something else in place of `SKILL.md`."""

    def make_folder(directory: Path) -> None:
        directory.mkdir()
        make(directory / 'SKILL.md')

    return make_folder


def bind(path: Path) -> None:
    """Make a socket, bound from within its directory because socket paths are short."""
    before = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(before)


def make_device(path: Path) -> None:
    """Make an endless device like `/dev/zero`, or a FIFO without the permission for devices."""
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        os.mkfifo(path)


BOMB = 'a: &a [x, x, x, x, x, x, x, x, x]\n' + '\n'.join(
    f'{new}: &{new} [{", ".join([f"*{old}"] * 9)}]' for old, new in zip('abcdefgh', 'bcdefghi', strict=True)
)

UNUSABLE: dict[str, Make] = {
    'empty': text(''),
    'blank': text(' \n\n'),
    'no-frontmatter': text('# Title\n'),
    'unclosed': text(f'---\nname: NAME\n{D}\n'),
    'unclosed-long': text(f'---\nname: NAME\n{D}\n' + 'x: y\n' * 30_000),
    'only-fence': text('---'),
    'two-fences': text('---\n---\n'),
    'fence-indented': text(f'---\nname: NAME\n{D}\n  ---\n'),
    'fence-four': text(f'----\nname: NAME\n{D}\n----\n'),
    'fence-plus': text(f'+++\nname = "NAME"\n{D}\n+++\n'),
    'no-description': fields('license: MIT'),
    'empty-description': fields('description:'),
    'null-description': fields('description: ~'),
    'blank-description': fields('description: "   "'),
    'invisible-description': fields('description: "\u200b\u202e"'),
    'list': text('---\n- name\n- description\n---\n'),
    'scalar': text('---\njust words\n---\n'),
    'number': text('---\n42\n---\n'),
    'nul': text(b'---\nname: x\ndescription: a\0b\n---\n'),
    'png': text(b'\x89PNG\r\n\x1a\n' + bytes(range(256)) * 8),
    'elf': text(b'\x7fELF' + bytes(4096)),
    'wide-broken': text(b'\xff\xfe-\0-\0-\0\n'),
    'huge': text(f'---\nname: NAME\n{D}\n---\n' + 'x' * 1_100_000),
    'huge-frontmatter': fields(f'{D}\nx: "{"y" * 40_000}"'),
    'sparse': special(lambda path: (path.touch(), os.truncate(path, 1 << 40))),
    'fifo': special(os.mkfifo),
    'socket': special(bind),
    'device': special(make_device),
    'directory': special(lambda path: path.mkdir()),
    'dangling': special(lambda path: path.symlink_to('nothing')),
    'circle': special(lambda path: path.symlink_to('SKILL.md')),
    'passwd': special(lambda path: path.symlink_to('/etc/passwd')),
    'zero': special(lambda path: path.symlink_to('/dev/zero')),
    'proc': special(lambda path: path.symlink_to('/proc/self/environ')),
    'lower-case': lambda d: (d.mkdir(), (d / 'skill.md').write_text(f'---\nname: lower-case\n{D}\n---\n')),
    'mixed-case': lambda d: (d.mkdir(), (d / 'Skill.MD').write_text(f'---\nname: mixed-case\n{D}\n---\n')),
    'no-file': lambda d: d.mkdir(),
    'other-files': lambda d: (d.mkdir(), (d / 'README.md').write_text('hello')),
    'deep-folders': lambda d: (d / '/'.join('abcdefgh')).mkdir(parents=True),
    'folder-outside': lambda d: d.symlink_to('/etc'),
    'folder-circle': lambda d: d.symlink_to(d.name),
    'folder-root': lambda d: d.symlink_to('/'),
}
"""Unusable skills: each has a diagnostic, and none is loaded."""

USABLE: dict[str, Make] = {
    'other-name': text(f'---\nname: something-else\n{D}\n---\n'),
    'upper-NAME': text(f'---\nname: Upper_Case!\n{D}\n---\n'),
    'long-name': text(f'---\nname: {"x" * 500}\n{D}\n---\n'),
    'no-name': text(f'---\n{D}\n---\n'),
    'null-name': text(f'---\nname: null\n{D}\n---\n'),
    'list-name': text(f'---\nname: [a, b]\n{D}\n---\n'),
    'number-name': text(f'---\nname: 12\n{D}\n---\n'),
    'long-description': fields(f'description: {"x" * 5_000}'),
    'list-description': fields('description:\n- Use this\n- skill'),
    'number-description': fields('description: 42'),
    'colon': fields('description: Use this skill when: you test'),
    'colon-twice': fields('description: Use: this: skill'),
    'tab': fields(f'{D}\n\tbad: tab'),
    'unclosed-quote': fields(f'{D}\nlicense: "MIT'),
    'unclosed-bracket': fields(f'{D}\ntags: [a, b'),
    'percent': fields(f'{D}\nx: %bad'),
    'at': fields(f'{D}\nx: @bad'),
    'backtick': fields('description: `Use` this skill'),
    'escape': fields(f'{D}\nlicense: "\\q"'),
    'unknown': fields(f'{D}\nversion: 1.0'),
    'twice': fields(f'{D}\n{D}'),
    'metadata-list': fields(f'{D}\nmetadata: [a]'),
    'metadata-number': fields(f'{D}\nmetadata:\n  version: 1.0'),
    'metadata-deep': fields(f'{D}\nmetadata:\n  a: {{b: [c]}}'),
    'tools-list': fields(f'{D}\nallowed-tools: [Read, Write]'),
    'tools-commas': fields(f'{D}\nallowed-tools: Read, Bash(git a, b)'),
    'tools-map': fields(f'{D}\nallowed-tools: {{a: b}}'),
    'long-compatibility': fields(f'{D}\ncompatibility: {"x" * 1_000}'),
    'bidi': fields('description: Use this \u202eskill\u202c when'),
    'tags': fields('description: Use this skill\U000e0041\U000e0042 when'),
    'zero-width': fields('description: Use\u200b this skill when'),
    'control': fields('description: Use this \x1b[31mskill when'),
    'alias-bomb': fields(f'{D}\n{BOMB}'),
    'merge-bomb': fields(f'{D}\na: &a {{x: y}}\nb:\n  <<: [*a, *a, *a]'),
    'self-alias': fields(f'{D}\na: &a [*a]'),
    'deep-flow': fields(f'{D}\nx: {"[" * 10_000}'),
    'deep-flow-closed': fields(f'{D}\nx: {"[" * 5_000}{"]" * 5_000}'),
    'deep-braces': fields(f'{D}\nx: {"{a: " * 3_000}'),
    'deep-block': fields(f'{D}\nx:\n' + '\n'.join(f'{" " * n}a:' for n in range(1, 200))),
    'deep-dashes': fields(f'{D}\nx:\n  {"- " * 5_000}a'),
    'deep-questions': fields(f'{D}\nx:\n  {"? " * 3_000}a'),
    'python-tag': fields(f'{D}\nx: !!python/object/apply:os.system [id]'),
    'complex-key': fields(f'{D}\n? [a, b]\n: c'),
    'many-keys': fields(f'{D}\n' + '\n'.join(f'k{n}: v' for n in range(3_000))),
    'many-broken-keys': fields(f'{D}\n' + '\n'.join(f'k{n}: [' for n in range(3_000))),
    'late': text(f'\n\n---\nname: NAME\n{D}\n---\n'),
    'half-character': text(b'---\nname: NAME\ndescription: "\\ud800 Use this"\nx: y\n---\n'),
    'broken-bytes': text(b'---\nname: NAME\ndescription: Use this skill\nx: \xe9\xff\xfe\n---\n'),
}
"""Usable skills with a diagnostic."""

GOOD: dict[str, Make] = {
    'plain': fields(D),
    'bom': text(b'\xef\xbb\xbf' + f'---\nname: NAME\n{D}\n---\n'.encode()),
    'crlf': text(f'---\r\nname: NAME\r\n{D}\r\n---\r\nbody\r\n'),
    'old-mac': text(f'---\rname: NAME\r{D}\r---\rbody\r'),
    'blanks-after-fence': text(f'---  \t\nname: NAME\n{D}\n--- \nbody'),
    'no-body': text(f'---\nname: NAME\n{D}\n---'),
    'folded': fields('description: >-\n  Use this skill\n  when you test.'),
    'literal': fields('description: |\n  Use this skill\n  when you test.'),
    'quoted': fields('description: "Use this skill when: you test."'),
    'comments': text(f'---\n# a comment\nname: NAME # another\n{D}\n---\n'),
    'latin': text('---\nname: NAME\ndescription: Für Prüfungen über größere Übungen.\n---\nGrüße'.encode('cp1252')),
    'utf-16': text(f'---\nname: utf-16\n{D}\n---\n'.encode('utf-16')),
    'horizontal-rule': text(f'---\nname: NAME\n{D}\n---\na\n---\nb\n'),
    'long-frontmatter': fields(f'{D}\nmetadata:\n  notes: "{"y" * 12_000}"'),
    'größe': text(f'---\nname: größe\n{D}\n---\n'),
    '日本語': text(f'---\nname: 日本語\n{D}\n---\n'),
    'emoji': fields('description: Use this skill when it is done ✔️'),
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / 'library'
    root.mkdir()
    for name, make in {**UNUSABLE, **USABLE, **GOOD}.items():
        make(root / name)
    return root


def about(catalog: SkillCatalog, directory: Path) -> list[str]:
    """Return the codes of the diagnostics of a folder."""
    return [
        diagnostic.code
        for diagnostic in catalog.diagnostics
        if diagnostic.path == str(directory) or diagnostic.path.startswith(f'{directory}/')
    ]


def test_valid_skills_load_and_invalid_ones_are_reported(library: Path) -> None:
    assert len(UNUSABLE) + len(USABLE) >= 60
    catalog = discover_skills([library])
    used = {Path(skill.source or '').parent.name for skill in catalog.skills.values()}
    assert used == {*GOOD, *USABLE}
    assert {name for name in {**UNUSABLE, **USABLE} if not about(catalog, library / name)} == set()
    assert {name: about(catalog, library / name) for name in GOOD if about(catalog, library / name)} == {}
    errors = {Path(d.path).relative_to(library).parts[0] for d in catalog.diagnostics if d.severity == 'error'}
    assert errors == {*UNUSABLE} - {'no-file', 'other-files', 'deep-folders'}


def test_names_and_descriptions_of_loaded_skills_are_bounded_and_visible(library: Path) -> None:
    for skill in discover_skills([library]).skills.values():
        assert 1 <= len(skill.name) <= 64
        assert 1 <= len(skill.description) <= 1024
        assert all(c.isprintable() for c in skill.name + skill.description.replace('\ufe0f', ''))


def test_validation_refuses_unusable_skills_and_accepts_good_ones(library: Path) -> None:
    for name in UNUSABLE:
        assert [d for d in validate_skill(library / name) if d.severity == 'error'], name
    for name in GOOD:
        assert [d for d in validate_skill(library / name) if d.severity == 'error'] == [], name


def test_undecodable_name_is_shown_and_does_not_hide_other_skills(tmp_path: Path) -> None:
    text(f'---\nname: good\n{D}\n---\n')(tmp_path / 'good')
    bad = os.fsencode(tmp_path) + b'/b\xff\n\x1b'
    os.mkdir(bad)
    with open(bad + b'/SKILL.md', 'w') as file:
        file.write(f'---\n{D}\n---\n')
    catalog = discover_skills([tmp_path])
    assert list(catalog.skills) == ['b', 'good']
    assert catalog.diagnostics[0].path.encode()
