"""A numbered list of the conversations of a directory, to search them and choose one by its number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._log import PROMPT_CHARS, branch_label, describe_age, summarize
from pydantic_deep.cli.render._terminal_text import first_line, first_line_of_prose
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
    label: str
    """The branch, with the first prompt of the conversation if that is not the one of `HEAD`."""


async def list_conversations(reader: VersionReader, search: str | None = None) -> list[ConversationEntry]:
    """Return the branches of the conversations of a directory, newest first. Conversations without a turn are omitted.

    Args:
        reader: The versions.
        search: A text that the name, a prompt or an answer of the conversations contains; `None` for all.
    """
    page = await reader.log(limit=MAX_VERSIONS, search=search)
    newest: dict[tuple[str, str], Version] = {}
    titles: dict[tuple[str, str], str] = {}
    for version in page.versions:
        branch = (version.conversation_id, version.branch)
        if version.kind != 'root':
            newest.setdefault(branch, version)
        if version.name or version.prompt is not None:
            titles.setdefault(branch, version.name or summarize(version))
    return [
        ConversationEntry(
            version=version,
            title=titles.get(branch, summarize(version)),
            label=branch_label(version, page.titles) or version.branch,
        )
        for branch, version in list(newest.items())[:MAX_ENTRIES]
    ]


async def pick(reader: VersionReader, console: Console, ask: Ask) -> ConversationEntry | None:
    """Print the conversations of a directory, and return the one whose number the user types; `None` for an empty line.

    Any other text lists the conversations that contain it.

    Raises:
        WrongVerbError: There is no conversation, or none with this number or text.
    """
    entries = await list_conversations(reader)
    if not entries:
        raise WrongVerbError('This directory has no conversation yet.')
    while True:
        for number, entry in enumerate(entries, start=1):
            print_truncated(console, _entry_line(number, entry))
        typed = (await ask('Number, or a text to search for (Enter for none): ')).strip()
        if not typed:
            return None
        if typed.isdecimal():
            if not 1 <= int(typed) <= len(entries):
                raise WrongVerbError(f'{typed!r} is not a number from 1 to {len(entries)}.')
            return entries[int(typed) - 1]
        entries = await list_conversations(reader, typed)
        if not entries:
            raise WrongVerbError(f'No conversation of this directory contains {typed!r}.')


def _entry_line(number: int, entry: ConversationEntry) -> Text:
    version = entry.version
    return Text.assemble(
        (f'{number:>2}  ', 'bold'),
        (short_id(version.id), 'yellow'),
        (f' {describe_age(version.created_at, datetime.now(UTC))}', 'dim'),
        (f' ({first_line(entry.label, PROMPT_CHARS)})', 'green'),
        (' pending' if version.is_pending else '', 'bold yellow'),
        f'  {first_line_of_prose(entry.title, PROMPT_CHARS)}',
    )
