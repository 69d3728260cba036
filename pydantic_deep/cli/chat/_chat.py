"""`chat`: opens the terminal or standard input, and runs a session with all verbs."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio.to_thread
from pydantic_ai import UserError
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import ApprovalPrompter
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.history._store import store_label
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._terminal_text import escape_invisible, first_line_of_prose
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._turn_presenter import decider_for

from ._completion import MAX_CHARS, ChatCompleter, Name, model_names, version_names
from ._conversation_verbs import CHAT_VERBS, CONVERSATION_VERBS
from ._memory_verb import MEMORY_VERB
from ._prompt import ask, create_prompt, open_history, read_line
from ._recap import recap
from ._session import ChatScreen, ChatSession
from ._verbs import VerbTable
from ._version_verbs import VERSION_VERBS

VERBS = VerbTable((*VERSION_VERBS, *CONVERSATION_VERBS, MEMORY_VERB, *CHAT_VERBS))
"""All verbs, in the order of the help."""


async def chat(
    conversation: Conversation,
    environment: Environment,
    approvals: ApprovalMode,
    *,
    picks: bool = False,
    has_bell: bool = True,
) -> int:
    """Run turns until the user exits, and return the exit code.

    Args:
        conversation: The agent, its directory, and the version to continue.
        environment: Locates the history of prompts, and opens the terminal for approvals.
        approvals: How to handle calls that need approval. A chat never pauses for them.
        picks: Whether to begin with `/switch`, which asks for a conversation to continue.
        has_bell: Whether the terminal rings when the chat waits for an answer.
    """
    prompter = ApprovalPrompter(environment=environment)
    if sys.stdin.isatty():
        screen = _terminal_screen(conversation, environment, has_bell=has_bell)
    else:
        screen = ChatScreen(console=Console(stderr=True), read_line=_read_input, ask=_read_input, prints_answers=True)
    session = ChatSession(conversation, environment, screen, VERBS, prompter, decider_for(approvals, prompter))
    if sys.stdin.isatty():
        await _greet(screen.console, session, environment)
    return await session.run(*(['/switch'] if picks else ()))


async def _greet(console: Console, session: ChatSession, environment: Environment) -> None:
    """Print the agent, the model, the directory and the store, and what a continued conversation was about."""
    conversation, runtime = session.conversation, session.runtime
    tip = conversation.tip
    base = '' if tip is None else f', from version {short_id(tip.id)}'
    console.print(Text(escape_invisible(f'{runtime.heading}{base}'), 'dim'))
    if conversation.is_persistent:
        console.print(Text(escape_invisible(f'versions in {store_label(conversation.store.url, environment)}'), 'dim'))
    console.print(Text('Ctrl-C stops the agent, Ctrl-D ends the chat, /help lists commands.', 'dim'))
    if tip is not None:
        await recap(session, tip.record)


def create_completer(conversation: Conversation, environment: Environment) -> ChatCompleter:
    """Return the completion of a chat: its verbs, skills, versions and files, and the usable models."""

    async def skills() -> list[Name]:
        try:
            catalog = await conversation.runtime.skills.catalog()
        except UserError:
            return []  # `/skills` reports it
        return [
            Name(skill.name, first_line_of_prose(skill.description, MAX_CHARS)) for skill in catalog.skills.values()
        ]

    async def versions() -> list[Name]:
        return await version_names(VersionReader(revisions=conversation.revisions))

    async def models() -> list[Name]:
        return model_names(environment)

    directory = Path(conversation.runtime.directory)
    return ChatCompleter(VERBS, directory, skills=skills, versions=versions, models=models)


def _terminal_screen(conversation: Conversation, environment: Environment, *, has_bell: bool) -> ChatScreen:
    console = Console()
    prompt = create_prompt(open_history(environment, console), create_completer(conversation, environment))
    return ChatScreen(
        console=console,
        read_line=lambda message: read_line(prompt, message),
        ask=ask,
        prints_answers=False,
        has_bell=has_bell and console.is_terminal,
    )


async def _read_input(message: str) -> str:
    """Read a line of standard input, which is not a terminal."""
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    if not line:
        raise EOFError
    return line
