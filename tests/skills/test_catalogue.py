"""The catalogue of skills: within its budget, and searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_deep._messages.headings import CATALOGUE_HEADING
from pydantic_deep.skills import Skill
from pydantic_deep.skills._catalogue import render_catalogue, search_skills


def make(count: int, size: int = 60) -> list[Skill]:
    return [Skill(f'skill-{n:04}', f'Use this skill when {n}'.ljust(size, '.')) for n in range(count)]


class TestCatalogue:
    def test_no_skills_render_an_empty_catalogue(self) -> None:
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

    def test_descriptions_are_truncated_to_fit(self) -> None:
        text = render_catalogue([Skill('short', 'Short.'), *make(3, 400)], 200).text
        assert text.split('\n')[0] == f'{CATALOGUE_HEADING} Descriptions are cut.'
        assert text.split('\n')[1] == '- short: Short.'
        assert {len(line) for line in text.split('\n')[2:]} == {226}
        assert text.endswith('…')

    def test_only_names_are_listed_if_descriptions_do_not_fit(self) -> None:
        text = render_catalogue(make(40), 200).text
        assert text.startswith(f'{CATALOGUE_HEADING} Only their names fit here: skill-0000, skill-0001, ')
        assert text.endswith('skill-0039')

    def test_smallest_catalogue_has_only_the_number_of_skills(self) -> None:
        found = render_catalogue(make(5_000), 2_000)
        assert found.is_searched
        assert (
            found.text == f'{CATALOGUE_HEADING} There are 5,000, too many to list: find one with load_skill(query=…).'
        )

    @given(st.integers(50, 3_000), st.integers(1, 700), st.integers(1, 1_024))
    def test_catalogue_stays_within_its_budget(self, tokens: int, count: int, size: int) -> None:
        found = render_catalogue(make(count, size), tokens)
        assert len(found.text) <= tokens * 4
        assert found.is_searched == ('skill-0000' not in found.text)

    def test_search_returns_the_best_match_first(self) -> None:
        skills = [
            Skill('other', 'About pdf forms.'),
            Skill('pdf', 'Documents.'),
            Skill('hidden', 'pdf', is_hidden=True),
            Skill('none', 'Nothing.'),
        ]
        assert [skill.name for skill in search_skills(skills, 'PDF documents')] == ['pdf', 'other']
        assert len(search_skills(make(30), 'use')) == 10
