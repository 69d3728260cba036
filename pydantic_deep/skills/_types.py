"""Types of this capability: skills, their sources, and diagnostics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic_deep._checks import check_choice, check_flags, check_object, check_text

Scope: TypeAlias = Literal['code', 'project', 'user', 'bundled']
"""The origin of a skill. If several skills have the same name, the one whose scope is listed first is used."""

Severity: TypeAlias = Literal['error', 'warning']
"""`error`: the skill or file is unusable. `warning`: it is usable, but violates a rule."""

BUNDLED_SKILLS = Path(__file__).resolve().parent.parent / '_bundled_skills'
"""The directory of the bundled skills: `create_deep_agent(skills=[BUNDLED_SKILLS])`."""


@dataclass(frozen=True)
class Skill:
    """Instructions for one kind of task, which the model loads on demand.

    Skills are created by `discover_skills` or in code: `Skill('greeting', 'Use this skill when you greet.', body='Say
    hello.')`.
    """

    name: str
    """The name, with at most 64 lowercase letters, digits and hyphens."""
    description: str
    """The purpose of the skill and when to use it, at most 1,024 characters. It is part of the catalogue for the model.
    """
    body: str | None = field(default=None, repr=False, kw_only=True)
    """The instructions; `None` until they are loaded."""
    directory: Path | str | None = field(default=None, kw_only=True)
    """The directory of its files: a local one (`Path`), or one in the backend of the run (`str`); `None` for a skill
    without files.
    """
    files: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Its files other than `SKILL.md`, relative to the directory; `None` until they are listed."""
    allowed_tools: tuple[str, ...] = field(default=(), kw_only=True)
    """The tools that the skill requests. Command patterns such as `execute(git status *)` or `Bash(git status:*)` can
    be granted; other entries, such as a plain tool name, grant nothing.
    """
    grants: bool | None = field(default=None, kw_only=True)
    """Who grants these commands when the skill is loaded: `True` the code, `False` nobody, `None` a person, who is
    asked if such commands need approval. A skill created in code, without a `source`, does not need `True`.
    """
    license: str | None = field(default=None, kw_only=True)
    """The name of a licence, or of a file with one."""
    compatibility: str | None = field(default=None, kw_only=True)
    """The requirements of the skill, for people."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str], hash=False, kw_only=True)
    """Further metadata of the author."""
    scope: Scope = field(default='code', kw_only=True)
    """The origin of the skill."""
    source: str | None = field(default=None, kw_only=True)
    """The path of its `SKILL.md`; `None` for a skill created in code."""
    frontmatter_loaded: bool = field(default=True, kw_only=True)
    """Whether the fields above were read. Discovery reads only these: `body` and `files` are `None`."""
    is_hidden: bool = field(default=False, kw_only=True)
    """Whether only a person may load it (`disable-model-invocation: true`). It is not in the catalogue."""


@dataclass(frozen=True, kw_only=True)
class SkillDiagnostic:
    """A problem of a skill or its files."""

    severity: Severity
    """The severity of the problem."""
    path: str
    """The path of the file or directory."""
    line: int | None
    """The line number from 1; `None` if the problem concerns the whole file."""
    message: str
    """The problem, and how to fix it."""
    code: str
    """The kind of problem for programs, such as `no-description`."""

    def __str__(self) -> str:
        """Return one line, in the usual form for editors."""
        place = self.path if self.line is None else f'{self.path}:{self.line}'
        return f'{place}: {self.severity}: {self.message} [{self.code}]'


@dataclass(frozen=True, kw_only=True)
class SkillCatalog:
    """Discovered skills and diagnostics."""

    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    """The skills by name, ordered by scope and then by name."""
    diagnostics: Sequence[SkillDiagnostic] = ()
    """Problems of skills, including those that are skipped or shadowed."""


@dataclass(frozen=True)
class SkillDirectory:
    """A local directory with skills: `DIRECTORY/NAME/SKILL.md`. `~` is the home directory of the user."""

    path: str | os.PathLike[str]
    """The directory. A relative path is resolved against the working directory of the process at discovery."""
    scope: Scope = field(default='project', kw_only=True)
    """The origin of the skills."""
    trusted: bool = field(default=True, kw_only=True)
    """Whether the skills are trusted. Untrusted skills are not loaded, and reported as diagnostics."""
    is_required: bool = field(default=True, kw_only=True)
    """Whether a missing directory is an error."""
    grants: bool | None = field(default=None, kw_only=True)
    """Whether commands that these skills list in `allowed-tools` run without approval once the skill is loaded.

    `True` grants them; `False` never does; with `None`, a person decides when such a skill is loaded, if commands need
    approval. A skill with files that the tools of the run could change grants nothing.
    """

    def __post_init__(self) -> None:
        """Raise for grants of untrusted skills.

        Raises:
            ValueError: `grants` is true and `trusted` is false, one of them is a text or a number, or the path or
                the scope is none.
        """
        check_object('path', self.path, (str, os.PathLike), 'Pass a directory.')
        check_choice('scope', self.scope, get_args(Scope))
        check_flags(trusted=self.trusted, grants=False if self.grants is None else self.grants)
        if self.grants and not self.trusted:
            raise ValueError(
                f'SkillDirectory({str(self.path)!r}, trusted=False, grants=True): untrusted skills are '
                'not loaded, so they cannot have grants. Remove one of the two.'
            )


@dataclass(frozen=True)
class BackendSkills:
    """A directory with skills in the backend of a run: `deps.backend`, or the run's workspace.

    The directory is scanned at the start of each run; if it is missing, the run has no such skills. These skills never
    have grants, as an agent may have written them.
    """

    path: str
    """The directory. A relative path is resolved against the working directory of the backend."""
    trusted: bool = field(default=False, kw_only=True)
    """Whether the skills are trusted. Untrusted skills are not loaded, and reported as diagnostics."""
    scope: Scope = field(default='project', kw_only=True)
    """The origin of the skills."""

    def __post_init__(self) -> None:
        """Validate the path and the flag.

        Raises:
            ValidationError: The path is not a string, the scope is unknown, or `trusted` is not a bool.
        """
        check_text('path', self.path)
        check_choice('scope', self.scope, get_args(Scope))
        check_flags(trusted=self.trusted)


SkillSource: TypeAlias = str | os.PathLike[str] | SkillDirectory | BackendSkills | Skill
"""A source of skills. A plain path is a local directory that the developer trusts."""
