"""The verb about what the agent remembers."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_deep.cli.render._memory import render_memory, render_restored, render_revisions
from pydantic_deep.memory import MAIN_FILE, Memories

from ._session import ChatSession
from ._verbs import Verb, WrongVerbError


async def _memory(chat: ChatSession, arguments: Sequence[str]) -> None:
    action, name = [*arguments, *('show', MAIN_FILE)[len(arguments) :]]
    memories = await Memories.open(chat.conversation.store, chat.environment.person)
    match action:
        case 'show':
            chat.print(*render_memory({memories.name_of(each): each for each in await memories.current()}))
        case 'history':
            chat.print(*render_revisions(await memories.history(name)))
        case 'undo':
            chat.print(render_restored(name, await memories.undo(name)))
        case _:
            raise WrongVerbError(f'/memory {action} is unknown. Use /memory, /memory history or /memory undo.')


MEMORY_VERB = Verb(
    name='memory',
    arguments='[ACTION] [FILE]',
    summary='show what it remembers; ACTION: history, undo',
    run=_memory,
)
"""What the agent remembers."""
