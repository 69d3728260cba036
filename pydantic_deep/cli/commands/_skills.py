"""The commands `skills new`, `list`, `show` and `validate`. The skills themselves are in `pydantic_deep.skills`.

`skills test` is in `_skill_tests`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.render._tables import create_table, print_table
from pydantic_deep.cli.render._terminal_text import escape_invisible, first_line_of_prose
from pydantic_deep.skills import (
    BUNDLED_SKILLS,
    Skill,
    SkillDiagnostic,
    SkillDirectory,
    SkillNotFoundError,
    Skills,
    discover_skills,
    validate_skill,
)

from ._options import print_document
from ._skill_tests import skill_test_app

PROJECT_SKILLS = Path('.agents/skills')
"""Directory of project skills, relative to the project. Other clients use it too."""

EXIT_CODE_HELP = 'Exit codes: 0 done, 1 `validate` found an error or the skill does not exist, 2 wrong usage.'

TEMPLATE = """\
---
name: {name}
description: Use this skill when the user wants to … (name the words, file types and tools that occur in such requests). Not for … .
---

# {title}

The result is … .

1. … Done when … .
2. … Done when … .

## Example

Request: …
Result: …

## Check before you finish

- …
"""
"""The SKILL.md that `new` writes. `validate` refuses it until the placeholder of the description is replaced."""

skills_app = typer.Typer(
    name='skills',
    no_args_is_help=True,
    help='Create, list, show, validate and test skills: folders with a SKILL.md that the agent loads on demand.',
    epilog=EXIT_CODE_HELP,
)

DirectoriesOption = Annotated[
    list[Path] | None,
    typer.Option(
        '--dir',
        exists=True,
        file_okay=False,
        metavar='DIR',
        help='Search only this directory; repeatable. Default: .agents/skills here, ~/.agents/skills, and the bundled '
        'skills.',
    ),
]
TrustOption = Annotated[
    bool, typer.Option('--trust', help='Trust .agents/skills of this directory. Read it before you do.')
]


@dataclass(frozen=True, kw_only=True)
class SkillRow:
    """A skill as `skills list` shows it."""

    skill: Skill
    is_trusted: bool
    """Whether an agent would load the skill."""


@skills_app.command('new', epilog=EXIT_CODE_HELP)
def _new(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='Lowercase letters, digits and hyphens, such as reviewing-changes.')],
    directory: Annotated[
        Path | None,
        typer.Option(
            '--dir', metavar='DIR', help='The parent of the folder. Default: ~/.agents/skills, which run and chat use.'
        ),
    ] = None,
) -> None:
    """Create a skill from a template."""
    environment = context.find_object(Environment) or Environment()
    folder = (environment.skills_directory if directory is None else directory) / name
    skill = f'{folder}/SKILL.md'
    problem = _name_problem(name)
    if problem is not None:
        raise typer.BadParameter(problem, param_hint="'NAME'")
    try:
        folder.mkdir(parents=True)
        title = name.replace('-', ' ').capitalize()
        (folder / 'SKILL.md').write_text(TEMPLATE.format(name=name, title=title), encoding='utf-8')
    except FileExistsError:
        raise _fail(f'{folder} already exists. Choose another name, or edit it.') from None
    except OSError as error:
        raise _fail(f'{skill} cannot be written: {error.strerror}.') from None
    typer.echo(escape_invisible(f'{skill}: fill it in, then: pydantic-deep skills validate {shlex.quote(str(folder))}'))


@skills_app.command('list', epilog=EXIT_CODE_HELP)
def _list(
    context: typer.Context,
    directories: DirectoriesOption = None,
    trust: TrustOption = False,
    json: Annotated[bool, typer.Option('--json', help='Print one JSON array.')] = False,
) -> None:
    """List the skills that an agent would use, and on standard error the problems of others.

    Skills of the working directory are listed as untrusted unless you pass --trust.
    """
    listed, diagnostics = list_skills(_directories(context, directories, trust=trust))
    if json:
        print_document(_skill_documents(listed))
    else:
        print_table(Console(), render_skill_table(listed))
    _print_diagnostics(diagnostics)


@skills_app.command('show', epilog=EXIT_CODE_HELP)
def _show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='The name of a skill, as `list` shows it.')],
    directories: DirectoriesOption = None,
) -> None:
    """Print a skill as the agent reads it: its instructions and the names of its files. No script of it runs."""
    skills = Skills(_directories(context, directories, trust=True))
    try:
        typer.echo(escape_invisible(anyio.run(skills.load, name)))
    except SkillNotFoundError as error:
        raise _fail(str(error)) from None
    except ValueError as error:
        raise _fail(f'{name} cannot be shown: {error}') from None


@skills_app.command('validate', epilog=EXIT_CODE_HELP)
def _validate(
    paths: Annotated[list[Path], typer.Argument(metavar='PATH...', help='The folder of a skill, or its SKILL.md.')],
    json: Annotated[bool, typer.Option('--json', help='Print one JSON array.')] = False,
) -> None:
    """Validate skills strictly by the Agent Skills standard. Warnings do not fail."""
    diagnostics: list[SkillDiagnostic] = []
    for path in paths:
        found = validate_skill(path)
        diagnostics += found
        if not json:
            for line in found or [f'{path}: no problems found.']:
                typer.echo(escape_invisible(str(line)))
    if json:
        print_document(_diagnostic_documents(diagnostics))
    if any(diagnostic.severity == 'error' for diagnostic in diagnostics):
        raise typer.Exit(1)


skills_app.add_typer(skill_test_app)


def list_skills(directories: list[SkillDirectory]) -> tuple[list[SkillRow], list[SkillDiagnostic]]:
    """Return the trusted skills, then the untrusted ones, and the problems of skills that cannot be used."""
    used = discover_skills(directories)
    untrusted = discover_skills([replace(source, trusted=True) for source in directories if not source.trusted])
    listed = [SkillRow(skill=skill, is_trusted=True) for skill in used.skills.values()]
    listed += [SkillRow(skill=skill, is_trusted=False) for skill in untrusted.skills.values()]
    return listed, [diagnostic for diagnostic in used.diagnostics if diagnostic.code != 'untrusted']


def _skill_documents(listed: list[SkillRow]) -> list[dict[str, object]]:
    return [
        {
            'name': row.skill.name,
            'description': row.skill.description,
            'scope': row.skill.scope,
            'path': str(row.skill.source),
            'is_trusted': row.is_trusted,
            'is_hidden': row.skill.is_hidden,
            'allowed_tools': row.skill.allowed_tools,
        }
        for row in listed
    ]


def render_skill_table(listed: list[SkillRow]) -> Table:
    """Return skills as a table."""
    table = create_table('name', 'from', 'description')
    for row in listed:
        scope = row.skill.scope if row.is_trusted else f'{row.skill.scope}, untrusted'
        table.add_row(
            Text(escape_invisible(row.skill.name)), scope, Text(first_line_of_prose(row.skill.description, 200))
        )
    return table


def _diagnostic_documents(diagnostics: list[SkillDiagnostic]) -> list[dict[str, object]]:
    return [
        {'severity': d.severity, 'path': d.path, 'line': d.line, 'code': d.code, 'message': d.message}
        for d in diagnostics
    ]


def _directories(context: typer.Context, paths: list[Path] | None, *, trust: bool) -> list[SkillDirectory]:
    if paths:
        return [SkillDirectory(path) for path in paths]
    environment = context.find_object(Environment) or Environment()
    return [
        SkillDirectory(PROJECT_SKILLS, trusted=trust, is_required=False),
        SkillDirectory(Path(environment.variables.get('HOME') or '~', PROJECT_SKILLS), scope='user', is_required=False),
        SkillDirectory(BUNDLED_SKILLS, scope='bundled'),
    ]


def _print_diagnostics(diagnostics: list[SkillDiagnostic]) -> None:
    for diagnostic in diagnostics:
        typer.echo(escape_invisible(str(diagnostic)), err=True)


def _name_problem(name: str) -> str | None:
    """Return the problem of a name for a new skill; `None` if the name is valid."""
    try:
        Skills([Skill(name, 'x', body='x')])
    except ValueError as error:
        return str(error).removeprefix('name: ')
    return None


def _fail(sentence: str) -> typer.Exit:
    typer.echo(escape_invisible(sentence), err=True)
    return typer.Exit(1)
