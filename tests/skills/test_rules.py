"""Frontmatter as a skill with diagnostics."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep.skills._invisible_characters import find_invisible
from pydantic_deep.skills._rules import Report, parse_frontmatter
from pydantic_deep.skills._scan import parse_whole

FIELDS = st.sampled_from(
    ['name', 'description', 'metadata', 'allowed-tools', 'license', 'compatibility', 'x', '<<', '?']
)
BITS = st.sampled_from(
    [': ', '\n', '- ', '  ', '[', ']', '{', '}', '&a ', '*a', '"', "'", '|', '>-', '#', '!', '\t', 'x', '---']
)
HEADERS = st.one_of(
    st.text(max_size=300),
    st.lists(st.one_of(FIELDS, BITS, st.text(max_size=8)), max_size=60).map(''.join),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.text(max_size=20)),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(FIELDS, inner, max_size=6)),
        max_leaves=30,
    ).map(lambda value: yaml.safe_dump(value, allow_unicode=True)),
)


@given(HEADERS)
def test_any_frontmatter_gives_a_skill_or_an_error(header: str) -> None:
    report = Report(path='SKILL.md')
    skill = parse_frontmatter(header, 2, 'folder', report)
    if skill is None:
        assert [d.severity for d in report.diagnostics].count('error') == 1
    else:
        assert 1 <= len(skill.name) <= 64
        assert 1 <= len(skill.description) <= 1024
        assert '\n' not in skill.name + skill.description
        assert find_invisible(skill.name + skill.description) is None
        assert all(d.severity == 'warning' for d in report.diagnostics)


@given(st.text(max_size=50))
def test_any_description_round_trips(text: str) -> None:
    report = Report(path='SKILL.md')
    header = yaml.safe_dump({'name': 'folder', 'description': f'x {text}'}, allow_unicode=True)
    skill = parse_frontmatter(header, 2, 'folder', report)
    assert skill is not None
    if report.diagnostics == []:
        assert skill.description == ' '.join(f'x {text}'.split())


def test_diagnostics_have_line_numbers_of_the_file() -> None:
    report = Report(path='SKILL.md')
    data = (
        b'---\nname: Folder\ndescription: |\n  Use: this\nversion: 1\nmetadata:\n  a: b\n  n: 1\nlicense: [MIT]\n---\n'
    )
    skill = parse_whole(data, 'folder', report)
    assert skill is not None
    assert dict(skill.metadata) == {'a': 'b', 'n': '1'}
    assert skill.license == '["MIT"]'
    assert [str(d) for d in report.diagnostics] == snapshot(
        [
            "SKILL.md:5: warning: 'version' is not a skill field. Move it to `metadata`, or remove it. [unknown-field]",
            "SKILL.md:2: warning: The name 'Folder' has uppercase letters. Write it like `my-skill`. [name-form]",
            "SKILL.md:2: warning: The name is 'Folder' and the directory 'folder'. Give both the same name. [name-differs]",
            'SKILL.md:9: warning: `license` is not a string. Quote it. [field-not-text]',
            "SKILL.md:8: warning: 'n' in `metadata` is not a string. Quote it. [metadata-not-text]",
        ]
    )


@pytest.mark.parametrize(
    ('value', 'description'),
    [
        ('Use for C #projects', 'Use for C'),
        ('Uses ü😀\t# all', 'Uses ü😀'),
        ('One\n  two # three', 'One two'),
        ('&more than this', 'than this'),
        ('Use: C #projects', 'Use: C #projects'),
    ],
)
def test_a_text_that_yaml_cuts_is_reported(value: str, description: str) -> None:
    report = Report(path='SKILL.md')
    header = f'name: folder # a comment\nlicense: MIT # another\ndescription: {value}\n'
    skill = parse_frontmatter(header, 2, 'folder', report)
    assert skill is not None
    assert skill.description == description
    code = 'not-yaml' if ': ' in value else 'text-cut'  # the text of a field that is not YAML is complete
    assert [(d.line, d.code) for d in report.diagnostics] == [(4, code)]


def test_a_description_that_is_only_a_comment_is_reported() -> None:
    report = Report(path='SKILL.md')
    assert parse_frontmatter('name: folder\ndescription: #1 of all\n', 2, 'folder', report) is None
    assert [(d.line, d.code) for d in report.diagnostics] == [(3, 'text-cut'), (3, 'no-description')]


@pytest.mark.parametrize(
    'value', ['Use for C# projects', '"C" # a comment', "'&more'", '|  # a comment\n  C #1 & more']
)
def test_a_complete_text_is_not_reported(value: str) -> None:
    report = Report(path='SKILL.md')
    header = f'# a comment\nname: folder\n# another\ndescription: {value}\n# the last\n'
    assert parse_frontmatter(header, 2, 'folder', report) is not None
    assert report.diagnostics == []


@pytest.mark.parametrize(
    ('name', 'problem'),
    [('a--b', 'hyphen'), ('-a', 'hyphen'), ('a-', 'hyphen'), ('a_b', 'characters other than'), ('Ä', 'uppercase')],
)
def test_a_malformed_name_is_reported(name: str, problem: str) -> None:
    report = Report(path='SKILL.md')
    assert parse_frontmatter(f'name: {name}\ndescription: Fine.', 2, name, report) is not None
    assert [(d.code, problem in d.message) for d in report.diagnostics] == [('name-form', True)]
