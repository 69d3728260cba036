"""The files of cases, and the problems that authors read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from pydantic_deep.cli.skill_tests._cases import Case, ScriptStep
from pydantic_deep.cli.skill_tests._checks import Check

from .conftest import ReadCases, WriteSkill

TASK: dict[str, JsonValue] = {'id': 1, 'prompt': 'Write it.'}


def test_files_of_the_standard_are_read(write_skill: WriteSkill, read_cases: ReadCases) -> None:
    """The format of skill-creator and of agentskills.io needs no change."""
    folder = write_skill(
        evals=[
            {
                'id': 1,
                'prompt': 'Invoice Ada.',
                'expected_output': 'An invoice.',
                'files': ['evals/files/in/a.csv', 'evals/b.csv'],
                'expectations': ['It is polite.', 'It has a date.'],
            },
            {'id': 'short', 'prompt': 'Invoice Ben.', 'assertions': ['It is polite.']},
        ],
        queries=[{'query': 'Remind Ada.', 'should_trigger': False}, {'query': 'Bill Ada.', 'should_trigger': True}],
    )
    (folder / 'evals/files/in').mkdir()
    (folder / 'evals/files/in/a.csv').write_bytes(b'a')
    (folder / 'evals/b.csv').write_bytes(b'b')
    assert read_cases() == (
        [
            Case(
                skill='invoices',
                id='1',
                prompt='Invoice Ada.',
                should_load=True,
                files={'/in/a.csv': b'a', '/b.csv': b'b'},
                expectations=2,
            ),
            Case(skill='invoices', id='short', prompt='Invoice Ben.', should_load=True, expectations=1),
            Case(skill='invoices', id='query-1', prompt='Remind Ada.', should_load=False),
            Case(skill='invoices', id='query-2', prompt='Bill Ada.', should_load=True),
        ],
        [],
    )


def test_checks_and_scripts_are_read(write_skill: WriteSkill, read_cases: ReadCases) -> None:
    script: JsonValue = [{'tool': 'ls', 'args': {'path': '/'}}, {'answer': 'Done.'}]
    write_skill(evals=[{**TASK, 'checks': [{'contains': 'Done'}], 'script': script}])
    ((case,), problems) = read_cases()
    assert (case.checks, problems) == ((Check(contains='Done'),), [])
    assert case.script == (ScriptStep(tool='ls', args={'path': '/'}), ScriptStep(answer='Done.'))


def test_skill_without_cases_has_none(write_skill: WriteSkill, read_cases: ReadCases) -> None:
    write_skill()
    assert read_cases() == ([], [])


PROBLEMS: list[tuple[JsonValue, str]] = [
    ({'id': 1}, 'evals[0].prompt: it is missing. Add it.'),
    ({**TASK, 'id': True}, 'evals[0].id: input should be a valid string. Correct it.'),
    ({**TASK, 'prompt': ' \u200b'}, 'evals[0].prompt: it is blank. Write a prompt.'),
    (
        {**TASK, 'promt': 'x'},
        'evals[0].promt: there is no such field. Fields: id, prompt, expected_output, files, expectations, checks, '
        'script.',
    ),
    (
        {**TASK, 'checks': [{'file': 'a', 'exist': True}]},
        'evals[0].checks[0].exist: there is no such field. Fields: file, exists, contains, equals, matches.',
    ),
    (
        {**TASK, 'checks': [{'file': 'a'}]},
        'evals[0].checks[0]: it has 0 operations. Use one of exists, contains, equals, matches in each check.',
    ),
    (
        {**TASK, 'script': [{'call': 'ls'}]},
        'evals[0].script[0].call: there is no such field. Fields: tool, args, answer.',
    ),
    (
        {**TASK, 'script': [{}]},
        'evals[0].script[0]: a step is a `tool` with `args`, or an `answer`. Write one of both.',
    ),
    (
        {**TASK, 'script': [{'answer': 'a'}, {'tool': 'ls'}]},
        'evals[0]: an `answer` ends the run. Move it to the end of `script`.',
    ),
    ({**TASK, 'files': 'a'}, 'evals[0].files: input should be a valid list. Correct it.'),
    (
        {**TASK, 'files': ['evals/files/no.csv']},
        "evals[0].files[0]: 'evals/files/no.csv' does not exist. Write a path relative to the skill.",
    ),
    (
        {**TASK, 'files': ['evals/files/../../../../secret']},
        "evals[0].files[0]: '../../../../secret' is not a path: ",
    ),
    (
        {**TASK, 'files': ['../secret']},
        "evals[0].files[0]: '../secret' is outside of the skill. Copy it into evals/files/.",
    ),
    (
        {**TASK, 'files': ['link']},
        "evals[0].files[0]: 'link' is outside of the skill. Copy it into evals/files/.",
    ),
    ({**TASK, 'files': ['evals']}, "evals[0].files[0]: 'evals' is not a file. Name files one by one."),
    (
        {**TASK, 'files': ['SKILL.md', 'evals/files/SKILL.md']},
        'evals[0].files[1]: two files would be /SKILL.md in the run. Rename one.',
    ),
]


@pytest.mark.parametrize(('item', 'problem'), PROBLEMS)
def test_problem_of_a_task_names_its_place_and_a_remedy(
    write_skill: WriteSkill, read_cases: ReadCases, tmp_path: Path, item: JsonValue, problem: str
) -> None:
    (tmp_path / 'secret').write_text('secret')
    (write_skill(evals=[item]) / 'link').symlink_to(tmp_path / 'secret')
    _, (shown,) = read_cases()
    assert shown.startswith(f'evals/evals.json: error: {problem}')


@pytest.mark.parametrize(
    ('evals', 'problem'),
    [
        ({'evals': []}, 'skill_name: it is missing. Add it.'),
        ({'skill_name': 'x', 'evals': [], 'cases': []}, 'cases: there is no such field. Fields: skill_name, evals.'),
        ({'skill_name': 'x', 'evals': []}, "skill_name: it is 'x'. Write the name of the skill, 'invoices'."),
        (
            {'skill_name': 'invoices', 'evals': [TASK, {**TASK, 'id': '1'}]},
            "evals: the id '1' occurs 2 times. Use different ones.",
        ),
    ],
)
def test_problem_of_the_file_names_its_place_and_a_remedy(
    write_skill: WriteSkill, read_cases: ReadCases, evals: JsonValue, problem: str
) -> None:
    write_skill(evals=evals)
    assert read_cases()[1] == [f'evals/evals.json: error: {problem} [invalid-cases]']


@pytest.mark.parametrize(
    ('queries', 'problem'),
    [
        ({'evals': []}, 'input should be a valid list. Correct it.'),
        ([{'query': 'x', 'should_load': True}], '[0].should_trigger: it is missing. Add it.'),
        ([{'query': 'x', 'should_trigger': 'yes'}], '[0].should_trigger: input should be a valid boolean. Correct it.'),
    ],
)
def test_problem_of_queries_names_its_place_and_a_remedy(
    write_skill: WriteSkill, read_cases: ReadCases, queries: JsonValue, problem: str
) -> None:
    write_skill(queries=queries)
    assert read_cases()[1][0] == f'evals/eval_queries.json: error: {problem} [invalid-cases]'


@pytest.mark.parametrize(
    ('data', 'problem'),
    [
        (b'[\n{]', ':2: error: It is not JSON: Expecting property name enclosed in double quotes, in column 2.'),
        (b'\xff', ': error: It is not UTF-8. Convert it.'),
        (b'[' * 100_000, ': error: It is nested too deeply, or has a number with too many digits. Correct it.'),
        (b'9' * 5_000, ': error: It is nested too deeply, or has a number with too many digits. Correct it.'),
        (b'[{"query": "a", "query": "b"}]', ": error: An object has the member 'query' twice, so one is lost."),
        (b' ' * 1_048_577, ': error: It has 1,048,577 bytes; at most 1,048,576 are read. Remove cases.'),
    ],
)
def test_unreadable_file_is_reported(write_skill: WriteSkill, read_cases: ReadCases, data: bytes, problem: str) -> None:
    (write_skill() / 'evals/eval_queries.json').write_bytes(data)
    assert read_cases()[1][0].startswith(f'evals/eval_queries.json{problem}')


def test_file_that_cannot_be_read_is_reported(write_skill: WriteSkill, read_cases: ReadCases) -> None:
    (write_skill() / 'evals/eval_queries.json').symlink_to('eval_queries.json')
    assert "'evals/eval_queries.json' cannot be read: Too many levels of symbolic links." in read_cases()[1][0]


@pytest.mark.parametrize('file', ['evals', 'queries'])
def test_hidden_skill_cannot_be_loaded_by_a_case(write_skill: WriteSkill, read_cases: ReadCases, file: str) -> None:
    cases: dict[str, JsonValue] = {'evals': [TASK], 'queries': [{'query': 'x', 'should_trigger': True}]}
    write_skill(extra='disable-model-invocation: true\n', **{file: cases[file]})
    assert '`disable-model-invocation`. Remove one of both.' in read_cases()[1][0]


def test_case_is_named_by_its_id_with_or_without_the_skill() -> None:
    case = Case(skill='pdf', id='1', prompt='x', should_load=True)
    assert [case.is_named([name]) for name in ('1', 'pdf/1', 'pdf', 'docx/1')] == [True, True, False, False]
