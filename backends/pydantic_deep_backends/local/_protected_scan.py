"""Scan of a directory for protected files and their state.

By the rule of `_index`, a directory with unchanged metadata is not listed again, and such a file is not read again. So
a repeated scan costs a few system calls per directory, regardless of its contents. Links are not followed, except links
that are protected themselves, and only inside the root.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from pydantic_deep_backends._scan_budget import ScanBudget, scan_budget
from pydantic_deep_backends.errors import OutsideRootError
from pydantic_deep_backends.files._confined_root import Components, OpenRoot
from pydantic_deep_backends.files._directories import MAX_DEPTH, Directories, stat_location
from pydantic_deep_backends.files._mount_point import path_from
from pydantic_deep_backends.files._operations import is_temporary, list_entries, open_file, read_chunks
from pydantic_deep_backends.protection._git_config import referenced_paths
from pydantic_deep_backends.protection._patterns import ProtectedPatterns, fold

from ._index import RACY_NANOSECONDS, signature_of

MAX_READ_BYTES = 1_048_576
"""Size up to which the contents of protected files are compared; above it, their size and times are."""

MAX_CONFIGS = 100
"""Maximum number of git configurations to follow: no legitimate chain of includes is longer."""

_OBJECTS = re.compile('[0-9a-f]{2}|pack|info')
"""Directories in which git stores objects. There are hundreds of them, without anything that git obeys."""

_TOO_DEEP = 'too deep to be looked at'
"""The state of a directory that is nested too deeply for any path, so that a person sees that it exists."""

_SAMPLE = '.sample'
"""Suffix of the example hooks that `git init` creates and git never runs."""


@dataclass(frozen=True, kw_only=True)
class ProtectedScan:
    """The protected files of a directory at one point in time."""

    states: Mapping[str, str]
    """The state of each file, by its path in trees."""
    pinned: tuple[Components, ...]
    """Git directories and their parents, each after the directory that contains it. They must not be renamed."""
    read_only: tuple[Components, ...]
    """Files and directories that are protected as a whole: those of git first, then the ones closest to the root."""


@dataclass(frozen=True, slots=True)
class _Listing:
    """A directory as of its last listing."""

    signature: tuple[int, int, int, int, int]
    listed_at: int
    names: tuple[tuple[str, bool], ...]
    """The relevant names, and whether each is a directory: all directories, and files that may be protected."""
    is_git_dir: bool


@dataclass(kw_only=True)
class ProtectedIndex:
    """The cache of scans of one directory. Use it from one thread at a time."""

    clock: Callable[[], int] = time.time_ns
    """The current time in nanoseconds since 1970, on the clock of the file system."""
    listings: dict[Components, _Listing] = field(default_factory=dict[Components, _Listing])
    states: dict[Components, tuple[tuple[int, int, int, int, int], int, str]] = field(
        default_factory=dict[Components, tuple[tuple[int, int, int, int, int], int, str]]
    )
    """The signature, the time of reading and the state of each file that was read."""

    def scan(
        self, root: OpenRoot, rules: ProtectedPatterns, names: tuple[str, ...], checkpoint: Callable[[], None]
    ) -> ProtectedScan:
        """Return the current protected files.

        Args:
            root: The files.
            rules: The patterns of protected files.
            names: The absolute names of the root, without a trailing slash.
            checkpoint: Called before each directory; may raise to end the scan.

        Raises:
            ScanLimitError: There are too many directories, or the scan takes too long.
        """
        with closing(Directories(root)) as directories, scan_budget() as budget:
            scan = _Scan(self, root, directories, rules, names, checkpoint, budget)
            result = scan.run()
        self.listings = scan.listings
        self.states = scan.states
        return result


_Waiting: TypeAlias = tuple[Components, Components, Components | None]
"""A directory to scan: its path, the same with names folded by `fold`, and the git directory that contains it."""


class _Scan:
    def __init__(
        self,
        index: ProtectedIndex,
        root: OpenRoot,
        directories: Directories,
        rules: ProtectedPatterns,
        names: tuple[str, ...],
        checkpoint: Callable[[], None],
        budget: ScanBudget,
    ) -> None:
        self.listings: dict[Components, _Listing] = {}
        self.states: dict[Components, tuple[tuple[int, int, int, int, int], int, str]] = {}
        self._index = index
        self._root = root
        self._directories = directories
        self._rules = rules
        self._names = names
        self._checkpoint = checkpoint
        self._budget = budget
        self._found: dict[str, str] = {}
        self._pinned: set[Components] = set()
        self._whole: set[Components] = set()
        """Paths that are protected with everything in them."""
        self._git_files: set[Components] = set()
        self._read_only: set[Components] = set()
        self._configs: list[tuple[Components, Components]] = []
        """Git configurations, and the git directory of each."""

    def run(self) -> ProtectedScan:
        waiting: list[_Waiting] = [((), (), None)]
        while waiting:
            self._checkpoint()
            waiting += self._look_at_directory(*waiting.pop())
        self._follow_configs()
        return ProtectedScan(
            states=self._found,
            pinned=tuple(sorted(self._pinned, key=lambda parts: (len(parts), parts))),
            read_only=tuple(
                sorted(self._read_only, key=lambda parts: (parts not in self._git_files, len(parts), parts))
            ),
        )

    def _look_at_directory(self, parts: Components, folded: Components, git_dir: Components | None) -> list[_Waiting]:
        """Find protected files in one directory; return its subdirectories that must be scanned.

        Args:
            parts: The directory.
            folded: Its path, with names folded by `fold`.
            git_dir: The git directory that contains it.
        """
        with suppress(OSError):  # gone, or not permitted; then no program of this user obeys its files either
            listing = self._list(parts, folded, self._directories.open(parts))
            self._budget.take(listing.names)  # not the other files: a data set of millions must not fail the scan
            if self._rules.has_git and listing.is_git_dir:
                git_dir = parts
                self._pin(parts)
            below: list[_Waiting] = []
            for name, is_dir in listing.names:
                path = (*parts, name)
                key = fold(name)
                in_git = git_dir is not None and self._rules.ends_in_git_dir(
                    (*folded[len(git_dir) :], key), is_dir=is_dir
                )
                if in_git or (self._rules.may_match(key) and self._rules.ends_at((*folded, key), is_dir=is_dir)):
                    self._protect(path, is_dir=is_dir, is_git=in_git or key == '.git', git_dir=git_dir)
                elif is_dir and not (git_dir is not None and _is_objects(path, git_dir)):
                    if len(parts) < MAX_DEPTH:
                        below.append((path, (*folded, key), git_dir))
                    else:
                        self._found[path_from(path)] = _TOO_DEEP
            return below
        return []

    def _list(self, parts: Components, folded: Components, descriptor: int) -> _Listing:
        """Return the entries of an open directory, from the cache if they are unchanged."""
        signature = signature_of(os.fstat(descriptor))
        known = self._index.listings.get(parts)
        if known is not None and known.signature == signature and _is_settled(signature, known.listed_at):
            self.listings[parts] = known
            return known
        listed_at = self._index.clock()
        entries = list_entries(descriptor)
        names = {entry.name for entry in entries}
        listing = _Listing(
            signature,
            listed_at,
            tuple(
                (entry.name, is_dir)
                for entry in entries
                if (is_dir := entry.is_dir(follow_symlinks=False))
                or (self._rules.may_match(fold(entry.name)) and not is_temporary(entry.name))
            ),
            _is_git_dir(folded, names),
        )
        self.listings[parts] = listing
        return listing

    def _protect(self, path: Components, *, is_dir: bool, is_git: bool, git_dir: Components | None) -> None:
        """Record that a path is protected as a whole, with everything in it."""
        if path in self._whole:
            return
        self._whole.add(path)
        if is_git:
            self._git_files.add(path)
            self._pin(path[:-1])
        if is_dir:
            self._read_only.add(path)
            self._note_below(path)
        elif self._note(path):  # regular files only: a mount over a link would land on its target
            self._read_only.add(path)
            if git_dir is not None and fold(path[-1]).startswith('config'):
                self._configs.append((path, git_dir))

    def _pin(self, parts: Components) -> None:
        """Record that a directory and its parents must not be renamed."""
        self._pinned.update(parts[:length] for length in range(1, len(parts) + 1))

    def _note_below(self, top: Components) -> None:
        """Record the state of all files in a directory."""
        waiting = [top]
        while waiting:
            self._checkpoint()
            parts = waiting.pop()
            with suppress(OSError):
                for entry in self._budget.take(list_entries(self._directories.open(parts))):
                    path = (*parts, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if len(parts) < MAX_DEPTH:
                            waiting.append(path)
                        else:
                            self._found[path_from(path)] = _TOO_DEEP
                    elif not (entry.name.endswith(_SAMPLE) or is_temporary(entry.name)):
                        self._note(path)

    def _note(self, path: Components) -> bool:
        """Record the state of a path that is not a directory, and of its link target; return whether it is a file."""
        with suppress(OSError):  # gone
            descriptor = self._directories.open(path[:-1])
            status = os.stat(path[-1], dir_fd=descriptor, follow_symlinks=False)
            self._found[path_from(path)] = self._state_of(path, descriptor, status)
            return stat.S_ISREG(status.st_mode)
        return False

    def _state_of(self, path: Components, descriptor: int, status: os.stat_result) -> str:
        try:
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(path[-1], dir_fd=descriptor)
                if fold(path[-1]) != '.git':  # a git directory is protected as such, wherever it is
                    self._follow(path)
                return f'link to {target!r}'
            if not stat.S_ISREG(status.st_mode):
                return 'special file'
            return self._read(path, descriptor, status)
        except OSError as error:
            return f'unreadable: {error.strerror}'

    def _read(self, path: Components, directory: int, status: os.stat_result) -> str:
        signature = signature_of(status)
        known = self._index.states.get(path)
        if known is None or known[0] != signature or not _is_settled(signature, known[1]):
            executable = ', executable' if status.st_mode & stat.S_IXUSR else ''
            read_at = self._index.clock()
            if status.st_size > MAX_READ_BYTES:
                state = f'{status.st_size} bytes at {status.st_ctime_ns}{executable}'
            else:
                digest = hashlib.sha256(_contents(directory, path[-1])).hexdigest()
                state = f'sha256:{digest}{executable}'
            known = signature, read_at, state
        self.states[path] = known
        return known[2]

    def _follow(self, link: Components) -> None:
        """Protect the target of a link, if it is inside the root."""
        with suppress(OSError, OutsideRootError):
            target = self._root.resolve(link)
            if target != link and target:
                mode = self._root.visit(target, stat_location).st_mode
                self._protect(target, is_dir=stat.S_ISDIR(mode), is_git=False, git_dir=None)

    def _follow_configs(self) -> None:
        """Protect the files that git configurations refer to."""
        for place in range(MAX_CONFIGS):
            if place >= len(self._configs):
                return
            path, git_dir = self._configs[place]
            with suppress(OSError):
                data = _contents(self._directories.open(path[:-1]), path[-1])
                for kind, value in referenced_paths(data):
                    is_bare = fold(git_dir[-1]) != '.git' if git_dir else True
                    base = path[:-1] if kind == 'include' else git_dir if is_bare else git_dir[:-1]
                    self._protect_named(base, value, git_dir)

    def _protect_named(self, base: Components, value: str, git_dir: Components) -> None:
        parts = self._inside(base, value)
        if not parts:
            return
        with suppress(OSError, OutsideRootError):
            target = self._root.resolve(parts)
            mode = self._root.visit(target, stat_location).st_mode
            if target and target != git_dir[: len(target)]:
                self._protect(target, is_dir=stat.S_ISDIR(mode), is_git=True, git_dir=git_dir)
                if stat.S_ISREG(mode) and (target, git_dir) not in self._configs:
                    self._configs.append((target, git_dir))

    def _inside(self, base: Components, value: str) -> Components | None:
        """Return the path for a value relative to a directory; `None` if it is outside of the root."""
        names = list(base)
        if value.startswith('/'):
            top = next((name for name in self._names if f'{value}/'.startswith(f'{name}/')), None)
            if top is None:
                return None
            names, value = [], value.removeprefix(top)
        for name in value.split('/'):
            if name == '..':
                if not names:
                    return None
                names.pop()
            elif name not in ('', '.'):
                names.append(name)
        return tuple(names)


def _is_git_dir(folded: Components, names: set[str]) -> bool:
    """Return whether a directory with these entries is a git directory, or could become one with few changes."""
    return (
        folded[-1:] == ('.git',)
        or ('HEAD' in names and ('objects' in names or 'commondir' in names))
        or ('config' in names and ('.git', 'modules') in pairwise(folded))
    )


def _is_objects(path: Components, git_dir: Components) -> bool:
    """Return whether git stores objects in this directory."""
    return len(path) == len(git_dir) + 2 and path[-2] == 'objects' and _OBJECTS.fullmatch(path[-1]) is not None


def _is_settled(signature: tuple[int, int, int, int, int], looked_at: int) -> bool:
    """Return whether any change after the look would have a later timestamp."""
    _, mtime, ctime, _, _ = signature
    return max(mtime, ctime) + RACY_NANOSECONDS < looked_at


def _contents(directory: int, name: str) -> bytes:
    descriptor, _ = open_file(directory, name)
    try:
        data = b''
        for chunk in read_chunks(descriptor):
            data += chunk
            if len(data) > MAX_READ_BYTES:
                break
        return data[:MAX_READ_BYTES]
    finally:
        os.close(descriptor)
