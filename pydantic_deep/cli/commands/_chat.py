"""The loop of `chat`: one turn for each prompt, in one conversation, until the user exits."""

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

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.history._context_report import load_context_usage, render_context
from pydantic_deep.cli.history._store import store_label
from pydantic_deep.cli.render._event_lines import INCOMPLETE_FILES, render_file, render_skills, render_todos
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._terminal_text import escape_invisible, first_line
from pydantic_deep.cli.render._wrapping import print_lines, print_truncated
from pydantic_deep.cli.terminal._deferred_warnings import deferred_warnings
from pydantic_deep.cli.terminal._progress import ProgressDisplay, print_answer
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._failures import EXIT_CODES, MAX_CHARS
from pydantic_deep.cli.turn._runner import run_turn
from pydantic_deep.cli.turn._turn_presenter import DeciderFactory, decider_for, show_progress
from pydantic_deep.skills import SkillNotFoundError

HELP = """\
/help     list these commands
/todos    show the plan
/files    show the files that changed since the chat started
/skills   list the skills
/context  show the tokens of the conversation, by kind
/NAME     load the skill NAME with the next prompt, or with the text beside it
/new      start a new conversation; resets plan and permissions, not files
/quit     end the chat, as Ctrl-D does
Ctrl-C stops the agent. Other lines that start with / are refused; everything
else is a prompt."""
"""The text of `/help`, in lines of at most 80 characters so that no terminal wraps them."""

ReadPrompt: TypeAlias = Callable[[], Awaitable[str]]
"""Returns the next prompt; raises `EOFError` at the end of the input."""


async def chat(conversation: Conversation, environment: Environment, approvals: ApprovalMode) -> int:
    """Run turns until the user exits, and return the exit code.

    Args:
        conversation: The agent, its directory, and the version to continue.
        environment: Locates the history of prompts, and opens the terminal for approvals.
        approvals: How to handle calls that need approval. A chat never pauses for them.
    """
    prompter = ApprovalPrompter(environment=environment)
    make_decider = decider_for(approvals, prompter)
    if not sys.stdin.isatty():
        return await ChatSession(conversation, Console(stderr=True), prompter, make_decider, prints_answers=True).run(
            _read_line
        )
    console, runtime = Console(), conversation.runtime
    base = '' if conversation.tip is None else f', from version {short_id(conversation.tip.id)}'
    console.print(Text(escape_invisible(f'{runtime.model} in {runtime.directory}{base}'), 'dim'))
    if conversation.is_persistent:
        console.print(Text(escape_invisible(f'versions in {store_label(conversation.store.url, environment)}'), 'dim'))
    console.print(Text('Ctrl-C stops the agent, Ctrl-D ends the chat, /help lists commands.', 'dim'))
    session = PromptSession[str](history=open_history(environment, console))
    return await ChatSession(conversation, console, prompter, make_decider, prints_answers=False).run(
        lambda: _prompt(session)
    )


