"""Find skills in the backend of a run, at the start of each run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.paths import is_within, resolve_path
from pydantic_deep_backends.protocol import FileEntryLike

from ._document import MAX_DOCUMENT_BYTES
from ._files import BACKEND_FAILURES
from ._rules import Report
from ._scan import FILE_NAME, Findings, Parsed, parse_whole
from ._types import BackendSkills, Scope

MAX_SKILLS = 500
"""Maximum number of folders to scan in a backend. Each is read at the start of every run."""

MAX_KEPT = 2_048
"""Maximum number of parsed files to cache by their contents."""


@dataclass(kw_only=True)
class BackendScan(Findings):
    """The scan of one directory in a backend."""

    backend: BackendProtocol
    source: BackendSkills
    real_root: str = ''
    """The canonical path of the directory."""

    async def run(self) -> None:
        """Scan the folders of the directory, sorted by name. Errors of the backend become diagnostics."""
        try:
            path = resolve_path(self.source.path, await self.backend.working_dir())
            self.real_root = path
            self.real_root = await self.backend.realpath(path)
            entries = await self.backend.list_dir(path)
        except FileNotFoundError:
            return  # not every user has skills
        except BACKEND_FAILURES as error:
            self.note('error', 'unreadable', self.source.path, f'The directory cannot be read: {_reason(error)}.')
            return
        folders = [entry for entry in entries if entry.is_dir]
        for folder in folders[:MAX_SKILLS]:
            await self._look_at(folder, f'{path.rstrip("/")}/{folder.name}')
        if len(folders) > MAX_SKILLS:
            message = f'There are {len(folders):,} folders; only {MAX_SKILLS:,} are scanned.'
            self.note('error', 'too-many', path, message)

    async def _look_at(self, folder: FileEntryLike, directory: str) -> None:
        path = f'{directory}/{FILE_NAME}'
        try:
            real = await self.backend.realpath(path)
            if not is_within(real, self.real_root):
                self.note('error', 'link-outside', path, 'The link target is outside of the skills directory.')
                return
            entry = await self.backend.stat(path)
            if entry.is_dir:
                self.note('error', 'not-a-file', path, 'It is not a regular file, and was not opened.')
                return
            if entry.size is not None and entry.size > MAX_DOCUMENT_BYTES:
                message = f'It has {entry.size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read.'
                self.note('error', 'too-large', path, message)
                return
            data = await self.backend.read_bytes(path)
        except FileNotFoundError:
            self.note('warning', 'no-skill-file', directory, f'There is no {FILE_NAME} in this folder.')
            return
        except BACKEND_FAILURES as error:
            self.note('error', 'unreadable', path, f'It cannot be read: {_reason(error)}.')
            return
        self.add_parsed(parse_contents(data, path, directory, folder.name, self.source.scope))


@lru_cache(maxsize=MAX_KEPT)
def parse_contents(data: bytes, path: str, directory: str, name: str, scope: Scope) -> Parsed:
    report = Report(path=path)
    skill = parse_whole(data, name, report)
    if skill is not None:
        skill = replace(skill, directory=directory, source=path, scope=scope)
    return Parsed(skill, tuple(report.diagnostics))


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__
