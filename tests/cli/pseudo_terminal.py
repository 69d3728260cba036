"""The command line in a separate process on a pseudo-terminal, with scripted key presses.

Nothing sleeps: `wait_for` reads the output of the terminal until the expected text appears.
"""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_SECONDS

HIDE_CURSOR = '\x1b[?25l'

PROMPT = '\x1b[?2004h'
"""Enables bracketed paste. The terminal shows it when the prompt accepts keys."""

PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)  # from now on Ctrl-C is sent here

import anyio, asyncio
from pydantic_deep.cli import main
from pydantic_deep.testing import ScriptedModel, call

async def wait(messages, info):
    await anyio.sleep_forever()

async def wait_until_asked(messages, info):
    if 'How many?' in str(messages[-1]):
        return 'Two\\nflowers.'
    await anyio.sleep_forever()

async def hang_once(messages, info):
    print('hanging', file=sys.stderr, flush=True)
    await anyio.sleep_forever()

async def hang(messages, info):
    sys.stderr.write('hanging')
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            sys.stderr.write('stopping')

async def until_typed(messages, info):
    typed = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, typed.set)
    print('type now', file=sys.stderr, flush=True)
    await typed.wait()
    asyncio.get_running_loop().remove_reader(0)
    return EDIT

def told(messages, info):
    return str(messages[-1].parts[0].content)

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
PLAN = [{'content': 'Read the poem', 'status': 'in_progress'}]
MARKDOWN = '# Flowers\\n\\nSome **bold** words.\\n\\n```sh\\npip install ' + 'a' * 80 + '\\n```\\n\\n- one\\n- two'
FIRST = [call('write_todos', todos=PLAN), call('ls', path='/')]
SCRIPTS = {
    'answers': ScriptedModel(['I look.', *FIRST], '# Flowers\\n\\nThere are **two**.'),
    'waits': ScriptedModel(FIRST, wait),
    'waits, then answers': ScriptedModel(FIRST, then=wait_until_asked),
    'hangs once': ScriptedModel(hang_once),
    'hangs': ScriptedModel(hang),
    'edits': ScriptedModel(EDIT, told),
    'edits, then waits': ScriptedModel(EDIT, wait),
    'edits twice': ScriptedModel(EDIT, told, EDIT, told),
    'waits for keys, then edits': ScriptedModel(until_typed, told),
    'writes Markdown': ScriptedModel(MARKDOWN, 'Second.', EDIT, 'Third.', 'SUMMARY', 'Fourth.', 'Fifth.'),
    'edits, then answers': ScriptedModel(EDIT, 'Lily.', 'Other.', 'Third.'),
    'echoes': ScriptedModel('First answer.', 'Second answer.'),
}
sys.exit(main(models=SCRIPTS))
"""


class Terminal:
    """The screen and the keyboard of a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.shown: str = ''
        self._descriptor = descriptor
        self._read_to: int = 0
        self._decoder = codecs.getincrementaldecoder('utf-8')()  # a read can end inside a character

    def wait_for(self, text: str) -> str:
        """Read until `text` appears after the previous match, and return the output before it."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while (found := self.shown.find(text, self._read_to)) < 0:
            ready, _, _ = select.select([self._descriptor], [], [], max(0, give_up - time.monotonic()))
            data = self._read() if ready else b''
            assert data, f'{text!r} was never shown, but: {self.shown[self._read_to :][-2000:]!r}'
            self.shown += self._decoder.decode(data)
        before, self._read_to = self.shown[self._read_to : found], found + len(text)
        return before

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    @property
    def is_echoing(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self._descriptor)[3] & termios.ECHO)

    def wait_for_end(self) -> int:
        """Read to the end of the output and return the exit code."""
        while data := self._read():
            self.shown += self._decoder.decode(data)
        return self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except OSError:  # Linux raises this when no process has the terminal open
            return b''


@contextmanager
def open_terminal(*args: str, columns: int, variables: dict[str, str], stdin: int | None = None) -> Generator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    # Rich prefers these to the size of the terminal, and a worker of pytest-xdist may have them.
    inherited = {name: value for name, value in os.environ.items() if name not in ('COLUMNS', 'LINES')}
    process = subprocess.Popen(
        [sys.executable, '-c', PROGRAM, *args],
        stdin=theirs if stdin is None else stdin,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**inherited, 'TERM': 'xterm-256color', 'PROMPT_TOOLKIT_NO_CPR': '1', **variables},
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(ours)


ConversationStart = Callable[..., Terminal]


@pytest.fixture
def start(work: Path, tmp_path: Path) -> Generator[ConversationStart]:
    """Start a command in the `work` directory, on a terminal of 80 columns by default."""
    with ExitStack() as stack:

        def start(
            command: str, model: str, *args: str, columns: int = 80, stdin: int | None = None, **variables: str
        ) -> Terminal:
            argv = (command, *args, '--dir', str(work), '--model', model)
            state = {'XDG_STATE_HOME': str(tmp_path / 'state'), 'HOME': str(tmp_path)}
            variables = {**state, 'VISUAL': '', 'EDITOR': '', **variables}
            return stack.enter_context(open_terminal(*argv, columns=columns, variables=variables, stdin=stdin))

        yield start


def plain(shown: str) -> str:
    """Return the output without the sequences that move the cursor or set colors."""
    return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]|\r', '', shown)
