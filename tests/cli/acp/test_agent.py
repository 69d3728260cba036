"""Sessions: opening, loading, listing, forking and closing them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from acp import PROTOCOL_VERSION, RequestError
from acp.helpers import image_block, text_block
from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer
from pydantic_ai import Agent
from pydantic_ai.messages import ThinkingPart

from pydantic_deep.cli.acp import _connection
from pydantic_deep.cli.acp._mcp_servers import with_mcp_servers
from pydantic_deep.cli.acp._stored_sessions import list_stored
from pydantic_deep.cli.turn._runtime import Extras, Settings
from pydantic_deep.mcp import McpServer
from pydantic_deep.store import SqlStore, VersionFilter, open_engine, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.cli.acp.conftest import Connect, Stalled
from tests.cli.acp.test_session import EDIT, PIXEL, PLAN, READ, WRITE, contents
from tests.versions.conftest import CountingEngine


async def test_initialize_offers_what_the_agent_can_do(connect: Connect) -> None:
    """The capabilities name images, embedded texts, MCP over HTTP, and all methods of sessions."""
    async with connect(ScriptedModel()) as editor:
        response = await editor.connection.initialize(protocol_version=99)
        capabilities = response.agent_capabilities
        assert response.protocol_version == PROTOCOL_VERSION
        assert capabilities is not None
        assert capabilities.load_session
        assert capabilities.session_capabilities is not None
        assert set(capabilities.session_capabilities.model_fields_set) == {'list', 'fork', 'resume', 'close'}
        with pytest.raises(RequestError, match='Set the key of a provider in the environment'):
            await editor.connection.authenticate(method_id='token')
        with pytest.raises(RequestError, match='Method not found'):
            await editor.connection.ext_method('other', {})


async def test_an_invalid_session_is_refused(connect: Connect, work: Path) -> None:
    """A directory that is not there, further directories and unknown sessions are errors with a sentence."""
    async with connect(ScriptedModel()) as editor:
        with pytest.raises(RequestError, match="The working directory 'work' is no absolute path of a directory"):
            await editor.connection.new_session(cwd='work')
        with pytest.raises(RequestError, match='is no absolute path of a directory'):
            await editor.connection.new_session(cwd=f'/{"x" * 5000}')
        with pytest.raises(RequestError, match='The agent works in one directory only'):
            await editor.connection.new_session(cwd=str(work), additional_directories=['/tmp'])
        with pytest.raises(RequestError, match=r"There is no session 'x'\. List the sessions, or create one") as caught:
            await editor.prompt('x', 'Hello.')
        assert caught.value.code == -32002
        with pytest.raises(RequestError, match="There is no session 'x'"):
            await editor.connection.load_session(cwd=str(work), session_id='x')
        await editor.connection.cancel(session_id='x')
        with pytest.raises(RequestError, match='Invalid params'):
            await cast('Any', editor.connection)._conn.send_request('session/prompt', {'sessionId': 1})


async def test_agent_remembers_in_the_next_session(connect: Connect, work: Path) -> None:
    """With `--memory`, or the key of the configuration, the agent of an editor has the memory of the command line."""
    pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')
    model = ScriptedModel(call('write_memory', content='Drinks tea.'), 'Noted.', 'Tea!')
    async with connect(model, memory=True) as editor:
        await editor.prompt(await editor.open(work), 'I drink tea.')
        await editor.prompt(await editor.open(work), 'What do I drink?')
    assert 'Drinks tea.' in str(model.requests[-1].messages)


async def test_memory_without_a_store_is_refused(connect: Connect, work: Path) -> None:
    """As at a terminal, a memory that would be lost at the end is an error, and not ignored."""
    async with connect(ScriptedModel(), memory=True, is_persistent=False) as editor:
        with pytest.raises(RequestError, match='--no-store stores nothing'):
            await editor.open(work)


async def test_load_replays_the_dialogue(connect: Connect, work: Path) -> None:
    """Loading sends prompts with images, thoughts, calls with results, answers and the plan, before its response."""
    model = ScriptedModel(call('write_todos', todos=PLAN), [ThinkingPart('Hm.'), READ], 'Seen.', 'Second.')
    async with connect(model) as editor:
        session = await editor.open(work)
        prompt: list[Any] = [text_block('Look.'), image_block(PIXEL, 'image/png')]
        await editor.connection.prompt(session_id=session, prompt=prompt)
        await editor.prompt(session, 'And now?')
    async with connect(ScriptedModel('Third.')) as editor:
        response = await editor.connection.load_session(cwd=str(work), session_id=session)
        assert editor.kinds() == [
            'user_message_chunk',
            'user_message_chunk',
            'agent_thought_chunk',
            'tool_call',
            'tool_call_update',
            'agent_message_chunk',
            'user_message_chunk',
            'agent_message_chunk',
            'plan',
        ]
        assert response.modes is not None
        assert response.modes.current_mode_id == 'ask'
        await editor.prompt(session, 'Continue.')
        assert editor.text() == 'Seen.Second.Third.'


async def test_load_after_rewind_continues_the_version_of_the_directory(connect: Connect, work: Path) -> None:
    """After `/undo`, a session is loaded as the directory is: without the last turn."""
    async with connect(ScriptedModel('One.', EDIT, 'Two.')) as editor:
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'First.')
        await editor.prompt(session, 'Second.')
        await editor.prompt(session, '/undo')
    async with connect(ScriptedModel()) as editor:
        await editor.connection.load_session(cwd=str(work), session_id=session)
        assert editor.text() == 'One.'


async def test_a_session_is_bound_to_its_directory(connect: Connect, work: Path, tmp_path: Path) -> None:
    """A session is not opened in another directory."""
    async with connect(ScriptedModel('One.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First.')
        with pytest.raises(RequestError, match='Open it with that directory'):
            await editor.connection.load_session(cwd=str(tmp_path), session_id=session)


async def test_a_loaded_session_works_in_the_directory(connect: Connect, work: Path) -> None:
    """A turn of an older session works in the directory, even if another session has changed its files since."""
    async with connect(ScriptedModel('One.', 'Two.', WRITE, 'Three.')) as editor:
        first, second = await editor.open(work), await editor.open(work)
        await editor.prompt(first, 'First.')
        await editor.prompt(second, 'Second.')
        await editor.connection.resume_session(cwd=str(work), session_id=first)
        assert editor.text() == 'One.Two.'
        editor.options = ['allow']
        await editor.prompt(first, 'Write.')
    assert (work / 'new.txt').exists()


async def test_list_returns_the_newest_sessions_with_titles(connect: Connect, work: Path, tmp_path: Path) -> None:
    """Sessions have their directory, their first prompt and a time; sessions without a turn are not stored."""
    other = tmp_path / 'other'
    other.mkdir()
    async with connect(ScriptedModel('One.', 'Two.')) as editor:
        sessions = [await editor.open(work), await editor.open(other), await editor.open(work)]
        await editor.prompt(sessions[0], 'First.')
        await editor.prompt(sessions[1], 'Second.')
        listed = (await editor.connection.list_sessions()).sessions
        assert [(info.session_id, info.cwd, info.title) for info in listed] == [
            (sessions[1], str(other), 'Second.'),
            (sessions[0], str(work), 'First.'),
        ]
        assert listed[0].updated_at is not None
        assert [info.title for info in (await editor.connection.list_sessions(cwd=str(work))).sessions] == ['First.']


async def test_list_of_many_sessions_needs_as_many_queries_as_a_short_one(
    connect: Connect, work: Path, tmp_path: Path
) -> None:
    """The queries of a page are counted at the database, for one session and for five."""
    counts: list[int] = []
    async with connect(ScriptedModel(*['Done.'] * 5)) as editor:
        for number in range(5):
            await editor.prompt(await editor.open(work), f'Prompt {number}.')
            engine = CountingEngine(await open_engine(f'sqlite:///{tmp_path / "agents.db"}'))
            async with SqlStore(engine) as store:
                engine.reads.clear()
                assert len((await list_stored(store, work, None)).sessions) == number + 1
                counts.append(len(engine.reads))
    assert counts == [4] * 5  # the page, and the checks that no row of its three tables is missing


async def test_a_fork_has_a_title_of_its_own(connect: Connect, work: Path) -> None:
    """The title of a session is its first prompt, also after it was loaded; a fork is named by its own first prompt."""
    async with connect(ScriptedModel('One.', 'Two.', 'Three.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First.')
        fork = (await editor.connection.fork_session(cwd=str(work), session_id=session)).session_id
        await editor.prompt(fork, 'Fork.\nMore.')
        await editor.connection.load_session(cwd=str(work), session_id=session)
        await editor.prompt(session, 'Later.')
        listed = (await editor.connection.list_sessions()).sessions
    assert [(info.session_id, info.title) for info in listed] == [(session, 'First.'), (fork, 'Fork.')]


async def test_list_returns_pages_with_each_session_once(
    connect: Connect, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor leads to the next page. Forks are sessions, and edits in a session are not."""
    monkeypatch.setattr('pydantic_deep.cli.acp._stored_sessions.MAX_SESSIONS', 2)
    async with connect(ScriptedModel('One.', 'Two.', 'Three.', 'Four.')) as editor:
        first = await editor.open(work)
        await editor.prompt(first, 'First.')
        fork = (await editor.connection.fork_session(cwd=str(work), session_id=first)).session_id
        await editor.prompt(fork, 'Fork.')
        last = await editor.open(work)
        await editor.prompt(last, 'Last.')
        (work / 'poem.txt').write_text('edited')
        await editor.prompt(last, 'Edited.')
        pages = [await editor.connection.list_sessions(cwd=str(work))]
        while pages[-1].next_cursor is not None:
            pages.append(await editor.connection.list_sessions(cwd=str(work), cursor=pages[-1].next_cursor))
        assert [[info.session_id for info in page.sessions] for page in pages] == [[last, fork], [first]]
        with pytest.raises(RequestError, match="The cursor 'x' is none of `session/list`"):
            await editor.connection.list_sessions(cursor='x')


