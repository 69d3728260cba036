"""Commands after a crash of an earlier process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ModelHTTPError
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

FOREIGN_PROGRAM = """
import asyncio, os
from pydantic_deep import LocalBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.testing import ScriptedModel, call

def then(messages, info):
    if len(messages) > 1:
        os._exit(9)
    return call('write_file', path='/new.txt', content='new')

async def main():
    async with open_store('sqlite:///{store}') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(then=then), name='other'), store)
        await (await agent.create(backend=LocalBackend('{directory}'))).advance('Go')

asyncio.run(main())
"""


@pytest.fixture
def crashed(work: Path, tmp_path: Path) -> None:
    """A turn that crashed after its first call."""
    program = [sys.executable, '-c', CRASHING_PROGRAM, tmp_path / 'state', tmp_path / 'home']
    assert subprocess.run(program, cwd=work, check=False).returncode == 9


@pytest.mark.usefixtures('crashed')
def test_resume_finishes_a_crashed_turn(invoke: Invoke, work: Path) -> None:
    """The call that may have run needs approval to run again. Afterwards, there is nothing to resume."""
    refused = invoke('resume', model=ScriptedModel())
    assert (refused.exit_code, 'There is no terminal to ask at.' in refused.stderr) == (2, True)
    assert refused.stderr.endswith(' is unchanged.\n')
    asked = invoke('resume', '--approvals=pause', model=ScriptedModel())
    assert (asked.exit_code, '· write_file /new.txt' in asked.stderr) == (5, True)
    result = invoke('resume', '--approvals=allow', model=ScriptedModel('Finished.'))
    assert (result.exit_code, result.stdout) == (0, 'Finished.\n')
    assert (work / 'new.txt').read_text() == 'new'
    again = invoke('resume', '--approvals=allow', model=ScriptedModel())
    assert (again.exit_code, 'has pending approvals' in again.stderr) == (2, True)


def _crash_at_once(work: Path, tmp_path: Path, task: str, *options: str) -> None:
    """Run a turn that crashes while its first request waits for the response."""
    program = CRASHING_PROGRAM.replace('len(messages) > 1', 'True').replace(
        "'Go'", ', '.join(map(repr, (task, *options)))
    )
    arguments = [sys.executable, '-c', program, tmp_path / 'state', tmp_path / 'home']
    assert subprocess.run(arguments, cwd=work, check=False).returncode == 9


def test_resume_is_offered_only_for_turns_that_it_can_finish(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    """A turn of another program's agent is listed without a command that would refuse it."""
    program = FOREIGN_PROGRAM.format(store=tmp_path / 'state/pydantic-deep/agents.db', directory=work)
    (tmp_path / 'state/pydantic-deep').mkdir(parents=True)
    assert subprocess.run([sys.executable, '-c', program], check=False).returncode == 9
    listed = invoke('log')
    assert listed.stderr.count('Suspended: the run of ') == 1
    assert 'pydantic-deep resume' not in listed.stderr
    assert 'has pending approvals' in invoke('resume', '--approvals=allow').stderr


