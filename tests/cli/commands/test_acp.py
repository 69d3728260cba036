"""The command `acp`: its streams, its configuration and the missing extra."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest
from acp import RequestError, spawn_agent_process
from acp.helpers import text_block
from pydantic_ai.exceptions import ModelHTTPError
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel
from tests.cli.acp.conftest import Connect, FakeEditor, Stalled, connect

pytestmark = pytest.mark.slow

__all__ = ('connect',)

Invoke = Callable[..., Result]

PROGRAM = """
import sys
from pydantic_deep.cli import main
from pydantic_deep.testing import ScriptedModel, call

async def wait(messages, info):
    print('printed by a model', flush=True)
    if len(sys.argv) > 1:
        import anyio
        await anyio.Path(sys.argv[1]).touch()
        await anyio.sleep_forever()
    return 'Done.'

calls = [call('write_file', path='/new.txt', content='new')]
if len(sys.argv) > 2:
    calls = [call('read_file', path='/poem.txt')] * int(sys.argv[2])
model = ScriptedModel(*calls, wait)
sys.exit(main(['acp', '--model', 'given'], models={'given': model}))
"""


def exchange(invoke: Callable[[], Result], messages: Sequence[dict[str, Any]]) -> tuple[Result, list[dict[str, Any]]]:
    """Run the command with messages as standard input, which ends after the responses, and return its output."""
    (stdin, feed), (read, stdout) = os.pipe(), os.pipe()
    kept = [os.dup(0), os.dup(1)]
    for message in messages:
        os.write(feed, json.dumps({'jsonrpc': '2.0', **message}).encode() + b'\n')
    os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.close(stdin)
    os.close(stdout)
    lines: list[dict[str, Any]] = []

    def receive() -> None:
        left = len(messages)
        with os.fdopen(read) as output:
            for line in output:
                lines.append(json.loads(line))
                is_response = 'id' in lines[-1]
                left -= is_response
                if is_response and left == 0:
                    os.close(feed)

    reader = Thread(target=receive)
    reader.start()
    try:
        result = invoke()
    finally:
        os.dup2(kept[0], 0)
        os.dup2(kept[1], 1)
        for descriptor in kept:
            os.close(descriptor)
    reader.join()
    return result, lines


def test_the_command_answers_on_standard_output(invoke: Invoke, work: Path, tmp_path: Path) -> None:
    """Messages on standard input are answered on standard output, with the configuration of each directory."""
    messages: list[dict[str, Any]] = [
        {'id': 1, 'method': 'initialize', 'params': {'protocolVersion': 1}},
        {'id': 2, 'method': 'session/new', 'params': {'cwd': str(work), 'mcpServers': []}},
        {'id': 3, 'method': 'session/list', 'params': {}},
    ]
    result, output = exchange(lambda: invoke('acp', model=ScriptedModel()), messages)
    assert result.exit_code == 0, result.output
    answers = {line['id']: line['result'] for line in output if 'id' in line}
    assert answers[1]['agentInfo']['name'] == 'pydantic-deep'
    assert [mode['id'] for mode in answers[2]['modes']['availableModes']] == ['ask', 'plan', 'auto']
    assert answers[3] == {'sessions': []}


def test_what_is_missing_is_told_after_the_session_is_known(invoke: Invoke, work: Path) -> None:
    """An editor may ignore updates of a session whose id it has not received."""
    (work / 'own/foo').mkdir(parents=True)
    (work / 'own/foo/SKILL.md').write_text('Sort them.')
    server: dict[str, Any] = {'name': 'sums', 'command': 'false', 'args': [], 'env': []}
    messages: list[dict[str, Any]] = [
        {'id': 1, 'method': 'initialize', 'params': {'protocolVersion': 1}},
        {'id': 2, 'method': 'session/new', 'params': {'cwd': str(work), 'mcpServers': [server]}},
    ]
    skills = str(work / 'own')
    _, output = exchange(lambda: invoke('acp', '--no-store', '--skills', skills, model=ScriptedModel()), messages)
    assert [line.get('id', line.get('method')) for line in output] == [1, 2, *['session/update'] * 3]
    _, server_text, skill_text = [line['params']['update'].get('content', {}).get('text') for line in output[2:]]
    assert server_text.startswith('The MCP server sums is not running: ')
    assert 'own/foo/SKILL.md:1: error: It has no frontmatter.' in skill_text


def test_an_untrusted_project_is_refused_with_a_sentence(invoke: Invoke, work: Path) -> None:
    """Configuration files that nobody has trusted are an error of the session, as there is no terminal to ask at."""
    (work / '.mcp.json').write_text('{"mcpServers": {"s": {"command": "x"}}}')
    new: dict[str, Any] = {'id': 1, 'method': 'session/new', 'params': {'cwd': str(work), 'mcpServers': []}}
    _, [answer] = exchange(lambda: invoke('acp', '--no-store', model=ScriptedModel()), [new])
    assert 'trust' in answer['error']['message']


def test_commands_run_in_one_place(invoke: Invoke) -> None:
    """The options for a sandbox and for terminals of the editor exclude each other."""
    result = invoke('acp', '--sandbox', '--terminal', model=ScriptedModel())
    assert result.exit_code == 2
    assert 'Commands run in a sandbox or in the terminal of the editor. Choose one.' in result.output


def test_an_unusable_store_is_an_error_of_each_request(invoke: Invoke) -> None:
    """If the store cannot be opened, the editor and standard error receive a sentence that says so."""
    messages: list[dict[str, Any]] = [{'id': 1, 'method': 'initialize', 'params': {'protocolVersion': 1}}]
    result, [answer] = exchange(lambda: invoke('acp', '--store', 'agents.db', model=ScriptedModel()), messages)
    assert result.exit_code == 2
    assert answer['id'] == 1
    assert answer['error']['message'].startswith("The store cannot be opened: There is no store at 'agents.db'. Write")
    assert answer['error']['message'] in result.output


@pytest.mark.parametrize('name', ['file', os.devnull])
def test_streams_that_are_no_pipes_are_refused(invoke: Invoke, tmp_path: Path, name: str) -> None:
    """Without pipes the command exits with an error that says what to do."""
    kept = os.dup(0)
    nothing = os.open(tmp_path / name, os.O_RDONLY | os.O_CREAT)
    os.dup2(nothing, 0)
    try:
        result = invoke('acp', model=ScriptedModel())
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(nothing)
    assert result.exit_code == 1
    assert 'Let an editor start this command' in result.output


def test_the_extra_is_named_if_it_is_missing(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library of the protocol, the command names the extra to install."""
    for name in [name for name in sys.modules if name.startswith('pydantic_deep.cli.acp')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'acp', None)
    result = invoke('acp')
    assert result.exit_code == 2
    assert "pip install 'versioned-deep-agents[acp]'" in result.output


