"""The `chat` command without a terminal: each line of standard input is a turn."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from pydantic_ai.exceptions import ModelConnectionError, RunCancelled
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.chat._chat import VERBS, create_completer
from pydantic_deep.cli.chat._prompt import open_history
from pydantic_deep.cli.chat._recap import print_recap
from pydantic_deep.cli.chat._session import ChatScreen, ChatSession
from pydantic_deep.cli.chat._verbs import Verb, VerbTable
from pydantic_deep.cli.turn._change_tracker import ChangeTrackingBackend
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._turn_presenter import decider_for
from pydantic_deep.skills import Skills
from pydantic_deep.testing import FakeClock, ScriptedModel, call
from tests.cli.conftest import screen_of

Invoke = Callable[..., Result]
MakeConversation = Callable[..., Conversation]

PLAN = [{'content': 'Write it', 'status': 'in_progress'}]


def test_each_line_is_a_turn_of_one_conversation(invoke: Invoke) -> None:
    model = ScriptedModel('First.', 'Second.')
    result = invoke('chat', model=model, stdin='One\n\nTwo\n')
    assert (result.exit_code, result.stdout) == (0, 'First.\nSecond.\n')
    assert len(model.requests[1].messages) == 3


def test_quit_ends_the_chat(invoke: Invoke) -> None:
    model = ScriptedModel('First.')
    assert invoke('chat', model=model, stdin='/quit\nOne\n').exit_code == 0
    assert model.remaining == 1


def test_new_resets_the_conversation_and_the_plan(invoke: Invoke) -> None:
    model = ScriptedModel(call('write_todos', todos=PLAN), 'First.', 'Second.')
    result = invoke('chat', model=model, stdin='One\n/todos\n/new\n/todos\nTwo\n')
    assert '▸ Write it\nStarted a new conversation.' in result.stderr
    assert 'There is no plan.' in result.stderr
    assert len(model.requests[2].messages) == 1


def test_files_lists_changes_since_the_chat_started(invoke: Invoke) -> None:
    model = ScriptedModel(call('write_file', path='/a.txt', content='a\n'), 'First.')
    result = invoke('chat', '--approvals=allow', model=model, stdin='/files\nOne\n/files\n')
    assert result.stderr.startswith('No file has changed.\n')
    assert result.stderr.endswith('created /a.txt +1 -0\n')


def test_each_turn_reports_only_its_own_files(invoke: Invoke) -> None:
    once, twice = [call('write_file', path=path, content=text) for path, text in (('/a', 'a\n'), ('/a', 'a\nb\n'))]
    model = ScriptedModel(once, call('write_file', path='/c', content=''), 'First.', twice, 'Second.', 'Third.')
    result = invoke('chat', '--approvals=allow', model=model, stdin='One\nTwo\nThree\n/files\n')
    changed = [line for line in result.stderr.splitlines() if line.startswith(('created', 'changed'))]
    assert changed == [
        'created /a +1 -0',
        'created /c +0 -0',
        'changed /a +1 -0',
        'created /a +2 -0',
        'created /c +0 -0',
    ]


@pytest.mark.parametrize(
    'raised', [ZeroDivisionError('a defect'), ExceptionGroup('g', [KeyError('x')]), RuntimeError()]
)
def test_a_chat_survives_any_exception_of_a_turn(invoke: Invoke, raised: Exception) -> None:
    """The chat prints any exception that a turn raises and reads the next line. The last turn sets the exit code."""
    result = invoke('chat', model=ScriptedModel('First.', raised, 'Third.'), stdin='One\nTwo\nThree\n')
    assert (result.exit_code, result.stdout) == (0, 'First.\nThird.\n')
    assert f'Unexpected error: {type(raised).__name__}: ' in result.stderr
    assert invoke('chat', model=ScriptedModel(raised), stdin='One\n').exit_code == 1


def test_a_chat_survives_a_command_that_fails(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat command that raises does not end the chat."""

    async def fail(self: ChangeTrackingBackend) -> None:
        raise OSError('the disk is gone')

    monkeypatch.setattr(ChangeTrackingBackend, 'all_changes', fail)  # no input makes this command fail
    result = invoke('chat', model=ScriptedModel('First.'), stdin='/files\nOne\n')
    assert (result.exit_code, result.stdout) == (0, 'First.\n')
    assert 'Unexpected error: OSError: the disk is gone The chat continues.' in result.stderr


