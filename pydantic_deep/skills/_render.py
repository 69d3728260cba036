"""How a loaded skill reads, for a model. Pure."""

from __future__ import annotations

from collections.abc import Iterable
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


def render_files(name: str, directory: str | None, files: list[str], *, is_cut: bool) -> str:
    """Return which files a skill has and how to reach them; empty if there is nothing to say.

    Args:
        name: The name of the skill.
        directory: Where the tools of the run find them; `None` if only `load_skill` does.
        files: Their paths in the skill.
        is_cut: Whether there are more than `files`.
    """
    if not files:
        return f'Directory: {display_path(directory)}' if directory else ''
    named = ', '.join(map(display_path, files[:MAX_FILES]))
    rest = len(files) - MAX_FILES
    more = ', and more' if is_cut else f', and {rest:,} more' if rest > 0 else ''
    if directory:
        return f'Files in {display_path(directory)}: {named}{more}'
    return f'Files, read with load_skill({name!r}, file) and not to be run here: {named}{more}'


def render_unknown(name: str, known: Iterable[str]) -> str:
    """Return that there is no skill of a name, and which names are like it."""
    names = list(islice(known, MAX_NAMES))
    similar = get_close_matches(name.casefold(), names, n=3)
    if similar:
        return f'No skill named {name!r}. Similar: {", ".join(similar)}.'
    shown = ', '.join(names[:MAX_SHOWN]) + (', …' if len(names) > MAX_SHOWN else '')
    return f'No skill named {name!r}. Skills: {shown or "none"}.'
