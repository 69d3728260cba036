"""A numbered list of the conversations of a directory, to choose one by its number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._log import PROMPT_CHARS, describe_age, summarize
from pydantic_deep.cli.render._terminal_text import first_line
from pydantic_deep.cli.render._wrapping import print_truncated
from pydantic_deep.views import Version

from ._verbs import WrongVerbError

MAX_VERSIONS = 1000
"""Maximum number of versions, newest first, in which conversations are looked for."""

MAX_ENTRIES = 20
"""Maximum number of entries of the list."""

Ask: TypeAlias = Callable[[str], Awaitable[str]]
"""Prompts for a line and returns it; raises `EOFError` at the end of the input."""


@dataclass(frozen=True, kw_only=True)
class ConversationEntry:
    """A branch of a conversation."""

    version: Version
    """Its newest version."""
    title: str
    """The name of the conversation, or else its last prompt."""


async def list_conversations(reader: VersionReader) -> list[ConversationEntry]:
    """Return the branches of the conversations of a directory, newest first. Conversations without a turn are omitted."""
    page = await reader.log(limit=MAX_VERSIONS)
    newest: dict[tuple[str, str], Version] = {}
    titles: dict[tuple[str, str], str] = {}
    for version in page.versions:
        branch = (version.conversation_id, version.branch)
        if version.kind != 'root':
            newest.setdefault(branch, version)
        if version.name or version.prompt is not None:
            titles.setdefault(branch, version.name or summarize(version))
    return [
        ConversationEntry(version=version, title=titles.get(branch, summarize(version)))
        for branch, version in list(newest.items())[:MAX_ENTRIES]
    ]


async def pick(entries: Sequence[ConversationEntry], console: Console, ask: Ask) -> ConversationEntry | None:
    """Print the entries, and return the one whose number the user types; `None` for an empty line.

    Raises:
        WrongVerbError: There is no entry, or none with this number.
    """
    if not entries:
        raise WrongVerbError('This directory has no conversation yet.')
    for number, entry in enumerate(entries, start=1):
        print_truncated(console, _entry_line(number, entry))
    typed = (await ask('Number (Enter for none): ')).strip()
    if not typed:
        return None
    if not typed.isdecimal() or not 1 <= int(typed) <= len(entries):
        raise WrongVerbError(f'{typed!r} is not a number from 1 to {len(entries)}.')
    return entries[int(typed) - 1]


def _entry_line(number: int, entry: ConversationEntry) -> Text:
    version = entry.version
    return Text.assemble(
        (f'{number:>2}  ', 'bold'),
        (short_id(version.id), 'yellow'),
        (f' {describe_age(version.created_at, datetime.now(UTC))}', 'dim'),
        (f' ({first_line(version.branch, 30)})', 'green'),
        (' pending' if version.is_pending else '', 'bold yellow'),
        f'  {first_line(entry.title, PROMPT_CHARS)}',
    )