def test_an_unknown_command_is_not_sent_to_the_model(invoke: Invoke) -> None:
    result = invoke('chat', model=ScriptedModel(), stdin='/help\n/hepl\x1b\n')
    assert '/todos                  show the plan\n' in result.stderr
    assert max(map(len, VERBS.help())) <= 80
    assert 'There is no command /hepl\\x1b. /help lists them, /skills the skills.' in result.stderr


def test_chat_continues_after_a_failed_turn_and_exits_with_the_last_code(invoke: Invoke) -> None:
    fails = [ModelConnectionError('m', 'No.')] * 3
    model = ScriptedModel(*fails, 'Second.', *fails)
    result = invoke('chat', model=model, stdin='One\nTwo\nThree\n')
    assert (result.exit_code, result.stdout) == (1, 'Second.\n')
    assert result.stderr.count("'m' cannot be reached: No.") == 2
    # The first prompt is still in the history.
    assert 'One' in str(model.requests[3].messages)


@pytest.mark.parametrize(
    ('variables', 'expected'),
    [({'XDG_STATE_HOME': '/state'}, '/state/pydantic-deep'), ({}, '~/.local/state/pydantic-deep')],
)
def test_chat_history_is_stored_in_the_xdg_state_directory(variables: dict[str, str], expected: str) -> None:
    assert Environment(variables=variables).state_directory == Path(expected).expanduser()


def test_chat_history_file_is_private(tmp_path: Path) -> None:
    environment = Environment(variables={'XDG_STATE_HOME': str(tmp_path)})
    history = open_history(environment, Console())
    history.store_string('secret plan')
    path = tmp_path / 'pydantic-deep' / 'chat_history'
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(open_history(environment, Console()).load_history_strings()) == ['secret plan']


def test_unwritable_chat_history_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'state').write_text('a file')
    history = open_history(Environment(variables={'XDG_STATE_HOME': str(tmp_path / 'state')}), Console())
    assert isinstance(history, InMemoryHistory)
    assert capsys.readouterr().out.startswith('Prompts are not stored: ')


@pytest.fixture
def haiku(tmp_path: Path) -> Path:
    """A skill in the user's home directory."""
    folder = tmp_path / 'home' / '.agents' / 'skills' / 'haiku'
    folder.mkdir(parents=True)
    (folder / 'SKILL.md').write_text('---\nname: haiku\ndescription: Write a haiku.\n---\nFive, seven, five.\n')
    return folder


def test_skills_lists_user_skills_and_given_skills(invoke: Invoke, haiku: Path, tmp_path: Path) -> None:
    given = tmp_path / 'given' / 'sonnet'
    given.mkdir(parents=True)
    (given / 'SKILL.md').write_text('---\nname: sonnet\ndescription: Write a sonnet.\n---\nFourteen lines.\n')
    result = invoke('chat', '--skills', str(given.parent), model=ScriptedModel(), stdin='/skills\n')
    lines = result.stderr.splitlines()
    assert lines[:2] == ['/sonnet  Write a sonnet.', '/haiku  Write a haiku.']
    assert any(line.startswith('/writing-skills  ') for line in lines)


def test_no_user_skills_omits_the_skills_at_home(invoke: Invoke, haiku: Path) -> None:
    result = invoke('chat', '--no-user-skills', model=ScriptedModel(), stdin='/skills\n')
    assert '/haiku' not in result.stderr


def test_skill_applies_only_to_the_next_prompt(invoke: Invoke, haiku: Path) -> None:
    model = ScriptedModel('First.', 'Second.')
    result = invoke('chat', model=model, stdin='/haiku\nOn rain\nAgain\n')
    last = [request.messages[-1].parts for request in model.requests]
    prompts = [str(part.content) for parts in last for part in parts if isinstance(part, UserPromptPart)]
    assert 'The next prompt includes the skill haiku.' in result.stderr
    assert prompts[0].startswith('<skill name="haiku">\nFive, seven, five.')
    assert prompts[0].endswith('</skill>\n\nOn rain')
    assert prompts[1] == 'Again'


