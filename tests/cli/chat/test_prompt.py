"""The prompt of the chat, with the keys of a pipe as its keyboard."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, DummyCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pydantic_deep.cli.chat._prompt import ask, create_prompt, read_line

pytestmark = pytest.mark.anyio


async def typed(keys: str, completer: Completer | None = None) -> str:
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        keyboard.send_text(keys)
        return await read_line(create_prompt(InMemoryHistory(), completer or DummyCompleter()), '> ')


@pytest.mark.parametrize(
    ('keys', 'line'),
    [
        ('one\r', 'one'),
        ('one\x1b\rtwo\r', 'one\ntwo'),
        ('one\\\rtwo\r', 'one\ntwo'),
        ('\x1b[200~one\n  two\x1b[201~ three\r', 'one\n  two three'),
        ('one\x03', ''),
    ],
)
async def test_enter_sends_and_other_keys_start_a_line(keys: str, line: str) -> None:
    """Enter sends; Alt-Enter, a backslash before Enter and a pasted text add lines; Ctrl-C discards the input."""
    assert await typed(keys) == line


async def test_questions_are_answered_on_one_line() -> None:
    """Enter ends the answer to a question, and Ctrl-C gives none."""
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        keyboard.send_text('2\r')
        assert await ask('Number: ') == '2'
        keyboard.send_text('2\x03')
        assert await ask('Number: ') == ''


async def test_ctrl_d_ends_the_input() -> None:
    """Ctrl-D in an empty line raises EOFError, which ends the chat."""
    with pytest.raises(EOFError):
        await typed('\x04')


async def test_enter_accepts_a_selected_completion() -> None:
    """With a completion selected, Enter takes it into the line, and the next Enter sends."""

    class OneWord(DummyCompleter):
        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion, None]:
            if document.text == 're':
                yield Completion('rewind', -2)

    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        session = create_prompt(InMemoryHistory(), OneWord())

        def select(buffer: Buffer) -> None:
            buffer.on_completions_changed -= select
            keyboard.send_text('\x1b[B\r now\r')

        session.default_buffer.on_completions_changed += select
        keyboard.send_text('re')
        assert await read_line(session, '> ') == 'rewind now'
