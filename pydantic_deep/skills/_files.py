"""What a skill has: its body, its other files, and how their places are told to the model.

Files are reached through a backend: that of the run, or one whose root is the skill's own directory and which no link
leads out of. So one skill cannot read what is another's, and no path of this machine is shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep._messages.grants import commands_of
from pydantic_deep._text.encodings import parse_text
from pydantic_deep_backends import BackendProtocol, LocalBackend
from pydantic_deep_backends.errors import BackendError, InvalidPathError
from pydantic_deep_backends.paths import display_path, is_within
from pydantic_deep_backends.resolving import absolute_path

from ._document import MAX_DOCUMENT_BYTES, DocumentError, parse_document
from ._invisible_characters import strip_invisible
from ._rules import Report, parse_frontmatter
from ._scan import FILE_NAME
from ._types import Skill, SkillDiagnostic

MAX_FILES = 50
"""How many files of a skill are named: some 500 tokens. Real skills have up to 1,103."""

MAX_ENTRIES = 2_000
"""How many entries are looked at to name them."""

BACKEND_FAILURES = (OSError, BackendError, WorkspaceError)
"""What a backend raises."""


class SkillUnreadableError(ValueError):
    """The files of a skill are not what they were when it was found."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the files of a skill are."""

    backend: BackendProtocol
    """What they are read through."""
    root: str
    """The directory of the skill there."""
    document: BackendProtocol
    """What `SKILL.md` is read through: it may be a link to elsewhere."""
    document_path: str
    """The path of `SKILL.md` there."""


def place_of(skill: Skill, backend: BackendProtocol | None) -> Place | None:
    """Return where the files of a skill are; `None` if it has none.

    Args:
        skill: The skill.
        backend: The files of the run, for a skill that was found there.
    """
    if skill.directory is None:
        return None
    if isinstance(skill.directory, str):
        own = cast('BackendProtocol', backend)  # whoever found the skill there has it
        path = skill.source or f'{skill.directory}/{FILE_NAME}'
        return Place(backend=own, root=skill.directory, document=own, document_path=path)
    files = LocalBackend(skill.directory, allow_hard_links=True)  # who named the directory vouches for it
    source = Path(skill.source or skill.directory / FILE_NAME)
    document = files if source.parent == skill.directory else LocalBackend(source.parent, allow_hard_links=True)
    return Place(backend=files, root='/', document=document, document_path=f'/{source.name}')


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A skill as its file is now."""

    body: str
    """The instructions, without invisible characters."""
    diagnostics: list[SkillDiagnostic]
    """Whether there were invisible characters."""
    commands: tuple[str, ...]
    """The commands that it asked for when it was found, and asks for now."""


async def load(skill: Skill, place: Place | None) -> Loaded:
    """Return a skill as its file is now.

    Raises:
        SkillUnreadableError: The file is gone, or no `SKILL.md` any more.
    """
    commands = commands_of(skill.allowed_tools)
    if skill.body is not None or place is None:
        return _visible(skill, skill.body or '', commands)
    try:
        entry = await place.document.stat(place.document_path)
        if entry.size is not None and entry.size > MAX_DOCUMENT_BYTES:
            raise SkillUnreadableError(f'{FILE_NAME} has {entry.size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read')
        document = parse_document(await place.document.read_bytes(place.document_path))
    except DocumentError as error:
        raise SkillUnreadableError(f'{FILE_NAME}: {error}') from error
    except BACKEND_FAILURES as error:
        raise SkillUnreadableError(f'{FILE_NAME} cannot be read any more') from error
    if commands and skill.source is not None:  # else they were written in code, and the file does not count
        now = parse_frontmatter(document.header, document.first_line, skill.name, Report(path=skill.source))
        asked = () if now is None else commands_of(now.allowed_tools)
        commands = tuple(command for command in commands if command in asked)
    return _visible(skill, document.body, commands)


def _visible(skill: Skill, body: str, commands: tuple[str, ...]) -> Loaded:
    report = Report(path=skill.source or skill.name)
    visible = strip_invisible(body)
    if visible != body:
        report.add('warning', 'invisible-characters', None, 'The body has invisible characters, which are left out.')
    return Loaded(body=visible, diagnostics=report.found, commands=commands)


async def list_files(place: Place) -> tuple[list[str], bool]:
    """Return the files of a skill but `SKILL.md`, relative and sorted, and whether there are more than were looked at."""
    found: list[str] = []
    looked_at = 0
    async for path, is_file in _walk(place.backend, place.root):
        looked_at += 1
        if looked_at > MAX_ENTRIES:
            return sorted(found), True
        if is_file and path != FILE_NAME:
            found.append(path)
    return sorted(found), False


async def _walk(backend: BackendProtocol, root: str) -> AsyncIterator[tuple[str, bool]]:
    """Yield the entries below a directory, and whether each is a file; what cannot be read is left out.

    A directory that was reached before, or is elsewhere, is a link, and is not entered.
    """
    real_root = await backend.realpath(root)
    tells_sizes = isinstance(backend, LocalBackend)  # of all that is regular; others need not know
    waiting = ['']
    while waiting:
        directory = waiting.pop()
        absolute = _join(root, directory)
        try:
            if await backend.realpath(absolute) != _join(real_root, directory):
                continue
            entries = await backend.list_dir(absolute)
        except BACKEND_FAILURES:
            continue
        for entry in entries:
            path = f'{directory}/{entry.name}' if directory else entry.name
            yield path, not entry.is_dir and (entry.size is not None or not tells_sizes)
            if entry.is_dir and entry.name not in ('.git', '__pycache__', 'node_modules'):
                waiting.append(path)


async def read_text(place: Place, skill: Skill, file: str) -> str:
    """Return a text file of a skill.

    Raises:
        ModelRetry: There is no such file, or the path leads out of the skill.
        ToolFailed: It is no text, or too large.
    """
    shown = display_path(file)
    try:
        path = await absolute_path(place.backend, file, directory=place.root)
        if not is_within(await place.backend.realpath(path), await place.backend.realpath(place.root)):
            raise ModelRetry(f'{shown} is no file of the skill {skill.name!r}.')
        entry = await place.backend.stat(path)
        if entry.size is not None and entry.size > MAX_DOCUMENT_BYTES:
            raise ToolFailed(f'{shown} has {entry.size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} can be read.')
        data = await place.backend.read_bytes(path)
    except InvalidPathError as error:
        raise ModelRetry(str(error)) from error
    except BACKEND_FAILURES as error:
        files, _ = await list_files(place)
        named = f'It has {", ".join(map(display_path, files[:MAX_FILES]))}.' if files else 'It has none.'
        raise ModelRetry(f'{shown} is no file of the skill {skill.name!r} that can be read. {named}') from error
    text = parse_text(data) if data else None
    if data and text is None:
        raise ToolFailed(f'{shown} is not text: {len(data):,} bytes.')
    return strip_invisible('' if text is None else text.shown)


def _join(directory: str, relative: str) -> str:
    return directory if not relative else f'{directory.rstrip("/")}/{relative}'
