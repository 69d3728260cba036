"""Runs of cases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from pydantic_ai import CancellationToken, RunCancelled
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.cli.skill_tests._cases import Case, ScriptStep
from pydantic_deep.cli.skill_tests._checks import Check
from pydantic_deep.cli.skill_tests._runner import CaseRun, CaseRunner, CheckResult
from pydantic_deep.skills import Skills, discover_skills
from pydantic_deep.testing import ScriptedModel, call

from .conftest import WriteSkill

pytestmark = pytest.mark.anyio

MakeRunner: TypeAlias = Callable[..., CaseRunner]

PROMPT = 'Write the invoice for customer Ada.'
LOAD = call('load_skill', name='invoices')


def case(should_load: bool = True, checks: tuple[Check, ...] = (), script: tuple[ScriptStep, ...] = ()) -> Case:
    files = {'/order.csv': b'tea,12'}
    return Case(
        skill='invoices', id='1', prompt=PROMPT, should_load=should_load, files=files, checks=checks, script=script
    )


@pytest.fixture
def make_runner(write_skill: WriteSkill, tmp_path: Path) -> MakeRunner:
    """Create a runner for the skills `invoices`, `reminders`, and `secret`, which is hidden."""
    write_skill(evals=[])
    write_skill('reminders', 'Use this skill when the user reminds a debtor.')
    write_skill('secret', extra='disable-model-invocation: true\n')
    directory = tmp_path / 'skills'
    visible = [skill for skill in discover_skills([directory]).skills.values() if not skill.is_hidden]

    def make(
        model: ScriptedModel | None = None, timeout: float = 60, stop: CancellationToken | None = None
    ) -> CaseRunner:
        return CaseRunner(
            skills=Skills([directory]),
            visible=visible,
            model=model,
            timeout_seconds=timeout,
            stop=stop or CancellationToken(),
        )

    return make


async def test_prompt_ends_when_a_skill_is_loaded(make_runner: MakeRunner) -> None:
    """The response is enough: the skill is not read, and no further request is paid for."""
    model = ScriptedModel([call('ls'), LOAD])
    run = await make_runner(model).run(case())
    assert (run.loaded, run.passed, len(model.requests)) == (('invoices',), True, 1)


async def test_prompt_ends_when_the_model_answers(make_runner: MakeRunner) -> None:
    model = ScriptedModel(call('ls'), 'Done.')
    run = await make_runner(model).run(case(should_load=False))
    assert (run.loaded, run.passed, len(model.requests)) == ((), True, 2)


async def test_prompt_ends_after_three_requests_without_a_skill(make_runner: MakeRunner) -> None:
    model = ScriptedModel(then=lambda messages, info: call('read_file', path=f'/{len(messages)}'))
    run = await make_runner(model).run(case())
    assert (run.loaded, run.error, run.passed, len(model.requests)) == ((), None, False, 3)


async def test_other_uses_of_the_tool_load_no_skill(make_runner: MakeRunner) -> None:
    """A file of a skill, an unknown name, a hidden skill, and broken arguments."""
    others = [
        call('load_skill', name='invoices', file='a.md'),
        call('load_skill', name='invoice'),
        call('load_skill', name='secret'),
        call('load_skill', nam='invoices'),
        call('load_skill', name=['invoices']),
    ]
    run = await make_runner(ScriptedModel(others, 'Done.')).run(case())
    assert (run.loaded, run.passed) == ((), False)


async def test_all_skills_of_the_directory_are_in_the_catalogue(make_runner: MakeRunner) -> None:
    model = ScriptedModel(call('load_skill', name=' reminders '))
    run = await make_runner(model).run(case())
    assert (run.loaded, run.loads_rightly) == (('reminders',), False)
    instructions = model.requests[0].instructions or ''
    assert '- invoices: ' in instructions
    assert '- reminders: ' in instructions


async def test_task_runs_to_its_end_and_is_checked(make_runner: MakeRunner) -> None:
    checks = (
        Check(file='order.csv', equals='tea,12'),
        Check(file='invoice.md', contains='12'),
        Check(file='reminder.md', exists=False),
        Check(matches='^Done'),
        Check(contains='Cheers'),
    )
    write = call('write_file', path='/invoice.md', content='Sum: 12')
    model = ScriptedModel(LOAD, [call('read_file', path='order.csv')], write, 'Done.')
    run = await make_runner(model).run(case(checks=checks))
    assert [result.passed for result in run.checks] == [True, True, True, True, False]
    assert (run.loads_rightly, run.passed) == (True, False)


async def test_each_run_has_new_files(make_runner: MakeRunner) -> None:
    write = call('write_file', path='/invoice.md', content='x')
    runner = make_runner(ScriptedModel(LOAD, write, 'Done.', LOAD, 'Done.'))
    checks = (Check(file='invoice.md', exists=True),)
    assert [(await runner.run(case(checks=checks))).passed for _ in range(2)] == [True, False]


async def test_cases_are_hidden_from_the_model(make_runner: MakeRunner) -> None:
    model = ScriptedModel(LOAD, call('load_skill', name='invoices', file='evals/evals.json'), call('ls'), 'Done.')
    await make_runner(model).run(case(checks=(Check(contains='SECRET'),)))
    loaded, refused, listed = (part.model_response_str() for part in model.requests[-1].tool_returns)
    assert 'evals' not in loaded
    assert "evals/evals.json is not a file of the skill 'invoices'." in refused
    assert listed == 'order.csv (6 bytes)'
    assert 'SECRET' not in str(model.requests)


async def test_scripted_model_loads_by_words_and_plays_the_steps(make_runner: MakeRunner) -> None:
    script = (ScriptStep(tool='read_file', args={'path': 'order.csv'}), ScriptStep(answer='Done.'))
    checks = (Check(equals='Done.'),)
    runner = make_runner()
    assert (await runner.run(case(checks=checks, script=script))).passed
    unscripted = await runner.run(case(checks=checks))
    assert (unscripted.loaded, unscripted.checks, unscripted.passed) == (('invoices',), (), True)


@pytest.mark.parametrize('tool', ['read_file', 'unknown'])
async def test_failed_step_is_reported_and_fails_every_check(make_runner: MakeRunner, tool: str) -> None:
    script = (ScriptStep(tool=tool, args={'path': 'orders.csv'}), ScriptStep(answer='Done.'))
    checks = (Check(equals='Done.'), Check(file='invoice.md', exists=False))
    run = await make_runner().run(case(checks=checks, script=script))
    assert run.error is not None
    assert run.error.startswith(f'Step 1 of `script` failed. {tool}: ')
    assert run.checks == tuple(CheckResult(check=check, passed=False) for check in checks)
    assert (run.loads_rightly, run.passed) == (True, False)


async def test_failed_run_is_reported(make_runner: MakeRunner) -> None:
    run = await make_runner(ScriptedModel(ZeroDivisionError('Oh.'))).run(case())
    assert run == CaseRun(case=case(), error='ZeroDivisionError: Oh.')
    assert not run.loads_rightly
    assert not CaseRun(case=case(should_load=False), error='Oh.').loads_rightly


async def test_failed_run_without_a_script_has_no_checks(make_runner: MakeRunner) -> None:
    run = await make_runner(timeout=0).run(case(checks=(Check(equals='Done.'),)))
    assert (run.checks, run.passed) == ((), False)


async def test_run_ends_after_its_time_limit(make_runner: MakeRunner) -> None:
    async def wait(messages: list[ModelMessage], info: AgentInfo) -> str:
        await anyio.sleep_forever()
        return ''

    run = await make_runner(ScriptedModel(wait), timeout=0.01).run(case())
    assert run.error == 'No result after 0.01 seconds. `--timeout` changes the limit.'


async def test_run_can_be_cancelled(make_runner: MakeRunner) -> None:
    stop = CancellationToken()
    stop.cancel()
    with pytest.raises(RunCancelled):
        await make_runner(ScriptedModel('Done.'), stop=stop).run(case())
