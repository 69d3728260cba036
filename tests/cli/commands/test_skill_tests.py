"""The command `skills test`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo
from typer.testing import CliRunner, Result

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.commands._skills import skills_app
from pydantic_deep.skills import BUNDLED_SKILLS
from pydantic_deep.testing import Answer, ScriptedModel, call

Run: TypeAlias = Callable[..., Result]

INVOICE: JsonValue = {
    'id': 1,
    'prompt': 'Write the invoice for customer Ada.',
    'checks': [{'file': 'invoice.md', 'contains': '12'}],
    'script': [{'tool': 'write_file', 'args': {'path': 'invoice.md', 'content': 'Sum: 12'}}, {'answer': 'Done.'}],
}

REMINDER: JsonValue = {'query': 'Send the customer a reminder.', 'should_trigger': False}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `skills test`, in a wide terminal."""
    monkeypatch.setenv('COLUMNS', '120')

    def run(*args: object, model: Model | None = None) -> Result:
        models = {} if model is None else {'given': model}
        options = [] if model is None else ['--model', 'given']
        return CliRunner().invoke(skills_app, ['test', *map(str, args), *options], obj=Environment(models=models))

    return run


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A directory with two skills, one of which has two cases."""
    directory = tmp_path / 'skills'
    for name, words in {'invoices': 'an invoice for a customer. Not for a reminder', 'photos': 'photos sorted'}.items():
        (directory / name / 'evals').mkdir(parents=True)
        (directory / name / 'SKILL.md').write_text(
            f'---\nname: {name}\ndescription: Use this skill when the user wants {words}.\n---\nDo it.\n'
        )
    evals = directory / 'invoices/evals'
    (evals / 'evals.json').write_text(json.dumps({'skill_name': 'invoices', 'evals': [INVOICE]}))
    (evals / 'eval_queries.json').write_text(json.dumps([REMINDER]))
    return directory


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    return call('load_skill', name='photos') if len(messages) == 1 else 'Done.'


def test_scripted_model_is_the_default_and_the_report_says_so(run: Run, skills: Path) -> None:
    result = run(skills)
    assert result.exit_code == 0, result.output
    assert result.stderr == '1/2 invoices/1 passed\n2/2 invoices/query-1 passed\n'
    assert 'invoices        2       1 of 1           1 of 1  1 of 1\n' in result.stdout
    assert 'No language model ran' in result.stdout
    assert run(skills, '--model', 'scripted').stdout == result.stdout


def test_a_model_that_loads_another_skill_fails(run: Run, skills: Path) -> None:
    result = run(skills, '--case', 'query-1', '--case', 'invoices/1', '--runs', 2, model=ScriptedModel(then=answer))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == '4/4 invoices/query-1 passed'
    assert 'should load it, loaded photos instead (2 of 2 runs)' in result.stdout
    assert 'Model: given.' in result.stdout


def test_one_skill_is_tested_alone(run: Run, skills: Path) -> None:
    model = ScriptedModel('Done.')
    assert run(skills / 'invoices', '--case', 'query-1', model=model).exit_code == 0
    instructions = model.requests[0].instructions or ''
    assert ('- invoices: ' in instructions, '- photos: ' in instructions) == (True, False)


def test_tokens_of_a_known_model_are_counted_exactly(run: Run, skills: Path) -> None:
    result = CliRunner().invoke(
        skills_app,
        ['test', str(skills), '--model', 'gpt-5', '--case', 'query-1'],
        obj=Environment(models={'gpt-5': ScriptedModel('Done.')}),
    )
    assert '\ntokens    in every request' in result.stdout


def test_json_is_one_document(run: Run, skills: Path) -> None:
    result = run(skills, '--json')
    document = json.loads(result.stdout)
    assert (document['model'], document['is_language_model'], document['passed']) == (None, False, True)
    assert [item['case'] for item in document['skills'][0]['runs']] == ['1', 'query-1']


def test_ctrl_c_leaves_the_report_of_complete_runs(run: Run, skills: Path) -> None:
    def interrupt(messages: list[ModelMessage], info: AgentInfo) -> str:
        signal.raise_signal(signal.SIGINT)
        return 'Done.'

    model = ScriptedModel(call('load_skill', name='invoices'), 'Done.', then=interrupt)
    result = run(skills, '--runs', 2, model=model)
    assert result.exit_code == 130
    assert result.stderr.endswith('2/4 invoices/query-1 interrupted\n')
    assert 'Interrupted: 1 of 4 runs.' in result.stdout
    assert "check failed: /invoice.md contains '12'" in result.stdout


def test_invalid_cases_and_skills_stop_the_test(run: Run, skills: Path) -> None:
    """A skill that cannot be loaded would be missing in the catalogue, and its cases would not run."""
    (skills / 'invoices/evals/eval_queries.json').write_text('[')
    (skills / 'photos/SKILL.md').write_text('Sort them.')
    result = run(skills)
    assert (result.exit_code, result.stdout) == (1, '')
    assert 'photos/SKILL.md:1: error: It has no frontmatter.' in result.stderr
    assert 'invoices/evals/eval_queries.json:1: error: It is not JSON' in result.stderr


def test_directory_without_cases_is_an_error(run: Run, skills: Path) -> None:
    result = run(skills / 'photos')
    assert (result.exit_code, result.stdout) == (1, '')
    assert 'no skill has cases. Write evals/evals.json or evals/eval_queries.json in its folder.' in result.stderr


def test_unknown_case_is_wrong_usage(run: Run, skills: Path) -> None:
    result = run(skills, '--case', 'query-9')
    assert result.exit_code == 2
    assert "no case 'query-9'. Cases: invoices/1, invoices/query-1." in ' '.join(
        result.stderr.replace('│', ' ').split()
    )


def test_unknown_model_is_reported_before_anything_runs(run: Run, skills: Path) -> None:
    result = run(skills, '--model', 'nobody:nothing')
    assert (result.exit_code, result.stdout) == (3, '')
    assert "'nobody:nothing' cannot be" in result.stderr


def test_bundled_skills_pass_with_the_scripted_model(run: Run) -> None:
    """Each has at least five prompts that should load it, four that should not, and a task with checks."""
    result = run(BUNDLED_SKILLS, '--json')
    document = json.loads(result.stdout)
    assert (result.exit_code, document['passed']) == (0, True), result.stderr
    for skill in document['skills']:
        wanted = [item['should_load'] for item in skill['runs']]
        assert wanted.count(True) >= 5, skill['name']
        assert wanted.count(False) >= 4, skill['name']
        assert any(item['checks'] for item in skill['runs']), skill['name']
    assert len(document['skills']) == 4
