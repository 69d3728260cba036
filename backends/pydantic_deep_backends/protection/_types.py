"""The default patterns, the protocol of backends that protect files, and changes of protected files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, cast, runtime_checkable

from ._patterns import compile_patterns

PROTECTED_FILES: Final[tuple[str, ...]] = (
    '.git',
    '$GIT_DIR/config',
    '$GIT_DIR/config.worktree',
    '$GIT_DIR/commondir',
    '$GIT_DIR/gitdir',
    '$GIT_DIR/hooks/',
    '$GIT_DIR/info/',
    '.gitattributes',
    '.envrc',
    '.vscode/',
    '.idea/',
    '.husky/',
    '.pre-commit-config.yaml',
    'AGENTS.md',
    '.agents/skills/',
)
"""The patterns that protect by default.

A pattern is matched at any depth, one that begins with `/` only from the root of the files. It ends in `/` if it means
a directory with all that is in it. `*` and `?` stand for characters of one name. `$GIT_DIR` is any directory of git's
own: one that is called `.git`, a bare repository, and those of submodules and work trees. Upper and lower case are
equal, as they are for a file system of macOS.

Where a protected path is a symbolic link, the file that it leads to is protected too, as are the directory of
`core.hooksPath` and files that a protected configuration of git includes.
"""


@dataclass(frozen=True, kw_only=True)
class ProtectedChange:
    """A protected file that is not what it was."""

    path: str
    """Its path in trees: it begins at the root of the files, wherever that appears."""
    change: Literal['added', 'changed', 'removed']
    """What became of it."""


@runtime_checkable
class SupportsProtection(Protocol):
    """A backend that knows which files are protected."""

    @property
    def protected(self) -> Sequence[str]:
        """The patterns, as in `PROTECTED_FILES`."""
        ...

    async def protected_files(self) -> Mapping[str, str]:
        """Return the state of each protected file that there is, by its path in trees.

        Two states are equal if the file has the same contents, the same right to be executed, and is not a link to
        somewhere else. What cannot be read has a state too.

        Raises:
            BackendUnavailableError: The files are gone.
        """
        ...


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns as a backend keeps them.

    Raises:
        TypeError: They are one string.
        ValueError: One of them is none.
    """
    if isinstance(patterns, str):
        raise TypeError(f'`protected` is the string {patterns!r}. Pass a list: `[{patterns!r}]`.')
    checked = tuple(patterns)
    compile_patterns(checked)
    return checked


def compare_protected(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ProtectedChange, ...]:
    """Return how protected files differ, sorted by path.

    Args:
        before: What `protected_files` returned earlier.
        after: What it returned later.
    """
    return tuple(
        ProtectedChange(
            path=path, change='added' if path not in before else 'removed' if path not in after else 'changed'
        )
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def protected_patterns_of(backend: object) -> tuple[str, ...]:
    """Return the patterns of a backend; `PROTECTED_FILES` if it has none of its own, whatever backend it is."""
    patterns: object = getattr(backend, 'protected', None)
    return check_patterns(cast('Sequence[str]', patterns)) if isinstance(patterns, (list, tuple)) else PROTECTED_FILES
