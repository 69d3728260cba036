"""Which skills there are: every source looked at, and of two skills of one name the one that counts."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from ._rules import shown_path
from ._scan import Scan, is_inside
from ._types import Scope, Skill, SkillCatalog, SkillDiagnostic, SkillDirectory

_RANK: dict[Scope, int] = {scope: rank for rank, scope in enumerate(get_args(Scope))}


@dataclass(kw_only=True)
class Found:
    """What sources gave, in their order."""

    skills: list[Skill] = field(default_factory=list[Skill])
    diagnostics: list[SkillDiagnostic] = field(default_factory=list[SkillDiagnostic])

    def add(self, skills: Iterable[Skill], diagnostics: Iterable[SkillDiagnostic], *, trusted: bool) -> None:
        """Take what one source gave; of one that nobody vouches for the names only."""
        self.diagnostics += diagnostics
        if trusted:
            self.skills += skills
        else:
            self.diagnostics += [_untrusted(skill) for skill in skills]


def discover_skills(paths: Sequence[str | os.PathLike[str] | SkillDirectory]) -> SkillCatalog:
    """Return the skills in directories, frontmatter only: `body` and `files` are `None`.

    It reads files, so call it in a thread where an event loop runs. What was read is kept by path, size and times, so
    that a second look costs little. It never raises for what is in the directories: see `diagnostics`.

    Args:
        paths: Directories with skills in folders, or skills themselves. Of two skills of one name the one whose scope
            is nearer is used (project, user, bundled), and within a scope the one of the earlier directory.
    """
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f'`paths` is {paths!r}. Pass a sequence of directories: `[{str(paths)!r}]`.')
    found = Found()
    scan_directories([path if isinstance(path, SkillDirectory) else SkillDirectory(path) for path in paths], found)
    return merge(found)


def scan_directories(directories: Sequence[SkillDirectory], found: Found) -> None:
    """Look at directories of this machine, and add what is there."""
    roots = real_paths(directories)
    for directory, root in zip(directories, roots, strict=True):
        scan = Scan(root=root, allowed=roots, scope=directory.scope)
        if Path(root).is_dir():
            scan.run()
        elif directory.is_required:
            scan.diagnostics.append(missing(str(directory.path)))
        skills = scan.skills
        if directory.grants is not None:
            skills = [
                replace(skill, grants=directory.grants and is_inside(str(skill.source), root)) for skill in skills
            ]
        found.add(skills, scan.diagnostics, trusted=directory.trusted)


def real_paths(directories: Iterable[SkillDirectory]) -> list[str]:
    """Return where directories really are."""
    return [os.path.realpath(Path(directory.path).expanduser()) for directory in directories]


def find_skill(catalog: SkillCatalog, name: str) -> Skill | None:
    """Return the skill of a name; `None` if there is none."""
    return catalog.skills.get(key_of(name.strip()))


def merge(found: Found) -> SkillCatalog:
    """Return the skills that count, by name, and all diagnostics."""
    by_name: dict[str, Skill] = {}
    diagnostics = list(found.diagnostics)
    for skill in sorted(found.skills, key=lambda skill: (_RANK[skill.scope], skill.name)):
        used = by_name.setdefault(key_of(skill.name), skill)
        if used is not skill:
            diagnostics.append(_shadowed(skill, used))
    return SkillCatalog(skills=by_name, diagnostics=tuple(diagnostics))


def key_of(name: str) -> str:
    """Return the form of a name under which a skill is looked up."""
    return name if name.isascii() else unicodedata.normalize('NFKC', name)


def missing(path: str) -> SkillDiagnostic:
    """Return the diagnostic of a directory that is not there."""
    is_file = Path(path).expanduser().is_file()
    message = (
        'It is a file. Pass the directory that it is in.'
        if is_file
        else 'There is no such directory. Make it, or leave it out of `skills`.'
    )
    return SkillDiagnostic(
        severity='error', path=shown_path(path), line=None, message=message, code='missing-directory'
    )


def _shadowed(skill: Skill, used: Skill) -> SkillDiagnostic:
    by = 'one made in code' if used.source is None else shown_path(used.source)
    message = f'{skill.name!r} is not used: {by} ({used.scope}) has the same name and comes first.'
    return SkillDiagnostic(severity='warning', path=_place(skill), line=None, message=message, code='shadowed')


def _untrusted(skill: Skill) -> SkillDiagnostic:
    message = f'{skill.name!r} is not used: nobody vouches for its directory. Pass `trusted=True` if you do.'
    return SkillDiagnostic(severity='warning', path=_place(skill), line=None, message=message, code='untrusted')


def _place(skill: Skill) -> str:
    return skill.name if skill.source is None else shown_path(skill.source)
