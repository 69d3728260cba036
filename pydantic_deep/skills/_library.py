"""The skills that do not depend on a run: looked up once, at the first run, and shared by all. They never change."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import anyio.to_thread
from pydantic_ai.exceptions import UserError

from pydantic_deep._checks import check_unicode
from pydantic_deep._messages.grants import commands_of
from pydantic_deep.errors import ValidationError

from ._catalogue import Catalogue, render_catalogue
from ._discovery import Found, merge, real_paths, scan_directories
from ._rules import MAX_NAME_CHARS, name_problem
from ._types import BackendSkills, Skill, SkillCatalog, SkillDiagnostic, SkillDirectory, SkillSource

_LOGGER = logging.getLogger('pydantic_deep')

MAX_LOGGED = 10_000
"""How many diagnostics are remembered as logged."""

_CODES_THAT_CHANGE = frozenset(
    {'compatibility-too-long', 'description-too-long', 'duplicate-field', 'invisible-characters', 'name-form'}
    | {'name-too-long', 'not-yaml'}
)
"""The warnings after which the model sees other than what was written, or a name that it can hardly repeat."""


@dataclass(frozen=True, kw_only=True)
class SkillIndex:
    """The skills that a run has."""

    catalog: SkillCatalog
    catalogue: Catalogue
    """What the model is told of them."""
    found: Found
    """What the sources gave, before it was decided which counts."""
    allowing: tuple[Skill, ...] = ()
    """Those that name commands which could be granted."""


@dataclass(kw_only=True)
class Library:
    """Where skills come from, and what was found there."""

    directories: Sequence[SkillDirectory]
    skills: Sequence[Skill]
    max_catalog_tokens: int
    _index: SkillIndex | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _logged: set[SkillDiagnostic] = field(default_factory=set[SkillDiagnostic])

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The real paths of all directories of this machine that have files of skills."""
        given = [*real_paths(self.directories), *(os.path.realpath(s.directory) for s in self.skills if s.directory)]
        return tuple(dict.fromkeys(given))

    async def index(self) -> SkillIndex:
        """Return the skills of code and of this machine; files are looked at once, in a thread.

        Raises:
            UserError: A directory is missing. It is looked for again next time.
        """
        return self._index or await anyio.to_thread.run_sync(self._look)

    def _look(self) -> SkillIndex:
        with self._lock:
            if self._index is None:
                found = Found()
                found.add(self.skills, (), trusted=True)
                scan_directories(self.directories, found)
                self.log(found.diagnostics)
                lost = [diagnostic for diagnostic in found.diagnostics if diagnostic.code == 'missing-directory']
                if lost:
                    raise UserError(f'Skills: {lost[0].path!r}: {lost[0].message}')
                self._index = self.build_index(found)
            return self._index

    def build_index(self, found: Found) -> SkillIndex:
        """Return what a run has of what was found."""
        catalog = merge(found)
        self.log(catalog.diagnostics)
        return SkillIndex(
            catalog=catalog,
            catalogue=render_catalogue(catalog.skills.values(), self.max_catalog_tokens),
            found=found,
            allowing=tuple(
                skill
                for skill in catalog.skills.values()
                if commands_of(skill.allowed_tools) and not isinstance(skill.directory, str)  # an agent may write there
            ),
        )

    def log(self, diagnostics: Iterable[SkillDiagnostic]) -> None:
        """Log what was not logged before."""
        for diagnostic in diagnostics:
            if diagnostic not in self._logged and len(self._logged) < MAX_LOGGED:
                self._logged.add(diagnostic)
                changes = diagnostic.severity == 'error' or diagnostic.code in _CODES_THAT_CHANGE
                level = logging.WARNING if changes else logging.INFO
                _LOGGER.log(level, 'Skills: %s', diagnostic)


def sort_sources(
    sources: Sequence[SkillSource],
) -> tuple[list[SkillDirectory], list[Skill], list[BackendSkills]]:
    """Return sources by their kind.

    Raises:
        TypeError: Something is no source, or the sources are no list.
        ValueError: A skill made in code could not be loaded, or the file of one was given for its directory.
    """
    if not isinstance(cast('object', sources), Collection):
        raise TypeError(f'`skills` is {sources!r}. Pass a list of directories or of `Skill`s.')
    directories: list[SkillDirectory] = []
    skills: list[Skill] = []
    backends: list[BackendSkills] = []
    for source in sources:
        match source:
            case Skill():
                skills.append(_checked(source))
            case BackendSkills():
                backends.append(source)
            case SkillDirectory():
                directories.append(_located(source))
            case _:
                directories.append(_located(SkillDirectory(_path_of(source))))
    return directories, skills, backends


def _path_of(source: object) -> Path:
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f'{source!r} is no source of skills. Pass a directory, or a `Skill`.')
    return Path(cast('str | os.PathLike[str]', source))


def _located(directory: SkillDirectory) -> SkillDirectory:
    """Refuse the file of a skill by its name, since the disk is looked at only when a run wants the skills."""
    path = Path(directory.path)
    if path.name == 'SKILL.md':
        raise ValueError(f'{str(path)!r} is the file of a skill. Pass its directory, {str(path.parent)!r}.')
    return directory


def _checked(skill: Skill) -> Skill:
    name, description = cast('tuple[object, object]', (skill.name, skill.description))
    problem = name_problem(name) if isinstance(name, str) else 'is no text'
    if problem is not None or len(skill.name) > MAX_NAME_CHARS:
        raise ValidationError(
            'name', f'the name of a skill {name!r} {problem or "is too long"}. Write it like `my-skill`.'
        )
    if not isinstance(description, str) or not description.strip():
        raise ValidationError(
            'description', f'the skill {name!r} has no description. Say what it does and when to use it.'
        )
    check_unicode('description', description)
    if skill.body is None and skill.directory is None:
        raise ValueError(f'The skill {skill.name!r} has neither a body nor a directory. Pass one of them.')
    return skill
