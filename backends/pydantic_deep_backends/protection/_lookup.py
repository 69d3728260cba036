"""Lookup of whether a path of a backend is protected, by its name or because git or a link refers to it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.paths import is_within, path_parts, relative_to
from pydantic_deep_backends.protocol import BackendProtocol

from ._git_config import referenced_paths
from ._patterns import ProtectedPatterns, compile_patterns
from ._types import SupportsProtection


async def is_protected(backend: BackendProtocol, path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path is a protected file, which may not exist yet, or a directory with protected files.

    Args:
        backend: The backend with the file.
        path: The canonical path, as `realpath` returns it.
        patterns: As in `PROTECTED_FILES`.

    Raises:
        OSError: The backend failed.
    """
    rules = compile_patterns(tuple(patterns))
    if rules.is_empty:
        return False
    working_dir = await backend.working_dir()
    top = working_dir if is_within(path, working_dir) else '/'
    parts = path_parts(path if top == '/' else relative_to(path, top))
    look = _ProtectionLookup(backend, rules, top.rstrip('/'))
    return (
        rules.protects(parts)
        or await look.is_in_bare_repository(parts)
        or await look.is_referenced(path, parts)
        or await look.holds_protected(path)
    )


class _ProtectionLookup:
    """Finds protected paths that do not follow from the name of a file.

    Args:
        backend: The backend with the files.
        rules: The patterns of protected files.
        top: The root of the files.
    """

    def __init__(self, backend: BackendProtocol, rules: ProtectedPatterns, top: str) -> None:
        self._backend = backend
        self._rules = rules
        self._top = top

    async def is_in_bare_repository(self, parts: tuple[str, ...]) -> bool:
        """Return whether a parent directory of the file is a git directory by its contents."""
        for length in range(len(parts)):
            if self._rules.protects_in_git_dir(parts[length:]):
                above = self._path(parts[:length])
                if await self._exists(f'{above}/HEAD') and (
                    await self._exists(f'{above}/objects') or await self._exists(f'{above}/commondir')
                ):
                    return True
        return False

    async def is_referenced(self, path: str, parts: tuple[str, ...]) -> bool:
        """Return whether a protected link leads to the file, or a protected git configuration refers to it."""
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
        """Return whether the path is a directory that contains protected files."""
        try:
            if not (await self._backend.stat(path)).is_dir:
                return False
        except (OSError, BackendError):
            return False
        if not isinstance(self._backend, SupportsProtection):
            return False
        files = await self._backend.protected_files()  # of a composite, the paths include the mount point
        return any(is_within(f'{self._top}{file}', path) or is_within(file, path) for file in files)

    async def _referenced(self, top: str) -> list[str]:
        """Return the canonical paths that the git configuration of a directory refers to."""
        try:
            data = await self._backend.read_bytes(f'{top}/.git/config')
        except (OSError, BackendError):
            return []
        targets: list[str] = []
        for kind, value in referenced_paths(data):
            if value.startswith('/'):  # a path of the host, which may not exist in the backend
                continue
            base = top if kind == 'hooks' else f'{top}/.git'
            try:
                targets.append(await self._backend.realpath(posixpath.normpath(f'{base}/{value}')))
            except (OSError, BackendError, ValueError):  # it leads outside or is broken
                continue
        return targets

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