async def test_output_of_the_program_does_not_break_the_messages(work: Path, tmp_path: Path) -> None:
    """`print` in the program of the agent goes to standard error. The turn works over real pipes."""
    editor = FakeEditor(options=['allow'])
    client: Any = editor
    variables = {**os.environ, 'XDG_STATE_HOME': str(tmp_path), 'HOME': str(tmp_path)}
    async with spawn_agent_process(client, sys.executable, '-c', PROGRAM, env=variables) as (connection, _):
        await connection.initialize(protocol_version=1)
        session = await connection.new_session(cwd=str(work), mcp_servers=[])
        response = await connection.prompt(session_id=session.session_id, prompt=[text_block('Write.')])
        assert response.stop_reason == 'end_turn'
    assert editor.text() == 'Done.'
    assert (work / 'new.txt').read_text() == 'new'


@asynccontextmanager
async def killed(work: Path, tmp_path: Path, *, reads: int | None = None) -> AsyncGenerator[str]:
    """Run the program in another process, kill it while its model is asked, and yield the id of the session.

    Its turn has read a file some times before, or else it has written one after a permission.
    """
    editor = FakeEditor(options=['allow'])
    client: Any = editor
    variables = {**os.environ, 'PYDANTIC_DEEP_STORE': f'sqlite:///{tmp_path / "agents.db"}', 'HOME': str(tmp_path)}
    asked = tmp_path / 'asked'
    command = (sys.executable, '-c', PROGRAM, str(asked), *([] if reads is None else [str(reads)]))
    async with spawn_agent_process(client, *command, env=variables) as (connection, process):
        session = (await connection.new_session(cwd=str(work), mcp_servers=[])).session_id
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                with pytest.raises(ConnectionError):
                    await connection.prompt(session_id=session, prompt=[text_block('Write.')])

            tasks.start_soon(prompt)
            while not asked.exists():  # the model is asked after the step is stored
                await anyio.lowlevel.checkpoint()
            process.kill()
            await process.wait()
    yield session


