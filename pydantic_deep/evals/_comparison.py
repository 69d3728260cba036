"""Comparing agents: `load_cases` returns a dataset, and `compare` runs it with each of several tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import JsonValue, ValidationError
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Evaluator, EvaluatorSpec
from pydantic_evals.evaluators.common import DEFAULT_EVALUATORS
from pydantic_evals.lifecycle import CaseLifecycle
from pydantic_evals.reporting import ReportCase, ReportCaseFailure

from pydantic_deep._checks import check_index, check_object, describe_problem

from ._case import TurnCase, TurnResult, TurnUsage, read_cases
from ._evaluators import EVALUATORS, ReplaysExactly
from ._run import SPENT, CaseTask
from .errors import CaseError, CaseFormatError

CaseDataset: TypeAlias = Dataset[TurnCase, TurnResult, Any]
"""Cases with their evaluators, for pydantic-evals."""

_Result: TypeAlias = ReportCase[TurnCase, TurnResult, Any] | ReportCaseFailure[TurnCase, TurnResult, Any]


def load_cases(
    directory: str | Path,
    *,
    evaluators: Sequence[type[Evaluator[Any, Any, Any]]] = (),
    is_replay: bool = False,
) -> CaseDataset:
    """Return the cases of a directory as a dataset.

    Args:
        directory: The directory, or the folder of one case.
        evaluators: Classes of your own evaluators that a `case.json` names.
        is_replay: Whether the dataset is for `replay_case`: its only evaluator is then `ReplaysExactly`.

    Raises:
        CaseFormatError: There are no cases, or one of them or its evaluators cannot be read.
    """
    cases = read_cases(directory)
    directory = Path(directory)
    is_one = (directory / 'case.json').exists()
    return Dataset(
        name=directory.resolve().name,
        cases=[
            Case(
                name=case.name,
                inputs=case,
                expected_output=case.expected,
                evaluators=()
                if is_replay
                else _evaluators(case, directory if is_one else directory / case.name, [*EVALUATORS, *evaluators]),
            )
            for case in cases
        ],
        evaluators=[ReplaysExactly()] if is_replay else [],
    )


def _evaluators(
    case: TurnCase, folder: Path, types: Sequence[type[Evaluator[Any, Any, Any]]]
) -> tuple[Evaluator[Any, Any, Any], ...]:
    """Return the evaluators that a case names.

    Raises:
        CaseFormatError: One is unknown, or its arguments are invalid.
    """
    path = folder / 'case.json'
    specs: dict[str, Any] = {
        'name': 'cases',
        'cases': [{'name': case.name, 'inputs': None, 'evaluators': case.evaluators}],
    }
    for spec in case.evaluators:
        _check_arguments(spec, path, {one.get_serialization_name(): one for one in [*DEFAULT_EVALUATORS, *types]})
    try:
        [loaded] = Dataset[Any, Any, Any].from_dict(specs, custom_evaluator_types=types).cases
    except Exception as error:  # an `ExceptionGroup` of the evaluators that cannot be created
        causes: Sequence[BaseException] = getattr(error, 'exceptions', [error])
        raise CaseFormatError(path, ' '.join(map(_describe, causes))) from error
    return tuple(loaded.evaluators)


def _check_arguments(spec: JsonValue, path: Path, types: Mapping[str, type[Evaluator[Any, Any, Any]]]) -> None:
    """Raise `CaseFormatError` if an evaluator has other arguments than its class, or is not one. Unknown names pass."""
    try:
        evaluator = EvaluatorSpec.model_validate(spec)
    except ValidationError as error:
        hint = 'Write a name, or a name with arguments, such as {"FilesEqual": {"paths": ["*.csv"]}}.'
        raise CaseFormatError(path, f'{json.dumps(spec)} is not an evaluator. {hint}') from error
    if (found := types.get(evaluator.name)) is None:
        return
    parameters = signature(found)
    try:
        parameters.bind(*evaluator.args, **evaluator.kwargs)
    except TypeError as error:
        names = ', '.join(f'`{name}`' for name in parameters.parameters) or 'none'
        raise CaseFormatError(path, f'Evaluator {evaluator.name!r}: {error}. Its arguments: {names}.') from error


def _describe(error: BaseException) -> str:
    """Return why an evaluator cannot be created. The texts of pydantic have several lines."""
    invalid = error.__cause__
    if not isinstance(invalid, ValidationError):
        text, is_unknown, _ = str(error).partition(' If you are trying to use a custom evaluator')
        unknown = text.replace('is not in the provided `custom_evaluator_types`', 'is unknown')
        return f'{unknown} Pass your own evaluators to `load_cases`.' if is_unknown else text
    return f'{str(error).partition(": ")[0]}: {describe_problem(invalid)}.'


@dataclass(frozen=True, kw_only=True)
class CaseScore:
    """The result of one case with one agent."""

    case: str
    """The name of the case."""
    agent: str
    """The name of the agent; `recorded` for the recorded turn."""
    is_solved: bool | None
    """Whether all evaluators returned true; `None` for the recorded turn."""
    usage: TurnUsage
    """The usage of the turn."""
    problems: Sequence[str] = ()
    """The reasons of the evaluators that did not return true, or the error that ended the run."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The results of several agents over the same cases; true if every agent solved all of them."""

    scores: Sequence[CaseScore]
    """The results, by case, then by agent. The recorded turn comes first, if there is one."""

    def __bool__(self) -> bool:
        return all(score.is_solved is not False for score in self.scores)

    @property
    def totals(self) -> Sequence[CaseScore]:
        """The sums over all cases, by agent."""
        return [_total([score for score in self.scores if score.agent == agent]) for agent in self.agents]

    @property
    def agents(self) -> Sequence[str]:
        """The names of the agents, in order."""
        return list(dict.fromkeys(score.agent for score in self.scores))


