"""Writes docs/reference/command-line.md from the argument parser: commands, options, variables and exit codes.

`--check` only compares the page and reports the result in its exit code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer.main

from pydantic_deep.cli._app import app
from pydantic_deep.cli._environment import VARIABLES
from pydantic_deep.cli.commands._history import VERSION_HELP
from pydantic_deep.cli.commands._options import (
    APPROVALS_HELP,
    BUDGET_HELP,
    MODEL_HELP,
    RUN_EXIT_CODE_HELP,
    VERSIONED_FILES_HELP,
)
from pydantic_deep.cli.turn._failures import EXIT_CODE_MEANINGS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs/reference/command-line.md'

INTRODUCTION = """\
# Command line

Every command and option of `pydantic-deep`, from its argument parser.
`pydantic-deep COMMAND --help` prints the same at a terminal, and `pydantic-deep --version` the version.
[The guide](../guides/command-line.md) is the page to start with.
With `--json`, `run`, `resume` and `branch` print [events](events.md), other commands print [views](views.md).
"""

EMBEDDING = """\
## From Python

::: pydantic_deep.cli
    options:
      show_root_heading: false
      show_root_toc_entry: false
"""

CODE = re.compile(r'(?<!\S)(?:--|\w+:///?|[~.]?/|[A-Z]+_[A-Z_]+=?)[^\s,;()]*(?<![.:])')
"""Options, variables, URLs and paths in help texts, which have no backticks in a terminal."""

TOPICS: Mapping[str, str] = {
    MODEL_HELP: 'Choice of the model',
    APPROVALS_HELP: 'Approvals',
    BUDGET_HELP: 'Budget',
    VERSION_HELP: 'Names of versions',
    VERSIONED_FILES_HELP: 'Versioned files',
    RUN_EXIT_CODE_HELP: 'Exit codes',
}
"""Paragraphs that several commands share, and their headings on the page."""

HELP_OPTIONS = frozenset({'--help', '--version'})
"""Options that are described in the introduction."""


def main(arguments: list[str]) -> int:
    """Write the page, or compare it for `--check`, and return the exit code."""
    text = render()
    if arguments != ['--check']:
        PAGE.write_text(text, encoding='utf-8')
    elif PAGE.read_text(encoding='utf-8') != text:
        print(f'{PAGE.relative_to(ROOT)} is not fresh. Run: .venv/bin/python scripts/write_cli_reference.py')
        return 1
    return 0


def render() -> str:
    """Return the whole page."""
    commands = list(walk(typer.main.get_command(app), 'pydantic-deep'))
    rows = [f'| [`{name}`](#{name.replace(" ", "-")}) | {summary(command)} |' for name, command in commands]
    sections = [
        INTRODUCTION,
        table('| command | description |', rows),
        *(render_command(name, command) for name, command in commands),
        *(f'## {topic}\n\n{paragraphs(text)[0]}\n' for text, topic in TOPICS.items() if topic != 'Exit codes'),
        '## Environment variables\n',
        table('| variable | description |', [f'| {name} | {text} |' for name, text in VARIABLES.items()]),
        '## Exit codes\n',
        'With `--json`, the name is the `status` of the [`end` event](events.md); for the codes 3 and 4 it is the `kind` '
        'of the `error` event before it.\n',
        table(
            '| code | name | meaning |',
            [
                f'| {code} | {f"`{status}`" if status else ""} | {text} |'
                for code, (status, text) in EXIT_CODE_MEANINGS.items()
            ],
        ),
        EMBEDDING,
    ]
    return '\n'.join(sections)


def walk(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group by their full name."""
    for word, command in group.commands.items():
        if hasattr(command, 'commands'):
            yield from walk(command, f'{name} {word}')
        else:
            yield f'{name} {word}', command


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help."""
    return one_line(command.help.partition('\n\n')[0])


def render_command(name: str, command: Any) -> str:
    """Return the section of a command."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == 'argument']
    options = [
        parameter
        for parameter in command.params
        if parameter.param_type_name == 'option' and not HELP_OPTIONS & {*parameter.opts}
    ]
    usage = ' '.join([name, *(['[OPTIONS]'] if options else []), *map(argument_name, arguments)])
    parts = [f'## {name}\n', *(f'{text}\n' for text in paragraphs(command.help)), f'```text\n{usage}\n```\n']
    if arguments:
        rows = [f'| `{argument_name(parameter)}` | {one_line(parameter.help)} |' for parameter in arguments]
        parts.append(table('| argument | description |', rows))
    if options:
        parts.append(table('| option | default | description |', map(option_row, options)))
    notes = command.epilog.split('\n\n')
    links = [f'[{TOPICS[note]}](#{TOPICS[note].lower().replace(" ", "-")})' for note in notes if note in TOPICS]
    parts += [f'{text}\n' for text in paragraphs('\n\n'.join(note for note in notes if note not in TOPICS))]
    return '\n'.join([*parts, *([f'See also: {", ".join(links)}.\n'] if links else [])])


def argument_name(argument: Any) -> str:
    """Return the name of an argument as in a usage line: in brackets if it is optional."""
    name = (argument.metavar or argument.name.upper()).strip('[]')
    return name if argument.required else f'[{name}]'


def option_row(option: Any) -> str:
    """Return the table row of an option."""
    value = '' if option.is_flag else f' {option.metavar or option.type_descriptor.annotation.__name__.upper()}'
    names = ', '.join(f'`{name}`' for name in option.opts[1:])
    default = option.default
    shown = '' if default is None or default is False else f'`{getattr(default, "value", default)}`'
    return f'| `{option.opts[0]}{value}`{names and f", {names}"} | {shown} | {one_line(option.help)} |'


def paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a help text as Markdown: indented ones as code, others with one sentence per line."""
    return [as_markdown(' '.join(part.split()), part) for part in cleandoc(text or '').split('\n\n') if part.strip()]


def as_markdown(line: str, source: str) -> str:
    """Return a paragraph as Markdown; indented paragraphs are commands."""
    if source.startswith('  '):
        return f'```shell\n{line}\n```'
    code_and_text = re.split('(`[^`]*`)', line)
    code_and_text[::2] = [CODE.sub(r'`\g<0>`', text) for text in code_and_text[::2]]
    return re.sub(r'(?<=[.]) (?=[A-Z`])', '\n', ''.join(code_and_text))


def one_line(text: str) -> str:
    """Return a help text for a table cell."""
    return as_markdown(' '.join(text.split()), '').replace('\n', ' ').replace('|', '\\|')


def table(head: str, rows: Any) -> str:
    """Return a Markdown table."""
    return '\n'.join([head, re.sub('[^|]+', '---', head), *rows, ''])


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
