"""The report of a test of skills: measured facts only, as text or JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from pydantic_deep.cli.render._terminal_text import escape_invisible, first_line, first_line_of_prose

from ._costs import SkillTokens
from ._runner import CaseRun

MAX_PROMPT_CHARS = 70
"""Maximum length of the shown beginning of a prompt, which fits into 80 columns."""

SCRIPTED_NOTE = (
    'No language model ran: the scripted model compares words, so these figures say nothing about the descriptions. '
    'They say that the cases are valid, and that their scripts pass their checks. Name a model with --model.'
)


@dataclass(frozen=True, kw_only=True)
class SkillReport:
    """The results of one skill."""

    name: str
    tokens: SkillTokens
    runs: list[CaseRun] = field(default_factory=list[CaseRun])

    def loads(self, should_load: bool) -> list[bool]:
        """Return for each run of a prompt that should, or should not, load the skill, whether it did so."""
        return [run.loads_rightly for run in self.runs if run.case.should_load is should_load]

    @property
    def checks(self) -> list[bool]:
        """The results of all checks."""
        return [result.passed for run in self.runs for result in run.checks]


@dataclass(frozen=True, kw_only=True)
class SkillTestReport:
    """The results of a directory of skills."""

    model: str | None
    """The name of the model; `None` for the scripted one."""
    is_exact: bool
    """Whether the tokenizer of the model counted the tokens. Otherwise they are estimated."""
    planned: int
    """The number of runs that were planned."""
    skills: Sequence[SkillReport]

    @property
    def runs(self) -> list[CaseRun]:
        """The runs of all skills."""
        return [run for skill in self.skills for run in skill.runs]

    @property
    def passed(self) -> bool:
        """Whether every run that was planned has passed."""
        return len(self.runs) == self.planned and all(run.passed for run in self.runs)


def render_report(report: SkillTestReport) -> Iterator[Table | Text]:
    """Yield the tables and sentences of a report."""
    yield _render_loads(report)
    wrong = [line for skill in report.skills for line in _render_wrong(skill)]
    if wrong:
        yield Text('\n').join([Text('\nFailed', 'bold'), *wrong])
    yield Text()
    yield _render_tokens(report)
    yield Text()
    if len(report.runs) < report.planned:
        yield Text(f'Interrupted: {len(report.runs)} of {report.planned} runs.', 'yellow')
    unjudged = sum({(run.case.skill, run.case.id): run.case.expectations for run in report.runs}.values())
    if unjudged:
        yield Text(f'Expectations in words, not judged: {unjudged}.')
    unscripted = len({(run.case.skill, run.case.id) for run in report.runs if run.case.checks and not run.checks})
    if report.model is None and unscripted:
        yield Text(f'Cases without a `script`, not checked: {unscripted}.')
    yield Text(SCRIPTED_NOTE if report.model is None else f'Model: {escape_invisible(report.model)}.')


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style='bold')
    for index, column in enumerate(columns):
        table.add_column(column, justify='right' if index else 'left', overflow='fold')
    return table


def _render_loads(report: SkillTestReport) -> Table:
    table = _table('skill', 'prompts', 'should load', 'should not load', 'checks')
    for skill in report.skills:
        prompts = len({run.case.id for run in skill.runs})
        figures = (_ratio(skill.loads(True)), _ratio(skill.loads(False)), _ratio(skill.checks))
        table.add_row(Text(escape_invisible(skill.name)), str(prompts), *figures)
    return table


def _ratio(results: Sequence[bool]) -> Text:
    if not results:
        return Text('-', 'dim')
    return Text(f'{sum(results)} of {len(results)}', '' if all(results) else 'red')


def _render_tokens(report: SkillTestReport) -> Table:
    counted = 'tokens' if report.is_exact else 'tokens, estimated'
    table = _table(counted, 'in every request', 'when loaded', 'other files')
    for skill in report.skills:
        tokens = skill.tokens
        line = 'not listed' if tokens.catalogue is None else f'{tokens.catalogue:,}'
        files = f'{sum(tokens.files.values()):,} in {len(tokens.files)}' if tokens.files else '-'
        table.add_row(Text(escape_invisible(skill.name)), line, f'{tokens.instructions:,}', files)
    return table


def _render_wrong(skill: SkillReport) -> Iterator[Text]:
    """Yield for each case that did not pass its prompt and what happened, with the number of runs if there are several."""
    for id in dict.fromkeys(run.case.id for run in skill.runs if not run.passed):
        runs = [run for run in skill.runs if run.case.id == id]
        reasons = Counter(reason for run in runs for reason in _reasons(run))
        prompt = first_line_of_prose(runs[0].case.prompt, MAX_PROMPT_CHARS)
        yield Text(f'{escape_invisible(skill.name)}/{escape_invisible(id)}: {prompt}')
        for reason, count in reasons.items():
            often = f' ({count} of {len(runs)} runs)' if len(runs) > 1 else ''
            yield Text(f'  {escape_invisible(reason)}{often}', 'red')


def _reasons(run: CaseRun) -> Iterator[str]:
    """Yield why a run did not pass."""
    if run.error is not None:
        yield run.error
    if not run.loads_rightly and (run.loaded or run.error is None):
        others = [name for name in run.loaded if name != run.case.skill]
        instead = f'loaded {", ".join(others)} instead' if others else 'loaded no skill'
        yield f'should load it, {instead}' if run.case.should_load else 'should not load it, and did'
    if run.error is None:
        yield from (f'check failed: {result.check}' for result in run.checks if not result.passed)


def describe_run(run: CaseRun) -> str:
    """Return the outcome of a run as a line of progress."""
    if run.passed:
        return 'passed'
    return f'FAILED: {first_line("; ".join(_reasons(run)), MAX_PROMPT_CHARS)}'


def report_document(report: SkillTestReport) -> dict[str, object]:
    """Return a report as JSON."""
    return {
        'model': report.model,
        'is_language_model': report.model is not None,
        'passed': report.passed,
        'planned_runs': report.planned,
        'is_exact': report.is_exact,
        'skills': [
            {
                'name': skill.name,
                'tokens': {
                    'catalogue': skill.tokens.catalogue,
                    'instructions': skill.tokens.instructions,
                    'files': skill.tokens.files,
                },
                'runs': [_run_document(run) for run in skill.runs],
            }
            for skill in report.skills
        ],
    }


def _run_document(run: CaseRun) -> dict[str, object]:
    return {
        'case': run.case.id,
        'prompt': run.case.prompt,
        'should_load': run.case.should_load,
        'loaded': list(run.loaded),
        'loads_rightly': run.loads_rightly,
        'checks': [{**result.check.model_dump(exclude_none=True), 'passed': result.passed} for result in run.checks],
        'error': run.error,
        'passed': run.passed,
    }
