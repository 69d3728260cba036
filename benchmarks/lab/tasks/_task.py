"""`Task`, and the verifiers that several tasks share.

Verifiers are pure: they compare texts by path. `Task.write` and `Task.check` read and write the directory of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

Files: TypeAlias = Mapping[str, str]
"""Texts by relative path."""

Changes: TypeAlias = Mapping[str, str | None]
"""Texts by relative path; `None` for a deleted file."""

Verifier: TypeAlias = Callable[[Files, Files], str | None]
"""Compares the files at the end with those at the start. Returns the mistake, or `None`."""

REQUEST_LIMIT = 8
"""Number of requests in which a capable model solves a task, with some to spare."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of the lab."""

    id: str
    prompt: str
    verify: Verifier
    right: Changes
    """Changes that solve it, for the test of its verifier."""
    wrong: tuple[Changes, ...]
    """Plausible changes that do not solve it, for the same test. Changing nothing never solves a task."""
    files: Files
    """The files at the start. Those at `skills/NAME/SKILL.md` are skills, which each contestant offers in its way."""
    denied: tuple[str, ...] = ()
    """A person denies calls whose arguments contain one of these texts, and approves others. Without any, no call needs
    an approval.
    """
    request_limit: int = REQUEST_LIMIT
    """Maximum number of requests, subagents included."""

    @property
    def group(self) -> str:
        """The part of the id before the slash."""
        return self.id.partition('/')[0]

    @property
    def has_skills(self) -> bool:
        """Whether skills are among the files."""
        return any(PurePosixPath(path).match('skills/*/SKILL.md') for path in self.files)

    def write(self, directory: Path) -> None:
        """Write the files at the start into an empty directory."""
        for path, text in self.files.items():
            place = directory / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def check(self, directory: Path) -> str | None:
        """Return the mistake in the files at the end, or `None`."""
        paths = [path for path in directory.rglob('*') if path.is_file()]
        texts = {str(path.relative_to(directory)): path.read_text(errors='replace') for path in paths}
        return self.verify(texts, self.files)


def apply_changes(files: Files, changes: Changes) -> dict[str, str]:
    """Return the files after these changes."""
    return {path: text for path, text in {**files, **changes}.items() if text is not None}


def becomes(changes: Changes) -> Verifier:
    """Return a verifier that wants exactly these changes of the files at the start.

    Further new files are allowed, as some agents take notes. White space at the end of a file does not matter.
    """

    def verify(after: Files, before: Files) -> str | None:
        for path in {**before, **changes}:
            wanted, found = changes.get(path, before.get(path)), after.get(path)
            if (wanted or '').rstrip() != (found or '').rstrip() or (wanted is None) != (found is None):
                return f'{path} is {found!r}, not {wanted!r}'
        return None

    return verify


def all_hold(*verifiers: Verifier) -> Verifier:
    """Return a verifier that wants what each of these wants."""

    def verify(after: Files, before: Files) -> str | None:
        return next((problem for each in verifiers if (problem := each(after, before)) is not None), None)

    return verify
