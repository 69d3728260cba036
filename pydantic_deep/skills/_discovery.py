"""Discover skills in all sources, and resolve duplicate names by precedence."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from ._rules import diagnostic, shown_path
from ._scan import Findings, Scan, is_inside
from ._types import Scope, Skill, SkillCatalog, SkillDiagnostic, SkillDirectory

_RANK: dict[Scope, int] = {scope: rank for rank, scope in enumerate(get_args(Scope))}


@dataclass(kw_only=True)
class DiscoveredSkills(Findings):
    """The skills and diagnostics of all sources, in order."""

    def add(self, skills: Iterable[Skill], diagnostics: Iterable[SkillDiagnostic], *, trusted: bool) -> None:
        """Add the skills of a source. Skills of an untrusted source become diagnostics instead."""
        self.diagnostics += diagnostics
        if trusted:
            self.skills += skills
        else:
            self.diagnostics += [_untrusted(skill) for skill in skills]


def discover_skills(paths: Sequence[str | os.PathLike[str] | SkillDirectory]) -> SkillCatalog:
    """Return the skills in directories. Only the frontmatter is read; `body` and `files` are `None`.

    This function does blocking I/O: in async code, call it in a thread. Results are cached by path, size and times.
    Problems in the directories are reported in `diagnostics` and never raise.

    Args:
        paths: Directories with skills in folders, or skill folders. If several skills have the same name, the order of
            precedence is by scope (project, user, bundled), then by the order of directories.
    """
    if isinstance(paths, (str, os.PathLike)) or not isinstance(cast('object', paths), Collection):
        raise TypeError(f'`paths` is {paths!r}. Pass a sequence of directories: `[{str(paths)!r}]`.')
    discovered = DiscoveredSkills()
    scan_directories([path if isinstance(path, SkillDirectory) else SkillDirectory(path) for path in paths], discovered)
    return merge(discovered)


def scan_directories(directories: Sequence[SkillDirectory], discovered: DiscoveredSkills) -> None:
    """Scan local directories, and add their skills."""
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
        discovered.add(skills, scan.diagnostics, trusted=directory.trusted)


def real_paths(directories: Iterable[SkillDirectory]) -> list[str]:
    """Return the real paths of directories."""
    return [os.path.realpath(Path(directory.path).expanduser()) for directory in directories]


def find_skill(catalog: SkillCatalog, name: str) -> Skill | None:
    """Return the skill with a name; `None` if there is none."""
    return catalog.skills.get(key_of(name.strip()))


def merge(discovered: DiscoveredSkills) -> SkillCatalog:
    """Return the skills by name, resolving duplicates, with all diagnostics."""
    by_name: dict[str, Skill] = {}
    diagnostics = list(discovered.diagnostics)
    for skill in sorted(discovered.skills, key=lambda skill: (_RANK[skill.scope], skill.name)):
        used = by_name.setdefault(key_of(skill.name), skill)
        if used is not skill and (skill.source is None or skill.source != used.source):  # not a link to the same file
            diagnostics.append(_shadowed(skill, used))
    return SkillCatalog(skills=by_name, diagnostics=tuple(diagnostics))


def key_of(name: str) -> str:
    """Return the normalized form of a name, which is the key of a skill."""
    return name if name.isascii() else unicodedata.normalize('NFKC', name)


def missing(path: str) -> SkillDiagnostic:
    """Return the diagnostic for a missing directory."""
    is_file = Path(path).expanduser().is_file()
    message = (
        'It is a file. Pass its directory.'
        if is_file
        else 'The directory does not exist. Create it, or remove it from `skills`.'
    )
    return diagnostic('error', 'missing-directory', path, message)


def _shadowed(skill: Skill, used: Skill) -> SkillDiagnostic:
    by = 'one created in code' if used.source is None else shown_path(used.source)
    message = f'{skill.name!r} is not used: {by} ({used.scope}) has the same name and comes first.'
    return SkillDiagnostic(severity='warning', path=_place(skill), line=None, message=message, code='shadowed')


def _untrusted(skill: Skill) -> SkillDiagnostic:
    message = f'{skill.name!r} is not used: its directory is not trusted. Pass `trusted=True` if you trust it.'
    return SkillDiagnostic(severity='warning', path=_place(skill), line=None, message=message, code='untrusted')


def _place(skill: Skill) -> str:
    return skill.name if skill.source is None else shown_path(skill.source)