def test_skill_and_prompt_on_one_line(invoke: Invoke, haiku: Path) -> None:
    model = ScriptedModel('First.')
    assert invoke('chat', model=model, stdin='/haiku On rain\n').stdout == 'First.\n'
    assert 'Five, seven, five.' in str(model.requests[0].messages)


def test_a_turn_with_a_skill_is_shown_as_it_was_typed(invoke: Invoke, haiku: Path) -> None:
    """The log, the list of `/switch`, the recap and `show` have `/haiku On rain`, not the text of the skill."""
    invoke('chat', model=ScriptedModel('First.'), stdin='/haiku On rain\n')
    assert invoke('log').stdout.splitlines()[0].endswith('  /haiku On rain')
    assert json.loads(invoke('show', '--json').stdout)['prompt'] == '/haiku On rain'
    shown = invoke('chat', '--continue', model=ScriptedModel(), stdin='/switch\n1\n').stderr
    assert re.search(r'^ 1  .*  /haiku On rain$', shown, re.MULTILINE)
    assert '\n> /haiku On rain\n' in shown


def test_new_conversation_drops_a_selected_skill(invoke: Invoke, haiku: Path) -> None:
    model = ScriptedModel('First.')
    invoke('chat', model=model, stdin='/haiku\n/new\nHello\n')
    assert 'Five, seven, five.' not in str(model.requests[0].messages)


def test_deleted_skill_is_reported(invoke: Invoke, haiku: Path, tmp_path: Path) -> None:
    def remove(messages: list[ModelMessage], info: AgentInfo) -> str:
        (haiku / 'SKILL.md').unlink()
        return 'First.'

    result = invoke('chat', model=ScriptedModel(remove), stdin='Go\n/haiku\n')
    assert result.exit_code == 0
    assert 'SKILL.md' in result.stderr.splitlines()[-1]


@pytest.mark.anyio
async def test_missing_skills_directory_is_reported(make_conversation: MakeConversation, tmp_path: Path) -> None:
    conversation = make_conversation(ScriptedModel())
    conversation.runtime = replace(conversation.runtime, skills=Skills([tmp_path / 'gone']))
    console = Console(file=StringIO())
    lines = iter(['/skills', '/haiku', '/quit'])

    async def read_line(message: str) -> str:
        return next(lines)

    environment = Environment(variables={})
    prompter = ApprovalPrompter(environment=environment)
    screen = ChatScreen(console=console, read_line=read_line, ask=read_line, prints_answers=True)
    chat = ChatSession(conversation, environment, screen, VERBS, prompter, decider_for(ApprovalMode.allow, prompter))
    assert await chat.run() == 0
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().count('gone') == 2


def test_incomplete_file_list_is_reported(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeTrackingBackend, 'has_all_changes', False)
    result = invoke('chat', model=ScriptedModel(), stdin='/files\n')
    assert 'Commands may have changed more files' in result.stderr


def test_chat_continued_after_an_interrupt_has_no_pending_version(
    invoke: Invoke, make_terminal: Callable[..., Any], work: Path
) -> None:
    write = call('write_file', path='/a.txt', content='a\n')
    model = ScriptedModel(write, 'Second.')
    result = invoke('chat', model=model, stdin='One\nTwo\n', terminal=make_terminal(KeyboardInterrupt()))
    assert (result.exit_code, result.stdout) == (0, 'Second.\n')
    assert not (work / 'a.txt').exists()
    assert 'One' in str(model.requests[1].messages)
    assert 'edit interrupted now  continued without answers' in invoke('log').stdout
    waiting = invoke('resume')
    assert waiting.stderr == f'No version of {work} has pending approvals.\n'


def test_chat_continued_without_answers_stays_on_its_branch(invoke: Invoke, make_terminal: Callable[..., Any]) -> None:
    look, write = call('ls'), call('write_file', path='/a.txt', content='a\n')
    model = ScriptedModel([look, write], 'Second.', 'Third.')
    invoke('chat', model=model, stdin='One\nTwo\nThree\n', terminal=make_terminal(KeyboardInterrupt()))
    rows = json.loads(invoke('log', '--json').stdout)
    assert [(row['kind'], row['branch']) for row in rows] == [
        (kind, 'main') for kind in ('turn', 'turn', 'edit', 'pause', 'root')
    ]
    assert [part.outcome for part in model.requests[1].tool_returns] == ['success', 'interrupted']


