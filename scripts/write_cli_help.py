"""Writes what the command line says of itself into its page: the help of every command, the events of `--json`, and
the documents.

`write_cli_help.py` writes docs/guides/command-line.md anew between the markers; `--check` only says whether it would
change, by its exit code. The help is printed by a process of its own in a fixed environment, so that the page is the
same whatever terminal, colours and keys the caller has.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / 'docs/guides/command-line.md'
EVENTS = ROOT / 'pydantic_deep/cli/_events.py'
DOCUMENTS = ROOT / 'pydantic_deep/cli/_schemas.py'

TODOS = ROOT / 'pydantic_deep/todos/_types.py'
TODO_NAMES = ('Todo', 'TodoStatus')

VIEWS = (ROOT / 'pydantic_deep/approvals/_view.py', ROOT / 'pydantic_deep/_text/line_diff.py')
VIEW_NAMES = ('ApprovalView', 'ArgumentView', 'PreviewView', 'DiffView', 'DiffHunk', 'DiffLine', 'LineKind')

COMMANDS = (
    '',
    'run',
    'resume',
    'chat',
    'log',
    'show',
    'context',
    'diff',
    'rewind',
    'checkout',
    'branch',
    'merge',
    'approvals',
    'approvals list',
    'approvals answer',
    'replay',
    'sql',
    'gc',
    'store',
    'store check',
    'store backup',
    'store restore',
    'skills',
    'skills new',
    'skills list',
    'skills show',
    'skills validate',
    'serve',
    'keys',
    'keys create',
    'keys list',
    'keys revoke',
    'models',
)

NAMED = (
    'Usage|FileChange|ApprovalView|ArgumentView|PreviewView|DiffView|DiffHunk|DiffLine|LineKind|Approval|DecisionKind|TodoStatus|Todo|Status|Outcome|VersionRow|CallRow|'
    'RequestRow|RequestTokens|FileRow|SubagentRow|MergeConflict|BudgetEventKind|BudgetMeasure'
)
"""What has a section of its own, to be linked to."""

WIDTH = 80
"""Columns: what a line of code on the page has room for."""

ENVIRONMENT = {
    'PATH': os.environ.get('PATH', ''),
    'TERMINAL_WIDTH': str(WIDTH),  # what Typer reads; Rich's COLUMNS would count its margins differently
    'TERM': 'dumb',
    'NO_COLOR': '1',
    'PYTHONIOENCODING': 'utf-8',
}


def main(arguments: list[str]) -> int:
    """Do what the first argument says and return the exit code."""
    if arguments == ['--print-help']:
        print_help()
        return 0
    old = PAGE.read_text(encoding='utf-8')
    others = ((TODOS, TODO_NAMES), *((path, VIEW_NAMES) for path in VIEWS))
    events = render_events(
        EVENTS.read_text(encoding='utf-8'), [(path.read_text(encoding='utf-8'), names) for path, names in others]
    )
    documents = render_documents(DOCUMENTS.read_text(encoding='utf-8'))
    new = fill(fill(fill(old, 'help', render_help()), 'events', events), 'documents', documents)
    if arguments == ['--check']:
        if new != old:
            print(f'{PAGE.relative_to(ROOT)} is not fresh. Run: .venv/bin/python scripts/write_cli_help.py')
        return int(new != old)
    PAGE.write_text(new, encoding='utf-8')
    return 0


def fill(page: str, name: str, text: str) -> str:
    """Return the page with the text between the two markers of that name."""
    begin, end = f'<!-- begin {name}: scripts/write_cli_help.py writes it -->', f'<!-- end {name} -->'
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f'{PAGE.relative_to(ROOT)} lacks the marker {begin!r} or {end!r}. Put both back.')
    return f'{head}{begin}\n\n{text}\n{end}{tail}'


def render_help() -> str:
    """Return the help of all commands as Markdown."""
    printed = subprocess.run(
        [sys.executable, __file__, '--print-help'], env=ENVIRONMENT, capture_output=True, encoding='utf-8', check=True
    ).stdout
    printed = re.sub(r'[ \t]+$', '', printed, flags=re.MULTILINE)
    return printed.replace('```text\n\n', '```text\n').replace('\n\n\n```', '\n```')


def print_help() -> None:
    """Print the help of all commands as Markdown, for the width and the colours of this process."""
    from pydantic_deep.cli import main as run_command_line

    for command in COMMANDS:
        print(f'### pydantic-deep {command}'.rstrip() + '\n\n```text', flush=True)
        run_command_line([*command.split(), '--help'])
        print('```\n', flush=True)


def render_events(events: str, others: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a section for each event, then for each value in one: its docstring and a table of its fields.

    Args:
        events: The module of the events: read and not imported, because only its text has the docstrings of fields.
        others: Other modules, with the names of what events hold of them.
    """
    pairs = [
        (node, after)
        for text, names in ((events, None), *others)
        for node, after in zip(ast.parse(text).body, [*ast.parse(text).body[1:], ast.Pass()], strict=True)
        if names is None or name_of(node) in names
    ]
    sections = [(node, render_class(node)) for node, _ in pairs if isinstance(node, ast.ClassDef)]
    choices = [render_choice(node, after) for node, after in pairs if is_choice(node)]
    ordered = sorted(sections, key=lambda section: event_type(section[0]) is None)
    return '\n'.join([*(text for _, text in ordered), *choices])


