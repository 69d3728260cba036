"""The default patterns, the protocol of backends that protect files, and changes of protected files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, cast, runtime_checkable

from pydantic_deep_backends._checks import check_names

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
    'CLAUDE.md',
    '.mcp.json',
    'pydantic-deep.toml',
    '.agents/skills/',
)
"""The default patterns.

A pattern matches at any depth; one that begins with `/` matches only from the root of the files. A trailing `/` means a
directory with everything in it. `*` and `?` match characters of one name. `$GIT_DIR` is any git directory: one named
`.git`, a bare repository, and those of submodules and work trees. Case is ignored, as on file systems of macOS.

If a protected path is a symbolic link, its target is protected too. So are the directory of `core.hooksPath` and files
that a protected git configuration includes.
"""


@dataclass(frozen=True, kw_only=True)
class ProtectedChange:
    """A change of a protected file."""

    path: str
    """Its path in trees, which starts at the root of the files, wherever that is mounted."""
    change: Literal['added', 'changed', 'removed']
    """The kind of the change."""


@runtime_checkable
class SupportsProtection(Protocol):
    """A backend that reports its protected files."""

    @property
    def protected(self) -> Sequence[str]:
        """The patterns of protected files, as in `PROTECTED_FILES`."""
        ...

    async def protected_files(self) -> Mapping[str, str]:
        """Return the state of each existing protected file, by its path in trees.

        Two states are equal if the contents, the execute permission and, for a link, the target are equal. An
        unreadable file has a state too.

        Raises:
            BackendUnavailableError: The files are gone.
        """
        ...


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return validated patterns as a tuple.

    Raises:
        TypeError: The patterns are a single string, or no list of strings.
        ValueError: A pattern is invalid.
    """
    check_names('protected', patterns)
    checked = tuple(patterns)
    compile_patterns(checked)
    return checked


def compare_protected(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ProtectedChange, ...]:
    """Return the changes of protected files, sorted by path.

    Args:
        before: The result of an earlier `protected_files`.
        after: The result of a later `protected_files`.
    """
    return tuple(
        ProtectedChange(
            path=path, change='added' if path not in before else 'removed' if path not in after else 'changed'
        )
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def protected_patterns_of(backend: object) -> tuple[str, ...]:
    """Return the patterns of any backend; `PROTECTED_FILES` if it has none of its own."""
    patterns: object = getattr(backend, 'protected', None)
    return check_patterns(cast('Sequence[str]', patterns)) if isinstance(patterns, (list, tuple)) else PROTECTED_FILES
