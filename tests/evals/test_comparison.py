"""Datasets of cases, and comparisons of agents over them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_evals.evaluators import Evaluator, EvaluatorContext

from pydantic_deep import create_deep_agent
from pydantic_deep.evals import (
    CaseError,
    CaseFormatError,
    CaseTask,
    TurnCase,
    TurnResult,
    TurnUsage,
    compare,
    load_cases,
    replay_case,
    run_case,
    write_case,
)
from pydantic_deep.testing import ScriptedModel, call

from .conftest import EDIT, RecordCase

pytestmark = pytest.mark.anyio


def case_of(folder: Path, **fields: Any) -> None:
    folder.mkdir(parents=True)
    (folder / 'case.json').write_text(json.dumps({'format_version': 1, 'prompt': folder.name, **fields}))


def answering(cost: str | None, **outputs: str) -> CaseTask:
    async def run(case: TurnCase) -> TurnResult:
        usage = TurnUsage(requests=1, tokens=10, cost=None if cost is None else Decimal(cost))
        return TurnResult(output=outputs[case.name], files={'/a': outputs[case.name].encode()}, usage=usage)

    return run


@dataclass(repr=False)
class Polite(Evaluator[TurnCase, TurnResult, Any]):
    def evaluate(self, ctx: EvaluatorContext[TurnCase, TurnResult, Any]) -> bool:
        return 'please' in str(ctx.output.output)


async def test_agents_are_compared_with_each_other_and_with_the_recorded_turns(tmp_path: Path):
    for name in ('one', 'two'):
        contain = {'FilesContain': {'texts': {'/a': 'yes'}}}
        usage = {'requests': 2, 'tokens': 30, 'cost': '0.25'}
        case_of(tmp_path / name, evaluators=[contain, 'Polite'], expected={'usage': usage})
    cases = load_cases(tmp_path, evaluators=[Polite])
    seen: list[tuple[str, str]] = []

    comparison = await compare(
        cases,
        {
            'new': answering('0.1', one='yes please', two='yes'),
            'old': answering(None, one='yes please', two='yes, please'),
            'broken': answering('0.1', one='yes please'),
        },
        on_result=lambda score: seen.append((score.agent, score.case)),
    )

    assert not comparison
    assert comparison.agents == ['recorded', 'new', 'old', 'broken']
    assert [(one.case, one.agent, one.is_solved, list(one.problems)) for one in comparison.scores] == snapshot(
        [
            ('one', 'recorded', None, []),
            ('one', 'new', True, []),
            ('one', 'old', True, []),
            ('one', 'broken', True, []),
            ('two', 'recorded', None, []),
            ('two', 'new', False, ['Polite: not true']),
            ('two', 'old', True, []),
            ('two', 'broken', False, ["KeyError: 'two'"]),
        ]
    )
    assert [(one.agent, one.is_solved, one.usage.tokens, str(one.usage.cost)) for one in comparison.totals] == snapshot(
        [
            ('recorded', None, 60, '0.50'),
            ('new', False, 20, '0.2'),
            ('old', True, 20, 'None'),
            ('broken', False, 10, 'None'),
        ]
    )
    assert sorted(seen)[:2] == [('broken', 'one'), ('broken', 'two')]


async def test_evaluator_that_fails_is_a_problem(tmp_path: Path):
    case_of(tmp_path / 'one', evaluators=[{'FilesEqual': {'paths': ['[']}}])
    comparison = await compare(load_cases(tmp_path), {'a': answering(None, one='x')})
    [score] = comparison.scores  # no recorded turn: a person wrote the case
    [problem] = score.problems
    assert problem.startswith('FilesEqual: ')


async def test_recorded_cases_run_and_replay(record: RecordCase, tmp_path: Path):
    await record(EDIT, 'Fixed.')
    agent = create_deep_agent(ScriptedModel(EDIT, 'Fixed.'))
    assert await compare(load_cases(tmp_path / 'evals'), {'a': run_case(agent)})
    replays = load_cases(tmp_path / 'evals', is_replay=True)
    assert await compare(replays, {'a': replay_case(agent)})
    changed = create_deep_agent(ScriptedModel(), instructions='Hurry.')
    comparison = await compare(replays, {'b': replay_case(changed)})
    assert not comparison
    assert comparison.scores[1].problems[0].startswith('ReplaysExactly: request 1, instructions: ')


@pytest.mark.parametrize('evaluators', [['Nobody'], [{'UsageAtMost': {'typo': 1}}]])
def test_unknown_evaluators_are_named(evaluators: Any, tmp_path: Path):
    case_of(tmp_path / 'one', evaluators=evaluators)
    case_of(tmp_path / 'two')
    with pytest.raises(CaseFormatError, match=r'Nobody|UsageAtMost') as caught:
        load_cases(tmp_path)
    assert caught.value.path == tmp_path / 'one/case.json'


def test_unknown_evaluator_of_one_case_is_named_with_its_file_and_the_known_ones(tmp_path: Path):
    case_of(tmp_path / 'one', evaluators=['FileEquals'])
    with pytest.raises(CaseFormatError) as caught:
        load_cases(tmp_path / 'one')
    text = str(caught.value)
    assert text.startswith(
        f"'{tmp_path}/one/case.json' is not a case: Evaluator 'FileEquals' is unknown. Valid choices: "
    )
    assert text.endswith('. Pass your own evaluators to `load_cases`.')
    assert "'FilesEqual'" in text


@pytest.mark.parametrize(
    ('evaluator', 'reason'),
    [
        (
            'Contains',
            "Evaluator 'Contains': missing a required argument: 'value'. "
            'Its arguments: `value`, `case_sensitive`, `as_strings`, `evaluation_name`.',
        ),
        (
            {'FilesContain': {'text': {}}},
            "Evaluator 'FilesContain': missing a required argument: 'texts'. Its arguments: `texts`.",
        ),
        (
            {'Polite': {'how': 'very'}},
            "Evaluator 'Polite': got an unexpected keyword argument 'how'. Its arguments: none.",
        ),
        (
            3,
            '3 is not an evaluator. Write a name, or a name with arguments, such as {"FilesEqual": {"paths": ["*.csv"]}}.',
        ),
    ],
)
def test_arguments_that_an_evaluator_needs_are_named(evaluator: Any, reason: str, tmp_path: Path):
    """Also those of evaluators of pydantic-evals, and of the user."""
    case_of(tmp_path / 'one', evaluators=[evaluator])
    with pytest.raises(CaseFormatError) as caught:
        load_cases(tmp_path, evaluators=[Polite])
    assert str(caught.value) == f"'{tmp_path}/one/case.json' is not a case: {reason}"


async def test_turn_that_fails_has_the_usage_until_then(tmp_path: Path):
    """An agent that fails late would look like the cheapest."""
    case_of(tmp_path / 'one')
    case_of(tmp_path / 'two')

    def respond(messages: Any, info: Any) -> Any:
        if len(messages) > 5:
            raise RuntimeError('broken')
        return call('write_file', path='/a', content=str(len(messages)))

    agents = {
        'late': run_case(create_deep_agent(ScriptedModel(then=respond))),
        'gated': run_case(create_deep_agent(ScriptedModel(then=respond), interrupt_on={'write_file': True})),
        'own': answering(None),
    }
    comparison = await compare(load_cases(tmp_path), agents)
    assert not comparison
    assert [(score.agent, score.usage.requests, score.usage.tokens) for score in comparison.totals] == [
        ('late', 6, 660),
        ('gated', 6, 660),
        ('own', 0, 0),
    ]
    assert comparison.scores[0].problems == ['RuntimeError: broken']
    with pytest.raises(RuntimeError, match='broken'):  # in an evaluation of the user's own
        await agents['late'](load_cases(tmp_path).cases[0].inputs)


async def test_name_of_the_recorded_turns_is_refused(tmp_path: Path):
    case_of(tmp_path / 'one')
    with pytest.raises(CaseError, match="named 'recorded', which stands for the recorded turns"):
        await compare(load_cases(tmp_path), {'recorded': answering(None)})


async def test_agent_instead_of_its_task_is_refused(tmp_path: Path):
    """All of its cases were unsolved, because an agent cannot be called."""
    case_of(tmp_path / 'one')
    agents: Any = {'new': create_deep_agent(ScriptedModel())}
    with pytest.raises(CaseError, match=r"'new' is of type `Agent`. Pass a task: `\{'new': run_case\(agent\)\}`"):
        await compare(load_cases(tmp_path), agents)


@pytest.mark.slow
@pytest.mark.parametrize(
    'evaluator',
    [
        {'FilesUnchanged': 'prices.csv'},
        {'FilesEqual': {'paths': 'prices.csv'}},
        {'FilesEqual': {'path': ['prices.csv']}},
        {'FilesContain': {'texts': ['tea']}},
        {'UsageAtMost': {'requests': 'few'}},
        {'TodosCompleted': {'count': 2}},
    ],
)
def test_fields_of_evaluators_are_validated_before_a_run(evaluator: Any, tmp_path: Path):
    """A glob instead of a list of globs would match no file, so the case would be solved whatever happens."""
    case = TurnCase(name='a', prompt='Go', expected=TurnResult(output=None), evaluators=[evaluator])
    write_case(case, tmp_path)
    with pytest.raises(CaseFormatError, match=next(iter(evaluator))):
        load_cases(tmp_path)


@pytest.mark.usefixtures('measured_processes')
def test_missing_extra_is_named():
    program = "import sys; sys.modules['pydantic_evals'] = None; import pydantic_deep.evals"
    result = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert "Install the extra: `pip install 'versioned-deep-agents[evals]'`" in result.stderr
