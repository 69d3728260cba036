"""The report: measured facts, as text and as JSON."""

from __future__ import annotations

from io import StringIO

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.skill_tests._cases import Case
from pydantic_deep.cli.skill_tests._checks import Check
from pydantic_deep.cli.skill_tests._costs import SkillTokens
from pydantic_deep.cli.skill_tests._report import (
    SkillReport,
    SkillTestReport,
    describe_run,
    render_report,
    report_document,
)
from pydantic_deep.cli.skill_tests._runner import CaseRun, CheckResult

CHECK = Check(file='invoice.md', contains='Sum: 12')
FAILED = (CheckResult(check=CHECK, passed=False),)


def case(id: str, should_load: bool = True, **fields: object) -> Case:
    prompt = f'Prompt {id} with \x1b[31mcolour.\nMore.'
    return Case(skill='invoices', id=id, prompt=prompt, should_load=should_load, **fields)  # pyright: ignore[reportArgumentType]


TASK = case('1', checks=(CHECK,), expectations=2)
REMIND = case('query-1', should_load=False)

FAILING = [
    CaseRun(case=TASK, loaded=('invoices',), checks=FAILED),
    CaseRun(case=TASK, loaded=('reminders', 'bills')),
    CaseRun(case=TASK, checks=FAILED, error='The server is down.\x07'),
    CaseRun(case=TASK, loaded=('bills',), checks=FAILED, error='No result after 9 seconds.'),
    CaseRun(case=TASK, loaded=('invoices',), checks=(CheckResult(check=CHECK, passed=True),)),
    CaseRun(case=REMIND, loaded=('invoices',)),
    CaseRun(case=REMIND, loaded=('reminders',)),
    CaseRun(case=case('query-2')),
]

PASSING = [
    CaseRun(case=TASK, loaded=('invoices',), checks=(CheckResult(check=CHECK, passed=True),)),
    CaseRun(case=REMIND),
]

TOKENS = SkillTokens(catalogue=23, instructions=1_245, files={'a.md': 400, 'b.md': 1_000})


def report(runs: list[CaseRun], *, planned: int | None = None, model: str | None = 'house') -> SkillTestReport:
    skills = [SkillReport(name='invoices', tokens=TOKENS, runs=runs)]
    return SkillTestReport(model=model, is_exact=model is not None, planned=planned or len(runs), skills=skills)


def text_of(report: SkillTestReport, width: int = 80) -> str:
    stream = StringIO()
    print_lines(Console(file=stream, width=width), render_report(report))
    return '\n'.join(line.rstrip() for line in stream.getvalue().split('\n'))


def test_report_names_each_wrong_prompt_and_what_happened() -> None:
    failing = report(FAILING)
    assert not failing.passed
    assert text_of(failing) == snapshot("""\
skill     prompts  should load  should not load  checks
invoices        3       2 of 6           1 of 2  1 of 4

Failed
invoices/1: Prompt 1 with \\x1b[31mcolour.
  check failed: /invoice.md contains 'Sum: 12' (1 of 5 runs)
  should load it, loaded reminders, bills instead (1 of 5 runs)
  The server is down.\\x07 (1 of 5 runs)
  No result after 9 seconds. (1 of 5 runs)
  should load it, loaded bills instead (1 of 5 runs)
invoices/query-1: Prompt query-1 with \\x1b[31mcolour.
  should not load it, and did (1 of 2 runs)
invoices/query-2: Prompt query-2 with \\x1b[31mcolour.
  should load it, loaded no skill

tokens    in every request  when loaded  other files
invoices                23        1,245   1,400 in 2

Expectations in words, not judged: 2.
Model: house.
""")


def test_report_of_passed_runs_is_short() -> None:
    passing = report(PASSING)
    assert passing.passed
    assert text_of(passing) == snapshot("""\
skill     prompts  should load  should not load  checks
invoices        2       1 of 1           1 of 1  1 of 1

tokens    in every request  when loaded  other files
invoices                23        1,245   1,400 in 2

Expectations in words, not judged: 2.
Model: house.
""")