def test_chat_continues_an_earlier_conversation(invoke: Invoke) -> None:
    invoke('chat', model=ScriptedModel(call('write_todos', todos=PLAN), 'First.'), stdin='One\n')
    model = ScriptedModel('Second.')
    result = invoke('chat', '--continue', model=model, stdin='/todos\nTwo\n')
    assert (result.exit_code, result.stdout) == (0, 'Second.\n')
    assert '▸ Write it' in result.stderr
    assert 'One' in str(model.requests[0].messages)


def has_instructions(model: ScriptedModel) -> list[bool]:
    """Return for each request whether its instructions end with those of the conversation."""
    last = [request.messages[-1] for request in model.requests]
    texts = [message.instructions or '' for message in last if isinstance(message, ModelRequest)]
    return [text.endswith('\n\nSpeak like a pirate.') for text in texts]


@pytest.mark.parametrize('options', [(), ('--no-store',)])
def test_chat_instructions_apply_to_new_conversations(invoke: Invoke, options: tuple[str, ...]) -> None:
    model = ScriptedModel('one', 'two', 'three')
    result = invoke(
        'chat', '--instructions=Speak like a pirate.', *options, model=model, stdin='One\nTwo\n/new\nThree\n'
    )
    assert (result.exit_code, has_instructions(model)) == (0, [True, True, True])
    assert len(model.requests[2].messages) == 1