RECORDED = 'recorded'
"""The name of the recorded turn in a comparison."""


async def compare(
    cases: CaseDataset,
    agents: Mapping[str, CaseTask],
    *,
    max_concurrency: int = 4,
    on_result: Callable[[CaseScore], None] = lambda score: None,
) -> Comparison:
    """Run the same cases with several agents or models, one after another, and return one comparison.

    Args:
        cases: The cases, from `load_cases`.
        agents: The tasks to compare, by name: results of `run_case` or `replay_case`. `recorded` is the name of the
            recorded turns.
        max_concurrency: The maximum number of cases that run at the same time.
        on_result: Called with each result when its case ended, such as to keep the results of a comparison that is
            interrupted.

    Raises:
        CaseError: An agent is named `recorded`, or was passed instead of its task.
    """
    check_object('cases', cases, Dataset, 'Load them: `load_cases(directory)`.')
    check_object('agents', agents, Mapping, "For example, `{'new': run_case(agent)}`.")
    check_index('max_concurrency', max_concurrency, least=1)
    if RECORDED in agents:
        raise CaseError(f'An agent is named {RECORDED!r}, which stands for the recorded turns. Give it another name.')
    for name, task in agents.items():
        if not callable(task):
            raise CaseError(
                f'{name!r} is of type `{type(task).__name__}`. Pass a task: `{{{name!r}: run_case(agent)}}`.'
            )
    by_case = {case.inputs.name: _recorded(case.inputs) for case in cases.cases}

    def add(score: CaseScore) -> None:
        by_case[score.case].append(score)
        on_result(score)

    for name, task in agents.items():
        await _evaluate(cases, name, task, max_concurrency, add)
    return Comparison(scores=[score for scores in by_case.values() for score in scores])


def _recorded(case: TurnCase) -> list[CaseScore]:
    """Return the score of the recorded turn; none for a case that a person wrote."""
    usage = case.expected.usage
    return [CaseScore(case=case.name, agent=RECORDED, is_solved=None, usage=usage)] if usage.requests else []


async def _evaluate(
    cases: CaseDataset, name: str, task: CaseTask, max_concurrency: int, add: Callable[[CaseScore], None]
) -> None:
    """Run the cases with one agent, and add each result when its case ended: an interrupted evaluation has no report."""
    spent_by_case: dict[str, list[TurnUsage]] = {}

    async def run(case: TurnCase) -> TurnResult:
        reset = SPENT.set(spent_by_case.setdefault(case.name, []))
        try:
            return await task(case)
        finally:
            SPENT.reset(reset)

    class Ended(CaseLifecycle[TurnCase, TurnResult, Any]):
        async def teardown(self, result: _Result | None) -> None:
            if result is not None:  # not cancelled
                add(_score(result, name, spent_by_case[result.name]))

    await cases.evaluate(run, name=name, max_concurrency=max_concurrency, progress=False, lifecycle=Ended)


def _score(result: _Result, agent: str, spent: Sequence[TurnUsage]) -> CaseScore:
    if isinstance(result, ReportCaseFailure):
        usage, problems = next(iter(spent), TurnUsage()), [result.error_message]
    else:
        usage = result.output.usage
        problems = [f'{one.name}: {one.reason or "not true"}' for one in result.assertions.values() if not one.value]
        problems += [f'{failure.name}: {failure.error_message}' for failure in result.evaluator_failures]
    return CaseScore(case=result.name, agent=agent, is_solved=not problems, usage=usage, problems=problems)


def _total(scores: Sequence[CaseScore]) -> CaseScore:
    costs = [score.usage.cost for score in scores]
    return CaseScore(
        case='total',
        agent=scores[0].agent,
        is_solved=None if scores[0].is_solved is None else all(score.is_solved for score in scores),
        usage=TurnUsage(
            requests=sum(score.usage.requests for score in scores),
            tokens=sum(score.usage.tokens for score in scores),
            cost=None if None in costs else sum((cost for cost in costs if cost is not None), Decimal()),
        ),
    )
