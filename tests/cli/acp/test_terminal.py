"""Commands in terminals of the editor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from acp import RequestError
from acp.schema import CreateTerminalResponse

from pydantic_deep.cli.acp import _terminal
from pydantic_deep.cli.acp._terminal import EditorTerminal
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import BackendUnavailableError, CommandTimeoutError
from tests.cli.acp.conftest import Connect, FakeEditor
from tests.cli.acp.test_session import READ

MAKE = call('execute', command='echo made | tee made.txt; exit 3')


async def test_a_command_runs_in_a_terminal_after_a_permission_in_every_mode(connect: Connect, work: Path) -> None:
    """Commands are asked for in the mode `auto` too. Their changes are in the version, and paths are real."""
    model = ScriptedModel(MAKE, call('read_file', path=str(work / 'made.txt')), 'Done.')
    async with connect(model, has_terminal=True) as editor:
        await editor.declare(terminal=True)
        opened = await editor.connection.new_session(cwd=str(work))
        session = opened.session_id
        assert opened.modes is not None
        assert opened.modes.available_modes[-1].description == (
            'Changes files without asking, and asks before it runs commands.'
        )
        await editor.connection.set_session_mode(session_id=session, mode_id='auto')
        editor.options = ['allow']
        await editor.prompt(session, 'Make it.')
        assert editor.commands == [['/bin/sh', '-c', 'echo made | tee made.txt; exit 3']]
        assert editor.events == ['create', 'release']
        shown, result = editor.of_kind('tool_call_update')[-3:-1]
        assert (shown.content[0].type, shown.content[0].terminal_id) == ('terminal', 't')
        assert shown.tool_call_id == result.tool_call_id == editor.requests[0][0].tool_call_id
        assert result.status == 'failed'  # the exit code is not 0
        assert 'made' in result.content[0].content.text
        editor.updates.clear()
        await editor.prompt(session, '/diff')
        assert '+made' in editor.text()


async def test_a_command_that_is_not_permitted_does_not_run(connect: Connect, work: Path) -> None:
    async with connect(ScriptedModel(MAKE, 'Done.'), has_terminal=True) as editor:
        await editor.declare(terminal=True)
        session = await editor.open(work)
        editor.options = ['reject']
        await editor.prompt(session, 'Make it.')
        assert editor.commands == []


async def test_the_terminal_of_a_command_is_shown_in_the_call_that_runs_it(connect: Connect, work: Path) -> None:
    """A rejected call of the same command is not the one, nor is one that has ended."""
    again = call('execute', command='echo made | tee made.txt; exit 3')
    async with connect(ScriptedModel(MAKE, again, MAKE, 'Done.'), has_terminal=True) as editor:
        await editor.declare(terminal=True)
        session = await editor.open(work)
        editor.options = ['reject', 'allow', 'allow']
        await editor.prompt(session, 'Make it.')
        asked = [request.tool_call_id for request, _ in editor.requests]
        assert len(set(asked)) == 3
        updates = editor.of_kind('tool_call_update')
        assert [
            update.tool_call_id for update in updates if update.content and update.content[0].type == 'terminal'
        ] == asked[1:]


async def test_a_command_of_another_tool_runs_in_a_terminal_too(connect: Connect, work: Path) -> None:
    """It is shown in no call: the editor learns only from calls of `execute` which command they run."""
    model = ScriptedModel(call('build'), 'Done.')
    async with connect(model, own_agent='tests.cli.acp.own_agent:agent', has_terminal=True) as editor:
        await editor.declare(terminal=True)
        session = await editor.open(work)
        await editor.prompt(session, 'Build it.')
        assert editor.events == ['create', 'release']
        [result] = editor.of_kind('tool_call_update')
        assert 'built' in result.content[0].content.text


async def test_a_cancelled_command_is_released(connect: Connect, work: Path) -> None:
    """Cancellation of a turn ends the command: the editor kills what it releases."""
    async with connect(ScriptedModel(MAKE, 'Next.'), has_terminal=True) as editor:
        await editor.declare(terminal=True)
        session = await editor.open(work)
        editor.options, editor.hangs = ['allow'], anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                assert (await editor.prompt(session, 'Make it.')).stop_reason == 'cancelled'

            tasks.start_soon(prompt)
            await editor.hangs.wait()
            await editor.connection.cancel(session_id=session)
        assert editor.events == ['create', 'release']
        assert (await editor.prompt(session, 'Next?')).stop_reason == 'end_turn'


async def test_a_terminal_that_is_created_after_the_cancellation_is_released(
    connect: Connect, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor that is slow to create a terminal does not delay the end of a cancelled turn, and no command survives it."""
    monkeypatch.setattr(_terminal, 'SHUTDOWN_SECONDS', 0.01)
    async with connect(ScriptedModel(MAKE), has_terminal=True) as editor:
        await editor.declare(terminal=True)
        session = await editor.open(work)
        editor.options, editor.created_after = ['allow'], anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await editor.happened['asked to create'].wait()
                await editor.connection.cancel(session_id=session)

            tasks.start_soon(cancel)
            assert (await editor.prompt(session, 'Make it.')).stop_reason == 'cancelled'
        assert editor.events == []
        editor.created_after.set()
        await editor.happened['release'].wait()
        assert editor.events == ['create', 'release']


