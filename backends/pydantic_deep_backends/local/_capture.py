"""Captures: each derives the tree of a directory from the last one, by a scan of the touched paths or of all files.

A capture reads a file only if it changed since its last reading (`_index`). It returns contents that the caller does not
have together with their digests, so that the two always match. Nothing here follows a link.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field

from pydantic_deep_backends._scan_budget import ScanBudget
from pydantic_deep_backends.files._confined_root import Components, HardLinkError, OpenRoot
from pydantic_deep_backends.files._directories import Directories
from pydantic_deep_backends.files._mount_point import path_from
from pydantic_deep_backends.files._operations import (
    is_temporary,
    list_entries,
    open_file,
    read_chunks,
)
from pydantic_deep_backends.paths import display_path, path_parts
from pydantic_deep_backends.tracking import (
    IGNORE_FILE,
    MAX_WHOLE_BYTES,
    STREAMED_BYTES,
    DirectoryRules,
    OmittedFile,
    names_in_use,
)
from pydantic_deep_backends.trees._nodes import FileVersion, digest_of
from pydantic_deep_backends.trees._tree import Tree

from ._file_streams import hash_file
from ._index import EXECUTABLE_MODE, GONE, Reading, is_representable, signature_of

MAX_ATTEMPTS = 4
"""Maximum number of attempts to read a file that changes while it is read. The last attempt counts: its contents did
exist, and the next full scan reads the file again."""


@dataclass(kw_only=True)
class CaptureCache:
    """State that is passed from one capture to the next."""

    readings: dict[str, Reading] = field(default_factory=dict[str, Reading])
    """The last reading of each file."""
    omitted: dict[str, OmittedFile] = field(default_factory=dict[str, OmittedFile])
    """Omitted files, by their real path."""
    rules: dict[Components, DirectoryRules] = field(default_factory=dict[Components, DirectoryRules])
    """The rules of scanned directories."""
    clock: Callable[[], int] = time.time_ns
    """The current time in nanoseconds since 1970, on the clock of the file system."""


class DirectoryCapture:
    """One capture of the files of a directory.

    Args:
        root: The files.
        before: A tree for which the caller has all contents.
        rules: The ignore rules of the root.
        max_file_bytes: Larger files are omitted.
        memory: The cache of earlier captures, which this one updates.
        checkpoint: Called before each directory; may raise to end the capture.
        budget: Limits of entries and time; beyond them the capture raises `ScanLimitError`.
    """

    def __init__(
        self,
        root: OpenRoot,
        before: Tree,
        rules: DirectoryRules,
        *,
        max_file_bytes: int,
        memory: CaptureCache,
        checkpoint: Callable[[], None],
        budget: ScanBudget,
    ) -> None:
        self.blobs: dict[str, bytes] = {}
        """Contents that the caller does not have."""
        self.streamed: dict[str, str] = {}
        """The path of a file with large contents that the caller does not have, by their digest."""
        self.in_use: list[str] = []
        """The paths of databases that programs have open, and of the files and directories that belong to them."""
        self._root = root
        self._before = before
        self._rules = rules
        self._max_file_bytes = max_file_bytes
        self._max_whole_bytes = max_file_bytes if max_file_bytes <= MAX_WHOLE_BYTES else STREAMED_BYTES
        self._memory = memory
        self._checkpoint = checkpoint
        self._budget = budget

    def capture_all(self) -> Tree:
        """Return the tree of all files."""
        self._memory.omitted.clear()
        self._memory.rules.clear()
        with closing(Directories(self._root)) as directories:
            files = self._scan(directories, (), self._rules)
        for path in list(self._memory.readings):
            if path not in files:
                self._memory.readings.pop(path, None)
        return _joined(self._before, files)

    def capture_paths(self, paths: Iterable[str]) -> Tree:
        """Return the previous tree, with the current files at these paths."""
        tree = self._before
        touched = sorted({_scope(path) for path in paths})
        if any(self._is_wide(path) for path in touched):
            self._memory.rules.clear()
        with closing(Directories(self._root)) as directories:
            for path in touched:
                if path == '/':
                    return self.capture_all()
                files = self._capture_path(directories, path_parts(path))
                tree = _without(tree, path)
                for at, version in files.items():
                    above = tree.file_above(at)
                    tree = (tree if above is None else tree.remove(above)).set(at, version)
        return tree

    def capture_files(self, paths: Iterable[str]) -> Tree:
        """Return the previous tree with individual files, even if the rules ignore them."""
        files: dict[str, FileVersion] = {}
        with closing(Directories(self._root)) as directories:
            for path in paths:
                *above, name = path_parts(path)
                try:
                    descriptor = directories.open(tuple(above))
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError as error:
                    if error.errno not in GONE:
                        self._omit(path, None)
                    continue
                if stat.S_ISREG(status.st_mode):
                    self._capture_file(descriptor, name, path, status, files)
        tree = self._before
        for path, version in files.items():
            tree = tree.set(path, version)
        return tree

    def _is_wide(self, path: str) -> bool:
        """Return whether a directory may have changed at a path, and with it the ignore rules below the path."""
        return self._before.get(path) is None or self._before.is_dir(path)

    def _capture_path(self, directories: Directories, parts: Components) -> dict[str, FileVersion]:
        """Return the files at a path and below it."""
        path = path_from(parts)
        for other in [other for other in self._memory.omitted if f'{other}/'.startswith(f'{path}/')]:
            del self._memory.omitted[other]
        try:
            rules = self._rules_of(directories, parts[:-1])
            descriptor = None if rules is None else directories.open(parts[:-1])
            if rules is None or descriptor is None:
                return {}
            status = os.stat(parts[-1], dir_fd=descriptor, follow_symlinks=False)
            is_dir = stat.S_ISDIR(status.st_mode)
            if rules.leaves_out(parts[-1], is_dir=is_dir):
                return {}
            if is_dir:
                is_invalid = self._omit_if_invalid(path, None)
                return {} if is_invalid else self._scan(directories, parts, rules.below(parts[-1]))
        except OSError as error:
            if error.errno not in GONE:
                self._omit(path, None)
            return {}
        files: dict[str, FileVersion] = {}
        if stat.S_ISREG(status.st_mode):
            self._capture_file(descriptor, parts[-1], path, status, files)
        return files

    def _rules_of(self, directories: Directories, parts: Components) -> DirectoryRules | None:
        """Return the rules of a directory; `None` if it is ignored itself."""
        known = self._memory.rules
        length = next((n for n in range(len(parts), -1, -1) if parts[:n] in known), None)
        if length is None:
            known[()] = self._with_ignore_file(self._rules, directories.open(()))
            length = 0
        rules = known[parts[:length]]
        for n in range(length, len(parts)):
            if rules.leaves_out(parts[n], is_dir=True):
                return None
            rules = self._with_ignore_file(rules.below(parts[n]), directories.open(parts[: n + 1]))
            known[parts[: n + 1]] = rules
        return rules

    def _with_ignore_file(self, rules: DirectoryRules, directory: int) -> DirectoryRules:
        try:
            descriptor, status = open_file(directory, IGNORE_FILE)
        except OSError:  # missing or unreadable; the latter is reported by `_capture_file`
            return rules
        try:
            if status.st_size <= self._max_file_bytes:
                with suppress(HardLinkError):  # reported by `_capture_file` too
                    self._root.check_links(status)
                    return rules.with_ignore_file(b''.join(read_chunks(descriptor)))
            return rules
        finally:
            os.close(descriptor)

    def _scan(self, directories: Directories, top: Components, rules: DirectoryRules) -> dict[str, FileVersion]:
        """Return all files of a directory and its subdirectories."""
        files: dict[str, FileVersion] = {}
        waiting = [(top, rules)]
        while waiting:
            self._checkpoint()
            parts, rules = waiting.pop()
            try:
                waiting += self._scan_directory(directories, parts, rules, files)
            except OSError as error:
                if error.errno not in GONE:
                    self._omit(path_from(parts), None)
        return files

    def _scan_directory(
        self, directories: Directories, parts: Components, rules: DirectoryRules, files: dict[str, FileVersion]
    ) -> list[tuple[Components, DirectoryRules]]:
        """Add the files of one directory to `files`; return its subdirectories with their rules."""
        descriptor = directories.open(parts)
        entries = list_entries(descriptor)
        prefix = path_from(parts) if parts else ''
        if any(entry.name == IGNORE_FILE for entry in entries):
            rules = self._with_ignore_file(rules, descriptor)
        databases = names_in_use(entries)
        self.in_use += (f'{prefix}/{name}' for name in databases)
        rules = _without_names(rules, databases)
        self._memory.rules[parts] = rules
        below: list[tuple[Components, DirectoryRules]] = []
        for entry in entries:
            is_dir = entry.is_dir(follow_symlinks=False)
            if not (is_dir or entry.is_file(follow_symlinks=False)) or is_temporary(entry.name):
                continue
            if rules.leaves_out(entry.name, is_dir=is_dir):
                continue
            self._budget.take((entry,))
            if is_dir:
                if not self._omit_if_invalid(f'{prefix}/{entry.name}', None):
                    below.append(((*parts, entry.name), rules.below(entry.name)))
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            self._capture_file(descriptor, entry.name, f'{prefix}/{entry.name}', status, files)
        return below

    def _capture_file(
        self, directory: int, name: str, path: str, status: os.stat_result, files: dict[str, FileVersion]
    ) -> None:
        """Add a file to `files` or to the omitted files."""
        self._budget.check_time()
        reading = self._memory.readings.get(path)
        if reading is None and self._omit_if_invalid(path, status.st_size):
            return
        if status.st_size > self._max_file_bytes:
            self._omit(path, status.st_size)
            return
        before = self._before.get(path)
        if reading is None or reading.version != before or not reading.still_holds(signature_of(status)):
            try:
                reading, data = self._read(directory, name)
            except OSError as error:
                if error.errno not in GONE:
                    self._omit(path, status.st_size)
                return
            if reading.version.size > self._max_file_bytes:
                self._omit(path, reading.version.size)
                return
            self._memory.readings[path] = reading
            if before is None or before.digest != reading.version.digest:
                if data is None:
                    self.streamed[reading.version.digest] = path
                else:
                    self.blobs[reading.version.digest] = data
        files[path] = reading.version

    def _read(self, directory: int, name: str) -> tuple[Reading, bytes | None]:
        """Read a file, and again if it changes meanwhile. Large contents are only hashed."""
        for _ in range(MAX_ATTEMPTS - 1):
            reading, data, after = self._read_once(directory, name)
            if reading.signature == after:
                return reading, data
        reading, data, _ = self._read_once(directory, name)
        return reading, data

    def _read_once(self, directory: int, name: str) -> tuple[Reading, bytes | None, tuple[int, ...]]:
        read_at = self._memory.clock()
        descriptor, status = open_file(directory, name, self._max_file_bytes)
        try:
            self._root.check_links(status)
            if status.st_size > self._max_whole_bytes:
                data, (digest, size) = None, hash_file(descriptor, self._checkpoint)
            else:
                data = b''.join(read_chunks(descriptor, max(status.st_size + 1, 1)))
                digest, size = digest_of(data), len(data)
            after = signature_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        mode = EXECUTABLE_MODE if status.st_mode & stat.S_IXUSR else 0o644
        version = FileVersion(digest=digest, size=size, mode=mode)
        return Reading(signature_of(status), read_at, version), data, after

    def _omit_if_invalid(self, path: str, size_bytes: int | None) -> bool:
        """Return whether no tree can contain a path, and record it as omitted if so."""
        if is_representable(path):
            return False
        omitted = OmittedFile(path=display_path(path), reason='invalid path', size_bytes=size_bytes)
        self._memory.omitted[path] = omitted
        return True

    def _omit(self, path: str, size_bytes: int | None) -> None:
        is_large = size_bytes is not None and size_bytes > self._max_file_bytes
        reason = 'too large' if is_large else 'unreadable'
        self._memory.omitted[path] = OmittedFile(path=path, reason=reason, size_bytes=size_bytes)


def _scope(path: str) -> str:
    """Return the path to scan for a touched path: for an `IGNORE_FILE`, its directory, which it affects."""
    if not is_representable(path):  # one of its names is invalid; a scan from the first name finds and omits it
        return path_from(path_parts(path)[:1])
    parent, _, name = path.rpartition('/')
    return (parent or '/') if name == IGNORE_FILE else path


def _without_names(rules: DirectoryRules, names: Collection[str]) -> DirectoryRules:
    """Return the rules of a directory, which ignore these names in it too."""
    lines = [re.sub(r'([\\*?\[\] !#])', r'\\\1', name) for name in names]
    data = ''.join(f'/{line}\n' for line in lines).encode(errors='surrogateescape')
    return rules.with_ignore_file(data) if names else rules


def _without(tree: Tree, path: str) -> Tree:
    """Return a tree without `path` and everything below it."""
    return tree.remove(path) if path in tree else tree.graft(path, Tree()) if tree.is_dir(path) else tree


def _joined(before: Tree, files: dict[str, FileVersion]) -> Tree:
    """Return the tree of these files, derived from `before` if little changed."""
    gone = (path for path in before if path not in files)
    return before.with_changes(
        dict.fromkeys(gone) | {path: version for path, version in files.items() if before.get(path) != version}
    )
