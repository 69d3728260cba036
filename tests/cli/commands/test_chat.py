"""The `chat` command without a terminal: each line of standard input is a turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.history import InMemoryHistory
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.commands._chat import HELP, ChatSession, open_history
from pydantic_deep.cli.turn._change_tracker import ChangeTrackingBackend
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._turn_presenter import decider_for
from pydantic_deep.skills import Skills
from pydantic_deep.testing import ScriptedModel, call

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
    assert '/todos    show the plan\n' in result.stderr
    assert max(map(len, HELP.splitlines())) <= 80
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

    async def read_prompt() -> str:
        return next(lines)

    prompter = ApprovalPrompter(environment=Environment(variables={}))
    chat = ChatSession(conversation, console, prompter, decider_for(ApprovalMode.allow, prompter), prints_answers=True)
    assert await chat.run(read_prompt) == 0
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
