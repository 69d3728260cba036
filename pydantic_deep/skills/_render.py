"""Render a loaded skill for a model. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from pydantic_deep_backends.paths import display_path

from ._files import MAX_FILES

MAX_NAMES = 1_000
"""Maximum number of names to compare with an unknown one."""

MAX_SHOWN = 10
"""Maximum number of names to list if no name is similar."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The paths of a skill's directory in a run."""

    to_files: str | None = None
    """The path for file tools; `None` if they cannot access it."""
    to_commands: str | None = None
    """The path for commands; `None` if they cannot access it, or it is the same."""


def render_files(name: str, files: list[str], *, is_cut: bool, shown: Shown) -> str:
    """Return the list of a skill's files and how to access them; empty if there is nothing to report.

    Args:
        name: The name of the skill.
        files: The relative paths of the files.
        is_cut: Whether the list is incomplete.
        shown: The paths of the directory in the run, besides `load_skill`.
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
    """Return the note about granted commands in the result of `load_skill`."""
    return f'[Commands that need no approval now: {", ".join(map(display_path, commands))}]'


def render_question(name: str, commands: Iterable[str]) -> str:
    """Return the text of a grant for approval."""
    listed = ''.join(f'\n  {display_path(command)}' for command in commands)
    return f'With the skill {name!r}, these commands run without asking for the rest of this conversation:{listed}'


def render_unknown(name: str, known: Iterable[str]) -> str:
    """Return the error for an unknown name, with similar names."""
    names = list(islice(known, MAX_NAMES))
    similar = get_close_matches(name.casefold(), names, n=3)
    if similar:
        return f'No skill named {name!r}. Similar: {", ".join(similar)}.'
    shown = ', '.join(names[:MAX_SHOWN]) + (', …' if len(names) > MAX_SHOWN else '')
    return f'No skill named {name!r}. Skills: {shown or "none"}.'
