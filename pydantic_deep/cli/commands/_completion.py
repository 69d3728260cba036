"""Completion in the shell: versions and models. It never prints an error, since the user is still typing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import anyio
import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.chat._completion import Name, model_names, version_names
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.history._revisions import Revisions
from pydantic_deep.cli.history._store import choose_store, open_chosen_store
from pydantic_deep.errors import DeepAgentError

PLAIN: Final = re.compile(r'[\w./@][\w./~@:+=,-]*')
"""Names that no shell interprets. Others are not offered: the shell would insert them unquoted."""


def complete_version(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the branches and versions of the directory that begin with a text, and a line about each."""
    environment = context.find_object(Environment) or Environment()
    directory, store = context.params.get('directory') or '.', context.params.get('store')

    async def read() -> list[Name]:
        url = choose_store(store, environment)
        async with open_chosen_store(url, environment, must_exist=True, read_only=True) as opened:
            revisions = Revisions(store=opened, directory=str(Path(directory).resolve()))  # noqa: ASYNC240 - a short call
            return await version_names(VersionReader(revisions=revisions))

    try:
        names = anyio.run(read)
    except (DeepAgentError, OSError):
        return []
    return _matching(names, incomplete)


def complete_model(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the usable models that begin with a text."""
    return _matching(model_names(context.find_object(Environment) or Environment()), incomplete)


def _matching(names: list[Name], incomplete: str) -> list[tuple[str, str]]:
    # In zsh, the script of Typer evaluates texts in double quotes. It escapes `$` and quotes, but no backslash before them.
    return [
        (name.text, name.about.replace('\\', ''))
        for name in names
        if name.text.startswith(incomplete) and PLAIN.fullmatch(name.text)
    ]