class Lines:
    """The lines that a user types, as the input of a chat."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    async def __call__(self, message: str) -> str:
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


def session_of(
    conversation: Conversation, *lines: str, mode: ApprovalMode = ApprovalMode.allow, has_bell: bool = True
) -> tuple[ChatSession, StringIO]:
    """Return a chat on a terminal with scripted lines, and what it prints."""
    output = StringIO()
    console = Console(file=output, force_terminal=True, width=60, color_system=None, _environ={'TERM': 'xterm'})
    environment = Environment(variables={})
    prompter = ApprovalPrompter(environment=environment)
    typed = Lines(*lines)
    screen = ChatScreen(console=console, read_line=typed, ask=typed, prints_answers=False, has_bell=has_bell)
    return ChatSession(conversation, environment, screen, VERBS, prompter, decider_for(mode, prompter)), output


@pytest.mark.anyio
@pytest.mark.parametrize('has_bell', [True, False])
async def test_the_bell_rings_after_a_long_turn(
    make_conversation: MakeConversation, clock: FakeClock, has_bell: bool
) -> None:
    """A turn of 30 seconds rings the terminal at its end, a shorter one does not, and none if it is turned off."""

    def think(messages: list[ModelMessage], info: AgentInfo) -> str:
        clock.advance(30)
        return 'Long.'

    chat, output = session_of(make_conversation(ScriptedModel('Short.', think)), 'One', 'Two', has_bell=has_bell)
    assert await chat.run() == 0
    before, _, after = output.getvalue().partition('Long.')
    assert ('\x07' in before, '\x07' in after) == (False, has_bell)


@pytest.mark.anyio
async def test_the_bell_rings_at_an_approval(make_conversation: MakeConversation) -> None:
    """A call that needs approval rings the terminal before it is decided."""
    write = call('write_file', path='/a.txt', content='a\n')
    conversation = make_conversation(ScriptedModel(write, 'Done.'), approvals=ApprovalMode.ask)
    chat, output = session_of(conversation, 'One', mode=ApprovalMode.deny)
    await chat.run()
    assert output.getvalue().count('\x07') == 1


@pytest.mark.anyio
async def test_ctrl_c_stops_a_verb(make_conversation: MakeConversation) -> None:
    """Ctrl-C during work that is no turn cancels it, and the chat continues."""
    chat, _ = session_of(make_conversation(ScriptedModel()))

    async def wait() -> None:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep_forever()

    with pytest.raises(RunCancelled, match='Interrupted'):
        await chat.interruptible(wait())


@pytest.mark.anyio
async def test_an_interrupted_verb_is_reported(make_conversation: MakeConversation) -> None:
    """A verb that Ctrl-C stops prints a sentence, and the next line is read."""
    conversation = make_conversation(ScriptedModel('One.', 'Two.'))

    async def stop(chat: ChatSession, arguments: Sequence[str]) -> None:
        raise RunCancelled('Interrupted.')

    chat, output = session_of(conversation, '/stop', 'One')
    chat.verbs = VerbTable((Verb(name='stop', summary='', run=stop),))
    await chat.run()
    assert output.getvalue().startswith('Interrupted.\n')
    assert 'One.' in output.getvalue()


@pytest.mark.anyio
async def test_an_answer_is_markdown_on_a_terminal(make_conversation: MakeConversation) -> None:
    """On a terminal, the chat prints blocks of Markdown with blank lines between them."""
    chat, output = session_of(make_conversation(ScriptedModel('# One\n\n- two\n- three\n\nSome **words**.')), 'Go')
    await chat.run()
    assert screen_of(output.getvalue())[:7] == ['', 'One', '', ' • two', ' • three', '', 'Some words.']


@pytest.mark.anyio
async def test_completion_knows_the_skills_versions_and_models_of_the_chat(
    make_conversation: MakeConversation, tmp_path: Path
) -> None:
    """The prompt of a chat completes bundled skills, versions of the directory and usable models."""
    conversation = make_conversation(ScriptedModel('One.'))
    chat, _ = session_of(conversation, 'Go')
    await chat.run()
    completer = create_completer(conversation, Environment(models={'house': ScriptedModel()}, variables={}))

    async def complete(typed: str) -> list[str]:
        event = CompleteEvent(completion_requested=True)
        return [item.text async for item in completer.get_completions_async(Document(typed), event)]

    assert await complete('/writing') == ['/writing-skills']
    assert await complete('/switch m') == ['main']
    assert await complete('/model h') == ['house']
    conversation.runtime = replace(conversation.runtime, skills=Skills([tmp_path / 'gone']))
    assert await complete('/writing') == []


@pytest.mark.anyio
async def test_a_recap_shows_the_last_turns(make_conversation: MakeConversation) -> None:
    """A recap has the last three prompts, the number of earlier turns, and eight lines of the last answer."""
    prompts = ['One', 'Two', 'Three', 'Four']
    answer = '\n'.join(f'line {number}  ' for number in range(10))
    conversation = make_conversation(ScriptedModel('One.', 'Two.', 'Three.', answer))
    chat, _ = session_of(conversation, *prompts)
    root = await conversation.prepare_turn()
    await chat.run()
    assert conversation.tip is not None
    for is_terminal in (True, False):
        output = StringIO()
        console = Console(file=output, force_terminal=is_terminal, width=60, color_system=None)
        await print_recap(console, chat.reader, conversation.tip.record)
        lines = [line.rstrip() for line in output.getvalue().splitlines()]
        assert lines[:5] == ['… 1 earlier turn', '> Two', '> Three', '> Four', '']
        assert lines[5:] == [*(f'line {number}' for number in range(8)), '… 2 more lines']
    await print_recap(console := Console(file=StringIO()), chat.reader, root.record)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == ''


def test_chat_asks_the_question_of_a_server(invoke: Invoke, make_terminal: Callable[..., Any], tmp_path: Path) -> None:
    """A question of an MCP server is asked within the turn, again if the answer does not fit, and its call continues. The
    next turn uses the same server."""
    program = Path(__file__).parents[2] / 'mcp/fixture_server.py'
    server = {'command': sys.executable, 'args': [str(program)], 'env': {'CALLS': str(tmp_path / 'calls')}}
    (tmp_path / 'servers.json').write_text(json.dumps({'mcpServers': {'shop': server}}))
    model = ScriptedModel(call('shop_book'), 'Booked.', call('shop_ask'), 'Asked.')
    terminal = make_terminal('y', '9', '2', 'Continue', 'Ada')
    result = invoke(
        'chat',
        '--mcp-config',
        str(tmp_path / 'servers.json'),
        model=model,
        stdin='Book.\nAsk.\n',
        terminal=terminal,
    )
    assert (result.exit_code, terminal.typed) == (0, [])
    lines = (tmp_path / 'calls').read_text().splitlines()
    assert lines == ['start', 'book', 'book ended', 'ask', 'ask ended']
