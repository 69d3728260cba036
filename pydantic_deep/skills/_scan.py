"""Scan one local directory for skills.

Only regular files are opened, and only their first bytes are read unless the frontmatter is longer or not UTF-8. Parsed
files are cached in the process by path, size and times; the results are immutable and not specific to a user.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from ._document import HEAD_BYTES, MAX_DOCUMENT_BYTES, DocumentError, find_header, parse_document
from ._rules import Report, diagnostic, parse_frontmatter
from ._types import Scope, Severity, Skill, SkillDiagnostic

FILE_NAME = 'SKILL.md'

MAX_DEPTH = 4
"""Maximum depth of a skill below a root. Some people organize skills in categories."""

MAX_DIRECTORIES = 20_000
"""Maximum number of folders to scan in one root: four times the largest known collection."""

MAX_KEPT = 16_384
"""Maximum number of parsed files to cache. A cache smaller than one scan would always be evicted before its reuse."""

_NEVER_ENTERED = frozenset({'node_modules', '__pycache__'})

_FLAGS: int = (
    os.O_RDONLY | os.O_BINARY if sys.platform == 'win32' else os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
)
"""Opens a file to read its bytes. Windows has no files that make a reader wait."""


@dataclass(frozen=True)
class Parsed:
    """The result of parsing one `SKILL.md`."""

    skill: Skill | None
    diagnostics: tuple[SkillDiagnostic, ...]


@dataclass(kw_only=True)
class Findings:
    """The skills and diagnostics of a source, in the order of folder names."""

    skills: list[Skill] = field(default_factory=list[Skill])
    diagnostics: list[SkillDiagnostic] = field(default_factory=list[SkillDiagnostic])

    def add_parsed(self, parsed: Parsed) -> None:
        """Add a parsed file."""
        self.diagnostics += parsed.diagnostics
        if parsed.skill is not None:
            self.skills.append(parsed.skill)

    def note(self, severity: Severity, code: str, path: str, message: str) -> None:
        """Add a diagnostic of a whole file or directory."""
        self.diagnostics.append(diagnostic(severity, code, path, message))


@dataclass(kw_only=True)
class Scan(Findings):
    """The scan of one directory."""

    root: str
    """The real path of the directory."""
    allowed: Sequence[str]
    """The real paths that links may point into."""
    scope: Scope
    _left: int = field(default_factory=lambda: MAX_DIRECTORIES)

    def run(self) -> None:
        """Scan the directory and its subdirectories."""
        if not self._look_at(self.root, Path(self.root).name):
            self._enter(self.root, 1)

    def _enter(self, directory: str, depth: int) -> None:
        """Scan the folders of a directory."""
        for entry in self._entries(directory):
            if entry.name.casefold() == 'skill.md' and entry.name != FILE_NAME:
                self.note('error', 'misnamed', entry.path, f'Name it {FILE_NAME}, in exactly these letters.')
            elif self._is_directory(entry):
                self._left -= 1
                if self._left < 0:
                    self._stop(directory)
                    return
                self._visit(entry, depth)

    def _stop(self, directory: str) -> None:
        if self._left == -1:
            message = f'There are more than {MAX_DIRECTORIES:,} folders. The rest was not scanned.'
            self.note('error', 'too-many', directory, message)

    def _visit(self, entry: os.DirEntry[str], depth: int) -> None:
        """Scan one folder, and its subfolders if it is not a skill."""
        if entry.is_symlink():
            self._visit_link(entry)
            return
        is_skill = self._look_at(entry.path, entry.name)
        if is_skill or entry.name.startswith('.') or entry.name in _NEVER_ENTERED:
            return
        before = len(self.skills) + len(self.diagnostics)
        if depth < MAX_DEPTH:
            self._enter(entry.path, depth + 1)
        if depth == 1 and before == len(self.skills) + len(self.diagnostics):
            self.note('warning', 'no-skill-file', entry.path, f'There is no {FILE_NAME} in this folder.')

    def _visit_link(self, entry: os.DirEntry[str]) -> None:
        """Scan the target of a link if it is allowed, without its subfolders."""
        target = os.path.realpath(entry.path)
        if not self._is_inside(target) or any(is_inside(root, target) for root in self.allowed):
            self.note('error', 'link-outside', entry.path, 'The link target is outside of the skills directories.')
        elif not self._look_at(target, entry.name):
            self.note('warning', 'no-skill-file', entry.path, f'There is no {FILE_NAME} at the link target.')

    def _look_at(self, directory: str, name: str) -> bool:
        """Read the `SKILL.md` of a folder, and return whether it exists."""
        path = f'{directory}/{FILE_NAME}'
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                path = os.path.realpath(path)
                if not self._is_inside(path):
                    message = 'The link target is outside of the skills directories.'
                    self.note('error', 'link-outside', f'{directory}/{FILE_NAME}', message)
                    return True
                status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                self.note('error', 'not-a-file', path, 'It is not a regular file, and was not opened.')
                return True
            parsed = parse_file(
                path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, directory, name, self.scope
            )
        except FileNotFoundError:
            if not os.path.lexists(f'{directory}/{FILE_NAME}'):
                return False
            self.note('error', 'unreadable', f'{directory}/{FILE_NAME}', 'The link target does not exist.')
            return True
        except OSError as error:
            self.note('error', 'unreadable', path, f'It cannot be read: {error.strerror}.')
            return True
        self.add_parsed(parsed)
        return True

    def _entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                yield from sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.note('error', 'unreadable', directory, f'The directory cannot be read: {error.strerror}.')

    def _is_directory(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir()
        except OSError as error:  # a cycle of links
            self.note('error', 'unreadable', entry.path, f'It cannot be read: {error.strerror}.')
            return False

    def _is_inside(self, path: str) -> bool:
        return any(is_inside(path, root) for root in self.allowed)


def is_inside(path: str, directory: str) -> bool:
    """Return whether a real path is a directory or below it."""
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


@lru_cache(maxsize=MAX_KEPT)
def parse_file(path: str, size: int, mtime_ns: int, ctime_ns: int, directory: str, name: str, scope: Scope) -> Parsed:
    """Return the parsed `SKILL.md`, cached by path, size and times.

    Args:
        path: The real path of the file.
        size: The size in bytes.
        mtime_ns: The time of the last change of its contents.
        ctime_ns: The time of the last change of its metadata.
        directory: The folder of the skill.
        name: The name of the folder in the scanned directory.
        scope: The scope of the skill.

    Raises:
        OSError: The file cannot be read.
    """
    report = Report(path=path)
    skill = None
    if size > MAX_DOCUMENT_BYTES:
        message = f'It has {size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are read. Move details to separate files.'
        report.add('error', 'too-large', None, message)
    else:
        skill = _parse(path, name, report)
    if skill is not None:
        skill = replace(skill, directory=Path(directory), source=path, scope=scope)
    return Parsed(skill, tuple(report.diagnostics))


def _parse(path: str, name: str, report: Report) -> Skill | None:
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            report.add('error', 'not-a-file', None, 'It is not a regular file, and was not read.')
            return None
        head = os.read(descriptor, HEAD_BYTES)
        header = find_header(head)
        if header is not None:
            return parse_frontmatter(header, 2, name, report)
        return parse_whole(head + _read_on(descriptor), name, report)
    finally:
        os.close(descriptor)


def parse_whole(data: bytes, name: str, report: Report) -> Skill | None:
    """Return the skill that a complete `SKILL.md` describes; `None` if it is unusable."""
    try:
        document = parse_document(data)
    except DocumentError as error:
        report.add('error', error.code, error.line, str(error))
        return None
    if document.first_line > 2:
        report.add('warning', 'frontmatter-late', 1, 'There are lines before the frontmatter. Begin the file with it.')
    return parse_frontmatter(document.header, document.first_line, name, report)


def _read_on(descriptor: int) -> bytes:
    """Return the rest of a file, up to the size limit even if the file grows."""
    chunks: list[bytes] = []
    left = MAX_DOCUMENT_BYTES
    while left > 0 and (chunk := os.read(descriptor, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b''.join(chunks)
