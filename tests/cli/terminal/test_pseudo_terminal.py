"""The command line in a separate process on a pseudo-terminal, with scripted key presses.

No test sleeps: each reads the output of the terminal until the expected text appears.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pydantic_deep.cli.terminal._interrupts import SHOW_CURSOR
from tests.cli.conftest import PATIENCE_SECONDS
from tests.cli.pseudo_terminal import HIDE_CURSOR, PROGRAM, PROMPT, ConversationStart, plain, start

__all__ = ('start',)  # the fixture

pytestmark = pytest.mark.slow


def test_progress_is_shown_while_the_turn_runs(start: ConversationStart) -> None:
    terminal = start('run', 'waits', 'Go')
    terminal.wait_for('2 tool calls')
    shown = plain(terminal.shown)
    assert '✓ ls /' in shown
    assert '▸ Read the poem' in shown
    terminal.type('\x03')
    assert terminal.wait_for_end() == 130
    assert 'Interrupted. Completed work is not undone.' in terminal.shown


def test_answer_is_rendered_and_the_live_display_is_removed(start: ConversationStart) -> None:
    terminal = start('run', 'answers', 'Go')
    assert terminal.wait_for_end() == 0
    assert '# Flowers' not in terminal.shown
    assert plain(terminal.shown).rstrip().endswith('There are two.')
    assert terminal.shown.count(HIDE_CURSOR) == terminal.shown.count(SHOW_CURSOR) == 1  # the cursor is shown again


def test_text_typed_during_a_turn_is_not_shown_and_the_terminal_echoes_afterwards(start: ConversationStart) -> None:
    terminal = start('run', 'waits', 'Go')
    terminal.wait_for('2 tool calls')
    assert not terminal.is_echoing
    terminal.type('typed ahead\n')
    terminal.type('\x03')
    assert terminal.wait_for_end() == 130
    assert 'typed ahead' not in terminal.shown
    assert terminal.is_echoing


@pytest.mark.parametrize('columns', [80, 40])
def test_progress_lines_fit_the_terminal_width(start: ConversationStart, columns: int) -> None:
    terminal = start('run', 'answers', 'Go', columns=columns)
    terminal.wait_for_end()
    calls = re.findall('✓.*', plain(terminal.shown))
    assert len(calls) == 2
    assert max(map(len, calls)) <= columns


def test_no_color_disables_colors(start: ConversationStart) -> None:
    terminal = start('run', 'answers', 'Go', NO_COLOR='1')
    terminal.wait_for_end()
    assert not re.search(r'\x1b\[[0-9;]*3[0-7]', terminal.shown)


def test_dumb_terminal_gets_plain_lines(start: ConversationStart) -> None:
    terminal = start('run', 'answers', 'Go', TERM='dumb')
    assert terminal.wait_for_end() == 0
    assert '\x1b[' not in terminal.shown
    assert '▸ Read the poem' in terminal.shown


def test_ctrl_c_stops_the_turn_and_the_chat_continues(start: ConversationStart) -> None:
    terminal = start('chat', 'waits, then answers')
    terminal.wait_for(PROMPT)
    terminal.type('Go\r')
    terminal.wait_for('2 tool calls')
    terminal.type('\x03')
    terminal.wait_for('Interrupted.')
    terminal.wait_for(PROMPT)
    terminal.type('How many?\r')
    terminal.wait_for('flowers.')
    terminal.wait_for(PROMPT)
    terminal.type('\x04')
    assert terminal.wait_for_end() == 0


def test_ctrl_c_at_the_prompt_clears_the_line(start: ConversationStart) -> None:
    terminal = start('chat', 'echoes')
    terminal.wait_for(PROMPT)
    terminal.type('Never mi')
    terminal.type('\x03')
    terminal.wait_for(PROMPT)
    terminal.type('/quit\r')
    assert terminal.wait_for_end() == 0
    assert 'answer' not in terminal.shown


def test_prompts_of_an_earlier_chat_are_in_the_history(start: ConversationStart) -> None:
    first = start('chat', 'echoes')
    first.wait_for(PROMPT)
    first.type('Say it\r')
    first.wait_for('First answer.')
    first.wait_for(PROMPT)
    first.type('\x04')
    assert first.wait_for_end() == 0
    second = start('chat', 'echoes')
    second.wait_for(PROMPT)
    second.type('\x1b[A')
    second.wait_for('Say it')
    second.type('\r')
    second.wait_for('First answer.')
    second.wait_for(PROMPT)
    second.type('/quit\r')
    assert second.wait_for_end() == 0


def test_second_ctrl_c_kills_a_hanging_turn(start: ConversationStart) -> None:
    terminal = start('run', 'hangs', 'Go')
    terminal.wait_for('hanging')
    terminal.type('\x03')
    terminal.wait_for('stopping')
    terminal.type('\x03')
    assert terminal.wait_for_end() == -signal.SIGINT
    assert terminal.is_echoing
    assert terminal.shown.rfind(SHOW_CURSOR) > terminal.shown.rfind(HIDE_CURSOR)


def test_sigint_without_a_terminal_stops_the_run(work: Path) -> None:
    program = PROGRAM.replace('fcntl.ioctl(2, termios.TIOCSCTTY, 0)', '')
    args = ['run', 'Go', '--dir', str(work), '--model', 'hangs once']
    process = subprocess.Popen([sys.executable, '-c', program, *args], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stderr is not None
    while (line := process.stderr.readline()) and b'hanging' not in line:
        pass
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, output) == (130, b'')
    assert errors.decode().endswith('Interrupted. Completed work is not undone.\n')
    assert SHOW_CURSOR.encode() not in errors


QUESTION = 'conversation'
"""Appears near the end of the line of allowed answers."""


@pytest.mark.parametrize(('term', 'prompt'), [('xterm-256color', PROMPT), ('dumb', '> ')])
def test_approval_prompt_shows_the_diff_and_yes_runs_the_call(
    start: ConversationStart, work: Path, term: str, prompt: str
) -> None:
    terminal = start('run', 'edits', 'Go', TERM=term)
    terminal.wait_for(QUESTION)
    terminal.wait_for(prompt)
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
    terminal.type('y\r')
    assert terminal.wait_for_end() == 0
    shown = plain(terminal.shown)
    assert '? edit_file' in shown
    assert '  │ -violet\n  │ +lily\n' in shown
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'
    assert ('\x1b[32m' in terminal.shown) == (term != 'dumb')  # the diff has colours


def test_denial_and_its_reason_reach_the_model(start: ConversationStart, work: Path) -> None:
    terminal = start('run', 'edits', 'Go')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('n\r')
    terminal.wait_for('Why?')
    terminal.type('Too short.\r')
    assert terminal.wait_for_end() == 0
    assert plain(terminal.shown).rstrip().endswith('A person denied this call: Too short.')
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'


@pytest.mark.parametrize('columns', [80, 40])
def test_approval_prompt_fits_the_terminal_width(start: ConversationStart, columns: int) -> None:
    terminal = start('run', 'edits', 'Go', columns=columns)
    terminal.wait_for(QUESTION)
    shown = plain(terminal.shown)
    lines = shown[shown.index('? edit_file') :].split('\n')
    assert max(map(len, lines)) <= columns


def test_ctrl_c_at_an_approval_stops_the_turn_and_the_chat_continues(start: ConversationStart, work: Path) -> None:
    terminal = start('chat', 'edits twice')
    terminal.wait_for(PROMPT)
    terminal.type('Go\r')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('\x03')
    terminal.wait_for('Interrupted.')
    terminal.wait_for(PROMPT)
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
    terminal.type('And now?\r')
    terminal.wait_for('interrupted')
    terminal.wait_for(PROMPT)
    terminal.type('/quit\r')
    assert terminal.wait_for_end() == 0


def test_ctrl_c_after_an_approval_stops_the_turn(start: ConversationStart, work: Path) -> None:
    terminal = start('run', 'edits, then waits', 'Go')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('y\r')
    terminal.wait_for('1 tool call,')
    terminal.type('\x03')
    assert terminal.wait_for_end() == 130
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


def test_keys_typed_before_an_approval_prompt_are_discarded(start: ConversationStart, work: Path) -> None:
    terminal = start('run', 'waits for keys, then edits', 'Go')
    terminal.wait_for('type now')
    terminal.type('y\r')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('n\ry\r')  # input after the first line does not answer the next prompt either
    terminal.wait_for('Why?')
    terminal.type('No.\r')
    assert terminal.wait_for_end() == 0
    assert plain(terminal.shown).rstrip().endswith('A person denied this call: No.')
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'


def test_editor_changes_the_arguments(start: ConversationStart, work: Path, tmp_path: Path) -> None:
    script = tmp_path / 'editor.py'
    script.write_text(
        "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text().replace('lily', 'oak'))"
    )
    terminal = start('run', 'edits', 'Go', VISUAL=f'{sys.executable} {script}')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('e\r')
    assert terminal.wait_for_end() == 0
    assert (work / 'poem.txt').read_text() == 'rose\noak\n'


def test_failed_editor_is_reported_and_the_prompt_repeated(start: ConversationStart, work: Path) -> None:
    terminal = start('run', 'edits', 'Go', EDITOR='false')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('e\r')
    terminal.wait_for('The editor exited with code 1; nothing was changed.')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('y\r')
    assert terminal.wait_for_end() == 0
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


def test_arguments_are_edited_at_the_prompt_without_an_editor(start: ConversationStart, work: Path) -> None:
    terminal = start('run', 'edits', 'Go')
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('e\r')
    terminal.wait_for('Enter ends the input.')
    terminal.wait_for(PROMPT)
    terminal.type('\x7f\x7f\x7foak\x1b\r')  # over the end of `lily` and the newline
    assert terminal.wait_for_end() == 0
    assert (work / 'poem.txt').read_text() == 'rose\nlioak\n'


def test_approval_prompt_uses_the_controlling_terminal_if_stdin_is_a_pipe(start: ConversationStart, work: Path) -> None:
    ours, theirs = os.pipe()
    terminal = start('run', 'edits', '-', stdin=ours)
    os.close(ours)
    os.write(theirs, b'Go')
    os.close(theirs)
    terminal.wait_for(QUESTION)
    terminal.wait_for(PROMPT)
    terminal.type('y\r')
    assert terminal.wait_for_end() == 0
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


def test_run_without_any_terminal_denies_calls(work: Path) -> None:
    program = PROGRAM.replace('fcntl.ioctl(2, termios.TIOCSCTTY, 0)', '')
    done = subprocess.run(
        [sys.executable, '-c', program, 'run', 'Go', '--dir', str(work), '--model', 'edits', '--no-user-skills'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout.startswith('Nobody can be asked for approval here.')) == (0, True)
    assert 'Use --approvals=allow' in done.stderr
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
