"""The nouns of the room: a skill, where skills are, and what was found wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Scope: TypeAlias = Literal['code', 'project', 'user', 'bundled']
"""Who a skill is from. Of two skills of one name the one whose scope stands first here is used."""

Severity: TypeAlias = Literal['error', 'warning']
"""`error`: it cannot be used as it is. `warning`: it could, though it is not as it should be."""

BUNDLED_SKILLS = Path(__file__).resolve().parent.parent / '_bundled_skills'
"""The directory of the skills that come with the framework: `create_deep_agent(skills=[BUNDLED_SKILLS])`."""


@dataclass(frozen=True)
class Skill:
    """Instructions for one kind of task, which the model loads when it has such a task.

    Made by `discover_skills`, or in code: `Skill('greeting', 'Use this skill when you greet.', body='Say hello.')`.
    """

    name: str
    """How it is asked for: at most 64 lowercase letters, digits and hyphens."""
    description: str
    """What it does and when to use it, at most 1,024 characters; the model sees it in the catalogue."""
    body: str | None = field(default=None, repr=False, kw_only=True)
    """The instructions; `None` until they are loaded."""
    directory: Path | str | None = field(default=None, kw_only=True)
    """Where its files are: a directory of this machine (`Path`), or one of the run's backend (`str`); `None` for
    a skill that has no files."""
    files: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Its files other than `SKILL.md`, relative to the directory; `None` until they are listed."""
    allowed_tools: tuple[str, ...] = field(default=(), kw_only=True)
    """What the skill asks to be allowed. Commands by pattern, such as `execute(git status *)` or `Bash(git status:*)`, can
    be granted; anything else, a tool by its name included, grants nothing."""
    grants: bool | None = field(default=None, kw_only=True)
    """Who grants these commands when the skill is loaded: `True` code, `False` nobody, `None` a person, who is asked
    where such commands wait. A skill made in code, without a `source`, needs no `True`."""
    license: str | None = field(default=None, kw_only=True)
    """The name of a licence, or of a file with one."""
    compatibility: str | None = field(default=None, kw_only=True)
    """What the skill needs, for people."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str], hash=False, kw_only=True)
    """Whatever else its author says of it."""
    scope: Scope = field(default='code', kw_only=True)
    """Who it is from."""
    source: str | None = field(default=None, kw_only=True)
    """The path of its `SKILL.md`; `None` for a skill made in code."""
    frontmatter_loaded: bool = field(default=True, kw_only=True)
    """Whether the fields above were read. Discovery reads them and nothing else: `body` and `files` are `None`."""
    is_hidden: bool = field(default=False, kw_only=True)
    """Whether only a person may load it (`disable-model-invocation: true`): it is not in the catalogue."""


@dataclass(frozen=True, kw_only=True)
class SkillDiagnostic:
    """One thing that is not as it should be."""

    severity: Severity
    """How bad it is."""
    path: str
    """The file or directory."""
    line: int | None
    """The line in the file, from 1; `None` if it is about no line."""
    message: str
    """What is so, and what to do."""
    code: str
    """The kind, such as `no-description`, for programs."""

    def __str__(self) -> str:
        """Return one line, in the form that editors know."""
        place = self.path if self.line is None else f'{self.path}:{self.line}'
        return f'{place}: {self.severity}: {self.message} [{self.code}]'


@dataclass(frozen=True, kw_only=True)
class SkillCatalog:
    """The skills that were found, and what was found wrong."""

    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    """The skills by name, in order of scope and then of name."""
    diagnostics: Sequence[SkillDiagnostic] = ()
    """Everything that was skipped, shadowed, or used although it is not as it should be."""


@dataclass(frozen=True)
class SkillDirectory:
    """A directory of this machine with skills in it: `DIRECTORY/NAME/SKILL.md`. `~` is the home of the user."""

    path: str | os.PathLike[str]
    """The directory. A relative one is relative to the working directory of the process when it is looked at."""
    scope: Scope = field(default='project', kw_only=True)
    """Whom the skills are from."""
    trusted: bool = field(default=True, kw_only=True)
    """Whether somebody vouches for them. Those that nobody vouches for are diagnostics, and are not loaded."""
    is_required: bool = field(default=True, kw_only=True)
    """Whether it is an error if there is no such directory."""
    grants: bool | None = field(default=None, kw_only=True)
    """Whether commands that `allowed-tools` of these skills name by pattern run without asking once the skill is loaded.

    `True` grants them; `False` never does; `None` asks a person when such a skill is loaded, where commands wait for
    one. A skill whose files the tools of the run could change grants nothing.
    """

    def __post_init__(self) -> None:
        """Refuse grants of skills that are not loaded.

        Raises:
            ValueError: `grants` is true and `trusted` is not.
        """
        if self.grants and not self.trusted:
            raise ValueError(
                f'SkillDirectory({str(self.path)!r}, trusted=False, grants=True): skills that nobody vouches for are '
                'not loaded, so they grant nothing. Leave out one of the two.'
            )


@dataclass(frozen=True)
class BackendSkills:
    """A directory of the run's backend with skills in it: that of `deps.backend`, else the run's workspace.

    They are looked at anew at the start of each run, and never allow a tool beforehand, because what is in a backend
    an agent may have written. If there is no such directory, that run has no such skills.
    """

    path: str
    """The directory; a relative one is relative to the working directory of the backend."""
    trusted: bool = field(default=False, kw_only=True)
    """Whether somebody vouches for them. Those that nobody vouches for are diagnostics, and are not loaded."""
    scope: Scope = field(default='project', kw_only=True)
    """Whom the skills are from."""


SkillSource: TypeAlias = str | os.PathLike[str] | SkillDirectory | BackendSkills | Skill
"""Where skills come from. A plain path is a directory of this machine that the developer vouches for."""