def test_report_of_the_scripted_model_says_that_no_language_model_ran() -> None:
    runs = [CaseRun(case=TASK, loaded=('invoices',))]
    assert text_of(report(runs, model=None), width=120) == snapshot("""\
skill     prompts  should load  should not load  checks
invoices        1       1 of 1                -       -

tokens, estimated  in every request  when loaded  other files
invoices                         23        1,245   1,400 in 2

Expectations in words, not judged: 2.
Cases without a `script`, not checked: 1.
No language model ran: the scripted model compares words, so these figures say nothing about the descriptions. They say that the cases are valid, and that their scripts pass their checks. Name a model with --model.
""")


def test_case_whose_script_failed_has_a_script() -> None:
    run = CaseRun(case=TASK, loaded=('invoices',), checks=FAILED, error='Step 1 failed.')
    assert text_of(report([run], model=None), width=120) == snapshot("""\
skill     prompts  should load  should not load  checks
invoices        1       1 of 1                -  0 of 1

Failed
invoices/1: Prompt 1 with \\x1b[31mcolour.
  Step 1 failed.

tokens, estimated  in every request  when loaded  other files
invoices                         23        1,245   1,400 in 2

Expectations in words, not judged: 2.
No language model ran: the scripted model compares words, so these figures say nothing about the descriptions. They say that the cases are valid, and that their scripts pass their checks. Name a model with --model.
""")


def test_interrupted_report_says_what_ran() -> None:
    interrupted = report(PASSING, planned=9)
    assert not interrupted.passed
    assert 'Interrupted: 2 of 9 runs.' in text_of(interrupted)


def test_skill_without_runs_or_a_line_has_dashes() -> None:
    tokens = SkillTokens(catalogue=None, instructions=9, files={})
    skills = [SkillReport(name='x' * 64, tokens=tokens)]
    shown = text_of(SkillTestReport(model='house', is_exact=True, planned=1, skills=skills))
    assert shown == snapshot("""\
skill                              prompts  should load  should not load  checks
xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx        0            -                -       -
xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx

tokens                                in every request  when loaded  other files
xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx        not listed            9            -
xxxxxxxxxxxxxxxxxxxxxxxxxxxx

Interrupted: 0 of 1 runs.
Model: house.
""")


@pytest.mark.parametrize(
    ('run', 'line'),
    [
        (PASSING[0], 'passed'),
        (FAILING[0], "FAILED: check failed: /invoice.md contains 'Sum: 12'"),
        (FAILING[5], 'FAILED: should not load it, and did'),
    ],
)
def test_progress_is_one_line_a_run(run: CaseRun, line: str) -> None:
    assert describe_run(run) == line


def test_document_has_every_run() -> None:
    assert report_document(report([FAILING[0], PASSING[1]])) == snapshot(
        {
            'model': 'house',
            'is_language_model': True,
            'passed': False,
            'planned_runs': 2,
            'is_exact': True,
            'skills': [
                {
                    'name': 'invoices',
                    'tokens': {
                        'catalogue': 23,
                        'instructions': 1245,
                        'files': {'a.md': 400, 'b.md': 1000},
                    },
                    'runs': [
                        {
                            'case': '1',
                            'prompt': """\
Prompt 1 with \x1b[31mcolour.
More.\
""",
                            'should_load': True,
                            'loaded': ['invoices'],
                            'loads_rightly': True,
                            'checks': [{'file': '/invoice.md', 'contains': 'Sum: 12', 'passed': False}],
                            'error': None,
                            'passed': False,
                        },
                        {
                            'case': 'query-1',
                            'prompt': """\
Prompt query-1 with \x1b[31mcolour.
More.\
""",
                            'should_load': False,
                            'loaded': [],
                            'loads_rightly': True,
                            'checks': [],
                            'error': None,
                            'passed': True,
                        },
                    ],
                }
            ],
        }
    )