class ChatSession:
    """One chat: its conversation, its loaded skills and its commands."""

    def __init__(
        self,
        conversation: Conversation,
        console: Console,
        prompter: ApprovalPrompter,
        make_decider: DeciderFactory,
        *,
        prints_answers: bool,
    ) -> None:
        self._prompter = prompter
        self._make_decider = make_decider
        self._loaded: list[str] = []
        self._conversation = conversation
        self._runtime = conversation.runtime
        self._console = console
        self._prints_answers = prints_answers
        self._exit_code = 0

    async def run(self, read_prompt: ReadPrompt) -> int:
        """Run turns until the input ends. Return the exit code: 0 at a terminal, else that of the last turn."""
        async with self._runtime.agent:
            while True:
                try:
                    line = (await read_prompt()).strip()
                except EOFError:
                    break
                if line in ('/quit', '/exit'):
                    break
                try:
                    if line.startswith('/'):
                        await self._run_command(line)
                    elif line:
                        await self._turn(line)
                except Exception as error:  # noqa: BLE001 - a failed turn does not end the chat
                    self._report_failure(error)
        return self._exit_code if self._prints_answers else 0

    async def _turn(self, task: str) -> None:
        progress = ProgressDisplay(self._console, clock=self._runtime.clock, shows_answer=not self._prints_answers)
        tip = self._conversation.tip
        if tip is not None and tip.state == 'awaiting_approval':  # the user interrupted the turn at a prompt
            await self._conversation.abandon_pending(tip)
        work = partial(run_turn, self._conversation, '\n\n'.join([*self._loaded, task]))
        self._loaded = []
        with deferred_warnings():
            turn = await show_progress(progress, work, make_decider=self._make_decider)
        self._exit_code = turn.exit_code
        if self._prints_answers and turn.end.output is not None:
            print_answer(turn.end.output)

    def _report_failure(self, error: Exception) -> None:
        """Print an unexpected failure. The chat continues."""
        self._exit_code = EXIT_CODES['failed']
        message = first_line(f'{type(error).__name__}: {error}', MAX_CHARS)
        self._print(Text(f'Unexpected error: {message} The chat continues.', 'bold red'))

    async def _run_command(self, command: str) -> None:
        match command:
            case '/help':
                self._print(Text(HELP))
            case '/todos':
                self._print(render_todos(self._runtime.deps.todos) or Text('There is no plan.'))
            case '/files':
                changes = await self._runtime.backend.all_changes()
                self._print(Text('\n').join(map(render_file, changes)) or Text('No file has changed.'))
                if not self._runtime.backend.has_all_changes:
                    self._print(Text(INCOMPLETE_FILES, 'yellow'))
            case '/context':
                await self._show_context()
            case '/skills':
                await self._list_skills()
            case '/new':
                self._conversation.reset()
                self._runtime.deps.todos.clear()
                self._prompter.reset()
                self._loaded = []
                self._print(Text('Started a new conversation. The files are unchanged.'))
            case _:
                await self._load(command)

    async def _show_context(self) -> None:
        tip, model = self._conversation.tip, self._runtime.agent.model
        if tip is None:
            return self._print(Text('The conversation has no turn yet.'))
        window = model.context_window if isinstance(model, Model) else None
        usage = await load_context_usage(tip, context_window=window)
        width = self._console.width if self._console.is_terminal else None
        return print_lines(self._console, render_context(usage, width=width))

    async def _list_skills(self) -> None:
        try:
            catalog = await self._runtime.skills.catalog()
        except UserError as error:
            self._print(Text(escape_invisible(str(error)), 'yellow'))
        else:
            for line in render_skills(catalog):
                print_truncated(self._console, line)

    async def _load(self, command: str) -> None:
        """Load a skill with the text after its name, or with the next prompt."""
        name, _, task = command[1:].partition(' ')
        try:
            self._loaded.append(await self._runtime.skills.load(name, backend=self._runtime.backend))
        except SkillNotFoundError:
            self._print(Text(f'There is no command {escape_invisible(command)}. /help lists them, /skills the skills.'))
        except (UserError, ValueError) as error:
            self._print(Text(escape_invisible(str(error)), 'yellow'))
        else:
            if task.strip():
                await self._turn(task.strip())
            else:
                self._print(Text(f'The next prompt includes the skill {name}.'))

    def _print(self, text: Text) -> None:
        print_lines(self._console, [text])


async def _read_line() -> str:
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        raise EOFError
    return line


async def _prompt(session: PromptSession[str]) -> str:
    """Read a prompt at the terminal. Ctrl-C discards the line."""
    try:
        return await session.prompt_async('> ')
    except KeyboardInterrupt:
        return ''


def open_history(environment: Environment, console: Console) -> History:
    """Return the prompt history; one in memory, with a warning, if the file cannot be written."""
    path = environment.state_directory / 'chat_history'
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        console.print(Text(escape_invisible(f'Prompts are not stored: {error}'), 'yellow'))
        return InMemoryHistory()
    return FileHistory(str(path))