def test_resume_finishes_a_turn_that_crashed_before_its_first_step(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    """Nothing but the prompt is stored then, and the turn runs with it."""
    _crash_at_once(work, tmp_path, 'Write the report')
    listed = invoke('log')
    assert 'Finish it with: pydantic-deep resume ' in listed.stderr
    model = ScriptedModel('Here it is.')
    result = invoke('resume', '--approvals=allow', model=model)
    assert (result.exit_code, result.stdout) == (0, 'Here it is.\n'), result.stderr
    assert 'Write the report' in str(model.requests[-1].messages)
    listed = invoke('log')
    assert ('Write the report' in listed.stdout, listed.stderr) == (True, '')


@pytest.mark.parametrize('command', ['run', 'chat'])
def test_prompt_of_a_turn_that_crashed_before_its_first_step_is_kept(
    invoke: Invoke, work: Path, tmp_path: Path, command: str
) -> None:
    """A new prompt continues after the one of the crashed turn, which the model and the log still show."""
    assert invoke('run', 'First', model=ScriptedModel('Done.')).exit_code == 0
    _crash_at_once(work, tmp_path, 'Write the report', '--continue')
    model = ScriptedModel('Fine.')
    if command == 'run':
        result = invoke('run', '--continue', 'In English', model=model)
    else:
        result = invoke('chat', '--continue', model=model, stdin='In English\n')
    assert (result.exit_code, result.stdout) == (0, 'Fine.\n'), result.stderr
    sent = str(model.requests[-1].messages)
    assert sent.index('First') < sent.index('Write the report') < sent.index('In English')
    listed = invoke('log')
    assert ('Write the report' in listed.stdout, listed.stderr) == (True, '')


@pytest.mark.usefixtures('crashed')
def test_failure_of_a_finished_turn_names_the_next_command(invoke: Invoke) -> None:
    newest = json.loads(invoke('log', '--json').stdout)[0]['id']
    model = ScriptedModel(ModelHTTPError(400, 'given'))
    result = invoke('resume', newest, '--approvals=allow', model=model)
    assert (result.exit_code, 'pydantic-deep run --continue TASK' in result.stderr) == (1, True)


@pytest.mark.usefixtures('crashed')
def test_crashed_turn_of_another_directory_is_not_found(invoke: Invoke, tmp_path: Path) -> None:
    other = tmp_path / 'other'
    other.mkdir()
    result = invoke('resume', '--dir', str(other))
    assert (result.exit_code, result.stderr) == (2, f'No version of {other} has pending approvals.\n')


@pytest.mark.usefixtures('crashed')
def test_crashed_turn_of_another_agent_is_not_finished(invoke: Invoke, work: Path) -> None:
    (work / 'own.py').write_text(
        'from pydantic_deep import create_deep_agent\nagent = create_deep_agent("test", name="own")\n'
    )
    result = invoke('resume', '--agent=own:agent', '--approvals=allow')
    assert (result.exit_code, 'ran with the agent of the command line' in result.stderr) == (2, True)


@pytest.mark.usefixtures('crashed')
def test_chat_reports_and_finishes_a_crashed_turn(invoke: Invoke, work: Path) -> None:
    (work / 'new.txt').unlink()  # /switch refuses to lose it
    stdin = '/switch\n1\n/resume\nNext?\n'
    model = ScriptedModel('Finished.', 'Next.')
    result = invoke('chat', '--continue', '--approvals=allow', model=model, stdin=stdin)
    assert (result.exit_code, result.stdout) == (0, 'Finished.\nNext.\n'), result.stderr
    assert 'The last turn did not end, because its process stopped. /resume finishes it;' in result.stderr
    assert (work / 'new.txt').read_text() == 'new'
    result = invoke('chat', '--continue', model=ScriptedModel(), stdin='/resume\n')
    assert 'has pending approvals' in result.stderr
    assert 'did not end' not in result.stderr


@pytest.mark.usefixtures('crashed')
def test_a_crashed_turn_is_not_compacted(invoke: Invoke) -> None:
    """A summary would end the turn, of which a call may have run."""
    result = invoke('chat', '--continue', model=ScriptedModel(), stdin='/compact\n')
    assert 'The last turn has not ended: /resume finishes it, another prompt goes on without it.' in result.stderr


@pytest.mark.usefixtures('crashed')
def test_prompt_of_a_chat_continues_after_a_crashed_turn(invoke: Invoke, work: Path) -> None:
    model = ScriptedModel('Fine.')
    result = invoke('chat', '--continue', model=model, stdin='More\n')
    assert (result.exit_code, result.stdout) == (0, 'Fine.\n'), result.stderr
    assert (work / 'new.txt').read_text() == 'new'
    assert 'has pending approvals' in invoke('resume').stderr


@pytest.mark.usefixtures('crashed')
def test_next_turn_contains_calls_of_a_crashed_turn(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    for command in (['log'], ['approvals', 'list'], ['approvals', 'list', '--json', '--agent=command-line']):
        listed = invoke(*command)
        assert listed.stderr.count('Suspended: the run of command-line of ') == 1, command
        assert 'Continue after its last step with: pydantic-deep run --continue TASK' in listed.stderr
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
