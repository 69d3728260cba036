"""The terminal in this process: a pseudo-terminal as its streams and keys from a pipe.

`test_pseudo_terminal` runs the command line in a separate process.
"""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.chat._chat import chat
from pydantic_deep.cli.terminal import _terminal
from pydantic_deep.cli.terminal._terminal import Terminal, open_terminal, set_echo
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

MakeConversation = Callable[..., Conversation]

COLUMNS = 61


class Screen(StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def open_pty() -> Generator[tuple[int, Terminal]]:
    """Yield the descriptor of the keyboard and the terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, COLUMNS))
    with open(os.dup(theirs), encoding='utf-8') as stdin, open(theirs, 'w', encoding='utf-8') as stdout:
        yield ours, Terminal(stdin=stdin, stdout=stdout)
    os.close(ours)


async def test_ask_returns_the_typed_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PROMPT_TOOLKIT_NO_CPR', '1')
    with open_pty() as (ours, terminal), create_pipe_input() as keys:
        terminal.__dict__['_input'] = keys  # replaces the input that reads the pseudo-terminal
        keys.send_text('es\r')
        assert await terminal.ask('> ', default='y') == 'yes'
        shown = b''
        while b'> ' not in shown:  # a pseudo-terminal delivers its output in parts
            assert select.select([ours], [], [], 30)[0] == [ours], shown
            shown += os.read(ours, 65536)


def test_console_has_the_width_of_the_terminal() -> None:
    """The width may change between two prompts of a chat."""
    with open_pty() as (ours, terminal):
        assert terminal.console.width == COLUMNS
        termios.tcsetwinsize(ours, (24, COLUMNS // 2))
        assert terminal.console.width == COLUMNS // 2


def test_discard_input_drops_typed_keys() -> None:
    with open_pty() as (ours, terminal):
        os.write(ours, b'y\n')
        assert select.select([terminal.stdin], [], [], 30)[0] == [terminal.stdin]
        terminal.discard_input()
        assert select.select([terminal.stdin], [], [], 0)[0] == []


@pytest.mark.parametrize('is_foreground', [True, False])
def test_echo_changes_in_the_foreground_only(monkeypatch: pytest.MonkeyPatch, is_foreground: bool) -> None:
    with open_pty() as (_, terminal):
        monkeypatch.setattr(sys, 'stdin', terminal.stdin)
        # The pseudo-terminal controls no process.
        group = os.getpgrp() if is_foreground else 1

        def foreground_group(descriptor: int) -> int:
            return group

        monkeypatch.setattr(os, 'tcgetpgrp', foreground_group)

        def is_echoing() -> bool:
            return bool(termios.tcgetattr(terminal.stdin)[3] & termios.ECHO)

        assert is_echoing()
        set_echo(is_on=False)
        assert is_echoing() is not is_foreground
        set_echo(is_on=True)
        assert is_echoing()


def test_echo_of_another_terminal_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_pty() as (_, terminal):
        monkeypatch.setattr(sys, 'stdin', terminal.stdin)
        set_echo(is_on=False)
        assert termios.tcgetattr(terminal.stdin)[3] & termios.ECHO


def test_echo_does_not_change_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_pty() as (_, terminal):
        monkeypatch.setattr(sys, 'stdin', terminal.stdin)
        monkeypatch.setattr(sys, 'platform', 'win32')
        set_echo(is_on=False)
        assert termios.tcgetattr(terminal.stdin)[3] & termios.ECHO


def test_open_terminal_uses_stdin_and_stderr_if_both_are_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'stdin', Screen())
    monkeypatch.setattr(sys, 'stderr', Screen())
    with open_terminal() as terminal:
        assert terminal == Terminal(stdin=sys.stdin, stdout=sys.stderr)


def test_open_terminal_falls_back_to_the_controlling_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tty = tmp_path / 'tty'
    tty.touch()
    monkeypatch.setattr(_terminal, 'TTY', tty)
    monkeypatch.setattr(sys, 'stdin', StringIO())
    with open_terminal() as terminal:
        assert terminal is not None
        assert (terminal.stdin.name, terminal.stdout.name) == (str(tty), str(tty))
    assert (terminal.stdin.closed, terminal.stdout.closed) == (True, True)


def test_open_terminal_returns_none_without_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_terminal, 'TTY', tmp_path / 'none')
    monkeypatch.setattr(sys, 'stdin', StringIO())
    with open_terminal() as terminal:
        assert terminal is None


async def test_chat_continues_after_ctrl_c_at_the_prompt(
    make_conversation: MakeConversation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, 'stdin', Screen())
    model = ScriptedModel('There are two.')
    environment = Environment(variables={'XDG_STATE_HOME': str(tmp_path)})
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text('Never mi\x03How many?\r\x04')
        assert await chat(make_conversation(model), environment, ApprovalMode.allow) == 0
    assert [message for message in model.requests[0].messages if 'Never' in str(message)] == []
    shown = capsys.readouterr().out
    assert 'Ctrl-C stops the agent, Ctrl-D ends the chat, /help lists commands.' in shown.splitlines()
    assert 'There are two.' in shown


@pytest.mark.parametrize('is_persistent', [True, False])
async def test_chat_prints_the_store_only_if_persistent(
    make_conversation: MakeConversation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_persistent: bool,
) -> None:
    monkeypatch.setattr(sys, 'stdin', Screen())
    conversation = make_conversation(ScriptedModel())
    conversation.is_persistent = is_persistent
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text('\x04')
        await chat(conversation, Environment(variables={'XDG_STATE_HOME': str(tmp_path)}), ApprovalMode.allow)
    assert ('versions in memory:' in capsys.readouterr().out) is is_persistent


async def test_chat_prints_the_continued_version(
    make_conversation: MakeConversation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, 'stdin', Screen())
    base = await make_conversation(ScriptedModel()).prepare_turn()
    conversation = make_conversation(ScriptedModel())
    await conversation.continue_from('HEAD')
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text('\x04')
        await chat(conversation, Environment(variables={'XDG_STATE_HOME': str(tmp_path)}), ApprovalMode.allow)
    first = ' '.join(capsys.readouterr().out.split()).partition(' versions in ')[0]
    assert first.endswith(f', from version {base.id[-8:]}')


@pytest.mark.parametrize(('agent', 'shown'), [(None, ''), ('shop:agent', 'shop:agent with ')])
async def test_chat_prints_the_agent_the_model_and_the_directory(
    make_conversation: MakeConversation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    agent: str | None,
    shown: str,
) -> None:
    monkeypatch.setattr(sys, 'stdin', Screen())
    conversation = make_conversation(ScriptedModel())
    conversation.runtime = replace(conversation.runtime, own_agent=agent, directory='/work')
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text('\x04')
        await chat(conversation, Environment(variables={'XDG_STATE_HOME': str(tmp_path)}), ApprovalMode.allow)
    assert capsys.readouterr().out.startswith(f'{shown}{conversation.runtime.model} in /work\n')
