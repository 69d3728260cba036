"""What an overlay holds over its base: which paths were touched, what is there now, and what the base had there then.

Pure: no base is asked here. Paths are canonical. Entries stand in a tree of names, so that a question about a path
costs its depth and never the number of entries.
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
"""How much of a file tells whether grep takes it for text."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """The contents of a file."""

    version: FileVersion
    """Digest and size."""
    data: bytes | None
    """All bytes; `None` where only the digest was kept."""
    is_searched: bool
    """Whether grep searches it: it is text, and not too large."""

    @property
    def whole(self) -> bytes:
        """All bytes, of what the overlay itself holds."""
        assert self.data is not None  # noqa: S101 - only what the base had is kept by its digest
        return self.data

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Return the content of some bytes."""
        is_text = grep_file('/', data[:_PROBE_BYTES], 'a').files_searched == 1
        version = FileVersion(digest=digest_of(data), size=len(data))
        return cls(version=version, data=data, is_searched=is_text and len(data) <= MAX_FILE_BYTES)


@dataclass(frozen=True)
class Directory:
    """A directory."""


@dataclass(frozen=True, kw_only=True)
class Other:
    """In the base a link, or what is no regular file: it can be removed, and is known by where it leads."""

    mark: str
    """The real path of a link; empty if it has none."""


State: TypeAlias = Content | Directory | Other | None
"""What is or was at a path; `None` is nothing."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A path that was touched."""

    now: Content | Directory | None
    """What the overlay has there; `None` if it was removed."""
    was: State
    """What the base had there when the path was touched first: the base of the merge."""
    is_opaque: bool = False
    """Of a directory: whether it hides what the base has below it."""

    @property
    def hides(self) -> bool:
        """Whether nothing that the base has below it is seen."""
        return self.is_opaque or not isinstance(self.now, Directory)

    @property
    def is_changed(self) -> bool:
        """Whether a file that is here now, or was here, is another one or gone."""
        return version_of(self.now) != version_of(self.was) or isinstance(self.was, Other)


class BaseVisibility(Enum):
    """Whether an untouched path shows the base."""

    BASE = 'base'
    """What the base has there is seen."""
    NOWHERE = 'nowhere'
    """A directory above it is removed, or hides the base."""
    BELOW_FILE = 'below file'
    """The overlay has a file above it."""


@dataclass(slots=True)
class _Node:
    entry: Entry | None = None
    children: dict[str, _Node] = field(default_factory=dict[str, '_Node'])

    @property
    def is_live(self) -> bool:
        """Whether there is a file or directory of the overlay here or below."""
        if self.entry is not None:
            return self.entry.now is not None
        return any(child.is_live for child in self.children.values())


class Layer:
    """All entries of an overlay."""

    def __init__(self) -> None:
        self._root = _Node()
        self.changes = 0
        """Grows with every change: equal numbers mean that nothing happened in between."""

    def get(self, path: str) -> Entry | None:
        """Return the entry of a path, if it was touched."""
        node = self._node(path)
        return None if node is None else node.entry

    def look(self, path: str) -> Entry | BaseVisibility:
        """Return the entry of a path, or where an untouched one is."""
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
        """Return whether the path, or one above it, was touched."""
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
        """Return whether what the base has at a path is what is seen there."""
        return self.look(path) is BaseVisibility.BASE and not self.is_live(path)

    def may_show_base_below(self, path: str) -> bool:
        """Return whether anything that the base has at a path or below it may be seen."""
        found = self.look(path)
        return not found.hides if isinstance(found, Entry) else found is BaseVisibility.BASE

    def children(self, path: str) -> Iterator[tuple[str, Entry | None, bool]]:
        """Yield name, entry and whether anything of the overlay is there, of what was touched in or below a directory."""
        node = self._node(path)
        if node is not None:
            yield from ((name, child.entry, child.is_live) for name, child in node.children.items())

    def entries(self, path: str = '/') -> Iterator[tuple[str, Entry]]:
        """Yield path and entry of what was touched at a path and below it, sorted by components, parents first."""
        start = self._node(path)
        pending = [] if start is None else [('' if path == '/' else path, start)]
        while pending:
            at, node = pending.pop()
            if node.entry is not None:
                yield at, node.entry
            pending += ((f'{at}/{name}', node.children[name]) for name in sorted(node.children, reverse=True))

    def set(self, path: str, entry: Entry) -> None:
        """Put an entry in the place of what is at a path."""
        node = self._root
        for name in path_parts(path):
            node = node.children.setdefault(name, _Node())
        node.entry = entry
        self.changes += 1

    def discard(self, path: str) -> None:
        """Forget the entry of a path."""
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
        """Have the entries of another layer instead."""
        self._root = other._root
        self.changes += 1

    def put(self, path: str, now: Content | Directory | None, was: State) -> None:
        """Change what is at a path; `was` is remembered if the path is touched for the first time."""
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
