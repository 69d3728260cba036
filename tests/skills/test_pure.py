"""The pure parts: YAML that is bounded, invisible characters, the catalogue, what is allowed beforehand."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep._messages.headings import CATALOGUE_HEADING
from pydantic_deep.skills import Skill
from pydantic_deep.skills import _yaml as bounded
from pydantic_deep.skills._catalogue import render_catalogue, search_skills
from pydantic_deep.skills._document import DocumentError, find_header, parse_document
from pydantic_deep.skills._invisible_characters import find_invisible, strip_invisible
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


@given(st.one_of(st.binary(max_size=400), st.binary(max_size=200).map(lambda data: b'---\n' + data + b'\n---\n')))
def test_any_bytes_give_a_skill_or_an_error(data: bytes) -> None:
    report = Report(path='SKILL.md')
    skill = parse_whole(data, 'folder', report)
    assert (skill is None) == any(d.severity == 'error' for d in report.diagnostics)


@given(st.binary(max_size=300), st.binary(max_size=100), st.sampled_from([b'\n', b'\r\n']))
def test_the_quick_look_and_the_whole_one_agree(header: bytes, body: bytes, end: bytes) -> None:
    data = end.join([b'---', header, b'---', body])
    quick = find_header(data)
    with suppress(DocumentError):  # of a body that is no text
        assert quick in (None, parse_document(data).header)


@given(st.text(max_size=50))
def test_a_description_comes_back_whatever_it_is(text: str) -> None:
    report = Report(path='SKILL.md')
    header = yaml.safe_dump({'name': 'folder', 'description': f'x {text}'}, allow_unicode=True)
    skill = parse_frontmatter(header, 2, 'folder', report)
    assert skill is not None
    if report.diagnostics == []:
        assert skill.description == ' '.join(f'x {text}'.split())


class TestYaml:
    def test_scalars_keep_their_text(self) -> None:
        value = bounded.parse_yaml('a: 1.10\nb: yes\nc: "1"')
        assert value == bounded.Pairs(
            (
                (bounded.Scalar('a', 0), bounded.Scalar('1.10', 0, is_string=False)),
                (bounded.Scalar('b', 1), bounded.Scalar('yes', 1, is_string=False)),
                (bounded.Scalar('c', 2), bounded.Scalar('1', 2)),
            ),
            0,
        )

    def test_nothing_is_nothing(self) -> None:
        assert bounded.parse_yaml('# only a comment') is None

    @pytest.mark.parametrize(
        ('text', 'line', 'reason'),
        [
            ('a: b: c', 0, 'mapping values are not allowed in this context'),
            ('a: &x 1\nb: *x', 1, 'it has an alias (`*name`), which is not supported'),
            ('a:\n  b: ' + '[' * 20 + ']' * 20, 1, 'it is nested deeper than 16 levels'),
            ('a: \x00', 0, 'control characters are not allowed'),
        ],
    )
    def test_what_cannot_be_used_says_why_and_where(self, text: str, line: int, reason: str) -> None:
        with pytest.raises(bounded.UnusableYamlError) as caught:
            bounded.parse_yaml(text)
        assert (caught.value.line, str(caught.value)) == (line, reason)

    def test_without_the_loader_in_c_the_other_one_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(yaml, 'CSafeLoader')
        bounded.yaml_library.cache_clear()
        try:
            assert bounded.yaml_library()[1] is yaml.SafeLoader
            assert bounded.parse_yaml('a: b') is not None
            with pytest.raises(bounded.UnusableYamlError, match='special characters are not allowed'):
                bounded.parse_yaml('a: \x00')
        finally:
            bounded.yaml_library.cache_clear()

    def test_keys_are_recovered_one_by_one(self) -> None:
        text = (
            'name: pdf\ndescription: Use: this\n  and that\n"license": MIT\n'
            'metadata:\n  a: {b: [c]}\ntags: [open\nnotes: |\n  one\n  two: *x\n\ttab\nlast: >-\n  three\n\tfour\n'
        )
        found = {key.text: (value, key.line) for key, value in bounded.recover_pairs(text).pairs}
        assert found['name'] == (bounded.Scalar('pdf', 0), 0)
        assert found['description'] == (bounded.Scalar('Use: this and that', 1), 1)
        assert found['license'] == (bounded.Scalar('MIT', 3), 3)
        inner = bounded.Items((bounded.Scalar('c', 5),), 5)
        pairs = bounded.Pairs(((bounded.Scalar('b', 5), inner),), 5)
        assert found['metadata'] == (bounded.Pairs(((bounded.Scalar('a', 5), pairs),), 5), 4)
        assert found['tags'] == (bounded.Scalar('[open', 6), 6)
        assert found['notes'] == (bounded.Scalar('one\ntwo: *x\ntab', 7), 7)
        assert found['last'] == (bounded.Scalar('three four', 11), 11)


def test_lines_are_those_of_the_file() -> None:
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
    ('name', 'problem'),
    [('a--b', 'hyphen'), ('-a', 'hyphen'), ('a-', 'hyphen'), ('a_b', 'characters other than'), ('Ä', 'uppercase')],
)
def test_a_malformed_name_is_reported(name: str, problem: str) -> None:
    report = Report(path='SKILL.md')
    assert parse_frontmatter(f'name: {name}\ndescription: Fine.', 2, name, report) is not None
    assert [(d.code, problem in d.message) for d in report.diagnostics] == [('name-form', True)]


class TestInvisible:
    @pytest.mark.parametrize('hidden', ['\u200b', '\u202e', '\u2066', '\U000e0041', '\ufeff', '\x1b', '\xad', '\ud800'])
    def test_it_is_found_and_taken_out(self, hidden: str) -> None:
        assert find_invisible(f'ab{hidden}c') == 2
        assert strip_invisible(f'ab{hidden}c') == 'abc'

    def test_what_people_see_stays(self) -> None:
        seen = 'tab\tline\r\n größe 日本 ✔️ e\u0301 \u3000'
        assert find_invisible(seen) is None
        assert strip_invisible(seen) == seen

    def test_selectors_that_follow_each_other_hide_bytes(self) -> None:
        assert strip_invisible('✔\ufe0f\ufe00\ufe01') == '✔\ufe0f'


def make(count: int, size: int = 60) -> list[Skill]:
    return [Skill(f'skill-{n:04}', f'Use this skill when {n}'.ljust(size, '.')) for n in range(count)]


class TestCatalogue:
    def test_no_skills_no_catalogue(self) -> None:
        assert render_catalogue([], 2_000).text == ''
        assert render_catalogue([Skill('a', 'b', is_hidden=True)], 2_000).text == ''

    def test_each_skill_has_a_line(self) -> None:
        assert render_catalogue(
            [Skill('pdf', 'Use this skill when PDF.'), Skill('xlsx', 'Tables.')], 2_000
        ).text == snapshot("""\
