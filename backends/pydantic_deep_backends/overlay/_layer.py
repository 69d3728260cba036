"""The changes of an overlay: the touched paths, their current state, and their original state in the base.

Pure: the base is not accessed here. Paths are canonical. Entries are stored in a tree of names, so the cost of a lookup
depends on the depth of the path, not on the number of entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.search import MAX_FILE_BYTES, grep_file
from pydantic_deep_backends.trees._nodes import FileVersion, digest_of

_PROBE_BYTES: Final = 8_192
"""Number of bytes from which grep decides whether a file is text."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """The contents of a file."""

    version: FileVersion
    """The digest and size of the contents."""
    data: bytes | None
    """The contents; `None` if only the digest is stored."""
    is_searched: bool
    """Whether grep searches the file: it is text and not too large."""

    @property
    def whole(self) -> bytes:
        """The contents of a file of the overlay itself."""
        assert self.data is not None  # noqa: S101 - only original states are stored as a bare digest
        return self.data

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Return the content for these bytes."""
        is_text = grep_file('/', data[:_PROBE_BYTES], 'a').files_searched == 1
        version = FileVersion(digest=digest_of(data), size=len(data))
        return cls(version=version, data=data, is_searched=is_text and len(data) <= MAX_FILE_BYTES)


@dataclass(frozen=True)
class Directory:
    """A directory of the overlay or the base."""


@dataclass(frozen=True, kw_only=True)
class Other:
    """A link or special file of the base. It can be removed, and is identified by its target."""

    mark: str
    """The real path of a link; empty if it cannot be resolved, and for special files."""


State: TypeAlias = Content | Directory | Other | None
"""The state of a path; `None` if nothing exists there."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A path that was touched."""

    now: Content | Directory | None
    """The current state in the overlay; `None` if the path was removed."""
    was: State
    """The state in the base when the path was first touched: the common ancestor of the merge."""
    is_opaque: bool = False
    """For a directory: whether it hides the files of the base below it."""

    @property
    def hides(self) -> bool:
        """Whether everything that the base has below this path is hidden."""
        return self.is_opaque or not isinstance(self.now, Directory)

    @property
    def is_changed(self) -> bool:
        """Whether a file is new, changed or removed here."""
        return version_of(self.now) != version_of(self.was) or isinstance(self.was, Other)


class BaseVisibility(Enum):
    """Whether the base is visible at an untouched path."""

    BASE = 'base'
    """The base is visible."""
    NOWHERE = 'nowhere'
    """A directory above was removed, or hides the base."""
    BELOW_FILE = 'below file'
    """The overlay has a file at a parent."""


@dataclass(slots=True)
class _Node:
    entry: Entry | None = None
    children: dict[str, _Node] = field(default_factory=dict[str, '_Node'])

    @property
    def is_live(self) -> bool:
        """Whether the overlay has a file or directory here or below."""
        if self.entry is not None:
            return self.entry.now is not None
        return any(child.is_live for child in self.children.values())


class Layer:
    """All entries of an overlay, by path."""

    def __init__(self) -> None:
        self._root = _Node()
        self.changes = 0
        """Incremented by every change, so that equal numbers mean that nothing has changed in between."""

    def get(self, path: str) -> Entry | None:
        """Return the entry of a path, if it was touched."""
        node = self._node(path)
        return None if node is None else node.entry

    def look(self, path: str) -> Entry | BaseVisibility:
        """Return the entry of a path or, for an untouched path, the visibility of the base."""
        node = self._root
        place = BaseVisibility.BASE
        for name in path_parts(path):
            if node.entry is not None and node.entry.hides:
                place = BaseVisibility.BELOW_FILE if isinstance(node.entry.now, Content) else BaseVisibility.NOWHERE
            below = node.children.get(name)
            if below is None:
                return place
            node = below
        return place if node.entry is None else node.entry

    def has_entry_on_the_way(self, path: str) -> bool:
        """Return whether the path or one of its parents was touched."""
        node = self._root
        for name in path_parts(path):
            below = node.children.get(name)
            if below is None:
                return False
            if below.entry is not None:
                return True
            node = below
        return False

    def is_live(self, path: str) -> bool:
        """Return whether the overlay has a file or directory at a path or below it."""
        node = self._node(path)
        return node is not None and node.is_live

    def shows_base(self, path: str) -> bool:
        """Return whether the base is visible at a path."""
        return self.look(path) is BaseVisibility.BASE and not self.is_live(path)

    def may_show_base_below(self, path: str) -> bool:
        """Return whether anything of the base may be visible at a path or below it."""
        entry = self.look(path)
        return not entry.hides if isinstance(entry, Entry) else entry is BaseVisibility.BASE

    def children(self, path: str) -> Iterator[tuple[str, Entry | None, bool]]:
        """Yield the touched names in a directory, with their entry and whether the overlay has files there or below."""
        node = self._node(path)
        if node is not None:
            yield from ((name, child.entry, child.is_live) for name, child in node.children.items())

    def entries(self, path: str = '/') -> Iterator[tuple[str, Entry]]:
        """Yield path and entry of everything touched at a path or below, sorted by components, parents first."""
        start = self._node(path)
        pending = [] if start is None else [('' if path == '/' else path, start)]
        while pending:
            at, node = pending.pop()
            if node.entry is not None:
                yield at, node.entry
            pending += ((f'{at}/{name}', node.children[name]) for name in sorted(node.children, reverse=True))

    def set(self, path: str, entry: Entry) -> None:
        """Set or replace the entry of a path."""
        node = self._root
        for name in path_parts(path):
            node = node.children.setdefault(name, _Node())
        node.entry = entry
        self.changes += 1

    def discard(self, path: str) -> None:
        """Remove the entry of a path."""
        nodes = [self._root]
        parts = path_parts(path)
        for name in parts:
            nodes.append(nodes[-1].children[name])
        nodes[-1].entry = None
        for name, parent, node in zip(reversed(parts), reversed(nodes[:-1]), reversed(nodes[1:]), strict=True):
            if node.entry is None and not node.children:
                del parent.children[name]
        self.changes += 1

    def take(self, other: Layer) -> None:
        """Replace all entries with those of another layer."""
        self._root = other._root
        self.changes += 1

    def put(self, path: str, now: Content | Directory | None, was: State) -> None:
        """Set the current state of a path; `was` is stored if the path is touched for the first time."""
        before = self.look(path)
        if isinstance(before, Entry):
            is_opaque = isinstance(now, Directory) and before.hides
            self.set(path, Entry(now=now, was=before.was, is_opaque=is_opaque))
        else:
            self.set(path, Entry(now=now, was=was if before is BaseVisibility.BASE else None))

    def _node(self, path: str) -> _Node | None:
        node = self._root
        for name in path_parts(path):
            below = node.children.get(name)
            if below is None:
                return None
            node = below
        return node


def version_of(state: State) -> FileVersion | None:
    """Return the version of a file; `None` for everything else."""
    return state.version if isinstance(state, Content) else None
