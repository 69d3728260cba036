"""Fixtures that run the command line in this process with a given model, clock and environment."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import nullcontext
from decimal import Decimal
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import JsonValue
from pydantic_ai.models import Model
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner, Result

from pydantic_deep.approvals import Preview, view_approval
from pydantic_deep.cli._app import app
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._call_view import CallView
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.terminal._terminal import Terminal
from pydantic_deep.cli.turn._conversation import Conversation, open_conversation
from pydantic_deep.cli.turn._runtime import MAX_TOKENS, AgentRuntime, Settings, create_runtime
from pydantic_deep.store import Store, open_store
from pydantic_deep.testing import FakeClock, ScriptedModel, call

Steady: TypeAlias = Callable[[str], str]
Invoke: TypeAlias = Callable[..., Result]
MakeRuntime: TypeAlias = Callable[..., AgentRuntime]
MakeConversation: TypeAlias = Callable[..., Conversation]

PATIENCE_SECONDS = 120
"""Timeout in seconds for the output of a subprocess. Passing tests do not reach it."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with one file in it."""
    directory = tmp_path / 'work'
    directory.mkdir()
    (directory / 'poem.txt').write_text('rose\nviolet\n')
    return directory


def sleeping(clock: FakeClock) -> Callable[[float], Awaitable[None]]:
    """Return a `sleep` function that advances the fake clock and returns immediately."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    return sleep


class ScriptedTerminal(Terminal):
    """A terminal with scripted input. An exception in the script stands for a key such as Ctrl-C."""

    def __init__(self, *typed: str | BaseException, width: int = 80) -> None:
        super().__init__(stdin=StringIO(), stdout=StringIO())
        self.typed = list(typed)
        self.prompts: list[tuple[str, str, bool]] = []
        """Prompts shown so far: the prompt, its default text and whether it is multiline."""
        self.width = width

    @property
    def console(self) -> Console:
        return Console(file=self.stdout, width=self.width)  # a file has no size

    @property
    def shown(self) -> str:
        """The text printed so far."""
        assert isinstance(self.stdout, StringIO)
        return self.stdout.getvalue()

    async def ask(self, prompt: str, *, default: str = '', multiline: bool = False) -> str:
        self.prompts.append((prompt, default, multiline))
        typed = self.typed.pop(0)
        if isinstance(typed, BaseException):
            raise typed
        return typed


@pytest.fixture
def make_terminal() -> type[ScriptedTerminal]:
    """The class of a terminal with scripted input."""
    return ScriptedTerminal


@pytest.fixture
def steady(tmp_path: Path) -> Steady:
    """Replace values that differ between runs: version ids and the temporary directory."""

    def replace(text: str) -> str:
        return re.sub(r'\b(version|resume|checkout|show|from) [0-9a-f]{8}\b', r'\1 01234567', text).replace(
            str(tmp_path), '/tmp'
        )

    return replace


@pytest.fixture(scope='session', autouse=True)
def one_command() -> Generator[None]:
    """Cache the Typer command. Typer builds all commands on each invocation, which takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('typer.testing._get_command', cache(get_command))
        yield


