"""The commands that errors, help texts and documentation recommend: each can be typed as it is shown."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from pydantic_deep.cli._app import app

ROOT = Path(__file__).parents[2]

DOCUMENTS = [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md'), *(ROOT / 'skills').rglob('*.md')]

IN_PROSE = re.compile(r'`pydantic-deep ([^`]+)`|(?:: |^ *)pydantic-deep ([a-z]\S* [^`]*)', re.MULTILINE)
"""A command in backticks, or after a colon. Other mentions of the name are no commands."""

IN_DOCUMENTS = re.compile(r'`pydantic-deep ([^`\n]+)`|^(?:\$ )?pydantic-deep (.+)$', re.MULTILINE)

END = re.compile(r'\.(?= |$)| \(| [|>&;] |\n')
"""The end of a command that is part of a text."""

COMMAND = get_command(app)


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module, with `ID` for values, without docstrings."""
    tree = ast.parse(path.read_text())
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield ''.join(str(part.value) if isinstance(part, ast.Constant) else 'ID' for part in node.values)
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (inner | documentation)
        ):
            yield node.value


def recommended() -> set[str]:
    """Return the arguments of all recommended commands. The name of a command alone only refers to it."""
    found = [
        match
        for path in (ROOT / 'pydantic_deep').rglob('*.py')
        for text in texts(path)
        for match in IN_PROSE.finditer(text)
    ]
    found += [match for path in DOCUMENTS for match in IN_DOCUMENTS.finditer(path.read_text())]
    return {END.split(match[1] or match[2])[0].removesuffix(' ID …') for match in found}  # an option and its value


def parse(line: str) -> Mapping[str, object]:
    """Return the parameters of a command line; none for the name of a command or a group."""
    name, *arguments = 'pydantic-deep', *shlex.split(line, comments=True)
    command = COMMAND
    while isinstance(command, TyperGroup):
        if not arguments or arguments[0].startswith('-'):
            return {}
        name = arguments.pop(0)
        command = command.commands[name]
    if not arguments:
        return {}
    try:
        return command.make_context(name, arguments).params
    except typer.BadParameter as error:
        if type(error) is not typer.BadParameter:  # a parameter is missing
            raise
        return {}  # a placeholder for a number, or a directory that is not here


@pytest.mark.slow
def test_recommended_commands_can_be_typed() -> None:
    """Each has known options and all required arguments; `run` also has a task, for which it would ask otherwise."""
    lines = recommended()
    assert len(lines) > 100
    for line in sorted(lines):
        if '[' in line or line.startswith('COMMAND'):  # a usage, as in the reference
            continue
        try:
            parameters = parse(line)
        except Exception as error:
            pytest.fail(f'pydantic-deep {line}: {error!r}')
        assert parameters.get('task', 'given'), f'pydantic-deep {line}: it has no task'
