"""Commands after a crash of an earlier process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai.messages import ToolReturnPart
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.slow

Invoke = Callable[..., Result]

CRASHING_PROGRAM = """
import os, sys
from typer.testing import CliRunner
from pydantic_deep.cli._app import app
from pydantic_deep.cli._environment import Environment
from pydantic_deep.testing import ScriptedModel, call

def then(messages, info):
    if len(messages) > 1:
        os._exit(9)
    return call('write_file', path='/new.txt', content='new')

variables = {'XDG_STATE_HOME': sys.argv[1], 'HOME': sys.argv[2], 'PYDANTIC_DEEP_MODEL': 'given'}
environment = Environment(models={'given': ScriptedModel(then=then)}, variables=variables)
CliRunner().invoke(app, ['run', 'Go', '--approvals=allow'], obj=environment)
"""


def test_next_turn_contains_calls_of_a_crashed_turn(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    crashed = subprocess.run(
        [sys.executable, '-c', CRASHING_PROGRAM, tmp_path / 'state', tmp_path / 'home'], cwd=work, check=False
    )
    assert crashed.returncode == 9
    for command in (['log'], ['approvals', 'list'], ['approvals', 'list', '--json', '--agent=command-line']):
        listed = invoke(*command)
        assert listed.stderr.count('Suspended: the run of command-line of ') == 1, command
        assert 'Continue after its last step with: pydantic-deep run --continue' in listed.stderr
    other = tmp_path / 'other'
    other.mkdir()
    for command in (['log', '--dir', str(other)], ['approvals', 'list', '--agent=other']):
        assert 'Suspended' not in invoke(*command).stderr, command
    model = ScriptedModel('Fine.')
    result = invoke('run', 'More', '--continue', '--json', model=model)
    assert result.exit_code == 0, result.stderr
    message_parts = [part for message in model.requests[-1].messages for part in message.parts]
    (written,) = (part for part in message_parts if isinstance(part, ToolReturnPart))
    assert written.content == 'The tool call was interrupted before a result was produced.'  # it is in no step yet
    assert (work / 'new.txt').read_text() == 'new'
    rows = json.loads(invoke('log', '--json').stdout)
    assert [(row['kind'], row['state']) for row in rows] == [
        ('turn', 'complete'),
        ('edit', 'complete'),  # the written file
        ('turn', 'interrupted'),
        ('root', 'complete'),
    ]
    running = invoke('sql', "SELECT count(*) AS n FROM runs WHERE state = 'running'", '--json')
    assert json.loads(running.stdout) == [{'n': 0}]


RUNNING_PROGRAM = CRASHING_PROGRAM.replace(
    'os._exit(9)', 'os.write(1, b"answers\\n"); os.read(0, 1)'
)  # the runner replaces `sys.stdout`


def test_continue_is_refused_while_another_run_is_active(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, '-c', RUNNING_PROGRAM, str(tmp_path / 'state'), str(tmp_path / 'home')]
    with subprocess.Popen(
        arguments, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running_process:
        assert running_process.stdin is not None
        assert running_process.stdout is not None
        try:
            assert running_process.stdout.readline() == 'answers\n'
            refused = invoke('run', 'More', '--continue', model=ScriptedModel('Fine.'))
        finally:
            running_process.kill()
    assert refused.exit_code == 2
    assert 'Another run is working in this directory: ' in refused.stderr
    assert 'is its last step. Wait until it ends' in refused.stderr
