"""A dialogue: turn by turn, with one history, until the person leaves."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import anyio.to_thread
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from pydantic_ai import UserError
from pydantic_ai.models import Model
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli._environment import Surroundings
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import Asker
from pydantic_deep.cli.history._context_report import render_context, report_of
from pydantic_deep.cli.history._revisions import shown_id
from pydantic_deep.cli.history._store import shown_store
from pydantic_deep.cli.render._event_lines import NOT_ALL_FILES, render_file, render_skills, render_todos
from pydantic_deep.cli.render._printable import first_line, printable
from pydantic_deep.cli.terminal._answer_output import print_answer
from pydantic_deep.cli.terminal._deferred_warnings import warned_at_end
from pydantic_deep.cli.terminal._progress import Progress, print_cut
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._failures import EXIT_CODES, MAX_CHARS
from pydantic_deep.cli.turn._runner import run_turn
from pydantic_deep.cli.turn._turn_presenter import DecideOn, decide_by, show_progress
from pydantic_deep.skills import SkillNotFoundError

from ._options import print_lines

HELP = """\
/help     these lines
/todos    the plan
/files    the files that changed since the chat began
/skills   the skills
/context  what the conversation takes of the model's window, and for what
/NAME     takes the skill NAME along with the next prompt or the one beside it
/new      forget all but the files: conversation, plan, what is always allowed
/quit     leave, as Ctrl-D does
Ctrl-C stops the agent. Another line that begins with / is refused, and all else
that you type is for the agent."""
"""What is told of the commands: lines of 80 characters at most, so that no terminal folds them."""

Ask: TypeAlias = Callable[[], Awaitable[str]]
"""Returns what the person says next; raises `EOFError` when there is nothing more."""


async def chat(conversation: Conversation, surroundings: Surroundings, approvals: ApprovalMode) -> int:
    """Talk until the person leaves, and return the exit code.

    Args:
        conversation: The agent and its directory, and what was said before.
        surroundings: Where the lines of earlier chats are kept, and where questions are asked.
        approvals: What happens to calls that need an approval; they never wait here.
    """
    asker = Asker(surroundings=surroundings)
    decide_on = decide_by(approvals, asker)
    if not sys.stdin.isatty():
        return await Chat(conversation, Console(stderr=True), asker, decide_on, prints_answers=True).talk(_read_line)
    console, worker = Console(), conversation.worker
    base = '' if conversation.tip is None else f', from version {shown_id(conversation.tip.id)}'
    console.print(Text(printable(f'{worker.model} in {worker.directory}{base}'), 'dim'))
    if conversation.is_kept:
        console.print(Text(printable(f'versions in {shown_store(conversation.store.url, surroundings)}'), 'dim'))
    console.print(Text('Ctrl-C stops the agent, Ctrl-D ends the chat, /help says more.', 'dim'))
    session = PromptSession[str](history=open_history(surroundings, console))
    return await Chat(conversation, console, asker, decide_on, prints_answers=False).talk(lambda: _prompt(session))


class Chat:
    """The state of a dialogue."""

    def __init__(
        self, conversation: Conversation, console: Console, asker: Asker, decide_on: DecideOn, *, prints_answers: bool
    ) -> None:
        self._asker = asker
        self._decide_on = decide_on
        self._loaded: list[str] = []
        self._conversation = conversation
        self._worker = conversation.worker
        self._console = console
        self._prints_answers = prints_answers
        self._exit_code = 0

    async def talk(self, ask: Ask) -> int:
        """Take turns until there is nothing more; where no person watches, the last turn gives the exit code."""
        async with self._worker.agent:
            while True:
                try:
                    said = (await ask()).strip()
                except EOFError:
                    break
                if said in ('/quit', '/exit'):
                    break
                try:
                    if said.startswith('/'):
                        await self._obey(said)
                    elif said:
                        await self._turn(said)
                except Exception as error:  # noqa: BLE001 - whatever fails in a turn ends the turn, and not the chat
                    self._survive(error)
        return self._exit_code if self._prints_answers else 0

    async def _turn(self, task: str) -> None:
        progress = Progress(self._console, clock=self._worker.clock, keeps_answer=not self._prints_answers)
        tip = self._conversation.tip
        if tip is not None and tip.state == 'awaiting_approval':  # the person stopped the turn at a question
            await self._conversation.abandon(tip)
        work = partial(run_turn, self._conversation, '\n\n'.join([*self._loaded, task]))
        self._loaded = []
        with warned_at_end():
            turn = await show_progress(progress, work, decide_on=self._decide_on)
        self._exit_code = EXIT_CODES[turn.result.status]
        if self._prints_answers and turn.result.output is not None:
            print_answer(turn.result.output)

    def _survive(self, error: Exception) -> None:
        """Tell of a failure that nobody has foreseen."""
        self._exit_code = EXIT_CODES['failed']
        said = first_line(f'{type(error).__name__}: {error}', MAX_CHARS)
        self._say(Text(f'This failed unexpectedly: {said} The chat goes on.', 'bold red'))

    async def _obey(self, command: str) -> None:
        match command:
            case '/help':
                self._say(Text(HELP))
            case '/todos':
                self._say(render_todos(self._worker.deps.todos) or Text('There is no plan.'))
            case '/files':
                changes = await self._worker.backend.all_changes()
                self._say(Text('\n').join(map(render_file, changes)) or Text('No file has changed.'))
                if not self._worker.backend.has_seen_all:
                    self._say(Text(NOT_ALL_FILES, 'yellow'))
            case '/context':
                await self._show_context()
            case '/skills':
                await self._list_skills()
            case '/new':
                self._conversation.forget()
                self._worker.deps.todos.clear()
                self._asker.forget()
                self._loaded = []
                self._say(Text('A new conversation. Files stay as they are.'))
            case _:
                await self._load(command)

    async def _show_context(self) -> None:
        tip, model = self._conversation.tip, self._worker.agent.model
        if tip is None:
            return self._say(Text('The conversation has not begun.'))
        window = model.context_window if isinstance(model, Model) else None
        report = await report_of(tip, context_window=window)
        width = self._console.width if self._console.is_terminal else None
        return print_lines(self._console, render_context(report, width=width))

    async def _list_skills(self) -> None:
        try:
            catalog = await self._worker.skills.catalog()
        except UserError as error:
            self._say(Text(printable(str(error)), 'yellow'))
        else:
            for line in render_skills(catalog):
                print_cut(self._console, line)

    async def _load(self, command: str) -> None:
        """Take a skill along with the next prompt, or with the one that follows its name."""
        name, _, task = command[1:].partition(' ')
        try:
            self._loaded.append(await self._worker.skills.load(name, backend=self._worker.backend))
        except SkillNotFoundError:
            self._say(Text(f'There is no command {printable(command)}. /help lists them, /skills the skills.'))
        except (UserError, ValueError) as error:
            self._say(Text(printable(str(error)), 'yellow'))
        else:
            if task.strip():
                await self._turn(task.strip())
            else:
                self._say(Text(f'The next prompt goes with the skill {name}.'))

    def _say(self, text: Text) -> None:
        print_lines(self._console, [text])


async def _read_line() -> str:
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        raise EOFError
    return line


async def _prompt(session: PromptSession[str]) -> str:
    """Ask the person; Ctrl-C drops what is typed."""
    try:
        return await session.prompt_async('> ')
    except KeyboardInterrupt:
        return ''


def open_history(surroundings: Surroundings, console: Console) -> History:
    """Return the lines of earlier chats; if they cannot be kept, say so and go on without."""
    path = surroundings.state_directory / 'chat_history'
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        console.print(Text(printable(f'What you type is not kept: {error}'), 'yellow'))
        return InMemoryHistory()
    return FileHistory(str(path))
