"""Completion at the prompt: verbs, skills, versions, models and files."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.cli.render._log import summarize
from pydantic_deep.cli.render._terminal_text import first_line_of_prose
from pydantic_deep.cli.turn._providers import list_providers

from ._verbs import VerbTable

MAX_NAMES = 50
"""Maximum number of completions of one kind."""

MAX_CHARS = 60
"""Maximum number of characters of the text beside a completion."""

_PATH = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]*)|(?P<plain>\S*))$')
"""An unfinished mention before the cursor."""


@dataclass(frozen=True)
class Name:
    """A name that completes a word, and the text beside it."""

    text: str
    about: str = ''


ListNames = Callable[[], Awaitable[Iterable[Name]]]
"""Returns the names of one kind, best first."""


class ChatCompleter(Completer):
    """Completes the last word of the input."""

    def __init__(
        self, verbs: VerbTable[Any], directory: Path, *, skills: ListNames, versions: ListNames, models: ListNames
    ) -> None:
        """Create a completer.

        Args:
            verbs: The verbs.
            directory: The directory of the agent.
            skills: Lists the skills.
            versions: Lists branches and versions.
            models: Lists models.
        """
        self._verbs = verbs
        self._directory = directory
        self._skills = skills
        self._by_kind = {'version': versions, 'model': models}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return no completion: prompt_toolkit calls `get_completions_async` of an asynchronous prompt."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the completions of the word before the cursor."""
        before = document.text_before_cursor
        mention = _PATH.search(before)
        if mention is not None:
            for completion in complete_path(mention['quoted'], mention['plain'], self._directory):
                yield completion
        elif before.startswith('/'):
            word = before.rpartition(' ')[2]
            for name in await self._names(before):
                if name.text.startswith(word):
                    yield Completion(name.text, -len(word), display_meta=name.about)

    async def _names(self, before: str) -> Iterable[Name]:
        """Return the names that can be at the end of a line that begins with a slash."""
        first, *words = before.split(' ')
        if not words:
            verbs = [Name(f'/{verb.name}', verb.summary) for verb in self._verbs.listed]
            return [*verbs, *(Name(f'/{skill.text}', skill.about) for skill in await self._skills())]
        verb = self._verbs.find(first[1:])
        if verb is None or verb.completion is None or len(words) > len(verb.arguments.split()):
            return ()
        return await self._by_kind[verb.completion]()


def complete_path(quoted: str | None, plain: str | None, directory: Path) -> Iterator[Completion]:
    """Yield the files and directories that an unfinished mention can mean.

    Args:
        quoted: The text after `@"`, if there is a quotation mark.
        plain: The text after `@` otherwise.
        directory: The directory that paths are relative to. Nothing outside of it is listed.
    """
    typed = (quoted if quoted is not None else plain or '').lstrip('/')
    parent, _, start = typed.rpartition('/')
    folder = (directory / parent).resolve()
    if not folder.is_relative_to(directory.resolve()):
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    shown = [
        entry
        for entry in entries
        if entry.name.startswith(start)
        and entry.name.startswith('.') == start.startswith('.')
        and entry.name.isprintable()
    ]
    for entry in shown[:MAX_NAMES]:
        path = f'{parent}/{entry.name}' if parent else entry.name
        is_directory = entry.is_dir()
        text = path + '/' * is_directory
        has_space = ' ' in text or quoted is not None
        yield Completion(
            f'"{text}' + '"' * (not is_directory) if has_space else text,
            -len(typed) - (quoted is not None),
            display=entry.name + '/' * is_directory,
        )


async def version_names(reader: VersionReader) -> list[Name]:
    """Return the branches, the names that programs have set, and the newest versions of a directory.

    A branch is that of the conversation of `HEAD`, if that has one of this name.
    """
    page = await reader.log(limit=MAX_NAMES)
    about = {version.id: first_line_of_prose(summarize(version), MAX_CHARS) for version in page.versions}
    branches: dict[str, str] = {}
    for version in sorted(page.versions, key=lambda version: version.conversation_id in page.titles):
        branches.setdefault(version.branch, about[version.id])
    head = [] if page.head_id is None else [Name(HEAD, about.get(page.head_id, '')), Name(f'{HEAD}~')]
    return [
        *(Name(name, text) for name, text in branches.items()),
        *(Name(version.name, about[version.id]) for version in page.versions if version.name),
        *head,
        *(Name(short_id(version.id, about), about[version.id]) for version in page.versions),
    ]


def model_names(environment: Environment) -> list[Name]:
    """Return the models that can be used: the program's own, then those of providers whose key and package are there."""
    ready = [provider for provider in list_providers(environment.variables) if provider.is_ready]
    return [Name(name) for name in (*environment.models, *(model for provider in ready for model in provider.models))]