async def test_a_chat_at_a_terminal_is_a_session(connect: Connect, work: Path) -> None:
    """A conversation of `run` or `chat` can be loaded by its id."""
    async with connect(ScriptedModel('One.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First.')
        [listed] = (await editor.connection.list_sessions()).sessions
    assert listed.session_id == session


async def test_fork_continues_a_session_on_a_branch(connect: Connect, work: Path) -> None:
    """A fork knows the dialogue, and neither session sees later turns of the other."""
    model = ScriptedModel('One.', 'Forked.', 'Two.')
    async with connect(model) as editor:
        session = await editor.open(work)
        empty = (await editor.connection.fork_session(cwd=str(work), session_id=session)).session_id
        await editor.prompt(session, 'First.')
        fork = (await editor.connection.fork_session(cwd=str(work), session_id=session)).session_id
        await editor.prompt(fork, 'Fork.')
        await editor.prompt(session, 'Second.')
        assert len({session, empty, fork}) == 3
        editor.updates.clear()
        await editor.prompt(session, '/log')
        assert '(main)' in editor.text() or 'Fork.' in editor.text()
    assert [str(content)[:60].count('First') for content in contents(model, 1)] == [1, 0]
    assert 'Fork.' not in str(contents(model, 2))


async def test_a_session_whose_turn_is_running_is_not_loaded(connect: Connect, work: Path) -> None:
    """While a turn continues from answered calls, loading its session is refused, and the turn goes on."""
    wait = Stalled()
    async with connect(ScriptedModel(WRITE, wait)) as editor, anyio.create_task_group() as tasks:
        session = await editor.open(work)
        editor.options = ['allow']
        tasks.start_soon(editor.prompt, session, 'Write.')
        await wait.asked.wait()
        with pytest.raises(RequestError, match='The last turn of the session is running'):
            await editor.connection.load_session(cwd=str(work), session_id=session)
        await editor.connection.cancel(session_id=session)


async def test_a_turn_that_was_abandoned_elsewhere_is_left_behind(connect: Connect, work: Path) -> None:
    """If another editor continues a session without its pending calls, or runs them, this one continues it too."""
    async with connect(ScriptedModel(WRITE, 'Mine.')) as editor, connect(ScriptedModel('Theirs.')) as other:
        session = await editor.open(work)
        editor.options = [None]
        assert (await editor.prompt(session, 'Write.')).stop_reason == 'cancelled'
        await other.connection.load_session(cwd=str(work), session_id=session)
        assert (await other.prompt(session, 'Do not.')).stop_reason == 'end_turn'
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'
        assert editor.text() == 'Mine.'


async def test_a_closed_session_can_be_loaded_again(connect: Connect, work: Path) -> None:
    """Closing ends a session in this process only."""
    async with connect(ScriptedModel('One.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First.')
        await editor.connection.close_session(session_id=session)
        with pytest.raises(RequestError, match='There is no session'):
            await editor.connection.close_session(session_id=session)
        await editor.connection.load_session(cwd=str(work), session_id=session)


async def test_closing_the_connection_stops_the_turn(connect: Connect, work: Path) -> None:
    """If an editor exits in a turn, the turn is stopped, and its steps can be loaded."""
    wait = Stalled()
    session = ''
    async with connect(ScriptedModel(READ, wait)) as editor, anyio.create_task_group() as tasks:
        session = await editor.open(work)

        async def prompt() -> None:
            with pytest.raises(ConnectionError):
                await editor.prompt(session, 'Read.')

        tasks.start_soon(prompt)
        await wait.asked.wait()
        await editor.connection.close()
    async with connect(ScriptedModel('Continued.')) as editor:
        await editor.connection.load_session(cwd=str(work), session_id=session)
        assert 'tool_call' in editor.kinds()
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'


async def test_closing_the_connection_at_a_permission_request(connect: Connect, work: Path) -> None:
    """If an editor exits at a permission request, the call does not run."""
    async with connect(ScriptedModel(WRITE)) as editor, anyio.create_task_group() as tasks:
        session = await editor.open(work)
        never = Stalled()

        async def prompt() -> None:
            with pytest.raises(ConnectionError):
                await editor.prompt(session, 'Write.')

        editor.answer = never
        tasks.start_soon(prompt)
        await never.asked.wait()
        await editor.connection.close()
    assert not (work / 'new.txt').exists()


async def test_requests_before_the_end_of_the_input_are_answered(
    connect: Connect, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that writes its requests and closes its output at once gets all answers."""
    monkeypatch.setattr(_connection, 'CLOSE_SECONDS', 60)  # for a busy machine
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        'a': ('initialize', {'protocolVersion': PROTOCOL_VERSION}),
        'b': ('session/new', {'cwd': str(work), 'mcpServers': []}),
    }
    async with connect(ScriptedModel()) as editor:
        connection = cast('Any', editor.connection)._conn
        received: list[Any] = []
        connection.add_observer(received.append)
        for id, (method, params) in requests.items():
            message = {'jsonrpc': '2.0', 'id': id, 'method': method, 'params': params}
            editor.output.write(json.dumps(message).encode() + b'\n')
        editor.output.write_eof()
        await connection._recv_task
    answered = {event.message['id'] for event in received if 'result' in event.message}
    assert answered == {'a', 'b'}


async def test_your_own_agent(connect: Connect, work: Path) -> None:
    """An agent that the user names runs with its own approvals. The mode `plan` needs its own `PlanMode`."""
    async with connect(ScriptedModel('Mine.'), own_agent='tests.cli.acp.own_agent:agent') as editor:
        response = await editor.connection.new_session(cwd=str(work))
        assert response.modes is not None
        assert [mode.id for mode in response.modes.available_modes] == ['ask', 'auto']
        await editor.prompt(response.session_id, 'Hello.')
        assert editor.text() == 'Mine.'


def test_servers_of_the_editor_replace_configured_ones() -> None:
    """Servers of an editor are added to those of the configuration, by name."""
    settings = Settings(directory='/project', model='m', mcp_servers=('a', 'b'))
    extras = Extras(mcp_servers={'a': McpServer(command='old'), 'b': McpServer(command='b')})
    given = [
        McpServerStdio(name='a', command='new', args=['-x'], env=[EnvVariable(name='K', value='v')]),
        HttpMcpServer(type='http', name='c', url='https://c.example', headers=[HttpHeader(name='H', value='v')]),
    ]
    new_settings, new_extras = with_mcp_servers(settings, extras, given)
    assert new_settings.mcp_servers == ('a', 'b', 'c')
    assert new_extras.mcp_servers == {
        'a': McpServer(command='new', args=('-x',), env={'K': 'v'}, cwd='/project'),
        'b': McpServer(command='b'),
        'c': McpServer(url='https://c.example', headers={'H': 'v'}),
    }


async def test_an_open_session_without_turns_is_loaded_again(connect: Connect, work: Path) -> None:
    """Loading it sends nothing, and its first turn starts a conversation."""
    async with connect(ScriptedModel('Done.')) as editor:
        session = await editor.open(work)
        await editor.connection.load_session(cwd=str(work), session_id=session)
        assert editor.kinds() == []
        assert (await editor.prompt(session, 'Go.')).stop_reason == 'end_turn'


async def test_a_session_beside_the_newest_of_its_directory_is_loaded(connect: Connect, work: Path) -> None:
    """Each session continues its own newest version, whichever one worked last in the directory."""
    async with connect(ScriptedModel('One.', 'Two.')) as editor:
        first, second = await editor.open(work), await editor.open(work)
        await editor.prompt(first, 'First?')
        await editor.prompt(second, 'Second?')
    async with connect(ScriptedModel()) as editor:
        await editor.connection.load_session(cwd=str(work), session_id=first)
        assert editor.text() == 'One.'


async def test_a_conversation_of_the_command_line_is_a_session(connect: Connect, work: Path, tmp_path: Path) -> None:
    """The id of a conversation that `run` or `chat` started opens it in an editor."""
    async with connect(ScriptedModel('One.', 'Two.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First?')
        await editor.prompt(await editor.open(work), 'Second?')
    async with open_store(f'sqlite:///{tmp_path / "agents.db"}') as store:
        await VersionedAgent(Agent(name='other'), store).create()  # a conversation of another program
        _, *_, root = await store.versions(VersionFilter(), limit=10)
    async with connect(ScriptedModel()) as editor:
        await editor.connection.load_session(cwd=str(work), session_id=root.conversation_id)
        assert editor.text() == 'One.'
        assert len((await editor.connection.list_sessions()).sessions) == 2


@pytest.mark.slow
async def test_a_server_of_the_editor_gives_the_agent_tools(connect: Connect, work: Path) -> None:
    """The tools of a server that an editor passes can be called after a permission."""
    script = work / 'server.py'
    script.write_text(
        'from mcp.server.mcpserver import MCPServer\nserver = MCPServer("s")\n\n\n@server.tool()\ndef add(a: int, b: int) -> int:\n'
        '    return a + b\n\n\nserver.run()\n'
    )
    server = McpServerStdio(name='sums', command=sys.executable, args=[str(script)], env=[])
    async with connect(ScriptedModel(call('sums_add', a=1, b=2), 'Three.')) as editor:
        session = await editor.open(work, mcp_servers=[server])
        editor.options = ['allow']
        await editor.prompt(session, 'Add.')
        assert [request.title for request, _ in editor.requests] == ['sums_add']
        assert '3' in editor.of_kind('tool_call_update')[-1].content[0].content.text


async def test_a_server_of_the_editor_that_is_not_running_is_named(connect: Connect, work: Path) -> None:
    """Only the model was informed. The editor knows the session when it gets the message."""
    server = McpServerStdio(name='su\u202ems', command='false', args=[], env=[])
    async with connect(ScriptedModel('Hi.')) as editor:
        session = await editor.open(work, mcp_servers=[server])
        await editor.prompt(session, 'Hi')
        texts = [update.content.text for update in editor.of_kind('agent_message_chunk')]
        assert texts[0].startswith('The MCP server su\\u202ems is not running: ')
        assert texts[1:] == ['Hi.']


@pytest.mark.parametrize(
    ('server', 'message'),
    [
        (
            SseMcpServer(type='sse', name='old', url='https://x', headers=[]),
            "the transport 'sse', which is not supported",
        ),
        (HttpMcpServer(type='http', name='bad', url='ftp://x', headers=[]), "The MCP server 'bad' is invalid"),
    ],
)
async def test_an_unusable_server_is_refused(connect: Connect, work: Path, server: Any, message: str) -> None:
    """A server with another transport or an invalid address is an error of the session."""
    async with connect(ScriptedModel()) as editor:
        with pytest.raises(RequestError, match=message):
            await editor.open(work, mcp_servers=[server])
