"""The notice of existing files: a short list of names in the working directory."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Final

from pydantic_deep._messages.headings import FILES_HEADING
from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.protocol import BackendProtocol, FileEntryLike

MAX_LISTING_CHARS: Final = 200
"""Maximum length of the notice with its heading in characters, about 50 tokens."""

MAX_NAME_CHARS: Final = 60
"""Maximum length of a name that is shown in full, in characters."""

_PLAIN = re.compile(r'[\w@+=~.-]+')
"""Names that need no quotes, because they cannot be mistaken for anything else."""


async def list_names(backend: BackendProtocol, *, without: Collection[str] = ()) -> str:
    """Return the notice text for the working directory of a backend, without subdirectories.

    Raises:
        OSError: The directory cannot be listed.
    """
    return render_listing(await backend.list_dir(await backend.working_dir()), without=without)


def render_listing(entries: Iterable[FileEntryLike], *, without: Collection[str] = ()) -> str:
    """Return the names in a directory on one line, with `/` after directories; empty if there are none.

    Args:
        entries: The directory entries.
        without: Names to omit. Hidden names are always omitted.
    """
    visible_entries = sorted(
        (entry for entry in entries if not entry.name.startswith('.') and entry.name not in without),
        key=lambda entry: entry.name,
    )
    names = [_shown(entry.name) + '/' * entry.is_dir for entry in visible_entries[:MAX_LISTING_CHARS]]
    limit = MAX_LISTING_CHARS - len(f'{FILES_HEADING}\n')
    lines = (_line(names[:count], len(visible_entries) - count) for count in range(len(names), -1, -1))
    return next(line for line in lines if len(line) <= limit)


def _line(names: list[str], left_out: int) -> str:
    return ', '.join([*names, *([f'… and {left_out:,} more'] if left_out else [])])


def _shown(name: str) -> str:
    """Return a name on one line, quoted if it contains unusual characters."""
    shown = display_path(name)
    if len(shown) > MAX_NAME_CHARS:
        shown = shown[: MAX_NAME_CHARS - 1] + '…'
    return shown if _PLAIN.fullmatch(shown) else json.dumps(shown, ensure_ascii=False)