def render_documents(text: str) -> str:
    """Return a section for each value that a command about versions prints.

    Args:
        text: The module of these values.
    """
    return '\n'.join(render_class(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef))


def render_class(node: ast.ClassDef) -> str:
    """Return the section of a class."""
    event = event_type(node)
    heading = f'### `{event}` event' if event else f'### {node.name}'
    lines = [
        heading,
        '',
        unwrapped(ast.get_docstring(node) or ''),
        '',
        '| field | type | what it is |',
        '|---|---|---|',
    ]
    for field, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign) and name_of(field) != 'type':
            lines.append(f'| `{name_of(field)}` | {render_type(field.annotation)} | {docstring_of(after)} |')
    return '\n'.join([*lines, ''])


def render_choice(node: ast.stmt, after: ast.stmt) -> str:
    """Return the section of an alias of literals."""
    heading = f'### {name_of(node)}'
    values = re.findall(r"'(\w+)'", ast.unparse(node))
    return (
        '\n'.join([heading, '', ', '.join(f'`{value}`' for value in values), '', docstring_of(after)]).rstrip() + '\n'
    )


def render_type(annotation: ast.expr) -> str:
    """Return a type as it is in Python, with a link to what has a section of its own."""
    text = ast.unparse(annotation)
    named = re.search(NAMED, text)
    if named:
        return f'[{text}](#{named.group().lower()})'
    return ' or '.join(f'`{part}`' for part in text.split(' | '))  # a bar would end the cell


def is_choice(node: ast.stmt) -> bool:
    """Return whether a statement names a choice of literals."""
    return isinstance(node, ast.AnnAssign) and node.value is not None and ast.unparse(node.value).startswith('Literal[')


def name_of(node: ast.stmt) -> str:
    """Return the name that a statement defines; an empty one if it defines none."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return node.name if isinstance(node, ast.ClassDef) else ''


def event_type(node: ast.ClassDef) -> str | None:
    """Return what stands in the field `type` of an event; `None` for a class without one."""
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and name_of(field) == 'type' and field.value:
            return str(ast.literal_eval(field.value))
    return None


def docstring_of(node: ast.stmt) -> str:
    """Return the text of a statement that is a docstring, on one line; an empty one for another."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return unwrapped(node.value.value)
    return ''


def unwrapped(text: str) -> str:
    """Return a text on one line."""
    return ' '.join(text.split())


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
