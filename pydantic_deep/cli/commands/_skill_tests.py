"""The command `skills test`. The cases, their runs and the report are in `skill_tests`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import typer
from pydantic_ai import RunCancelled
from pydantic_ai.models import Model
from rich.console import Console

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.history._context_report import exact_counter
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.skill_tests._cases import Case, CaseReader
from pydantic_deep.cli.skill_tests._costs import measure_tokens
from pydantic_deep.cli.skill_tests._report import (
    SkillReport,
    SkillTestReport,
    describe_run,
    render_report,
    report_document,
)
from pydantic_deep.cli.skill_tests._runner import CaseRunner
from pydantic_deep.cli.skill_tests._scripted import SCRIPTED
from pydantic_deep.cli.terminal._interrupts import stop_on_interrupt
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._models import open_model
from pydantic_deep.skills import Skill, SkillDiagnostic, Skills, discover_skills
from pydantic_deep.tokens import count_tokens_approximately

from ._options import error_exit, exit_on_error, print_document

TIMEOUT_SECONDS = 300
"""Default limit of one run: enough for a task of several minutes, and for a model on a slow machine."""

EXIT_CODE_HELP = (
    'Exit codes: 0 all runs passed, 1 a run failed, or a skill or a case is invalid, 2 wrong usage, 3 no usable model, '
    '130 interrupted.'
)

skill_test_app = typer.Typer()


@dataclass(frozen=True, kw_only=True)
class SkillTest:
    """A test of the skills of a directory."""

    skills: Skills
    visible: Sequence[Skill]
    """The skills in the catalogue."""
    tested: Sequence[Skill]
    """The skills with cases."""
    cases: Sequence[Case]
    runs_per_case: int
    model: str | None
    """The name of the model; `None` for the scripted one."""

    async def run(self, model: Model | None, timeout_seconds: float) -> SkillTestReport:
        """Run all cases, with progress on standard error. Ctrl-C ends the test after the runs that are complete."""
        counter = exact_counter(self.model or '')
        tokens = await measure_tokens(self.skills, self.tested, counter or count_tokens_approximately)
        reports = {
            skill.name: SkillReport(name=skill.name, tokens=measured)
            for skill, measured in zip(self.tested, tokens, strict=True)
        }
        planned = [case for _ in range(self.runs_per_case) for case in self.cases]
        with stop_on_interrupt() as interrupts:
            runner = CaseRunner(
                skills=self.skills,
                visible=self.visible,
                model=model,
                timeout_seconds=timeout_seconds,
                stop=interrupts.stop,
            )
            for number, case in enumerate(planned, 1):
                name = escape_invisible(f'{case.skill}/{case.id}')
                typer.echo(f'{number}/{len(planned)} {name} ', err=True, nl=False)
                try:
                    run = await runner.run(case)
                except RunCancelled:
                    typer.echo('interrupted', err=True)
                    break
                typer.echo(describe_run(run), err=True)
                reports[case.skill].runs.append(run)
        return SkillTestReport(
            model=self.model, is_exact=counter is not None, planned=len(planned), skills=list(reports.values())
        )


@skill_test_app.command('test', epilog=EXIT_CODE_HELP)
def _test(
    context: typer.Context,
    directory: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help='A skill, or a directory of skills (DIRECTORY/NAME/SKILL.md).'
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            '--model',
            '-m',
            metavar='PROVIDER:NAME',
            help='The model to test with. `scripted` needs no key: it loads the skill that shares most words with the '
            'prompt, and plays the `script` of a case.',
        ),
    ] = SCRIPTED,
    names: Annotated[
        list[str] | None,
        typer.Option('--case', metavar='NAME', help='Run only this case: ID or SKILL/ID. Repeatable.'),
    ] = None,
    runs: Annotated[int, typer.Option('--runs', min=1, metavar='N', help='Run each case N times.')] = 1,
    timeout: Annotated[
        int, typer.Option('--timeout', min=1, metavar='SECONDS', help='The time limit of each run.')
    ] = TIMEOUT_SECONDS,
    json: Annotated[bool, typer.Option('--json', help='Print one JSON document.')] = False,
) -> None:
    """Test which prompts load which skill, and check the answers and files of tasks.

    The cases of a skill are in its folder `evals`. All skills of the directory are in the catalogue at once. Each case runs in new
    files in memory, without commands and without approvals. Progress goes to standard error.
    """
    environment = context.find_object(Environment) or Environment()
    test = _load_test(directory, None if model == SCRIPTED else model, names or [], runs)
    with exit_on_error():
        opened = None if model == SCRIPTED else open_model(model, environment.models)
        report = anyio.run(test.run, opened, timeout)
    raise typer.Exit(_present(report, json=json))


def _present(report: SkillTestReport, *, json: bool) -> int:
    """Print a report, and return the exit code."""
    if json:
        print_document(report_document(report))
    else:
        print_lines(Console(), render_report(report))
    if len(report.runs) < report.planned:
        return EXIT_CODES['interrupted']
    return 0 if report.passed else 1


def _load_test(directory: Path, model: str | None, names: list[str], runs: int) -> SkillTest:
    """Return the test of a directory. Exits if a skill or a case is invalid, or there is none."""
    catalog = discover_skills([directory])
    readers = [CaseReader(skill=skill) for skill in catalog.skills.values()]
    cases = [case for reader in readers for case in reader.read()]
    diagnostics = [diagnostic for diagnostic in catalog.diagnostics if diagnostic.severity == 'error']
    diagnostics += [diagnostic for reader in readers for diagnostic in reader.diagnostics]
    if diagnostics:
        _print_diagnostics(diagnostics)
        raise typer.Exit(1)
    chosen = [case for case in cases if not names or case.is_named(names)]
    unknown = [name for name in names if not any(case.is_named([name]) for case in cases)]
    if unknown:
        raise typer.BadParameter(
            f'there is no case {unknown[0]!r}. Cases: {", ".join(f"{case.skill}/{case.id}" for case in cases)}.',
            param_hint="'--case'",
        )
    if not chosen:
        raise error_exit(
            f'{directory}: no skill has cases. Write evals/evals.json or evals/eval_queries.json in its folder.', 1
        )
    return SkillTest(
        skills=Skills([directory]),
        visible=[skill for skill in catalog.skills.values() if not skill.is_hidden],
        tested=[skill for skill in catalog.skills.values() if any(case.skill == skill.name for case in chosen)],
        cases=chosen,
        runs_per_case=runs,
        model=model,
    )


def _print_diagnostics(diagnostics: Sequence[SkillDiagnostic]) -> None:
    for diagnostic in diagnostics:
        typer.echo(escape_invisible(str(diagnostic)), err=True)