@pytest.mark.parametrize('method', ['create_terminal', 'wait_for_terminal_exit', 'terminal_output'])
async def test_an_invalid_response_about_a_terminal_is_an_error_with_a_sentence(method: str, work: Path) -> None:
    """The model learns that the editor is the cause, and the terminal is released if there is one."""

    async def respond(*_: object, **__: object) -> None:
        CreateTerminalResponse.model_validate({})

    client: Any = FakeEditor()
    setattr(client, method, respond)
    with pytest.raises(BackendUnavailableError, match='The editor did not run the command: its response is invalid'):
        await EditorTerminal(client=client, session_id='s')(str(work), ['echo'], env={}, timeout=None)
    assert client.events == ([] if method == 'create_terminal' else ['create', 'release'])


async def test_an_editor_without_terminals_is_refused(connect: Connect, work: Path) -> None:
    """If the editor has not declared terminals, no session opens. Without the option, the agent has no commands."""
    async with connect(ScriptedModel(), has_terminal=True) as editor:
        with pytest.raises(RequestError, match='The editor has no terminals for agents'):
            await editor.open(work)
        await editor.declare(terminal=False)
        with pytest.raises(RequestError, match='The editor has no terminals for agents'):
            await editor.open(work)
    model = ScriptedModel(READ, 'Done.')
    async with connect(model) as editor:
        await editor.declare(terminal=True)
        await editor.prompt(await editor.open(work), 'Read.')
    assert 'execute' not in str(model.requests[0].tools)


async def test_results_of_terminals(work: Path) -> None:
    """A result has the exit code or the signal, and the output; variables are passed to the command."""
    client: Any = FakeEditor()
    run = EditorTerminal(client=client, session_id='s')
    done = await run(str(work), ['/bin/sh', '-c', 'echo $WHO; pwd'], env={'WHO': 'ada'}, timeout=None)
    assert (done.exit_code, done.stdout) == (0, f'ada\n{work}\n')
    killed = await run(str(work), ['/bin/sh', '-c', 'kill -15 $$'], env={}, timeout=60)
    assert killed.exit_code == -15


async def test_output_of_terminals_is_limited(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor that sends more than the limit is not trusted: the end of the output is kept, and a line says so."""
    monkeypatch.setattr(_terminal, 'OUTPUT_BYTES', 4)
    client: Any = FakeEditor()
    done = await EditorTerminal(client=client, session_id='s')(str(work), ['echo', '12345'], env={}, timeout=None)
    assert done.stdout == '[The beginning of the output was omitted.]\n345\n'


async def test_a_command_that_takes_too_long_is_killed(work: Path) -> None:
    """After the timeout, the command is killed, and the error has its output."""
    client: Any = FakeEditor(hangs=anyio.Event())
    run = EditorTerminal(client=client, session_id='s')
    with pytest.raises(CommandTimeoutError, match=r'The command took longer than 0\.01 s and was killed') as caught:
        await run(str(work), ['echo', 'begun'], env={}, timeout=0.01)
    assert caught.value.stdout == 'begun\n'
    assert client.events == ['create', 'kill', 'release']


async def test_a_refused_terminal_is_an_error_with_a_sentence(work: Path) -> None:
    client: Any = FakeEditor(refuses_writes=True)
    with pytest.raises(BackendUnavailableError, match=r'The editor did not run the command: No\.\. Ask the user'):
        await EditorTerminal(client=client, session_id='s')(str(work), ['echo'], env={}, timeout=None)
