"""What the model is told of the files that there are: names of the working directory, in a few words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Final

from pydantic_deep._messages.headings import FILES_HEADING
from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.protocol import BackendProtocol, FileEntryLike

MAX_LISTING_CHARS: Final = 200
"""The longest notice, with its heading: some 50 tokens."""

MAX_NAME_CHARS: Final = 60
"""The longest name that is shown whole."""

_PLAIN = re.compile(r'[\w@+=~.-]+')
"""Names that cannot be taken for anything else; others are quoted."""


async def list_names(backend: BackendProtocol, *, without: Collection[str] = ()) -> str:
    """Return what is told of the working directory of a backend, whatever is below it.

    Raises:
        OSError: It cannot be listed.
    """
    return render_listing(await backend.list_dir(await backend.working_dir()), without=without)


def render_listing(entries: Iterable[FileEntryLike], *, without: Collection[str] = ()) -> str:
    """Return the names of a directory in one line, those of directories with `/`; empty if there are none to tell.

    Args:
        entries: The entries.
        without: Names to leave out. Hidden ones are left out too.
    """
    told = sorted(
        (entry for entry in entries if not entry.name.startswith('.') and entry.name not in without),
        key=lambda entry: entry.name,
    )
    names = [_shown(entry.name) + '/' * entry.is_dir for entry in told[:MAX_LISTING_CHARS]]
    limit = MAX_LISTING_CHARS - len(f'{FILES_HEADING}\n')
    lines = (_line(names[:count], len(told) - count) for count in range(len(names), -1, -1))
    return next(line for line in lines if len(line) <= limit)


def _line(names: list[str], left_out: int) -> str:
    return ', '.join([*names, *([f'… and {left_out:,} more'] if left_out else [])])


def _shown(name: str) -> str:
    """Return a name as nothing but a name: on one line, and quoted if it has more than the characters of names."""
    visible = display_path(name)
    if len(visible) > MAX_NAME_CHARS:
        visible = visible[: MAX_NAME_CHARS - 1] + '…'
    return visible if _PLAIN.fullmatch(visible) else json.dumps(visible, ensure_ascii=False)
