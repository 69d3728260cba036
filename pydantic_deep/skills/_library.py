"""Skills that are independent of a run: discovered once, at the first run, and shared by all runs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast, get_args

import anyio.to_thread
from pydantic_ai.exceptions import UserError

from pydantic_deep._checks import check_choice, check_strings, check_unicode
from pydantic_deep._messages.grants import commands_of
from pydantic_deep.errors import ValidationError

from ._catalogue import Catalogue, render_catalogue
from ._discovery import DiscoveredSkills, merge, real_paths, scan_directories
from ._rules import MAX_NAME_CHARS, name_problem
from ._types import BackendSkills, Scope, Skill, SkillCatalog, SkillDiagnostic, SkillDirectory, SkillSource

_LOGGER = logging.getLogger('pydantic_deep')

MAX_LOGGED = 10_000
"""Maximum number of diagnostics to remember as logged."""

_CODES_THAT_CHANGE = frozenset(
    {'compatibility-too-long', 'description-too-long', 'duplicate-field', 'invisible-characters', 'name-form'}
    | {'name-too-long', 'not-yaml'}
)
"""Warnings about skills whose text differs from the file for the model, or whose name is hard to repeat."""


@dataclass(frozen=True, kw_only=True)
class SkillIndex:
    """The skills of a run."""

    catalog: SkillCatalog
    catalogue: Catalogue
    """The catalogue for the model."""
    discovered: DiscoveredSkills
    """All discovered skills, before duplicates were resolved."""
    allowing: tuple[Skill, ...] = ()
    """Skills with commands that can be granted."""


@dataclass(kw_only=True)
class Library:
    """The sources of skills, and the cached result of discovery."""

    directories: Sequence[SkillDirectory]
    skills: Sequence[Skill]
    max_catalog_tokens: int
    _index: SkillIndex | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _logged: set[SkillDiagnostic] = field(default_factory=set[SkillDiagnostic])

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The real paths of all local directories with skill files."""
        paths = [*real_paths(self.directories), *(os.path.realpath(s.directory) for s in self.skills if s.directory)]
        return tuple(dict.fromkeys(paths))

    async def index(self) -> SkillIndex:
        """Return the skills from code and local directories. Files are scanned once, in a thread.

        Raises:
            UserError: A directory is missing. The next call scans again.
        """
        return self._index or await anyio.to_thread.run_sync(self._look)

    def _look(self) -> SkillIndex:
        with self._lock:
            if self._index is None:
                discovered = DiscoveredSkills()
                discovered.add(self.skills, (), trusted=True)
                scan_directories(self.directories, discovered)
                self.log(discovered.diagnostics)
                missing = [
                    diagnostic for diagnostic in discovered.diagnostics if diagnostic.code == 'missing-directory'
                ]
                if missing:
                    raise UserError(f'Skills: {missing[0].path!r}: {missing[0].message}')
                self._index = self.build_index(discovered)
            return self._index

    def build_index(self, discovered: DiscoveredSkills) -> SkillIndex:
        """Return the index of discovered skills."""
        catalog = merge(discovered)
        self.log(catalog.diagnostics)
        return SkillIndex(
            catalog=catalog,
            catalogue=render_catalogue(catalog.skills.values(), self.max_catalog_tokens),
            discovered=discovered,
            allowing=tuple(
                skill
                for skill in catalog.skills.values()
                # An agent may have written to a backend.
                if commands_of(skill.allowed_tools) and not isinstance(skill.directory, str)
            ),
        )

    def log(self, diagnostics: Iterable[SkillDiagnostic]) -> None:
        """Log the diagnostics that were not logged before."""
        for diagnostic in diagnostics:
            if diagnostic not in self._logged and len(self._logged) < MAX_LOGGED:
                self._logged.add(diagnostic)
                changes = diagnostic.severity == 'error' or diagnostic.code in _CODES_THAT_CHANGE
                level = logging.WARNING if changes else logging.INFO
                _LOGGER.log(level, 'Skills: %s', diagnostic)


def sort_sources(
    sources: Sequence[SkillSource],
) -> tuple[list[SkillDirectory], list[Skill], list[BackendSkills]]:
    """Return the sources by type.

    Raises:
        TypeError: A source has an invalid type, or the sources are not a collection.
        ValueError: A skill created in code is invalid, or a source is a file instead of a directory.
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
        raise TypeError(f'{source!r} is not a source of skills. Pass a directory or a `Skill`.')
    return Path(cast('str | os.PathLike[str]', source))


def _located(directory: SkillDirectory) -> SkillDirectory:
    """Raise for a `SKILL.md` passed as a directory, by its name alone: files are accessed only when a run needs skills."""
    path = Path(directory.path)
    if path.name == 'SKILL.md':
        raise ValueError(f'{str(path)!r} is the file of a skill. Pass its directory, {str(path.parent)!r}.')
    return directory


def _checked(skill: Skill) -> Skill:
    name, description = cast('tuple[object, object]', (skill.name, skill.description))
    problem = name_problem(name) if isinstance(name, str) else 'is not a string'
    if problem is not None or len(skill.name) > MAX_NAME_CHARS:
        raise ValidationError(
            'name', f'the name of a skill {name!r} {problem or "is too long"}. Use a form like `my-skill`.'
        )
    if not isinstance(description, str) or not description.strip():
        raise ValidationError(
            'description', f'the skill {name!r} has no description. Say what it does and when to use it.'
        )
    check_unicode('description', description)
    check_strings('allowed_tools', skill.allowed_tools)
    check_choice('scope', skill.scope, get_args(Scope))
    if skill.body is None and skill.directory is None:
        raise ValueError(f'The skill {skill.name!r} has neither a body nor a directory. Pass one of them.')
    return skill
