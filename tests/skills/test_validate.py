"""Validation of skills for their authors, and of the bundled skills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from inline_snapshot import snapshot

from pydantic_deep.skills import BUNDLED_SKILLS, discover_skills, validate_skill

WriteSkill = Callable[..., Path]


def diagnostics_of(path: Path) -> list[tuple[str, str, int | None]]:
    return [(d.severity, d.code, d.line) for d in validate_skill(path)]


def test_good_skill_has_no_diagnostics(write_skill: WriteSkill) -> None:
    body = 'See [details](references/a.md#top), [a page](https://x.org/y) and run `python3 scripts/b.py x`.\n'
    directory = write_skill('pdf', body=body, files=['references/a.md', 'scripts/b.py'])
    (directory / 'link').symlink_to('references/a.md')
    assert diagnostics_of(directory) == []
    assert diagnostics_of(directory / 'SKILL.md') == []


def test_standard_violations_are_errors_and_come_first(write_skill: WriteSkill) -> None:
    directory = write_skill('pdf', 'description: Does: things\nversion: 1\nallowed-tools: [Read]\nname: PDF')
    assert diagnostics_of(directory) == snapshot(
        [
            ('error', 'not-yaml', 3),
            ('error', 'unknown-field', 4),
            ('error', 'allowed-tools-form', 5),
            ('error', 'duplicate-field', 6),
            ('error', 'name-form', 6),
            ('error', 'name-differs', 6),
            ('warning', 'description-when', None),
        ]
    )


def test_description_of_the_template_is_an_error_and_an_ellipsis_after_a_list_is_none(write_skill: WriteSkill) -> None:
    placeholder = write_skill('pdf', 'description: Use this skill when the user wants to … PDF files.')
    assert diagnostics_of(placeholder) == [('error', 'description-placeholder', None)]
    listing = write_skill('docx', 'description: "Use when asked for: PDF, DOCX, …"')
    assert diagnostics_of(listing) == []


def test_advice_is_a_warning_with_its_line(write_skill: WriteSkill) -> None:
    body = '\n\n# Do\nSee [a](a.md), [again](a.md) and `scripts/b.py`.\nIt is\u200b so.\n' + 'x\n' * 500
    assert diagnostics_of(write_skill('pdf', 'description: Does things.', body)) == snapshot(
        [
            ('warning', 'description-when', None),
            ('warning', 'body-too-long', 7),
            ('warning', 'missing-file', 8),
            ('warning', 'missing-file', 8),
            ('warning', 'invisible-characters', 9),
        ]
    )
    assert diagnostics_of(write_skill('empty', body='')) == [('warning', 'no-body', None)]


def test_files_that_cannot_be_read_are_errors(write_skill: WriteSkill) -> None:
    directory = write_skill('pdf')
    (directory / 'etc').symlink_to('/etc')
    os.mkfifo(directory / 'fifo')
    assert [d.message for d in validate_skill(directory)] == [
        "'fifo' is not a regular file. Remove it.",
        "The link 'etc' has a target outside of the skill and cannot be read.",
    ]


def test_undecodable_body_is_an_error(write_skill: WriteSkill) -> None:
    directory = write_skill('pdf')
    bytes_ = Random(0).choices(range(1, 256), k=5_000)
    with open(directory / 'SKILL.md', 'ab') as file:
        file.write(bytes(bytes_))
    assert list(discover_skills([directory]).skills) == ['pdf']
    assert ('error', 'not-text', None) in diagnostics_of(directory)


def test_missing_and_special_files_are_reported(tmp_path: Path) -> None:
    assert diagnostics_of(tmp_path / 'none') == [('error', 'no-skill-file', None)]
    (tmp_path / 'SKILL.md').mkdir()
    assert diagnostics_of(tmp_path) == [('error', 'not-a-file', None)]
    (tmp_path / 'file').touch()
    (error,) = validate_skill(tmp_path / 'file')
    assert error.message == 'It cannot be read: Not a directory.'


class TestBundled:
    def test_four_bundled_skills_are_valid(self) -> None:
        catalog = discover_skills([BUNDLED_SKILLS])
        names = ['analysing-tables', 'researching-questions', 'reviewing-changes', 'writing-skills']
        assert (list(catalog.skills), catalog.diagnostics) == (names, ())
        for name in names:
            assert validate_skill(BUNDLED_SKILLS / name) == []
            assert len((BUNDLED_SKILLS / name / 'SKILL.md').read_text().splitlines()) <= 150

    def profile(self, *args: str, data: bytes = b'') -> subprocess.CompletedProcess[bytes]:
        script = BUNDLED_SKILLS / 'analysing-tables/scripts/profile_table.py'
        return subprocess.run([sys.executable, '-I', str(script), *args], input=data, capture_output=True)

    def test_table_is_profiled(self) -> None:
        data = b'id;amount;when\n001;"1.234,50";2024-01-02\n002;;03/04/2024\n003;7\n004; 5;2024-02-01\n'
        found = json.loads(self.profile('-', '--json', data=data).stdout)
        assert (found['form'], found['rows'], found['first_unusable_lines']) == ("delimited by ';'", 3, [4])
        assert {column['column']: column['notes'] for column in found['columns']} == snapshot(
            {
                'id': ['unique: may identify a row', '3 with leading zeros: keep as text'],
                'amount': [
                    'mixed kinds',
                    'numbers with separators, units or brackets: convert on purpose',
                    '1 with blanks around',
                ],
                'when': [
                    'unique: may identify a row',
                    'mixed kinds',
                    'day and month order is not certain',
                ],
            }
        )
        assert self.profile('-', data=data).stdout.decode() == snapshot("""\
delimited by ';', utf-8-sig, 3 rows, 3 columns
! 1 unusable lines, the first at [4]

id: number 3; missing 0; distinct 3
  from 1 to 4, mean 2.33333
  frequent: 001 (1); 002 (1); 004 (1)
  ! unique: may identify a row
  ! 3 with leading zeros: keep as text

amount: formatted number 1, number 1; missing 1; distinct 2
  from 5 to 5, mean 5
  frequent: 1.234,50 (1); 5 (1)
  ! mixed kinds
  ! numbers with separators, units or brackets: convert on purpose
  ! 1 with blanks around

when: date 2, ambiguous date 1; missing 0; distinct 3
  from 2024-01-02 to 2024-02-01
  frequent: 2024-01-02 (1); 03/04/2024 (1); 2024-02-01 (1)
  ! unique: may identify a row
  ! mixed kinds
  ! day and month order is not certain
""")

    def test_json_lines_are_profiled(self) -> None:
        found = json.loads(self.profile('-', '--json', data=b'{"a": 1}\n{"b": [1]}\nbroken\n').stdout)
        assert [(c['column'], c['missing']) for c in found['columns']] == [('a', 1), ('b', 1)]
        assert found['first_unusable_lines'] == [3]

    @pytest.mark.parametrize(
        ('data', 'reason'),
        [
            (b'', 'it is empty'),
            (b'PK\x03\x04', 'it is a spreadsheet, an archive or Parquet. Export it as CSV'),
            (b'a,b\0', 'it is no text'),
            (b'{broken', 'no line of it is a JSON object'),
        ],
    )
    def test_a_file_that_is_not_a_table_is_reported(self, data: bytes, reason: str) -> None:
        done = self.profile('-', data=data)
        assert (done.returncode, done.stdout) == (1, b'')
        assert done.stderr.decode() == f'- cannot be profiled: {reason}.\n'
