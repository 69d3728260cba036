"""How a loaded skill reads, for a model. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from pydantic_deep_backends.paths import display_path

from ._files import MAX_FILES

MAX_NAMES = 1_000
"""How many names are compared with one that is not known."""

MAX_SHOWN = 10
"""How many names are shown if none is like it."""


def render_loaded(body: str, files: str) -> str:
    """Return the instructions, with what there is to say of the files."""
    return f'{body}\n\n[{files}]' if files else body


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Where a run finds the directory of a skill."""

    to_files: str | None = None
    """The path for tools on files; `None` if they do not see it."""
    to_commands: str | None = None
    """The path for commands; `None` if they do not see it, or it is the same."""


def render_files(name: str, files: list[str], *, is_cut: bool, shown: Shown) -> str:
    """Return which files a skill has and how to reach them; empty if there is nothing to say.

    Args:
        name: The name of the skill.
        files: Their paths in the skill.
        is_cut: Whether there are more than `files`.
        shown: Where the run finds them, besides `load_skill`.
    """
    directory = shown.to_files or shown.to_commands
    if not files:
        return f'Directory: {display_path(directory)}' if directory else ''
    named = ', '.join(map(display_path, files[:MAX_FILES]))
    rest = len(files) - MAX_FILES
    more = ', and more' if is_cut else f', and {rest:,} more' if rest > 0 else ''
    if shown.to_files:
        return f'Files in {display_path(shown.to_files)}: {named}{more}'
    to_run = f'run in {display_path(shown.to_commands)}' if shown.to_commands else 'not to be run here'
    return f'Files, read with load_skill({name!r}, file) and {to_run}: {named}{more}'


def render_grant(commands: Iterable[str]) -> str:
    """Return what a loaded skill says of the commands that it was granted."""
    return f'[Commands that need no approval now: {", ".join(map(display_path, commands))}]'


def render_question(name: str, commands: Iterable[str]) -> str:
    """Return what a person is asked to grant, for a preview."""
    listed = ''.join(f'\n  {display_path(command)}' for command in commands)
    return f'With the skill {name!r}, these commands run without asking for the rest of this conversation:{listed}'


def render_unknown(name: str, known: Iterable[str]) -> str:
    """Return that there is no skill of a name, and which names are like it."""
    names = list(islice(known, MAX_NAMES))
    similar = get_close_matches(name.casefold(), names, n=3)
    if similar:
        return f'No skill named {name!r}. Similar: {", ".join(similar)}.'
    shown = ', '.join(names[:MAX_SHOWN]) + (', …' if len(names) > MAX_SHOWN else '')
    return f'No skill named {name!r}. Skills: {shown or "none"}.'
