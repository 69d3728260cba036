"""The page of the command line says what the command line does, and its generated parts are fresh."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from pydantic_deep.cli._events import Event, Status
from pydantic_deep.cli.commands._chat import HELP
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._models import DEFAULT_MODELS, MODEL_VARIABLE
from pydantic_deep.cli.turn._runtime import MAX_TOKENS

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / 'scripts/write_cli_help.py'
GENERATED = re.compile(r'<!-- begin (\w+): .*?<!-- end \1 -->', re.DOTALL)


@pytest.fixture(scope='module')
def page() -> str:
    return (ROOT / 'docs/guides/command-line.md').read_text(encoding='utf-8')


@pytest.fixture(scope='module')
def prose(page: str) -> str:
    """The page without what is generated."""
    return GENERATED.sub('', page)


@pytest.mark.slow
@pytest.mark.parametrize(
    'terminal',
    [
        {},
        {'NO_COLOR': '1', 'COLUMNS': '40', 'TERM': 'dumb', 'PYTHONIOENCODING': 'ascii'},
        {'FORCE_COLOR': '1', 'COLUMNS': '300', 'TERMINAL_WIDTH': '50', 'GITHUB_ACTIONS': 'true'},
    ],
    ids=['as it is', 'narrow and plain', 'wide and coloured'],
)
def test_the_generated_parts_are_fresh_whatever_the_terminal(terminal: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, '--check'], env={**os.environ, **terminal}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, '')


def test_what_is_generated_is_there(page: str) -> None:
    assert [match[1] for match in GENERATED.finditer(page)] == ['events', 'documents', 'help']


def test_every_option_has_a_heading(page: str, prose: str) -> None:
    table_of_help = re.findall(r'^│ (--[a-z-]+) +(-[a-z])?', page, re.MULTILINE)
    headings = '\n'.join(line for line in prose.splitlines() if line.startswith('### '))
    options = {option for option, _ in table_of_help}
    shorts = {short for _, short in table_of_help if short}
    assert options == set(re.findall(r'--[a-z-]+', headings))
    assert shorts == set(re.findall(r'`(-[a-z])`', headings))


def test_every_exit_code_is_in_the_table_with_its_status(prose: str) -> None:
    rows = re.findall(r'^\| (\d+) \| (?:`(\w+)`)? *\|', prose, re.MULTILINE)
    codes: dict[str, str] = {status: str(code) for status, code in EXIT_CODES.items()}
    assert {status: code for code, status in rows} == {'': '2', **codes}
    assert set(EXIT_CODES) == set(get_args(Status))


def test_every_event_has_a_heading(page: str) -> None:
    types = [event.type for event in get_args(get_args(Event)[0])]
    assert re.findall(r'^### `(\w+)` event$', page, re.MULTILINE) == types


def test_every_field_of_an_event_has_its_sentence(page: str) -> None:
    rows = re.findall(r'^\| `\w+` \| .* \|(.*)\|$', page[page.index('## Events') :], re.MULTILINE)
    assert len(rows) > 20
    assert [row for row in rows if not row.strip().endswith('.')] == []


def test_every_command_of_a_chat_is_in_the_table(prose: str) -> None:
    assert set(re.findall(r'^/\w+', HELP, re.MULTILINE)) <= set(re.findall(r'`(/\w+)`', prose))


@pytest.mark.parametrize('variable', [MODEL_VARIABLE, *DEFAULT_MODELS, 'OPENAI_BASE_URL', 'XDG_STATE_HOME', 'NO_COLOR'])
def test_every_variable_is_in_the_table(variable: str, prose: str) -> None:
    variables = prose[prose.index('## Environment') : prose.index('## Exit codes')]
    assert f'`{variable}`' in variables


def test_the_budget_is_named(prose: str) -> None:
    assert f'{MAX_TOKENS:,} unless you say otherwise' in prose
