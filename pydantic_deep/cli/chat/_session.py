"""The loop of a chat: each line is a turn, a verb, a skill or a command, until the user exits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import anyio
from pydantic_ai import RunCancelled, UserError
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models import Model
from rich.console import Console
from rich.text import Text

from pydantic_deep.approvals import PendingApproval
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import Decider
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter, PromptScreen
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._terminal_text import escape_invisible, first_line
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.terminal._deferred_warnings import deferred_warnings
from pydantic_deep.cli.terminal._interrupts import stop_on_interrupt
from pydantic_deep.cli.terminal._progress import ProgressDisplay, print_answer
from pydantic_deep.cli.turn._agent_start import started_agent
from pydantic_deep.cli.turn._conversation import Conversation, Version
from pydantic_deep.cli.turn._failures import EXIT_CODES, MAX_CHARS
from pydantic_deep.cli.turn._runner import Prompt, run_turn
from pydantic_deep.cli.turn._runtime import AgentRuntime
from pydantic_deep.cli.turn._turn_presenter import DeciderFactory, Work, show_progress
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.skills import SkillNotFoundError

from ._attachments import attach
from ._shell import run_command
from ._verbs import ChatEndedError, VerbTable, WrongVerbError, split_command

T = TypeVar('T')

PROMPT = '> '
"""The text before the input."""

BELL_SECONDS = 30
"""Duration of a turn in seconds from which the terminal rings at its end: the user may look at something else."""

ReadLine: TypeAlias = Callable[[str], Awaitable[str]]
"""Shows a prompt and returns the input; raises `EOFError` at the end of the input."""


@dataclass(frozen=True, kw_only=True)
class ChatScreen:
    """Where a chat reads and prints."""

    console: Console
    """The output of everything but answers of a chat without a terminal."""
    read_line: ReadLine
    """Reads the next prompt or verb."""
    ask: ReadLine
    """Reads the answer to a question, which is not stored with the prompts."""
    prints_answers: bool
    """Whether answers go to standard output, as without a terminal."""
    has_bell: bool = False
    """Whether to ring the bell of the terminal when the chat waits for the user."""


class ChatSession:
    """One chat: its conversation, its loaded skills and its verbs."""

    def __init__(
        self,
        conversation: Conversation,
        environment: Environment,
        screen: ChatScreen,
        verbs: VerbTable[ChatSession],
        prompter: ApprovalPrompter,
        make_decider: DeciderFactory,
    ) -> None:
        """Start a chat.

        Args:
            conversation: The agent, its directory, and the version to continue.
            environment: Models and variables.
            screen: Input and output.
            verbs: The verbs.
            prompter: Asks for approvals, and is reset with a new conversation.
            make_decider: Creates the decider of each turn.
        """
        self.conversation = conversation
        self.environment = environment
        self.console = screen.console
        self.verbs = verbs
        self.reader = VersionReader(revisions=conversation.revisions)
        self.next_branch: str | None = None
        """The name of the branch that the next turn starts."""
        self._screen = screen
        self._prompter = prompter
        self._make_decider = make_decider
        self._loaded: list[str] = []
        self._plans = True if conversation.settings.plan_mode else None
        self._exit_code = 0

    @property
    def runtime(self) -> AgentRuntime:
        """The agent and its directory."""
        return self.conversation.runtime

    @property
    def context_window(self) -> int | None:
        """The context window of the model, if it is known."""
        model = self.runtime.agent.model
        return model.context_window if isinstance(model, Model) else None

    async def run(self, *first: str) -> int:
        """Handle lines until the input ends. Return the exit code: 0 at a terminal, else that of the last turn.

        Args:
            *first: Lines before those of the input.
        """
        async with started_agent(self.runtime, lambda sentence: self.print(Text(sentence, 'dim'))):
            try:
                for line in first:
                    await self._handle(line)
                while True:
                    line = await self._screen.read_line(PROMPT)
                    await self._handle(line.strip())
            except (EOFError, ChatEndedError):
                pass
        return self._exit_code if self._screen.prints_answers else 0

    def tip(self) -> Version:
        """Return the version that the next turn continues.

        Raises:
            WrongVerbError: The conversation has no turn yet.
        """
        if self.conversation.tip is None:
            raise WrongVerbError('The conversation has no turn yet.')
        return self.conversation.tip

    def last_turn(self) -> Version:
        """Return the version that the next turn continues, unless that is the beginning of the conversation.

        Raises:
            WrongVerbError: There is no turn before the next one.
        """
        tip = self.tip()
        if tip.parent_id is None:
            raise WrongVerbError('The chat is at the beginning of the conversation. /log shows its turns.')
        return tip

    async def ask(self, question: str) -> str:
        """Prompt for a line and return it; an empty one at the end of the input."""
        try:
            return await self._screen.ask(question)
        except EOFError:
            return ''

    def print(self, *lines: Text) -> None:
        """Print lines, wrapped on a terminal."""
        print_lines(self.console, lines)

    def warn(self, sentence: str) -> None:
        """Print a sentence about something that the user has to change."""
        self.print(Text(escape_invisible(sentence), 'yellow'))

    def reset(self) -> None:
        """Start a new conversation, without a plan, permissions and loaded skills."""
        self.conversation.reset()
        self.runtime.deps.todos.clear()
        self._prompter.reset()
        self._loaded = []
        self.next_branch = None

    async def prompt(self, text: str, *, plan: bool | None = None) -> None:
        """Run a turn with a prompt, the loaded skills and the attached files.

        Args:
            text: The prompt.
            plan: Whether to switch plan mode on or off. `None` leaves it as it is, and is on for the first prompt of a
                chat with `--plan`.
        """
        attached = await attach(text, self.runtime.backend, self.runtime.directory)
        for notice in attached.notices:
            self.warn(notice)
        await self.send(attached.text, attached.images, plan=plan)

    async def send(self, text: str, images: Sequence[BinaryContent] = (), *, plan: bool | None = None) -> None:
        """Run a turn with a text as it is, the loaded skills, and images.

        Args:
            text: The text. It may be empty beside images.
            images: The images.
            plan: As for `prompt`.
        """
        plan, self._plans = self._plans if plan is None else plan, None
        tip = self.conversation.tip
        if tip is not None and tip.state == 'awaiting_approval':  # the user interrupted the turn at a prompt
            await self.conversation.abandon_pending(tip)
        elif tip is not None and tip.kind == 'step':  # the process of the turn stopped, and the user does not finish it
            await self.conversation.continue_from(tip.id)
        texts = '\n\n'.join([*self._loaded, *([text] if text else [])])
        task: Prompt = [*([texts] if texts else []), *images] if images else texts
        branch, self.next_branch, self._loaded = self.next_branch, None, []
        await self.present(partial(run_turn, self.conversation, task, branch=branch, plan=plan))

    async def present(self, work: Work) -> None:
        """Run a turn, show its progress, and ring the bell when it waits for the user."""
        prints_answers, clock, theme = self._screen.prints_answers, self.runtime.clock, self.runtime.theme
        heading = self.runtime.heading if prints_answers else None
        progress = ProgressDisplay(
            self.console, clock=clock, shows_answer=not prints_answers, heading=heading, theme=theme
        )
        started = clock()
        with deferred_warnings():
            turn = await show_progress(progress, work, make_decider=self._ringing_decider)
        self._exit_code = turn.exit_code
        if clock() - started >= BELL_SECONDS:
            self._ring()
        if prints_answers and turn.end.output is not None:
            print_answer(turn.end.output, theme=theme)

    async def interruptible(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something that Ctrl-C stops.

        Raises:
            RunCancelled: The user pressed Ctrl-C.
        """
        with stop_on_interrupt() as interrupts, anyio.CancelScope() as scope:
            interrupts.on_stop = scope.cancel
            return await work
        raise RunCancelled('Interrupted.')

    def _ringing_decider(self, screen: PromptScreen) -> Decider:
        decide = self._make_decider(screen)

        async def ring_and_decide(pending: Sequence[PendingApproval]) -> Any:
            self._ring()
            return await decide(pending)

        return ring_and_decide

    def _ring(self) -> None:
        if self._screen.has_bell:
            self.console.bell()

    async def _handle(self, line: str) -> None:
        """Handle a line. Print the failure of a turn or a verb: the chat continues."""
        try:
            if line.startswith('/'):
                await self.run_verb(line)
            elif line.startswith('!'):
                await self._run_command(line[1:].strip())
            elif line:
                await self.prompt(line)
        except ChatEndedError:
            raise
        except RunCancelled:
            self.warn('Interrupted.')
        except DeepAgentError as error:
            self.warn(str(error))
        except Exception as error:  # noqa: BLE001 - a failed turn does not end the chat
            self._exit_code = EXIT_CODES['failed']
            message = first_line(f'{type(error).__name__}: {error}', MAX_CHARS)
            self.print(Text(f'Unexpected error: {message} The chat continues.', 'bold red'))

    async def run_verb(self, line: str) -> None:
        """Run a verb, or load the skill of this name.

        Args:
            line: The line, which starts with a slash.

        Raises:
            WrongVerbError: The verb has other arguments, or cannot be used now.
        """
        name, rest = split_command(line)
        verb = self.verbs.find(name)
        if verb is not None:
            await verb.run(self, verb.parse(rest))
        else:
            await self._load(line, name, rest.strip())

    async def _run_command(self, command: str) -> None:
        with self.console.status(Text('Running …')):
            result = await self.interruptible(run_command(self.runtime.backend, command))
        self.print(*result)

    async def _load(self, line: str, name: str, prompt: str) -> None:
        """Load a skill with the text after its name, or with the next prompt."""
        try:
            self._loaded.append(await self.runtime.skills.load(name, backend=self.runtime.backend))
        except SkillNotFoundError:
            self.print(Text(f'There is no command {escape_invisible(line)}. /help lists them, /skills the skills.'))
        except (UserError, ValueError) as error:
            self.warn(str(error))
        else:
            if prompt:
                await self.prompt(prompt)
            else:
                self.print(Text(f'The next prompt includes the skill {name}.'))
