"""The command-line pages match the commands, and the generated pages are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from pydantic_deep.cli._environment import VARIABLES
from pydantic_deep.cli.chat._chat import VERBS
from pydantic_deep.cli.turn._failures import ERROR_EXIT_CODES, EXIT_CODE_MEANINGS, EXIT_CODES
from pydantic_deep.cli.turn._models import DEFAULT_MODELS, MODEL_VARIABLE
from pydantic_deep.cli.turn._runtime import MAX_TOKENS
from pydantic_deep.streaming import RunStatus, StreamEvent

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / 'docs'


@pytest.fixture(scope='module')
def guide() -> str:
    return (DOCS / 'guides/command-line.md').read_text(encoding='utf-8')


@pytest.fixture(scope='module')
def events() -> str:
    return (DOCS / 'reference/events.md').read_text(encoding='utf-8')


@pytest.mark.slow
@pytest.mark.parametrize('script', ['write_cli_reference.py', 'write_schemas.py'])
def test_generated_pages_are_up_to_date(script: str) -> None:
    done = subprocess.run([sys.executable, ROOT / 'scripts' / script, '--check'], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, '')


def test_every_exit_code_has_a_meaning() -> None:
    codes = {**EXIT_CODES, **ERROR_EXIT_CODES}
    assert {codes.get(name or '', 2): name for _, (name, _) in EXIT_CODE_MEANINGS.items()} == {
        code: name for code, (name, _) in EXIT_CODE_MEANINGS.items()
    }
    assert set(EXIT_CODES) == set(get_args(RunStatus))
    assert set(EXIT_CODE_MEANINGS) == {2, *codes.values()}


def test_every_event_has_a_heading(events: str) -> None:
    types = [event.type for event in get_args(get_args(StreamEvent)[0])]
    assert re.findall(r'^## `(\w+)` event$', events, re.MULTILINE) == types


def test_every_field_of_an_event_has_a_sentence(events: str) -> None:
    rows = re.findall(r'^\| `\w+` \| .* \|(.*)\|$', events, re.MULTILINE)
    assert len(rows) > 20
    assert [row for row in rows if not row.strip().endswith('.')] == []


def test_every_verb_of_the_chat_is_in_its_guide() -> None:
    """The guide of the chat has a row for each verb."""
    chat = (DOCS / 'guides/chat.md').read_text(encoding='utf-8')
    assert {verb.name for verb in VERBS.verbs} <= set(re.findall(r'`/(\w+)[^`]*`', chat))


@pytest.mark.parametrize('variable', [MODEL_VARIABLE, *DEFAULT_MODELS, 'OPENAI_BASE_URL', 'XDG_STATE_HOME', 'NO_COLOR'])
def test_every_variable_is_documented(variable: str) -> None:
    assert f'`{variable}`' in ' '.join(VARIABLES)


def test_guide_states_the_budget_and_is_short(guide: str) -> None:
    assert f'(default {MAX_TOKENS:,})' in guide
    assert len(guide.split()) <= 1500