async def test_a_turn_is_finished_after_kill(connect: Connect, work: Path, tmp_path: Path) -> None:
    """After `kill -9` in a turn that continued from answered calls, loading finishes it; no call runs twice."""
    async with killed(work, tmp_path) as session, connect(ScriptedModel('Finished.', 'Next.')) as again:
        with pytest.raises(RequestError, match='Load the session, which finishes the turn, and fork it then'):
            await again.connection.fork_session(cwd=str(work), session_id=session)
        await again.connection.load_session(cwd=str(work), session_id=session)
        assert again.kinds()[:2] == ['user_message_chunk', 'tool_call']  # the dialogue before the rest of the turn
        assert again.kinds()[-2:] == ['tool_call_update', 'agent_message_chunk']
        assert {update.tool_call_id for update in again.of_kind('tool_call')} == {'call-1'}
        assert not again.requests
        assert again.text() == 'Finished.'
        assert (await again.prompt(session, 'Next?')).stop_reason == 'end_turn'
        assert again.text() == 'Finished.Next.'
    assert (work / 'new.txt').read_text() == 'new'


async def test_a_finished_turn_can_be_resumed_without_its_dialogue(
    connect: Connect, work: Path, tmp_path: Path
) -> None:
    """`session/resume` finishes a turn too. A failure is shown, and the session can be used."""
    async with killed(work, tmp_path) as session, connect(ScriptedModel(ModelHTTPError(400, 'm'), 'Next.')) as again:
        await again.connection.resume_session(cwd=str(work), session_id=session)
        assert again.kinds() == ['tool_call', 'tool_call_update', 'agent_message_chunk']
        assert '400' in again.text()
        assert (await again.prompt(session, 'Next?')).stop_reason == 'end_turn'


async def test_finishing_a_turn_can_be_cancelled(connect: Connect, work: Path, tmp_path: Path) -> None:
    """While a session is loaded, `session/cancel` stops the turn that is being finished. The session is open then."""
    wait = Stalled()
    async with killed(work, tmp_path) as session, connect(ScriptedModel(wait, 'Next.')) as again:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(again.connection.load_session, cwd=str(work), session_id=session))
            await wait.asked.wait()
            await again.connection.cancel(session_id=session)
        assert (await again.prompt(session, 'Next?')).stop_reason == 'end_turn'
        assert again.text() == 'Next.'


async def test_a_turn_is_finished_from_its_last_step(connect: Connect, work: Path, tmp_path: Path) -> None:
    """A turn that was killed between two steps is finished from the last one; its requests are not repeated."""
    async with killed(work, tmp_path, reads=2) as session, connect(ScriptedModel('Finished.')) as again:
        await again.connection.load_session(cwd=str(work), session_id=session)
        assert again.text() == 'Finished.'
        assert {update.tool_call_id for update in again.of_kind('tool_call')} == {'call-1', 'call-2'}


async def test_a_turn_without_a_step_is_finished(connect: Connect, work: Path, tmp_path: Path) -> None:
    """A turn that was killed before its first response has left its prompt, which is shown, and runs from there."""
    async with killed(work, tmp_path, reads=0) as session, connect(ScriptedModel('Finished.', 'Next.')) as again:
        await again.connection.load_session(cwd=str(work), session_id=session)
        assert again.kinds() == ['user_message_chunk', 'agent_message_chunk']
        assert again.text('user_message_chunk') == 'Write.'
        assert again.text() == 'Finished.'
        assert (await again.prompt(session, 'Next?')).stop_reason == 'end_turn'
        assert again.text() == 'Finished.Next.'