Skills are instructions for a kind of task. When one fits, load_skill it first.
- pdf: Use this skill when PDF.
- xlsx: Tables.\
""")

    def test_descriptions_are_cut_to_what_fits(self) -> None:
        text = render_catalogue([Skill('short', 'Short.'), *make(3, 400)], 200).text
        assert text.split('\n')[0] == f'{CATALOGUE_HEADING} Descriptions are cut.'
        assert text.split('\n')[1] == '- short: Short.'
        assert {len(line) for line in text.split('\n')[2:]} == {226}
        assert text.endswith('…')

    def test_then_only_names_are_listed(self) -> None:
        text = render_catalogue(make(40), 200).text
        assert text.startswith(f'{CATALOGUE_HEADING} Only their names fit here: skill-0000, skill-0001, ')
        assert text.endswith('skill-0039')

    def test_the_smallest_catalogue_has_only_the_number_of_skills(self) -> None:
        found = render_catalogue(make(5_000), 2_000)
        assert found.is_searched
        assert (
            found.text == f'{CATALOGUE_HEADING} There are 5,000, too many to list: find one with load_skill(query=…).'
        )

    @given(st.integers(50, 3_000), st.integers(1, 700), st.integers(1, 1_024))
    def test_it_stays_within_its_budget(self, tokens: int, count: int, size: int) -> None:
        found = render_catalogue(make(count, size), tokens)
        assert len(found.text) <= tokens * 4
        assert found.is_searched == ('skill-0000' not in found.text)

    def test_a_search_finds_the_best_first(self) -> None:
        skills = [
            Skill('other', 'About pdf forms.'),
            Skill('pdf', 'Documents.'),
            Skill('hidden', 'pdf', is_hidden=True),
            Skill('none', 'Nothing.'),
        ]
        assert [skill.name for skill in search_skills(skills, 'PDF documents')] == ['pdf', 'other']
        assert len(search_skills(make(30), 'use')) == 10
