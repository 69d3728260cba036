"""Files that programs of the host run or obey: which they are, which of them a directory has, and what changed in them.

An agent that may write in a directory must not decide what programs outside of it do there: `git status` runs what
`core.fsmonitor` of `.git/config` names, `direnv` runs `.envrc`, editors and agents obey their own settings. Such files
are *protected*. This module names them; who enforces it is elsewhere:

- a `SandboxBackend` shows them to commands read-only,
- the tools of an agent ask a person before they write one,
- versions say which of them a turn changed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, cast, runtime_checkable

from ._git_config import referenced_paths
from ._protected_patterns import ProtectedPatterns, compiled, is_git_name
from .errors import BackendError
from .paths import is_within, path_parts, relative_to
from .protocol import BackendProtocol

__all__ = (
    'PROTECTED_FILES',
    'ProtectedChange',
    'SupportsProtection',
    'check_patterns',
    'compare_protected',
    'is_git_name',
    'is_protected',
    'protected_patterns_of',
)

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
    compiled(checked)
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


async def is_protected(backend: BackendProtocol, path: str, patterns: Sequence[str]) -> bool:
    """Return whether a file, which need not exist, is protected, or is a directory that holds protected files.

    Args:
        backend: Whose file it is.
        path: Its canonical path, as `realpath` returns it.
        patterns: As in `PROTECTED_FILES`.

    Raises:
        OSError: It cannot be told.
    """
    rules = compiled(tuple(patterns))
    if rules.is_empty:
        return False
    working_dir = await backend.working_dir()
    top = working_dir if is_within(path, working_dir) else '/'
    parts = path_parts(path if top == '/' else relative_to(path, top))
    look = _Look(backend, rules, top.rstrip('/'))
    return (
        rules.protects(parts)
        or await look.is_in_bare_repository(parts)
        or await look.is_meant_by_another(path, parts)
        or await look.holds_protected(path)
    )


class _Look:
    """Finds out what the name of a file does not tell.

    Args:
        backend: Whose files these are.
        rules: What is protected.
        top: The root of the files.
    """

    def __init__(self, backend: BackendProtocol, rules: ProtectedPatterns, top: str) -> None:
        self._backend = backend
        self._rules = rules
        self._top = top

    async def is_in_bare_repository(self, parts: tuple[str, ...]) -> bool:
        """Return whether a directory above the file is one of git's own by what is in it."""
        for length in range(len(parts)):
            if self._rules.protects_in_git_dir(parts[length:]):
                above = self._path(parts[:length])
                if await self._exists(f'{above}/HEAD') and (
                    await self._exists(f'{above}/objects') or await self._exists(f'{above}/commondir')
                ):
                    return True
        return False

    async def is_meant_by_another(self, path: str, parts: tuple[str, ...]) -> bool:
        """Return whether a protected link leads to the file, or a protected configuration of git names it."""
        for name in self._rules.literals:
            link = f'{self._top}/{name}'
            if await self._leads_to(link, path):
                return True
        if self._rules.has_git:
            for length in range(len(parts)):
                top = self._path(parts[:length])
                for target in await self._referenced(top):
                    if is_within(path, target) and not is_within(f'{top}/.git', target):
                        return True
        return False

    async def holds_protected(self, path: str) -> bool:
        """Return whether the path is a directory with protected files in it."""
        try:
            if not (await self._backend.stat(path)).is_dir:
                return False
        except (OSError, BackendError):
            return False
        if not isinstance(self._backend, SupportsProtection):
            return False
        files = await self._backend.protected_files()  # of a composite, with the place where its directory appears
        return any(is_within(f'{self._top}{file}', path) or is_within(file, path) for file in files)

    async def _referenced(self, top: str) -> list[str]:
        """Return the canonical paths that the configuration of git in a directory names."""
        try:
            data = await self._backend.read_bytes(f'{top}/.git/config')
        except (OSError, BackendError):
            return []
        found: list[str] = []
        for kind, value in referenced_paths(data):
            if value.startswith('/'):  # a path of the host, which need not be one of the backend
                continue
            base = top if kind == 'hooks' else f'{top}/.git'
            try:
                found.append(await self._backend.realpath(posixpath.normpath(f'{base}/{value}')))
            except (OSError, BackendError, ValueError):  # it leads outside, or nowhere
                continue
        return found

    async def _leads_to(self, link: str, path: str) -> bool:
        try:
            target = await self._backend.realpath(link)
        except (OSError, BackendError):
            return False
        return target != link and is_within(path, target)

    async def _exists(self, path: str) -> bool:
        try:
            return await self._backend.exists(path)
        except (OSError, BackendError):
            return False

    def _path(self, parts: tuple[str, ...]) -> str:
        return self._top + ''.join(f'/{part}' for part in parts)
