"""Access the body and files of a skill, and their paths for the model.

Files are read through a backend: that of the run, or one for the directory of the skill that follows no links out of
it. So a skill cannot read files of another one, and no host path is exposed. The folder `evals`, in which authors keep
test cases, is for people: models receive neither the names nor the contents of its files.
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
from pydantic_deep_backends.paths import display_path, is_within, relative_to
from pydantic_deep_backends.resolving import absolute_path

from ._document import MAX_DOCUMENT_BYTES, DocumentError, parse_document
from ._invisible_characters import strip_invisible
from ._rules import Report, parse_frontmatter
from ._scan import FILE_NAME
from ._types import Skill, SkillDiagnostic

MAX_FILES = 50
"""Maximum number of files to list, about 500 tokens. Published skills have up to 1,103."""

MAX_ENTRIES = 2_000
"""Maximum number of directory entries to scan for files."""

CASES_FOLDER = 'evals'
"""The folder of a skill with its test cases, by the convention of the Agent Skills standard."""

_UNLISTED = frozenset({'.git', '__pycache__', 'node_modules'})

BACKEND_FAILURES = (OSError, BackendError, WorkspaceError)
"""The exceptions that operations of backends raise."""


class SkillUnreadableError(ValueError):
    """The files of a skill have changed since discovery, and can no longer be used."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The location of a skill's files."""

    backend: BackendProtocol
    """The backend for the files."""
    root: str
    """The directory of the skill in that backend."""
    document: BackendProtocol
    """The backend for `SKILL.md`, which may be a link to another directory."""
    document_path: str
    """The path of `SKILL.md` in that backend."""


def place_of(skill: Skill, backend: BackendProtocol | None) -> Place | None:
    """Return the location of a skill's files; `None` if it has none.

    Args:
        skill: The skill.
        backend: The backend of the run, for a skill that was found there.
    """
    if skill.directory is None:
        return None
    if isinstance(skill.directory, str):
        own = cast('BackendProtocol', backend)  # a skill in a backend is used only with that backend
        path = skill.source or f'{skill.directory}/{FILE_NAME}'
        return Place(backend=own, root=skill.directory, document=own, document_path=path)
    files = LocalBackend(skill.directory, allow_hard_links=True)  # the developer who names the directory trusts it
    source = Path(skill.source or skill.directory / FILE_NAME)
    document = files if source.parent == skill.directory else LocalBackend(source.parent, allow_hard_links=True)
    return Place(backend=files, root='/', document=document, document_path=f'/{source.name}')


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The current contents of a skill."""

    body: str
    """The instructions, without invisible characters."""
    diagnostics: list[SkillDiagnostic]
    """Warnings about invisible characters."""
    commands: tuple[str, ...]
    """The commands that the skill requested at discovery and still requests."""


async def load(skill: Skill, place: Place | None) -> Loaded:
    """Return the current contents of a skill.

    Raises:
        SkillUnreadableError: The file is missing, or no longer a valid `SKILL.md`.
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
        raise SkillUnreadableError(f'{FILE_NAME} can no longer be read') from error
    if commands and skill.source is not None:  # otherwise the commands are defined in code
        current = parse_frontmatter(document.header, document.first_line, skill.name, Report(path=skill.source))
        asked = () if current is None else commands_of(current.allowed_tools)
        commands = tuple(command for command in commands if command in asked)
    return _visible(skill, document.body, commands)


def _visible(skill: Skill, body: str, commands: tuple[str, ...]) -> Loaded:
    report = Report(path=skill.source or skill.name)
    visible = strip_invisible(body)
    if visible != body:
        report.add('warning', 'invisible-characters', None, 'The body has invisible characters, which are removed.')
    return Loaded(body=visible, diagnostics=report.diagnostics, commands=commands)


async def list_files(place: Place) -> tuple[list[str], bool]:
    """Return the files of a skill except `SKILL.md`, relative and sorted, and whether the scan was incomplete."""
    files: list[str] = []
    scanned = 0
    async for path, is_file in _walk(place.backend, place.root):
        scanned += 1
        if scanned > MAX_ENTRIES:
            return sorted(files), True
        if is_file and path != FILE_NAME:
            files.append(path)
    return sorted(files), False


async def _walk(backend: BackendProtocol, root: str) -> AsyncIterator[tuple[str, bool]]:
    """Yield the entries below a directory, and whether each is a file. Unreadable entries are skipped.

    Directories behind links are not entered.
    """
    real_root = await backend.realpath(root)
    # `LocalBackend` reports sizes of all regular files; others need not.
    reports_sizes = isinstance(backend, LocalBackend)
    pending = ['']
    while pending:
        directory = pending.pop()
        absolute = _join(root, directory)
        try:
            if await backend.realpath(absolute) != _join(real_root, directory):
                continue
            entries = await backend.list_dir(absolute)
        except BACKEND_FAILURES:
            continue
        for entry in entries:
            path = f'{directory}/{entry.name}' if directory else entry.name
            if _is_case(path):
                continue
            yield path, not entry.is_dir and (entry.size is not None or not reports_sizes)
            if entry.is_dir and entry.name not in _UNLISTED:
                pending.append(path)


async def read_text(place: Place, skill: Skill, file: str) -> str:
    """Return a text file of a skill.

    Raises:
        ModelRetry: The file does not exist, or its path is outside of the skill.
        ToolFailed: The file is not text, or too large.
    """
    shown = display_path(file)
    try:
        path = await absolute_path(place.backend, file, directory=place.root)
        real, root = await place.backend.realpath(path), await place.backend.realpath(place.root)
        if not is_within(real, root) or _is_case(relative_to(real, root)):
            raise ModelRetry(f'{shown} is not a file of the skill {skill.name!r}.')
        entry = await place.backend.stat(path)
        if entry.size is not None and entry.size > MAX_DOCUMENT_BYTES:
            raise ToolFailed(f'{shown} has {entry.size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} can be read.')
        data = await place.backend.read_bytes(path)
    except InvalidPathError as error:
        raise ModelRetry(str(error)) from error
    except BACKEND_FAILURES as error:
        files, _ = await list_files(place)
        named = f'It has {", ".join(map(display_path, files[:MAX_FILES]))}.' if files else 'It has none: omit `file`.'
        raise ModelRetry(f'{shown} is not a readable file of the skill {skill.name!r}. {named}') from error
    text = parse_text(data) if data else None
    if data and text is None:
        raise ToolFailed(f'{shown} is not text: {len(data):,} bytes.')
    return strip_invisible('' if text is None else text.shown)


def _is_case(path: str) -> bool:
    """Return whether a path in a skill is its folder of cases or below it, also if names ignore case."""
    return path.partition('/')[0].casefold() == CASES_FOLDER


def _join(directory: str, relative: str) -> str:
    return directory if not relative else f'{directory.rstrip("/")}/{relative}'