@pytest.fixture
def invoke(work: Path, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run the command line in the `work` directory. Standard streams are not a terminal."""
    monkeypatch.chdir(work)

    def invoke(
        *args: str,
        model: Model | None = None,
        variables: Mapping[str, str] | None = None,
        stdin: str = '',
        terminal: Terminal | None = None,
    ) -> Result:
        models = {} if model is None else {'given': model}
        named = {} if model is None else {'PYDANTIC_DEEP_MODEL': 'given'}
        environment = Environment(
            models=models,
            variables={
                'XDG_STATE_HOME': str(tmp_path / 'state'),
                'HOME': str(tmp_path / 'home'),
                **named,
                **(variables or {}),
            },
            clock=clock.monotonic,
            sleep=sleeping(clock),
            open_terminal=lambda: nullcontext(terminal),
        )
        return CliRunner().invoke(app, list(args), obj=environment, input=stdin)

    return invoke


@pytest.fixture
def make_runtime(work: Path, clock: FakeClock) -> MakeRuntime:
    """Create an agent runtime in the `work` directory."""

    def make(
        model: Model,
        *,
        approvals: ApprovalMode = ApprovalMode.allow,
        max_tokens: int = MAX_TOKENS,
        max_cost: Decimal | None = None,
        sandbox: bool = False,
    ) -> AgentRuntime:
        environment = Environment(
            models={'given': model},
            variables={'HOME': '/nowhere'},
            clock=clock.monotonic,
            sleep=sleeping(clock),
        )
        settings = Settings(
            directory=str(work), model='given', max_tokens=max_tokens, max_cost=max_cost, sandbox=sandbox
        )
        return create_runtime(environment, settings, approvals=approvals)

    return make


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    """A store in memory."""
    async with open_store('memory:') as store:
        yield store


@pytest.fixture
def make_conversation(make_runtime: MakeRuntime, store: Store) -> MakeConversation:
    """Open a conversation in the `work` directory that starts with the next turn."""

    def make(model: Model, *, max_tokens: int = MAX_TOKENS, **options: Any) -> Conversation:
        runtime = make_runtime(model, max_tokens=max_tokens, **options)
        settings = Settings(directory=runtime.directory, model=runtime.model, max_tokens=max_tokens)
        return open_conversation(runtime, settings, store)

    return make


PLAN = [{'content': 'Write it', 'status': 'completed'}]
EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
UNDO = call('edit_file', path='/poem.txt', old_string='lily', new_string='violet')
WRITE = call('write_file', path='/new.txt', content='new\n')
TASK = call('task', subagent='general-purpose', description='Look at it')


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def history(invoke: Invoke) -> list[str]:
    """Ids: the root, a turn that edits, a turn on a copy that writes, a turn in the directory, a pending turn."""
    invoke('run', 'Fix the poem\nplease', '--approvals=allow', model=ScriptedModel(EDIT, 'Fixed.'))
    write = ScriptedModel(call('write_todos', todos=PLAN), WRITE, 'Wrote.')
    invoke('branch', 'side', 'Write \x1b[31mnew', '--from', 'HEAD~', '--approvals=allow', model=write)
    invoke('run', 'Look', '--continue', model=ScriptedModel(TASK, 'I looked.', 'Looked.'))
    invoke('run', 'Wait', '--continue', '--approvals=pause', model=ScriptedModel(UNDO))
    rows = document(invoke('log', '--json'))
    return [row['id'] for row in reversed(rows)]


def screen_of(written: str) -> list[str]:
    """Return the lines of a terminal after it has obeyed the cursor and erase sequences of Rich's live display."""
    lines, row = [''], 0
    for up, erase, other, text in re.findall(
        r'\x1b\[(\d+)A|(\x1b\[2K)|(\x1b\[[0-9;?]*[A-Za-z]|\r)|(\n|[^\n\r\x1b]+)', written
    ):
        if up:
            row -= int(up)
        elif erase:
            lines[row] = ''
        elif text == '\n':
            row += 1
            lines += [''] * (row == len(lines))
        elif not other:
            lines[row] += text
    return [line.rstrip() for line in lines]


def show_call(
    args: dict[str, JsonValue],
    preview: Preview | None = None,
    *,
    path: tuple[str, ...] = (),
    width: int = 60,
    count: int = 1,
) -> str:
    """Return the question about a call as the terminal shows it."""
    stream = StringIO()
    console = Console(file=stream, width=width)
    view = view_approval(id='1', path=path, tool='edit_file', arguments=args, preview=preview)
    question = CallView(view=view, number=1, count=count)
    console.print(question.title)
    console.print(question, end='')
    return stream.getvalue()
