"""The chat on a pseudo-terminal of 60 and of 200 columns: every verb, completion, and Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import PROMPT, ConversationStart, Terminal, plain, start

__all__ = ('start',)  # the fixture

pytestmark = pytest.mark.slow

WIDTHS = pytest.mark.parametrize('columns', [60, 200])


def shown_after(terminal: Terminal, line: str) -> str:
    """Type a line, and return what the terminal shows until it accepts the next one."""
    terminal.type(f'{line}\r')
    terminal.wait_for('\x1b[?2004l')  # the prompt is closed
    written = re.sub(r'[^\n]*\r\x1b\[2K', '', terminal.wait_for(PROMPT))  # lines that were redrawn in place
    return re.sub(r' +\n', '\n', plain(written))


@WIDTHS
def test_every_verb_prints_to_the_width(start: ConversationStart, columns: int, work: Path) -> None:
    """Each verb prints its result in lines that fit the terminal, and the chat continues."""
    terminal = start('chat', 'writes Markdown', '--approvals=allow', columns=columns)
    terminal.wait_for(PROMPT)
    answer = shown_after(terminal, 'Describe the flowers')
    assert 'Some bold words.\n' in answer
    assert 'pip install ' + 'a' * 80 + '\n' in answer  # only the terminal wraps it
    assert ' • one\n • two\n' in answer
    expected = {
        'Next': 'Second.',
        '/todos': 'There is no plan.',
        '/files': 'No file has changed.',
        '/skills': '/writing-skills',
        '/context': 'instructions',
        '/cost': '2 requests, 0 tool calls',
        '/model': 'The model is writes Markdown.',
        '/help': '/rewind VERSION',
        '/branch side Edit it': 'changed /poem.txt +1 -1',
        '/log': '(HEAD, side)',
        '/diff': 'poem.txt',
        '/switch main': 'HEAD is',
        '/merge side': '1 file merged in.',
        '/undo': 'HEAD is',
        '/rewind side': 'HEAD is',
        '/compact': 'The conversation is too short for a summary',
        '/resume': 'has pending approvals.',
        '!ls': 'it has no sandbox.',
        '@../x': 'names no file of the directory',
        '/nothing': 'There is no command /nothing.',
    }
    for line, text in expected.items():
        printed = shown_after(terminal, line)
        assert re.sub(r'\s+', ' ', text) in re.sub(r'\s+', ' ', printed), (line, printed)
        if line.startswith('/') and not line.startswith('/branch'):  # the progress of a turn is redrawn in place
            assert max(map(len, printed.split('\n'))) <= columns, (line, printed)
    terminal.type('/switch\r')
    terminal.wait_for('(Enter for none):')
    terminal.type('1\r')
    terminal.wait_for('HEAD is')
    terminal.wait_for(PROMPT)
    shown_after(terminal, '/new')
    terminal.type('/quit\r')
    assert terminal.wait_for_end() == 0


@WIDTHS
def test_a_continued_chat_begins_with_a_recap(start: ConversationStart, columns: int) -> None:
    """`chat -c` shows the last prompts and the beginning of the last answer as Markdown, without colors if asked."""
    first = start('chat', 'writes Markdown', columns=columns)
    first.wait_for(PROMPT)
    shown_after(first, 'Describe the flowers')
    first.type('\x04')
    assert first.wait_for_end() == 0
    second = start('chat', 'echoes', '-c', columns=columns, NO_COLOR='1')
    recap = second.wait_for(PROMPT)
    assert '> Describe the flowers\r\n\r\nFlowers\r\n\r\nSome ' in re.sub(r'\x1b\[[0-9;]*m', '', recap)
    assert not re.search(r'\x1b\[[0-9;]*3[0-7]', recap)
    second.type('\x04')
    assert second.wait_for_end() == 0


def test_a_continued_chat_shows_pending_calls(start: ConversationStart) -> None:
    """`chat -c` continues a turn that paused, as `/switch` does, and says how to answer its calls."""
    assert start('run', 'edits', 'Go', '--approvals=pause').wait_for_end() == 5
    terminal = start('chat', 'echoes', '-c', columns=200)
    begun = plain(terminal.wait_for(PROMPT))
    assert (
        'Pending calls: edit_file /poem.txt. /resume asks about them; another prompt continues without them.' in begun
    )
    terminal.type('/resume\r')
    terminal.wait_for('conversation')
    terminal.wait_for(PROMPT)
    terminal.type('y\r')
    terminal.wait_for('First answer.')
    terminal.wait_for(PROMPT)
    terminal.type('\x04')
    assert terminal.wait_for_end() == 0


def test_names_and_files_are_completed(start: ConversationStart) -> None:
    """Tab completes a verb, a version and a file, and a message of several lines is one prompt."""
    terminal = start('chat', 'echoes')
    terminal.wait_for(PROMPT)
    terminal.type('/un')
    terminal.wait_for('go back to the version')  # the menu of completions
    terminal.type('\x03')
    terminal.wait_for(PROMPT)
    terminal.type('Read @po')
    terminal.wait_for('poem.txt')
    terminal.type('\t\r first\x1b\rsecond\r')
    terminal.wait_for('First answer.')
    terminal.wait_for(PROMPT)
    diff = shown_after(terminal, '/diff')
    assert 'Read @poem.txt first\n+   second\n' in diff
    assert '<file path="poem.txt">' in diff
    terminal.type('/quit\r')
    assert terminal.wait_for_end() == 0


def test_the_bell_rings_at_approvals(start: ConversationStart) -> None:
    """The terminal rings when a call needs approval, unless that is turned off."""
    for options, rings in (((), True), (('--no-bell',), False)):
        terminal = start('chat', 'edits', *options)
        terminal.wait_for(PROMPT)
        terminal.type('Go\r')
        terminal.wait_for('conversation')
        terminal.wait_for(PROMPT)
        assert ('\x07' in terminal.shown) is rings
        terminal.type('n\r')
        terminal.wait_for('Why?')
        terminal.type('\r')
        terminal.wait_for(PROMPT)
        terminal.type('\x04')
        assert terminal.wait_for_end() == 0


def test_an_interrupted_turn_is_a_version_that_the_next_prompt_continues(start: ConversationStart) -> None:
    """Ctrl-C keeps the completed calls in a version, and the next turn continues from it."""
    terminal = start('chat', 'waits, then answers')
    terminal.wait_for(PROMPT)
    terminal.type('Go\r')
    terminal.wait_for('2 tool calls')
    terminal.type('\x03')
    interrupted = terminal.wait_for('Interrupted.')
    version = re.findall(r'version (\w{8})', plain(interrupted))[-1]
    terminal.wait_for(PROMPT)
    terminal.type('How many?\r')
    terminal.wait_for('flowers.')
    terminal.wait_for(PROMPT)
    log = shown_after(terminal, '/log')
    assert re.search(rf'● \w+ \(HEAD, main\) now  How many\?\n● {version} interrupted now  Go\n', log)
    terminal.type('/quit\r')
    assert terminal.wait_for_end() == 0


def test_suspending_the_chat_types_nothing(start: ConversationStart) -> None:
    """Ctrl-Z suspends the chat, as in a shell, and is no character of the prompt. The prompt is there again afterwards."""
    terminal = start('chat', 'echoes')
    terminal.wait_for(PROMPT)
    terminal.type('\x1a')
    terminal.wait_for(PROMPT)
    shown_after(terminal, 'Hello')
    assert ' Hello\n' in shown_after(terminal, '/log')
