"""`Tree`: an immutable map from path to `FileVersion` of all files at one point in time, and `TreeDiff`.

Empty directories are not part of a tree, as in git.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from pydantic_deep_backends.errors import InvalidPathError

from . import _encoding, _nodes
from ._nodes import Child, FileVersion, Node

T = TypeVar('T')


@dataclass(frozen=True, kw_only=True)
class TreeDiff:
    """The changes from one tree to another; falsy if there are none."""

    added: tuple[str, ...] = ()
    """Paths that exist only in the later tree, sorted."""
    removed: tuple[str, ...] = ()
    """Paths that exist only in the earlier tree, sorted."""
    changed: tuple[str, ...] = ()
    """Paths with different contents or mode, sorted."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


class Tree:
    """An immutable map from absolute path to `FileVersion`.

    A change returns a new tree that shares most nodes with the old one: one changed file among 10,000 creates a few
    nodes, and a comparison visits only these. Trees with the same files are equal and have the same `digest`,
    regardless of their history. Paths sort as strings, by code point.

    ```python
    from pydantic_deep_backends import FileVersion, Tree, digest_of

    before = Tree.of({'/a.txt': FileVersion(digest=digest_of(b'a'), size=1)})
    after = before.set('/src/b.txt', FileVersion(digest=digest_of(b'bb'), size=2))
    print(before.diff(after).added)
    #> ('/src/b.txt',)
    ```
    """

    __slots__ = ('_root',)

    def __init__(self) -> None:
        self._root: Node = _nodes.EMPTY

    @classmethod
    def of(cls, files: Mapping[str, FileVersion]) -> Tree:
        """Return the tree of these files.

        Raises:
            InvalidPathError: A path is not absolute or has an empty, `.` or `..` component.
            NotADirectoryError: A path is both a file and a parent of another file.
        """
        directories: dict[tuple[str, ...], dict[str, Child]] = {(): {}}
        for path, version in files.items():
            *parents, name = _parts_of(path)
            _make_directories(directories, tuple(parents))
            directories[tuple(parents)][name] = version
        for path in files:
            if tuple(_parts_of(path)) in directories:
                raise _not_a_directory(path)
        for parents in sorted(directories.keys() - {()}, key=len, reverse=True):
            directories[parents[:-1]][parents[-1]] = _nodes.directory_of(directories[parents])
        return cls._from(_nodes.directory_of(directories[()]))

    @classmethod
    def _from(cls, root: Node) -> Tree:
        tree = cls()
        tree._root = root
        return tree

    @classmethod
    def from_nodes(cls, digest: str, nodes: Mapping[str, bytes], known: Tree | None = None) -> Tree:
        """Return the tree with this digest from encoded nodes, as yielded by `nodes`.

        Args:
            digest: The `digest` of the tree.
            nodes: Encodings by digest; may contain more than the tree needs.
            known: A similar tree with nodes to share instead of decoding them. `nodes` need not contain these.

        Raises:
            KeyError: A node is missing; the argument is its digest.
            ValueError: The contents of a node do not match its digest.
        """
        decoded = {} if known is None else known._node_by_digest()
        pending = [digest]
        while pending:
            top = pending[-1]
            missing = [] if top in decoded else [part for part in _references(top, nodes) if part not in decoded]
            if missing:
                pending += missing
                continue
            pending.pop()
            if top not in decoded:
                decoded[top] = _encoding.decode(nodes[top], decoded)
        _nodes.check_directory(decoded[digest])
        tree = cls._from(decoded[digest])
        if tree.digest != digest:
            raise ValueError(f'The nodes of {digest} are well-formed but do not form a tree. Fetch them again.')
        return tree

    def _node_by_digest(self) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        pending = [self._root]
        while pending:
            node = pending.pop()
            nodes[_encoding.digest(node)] = node
            pending += _nodes.parts_of(node)
        return nodes

    @property
    def digest(self) -> str:
        """The digest of the root, which is equal if and only if the files are equal."""
        return _encoding.digest(self._root)

    def nodes(self, known: Container[str] = ()) -> Iterator[tuple[str, bytes]]:
        """Yield the digest and the encoding of each node, referenced nodes first.

        Args:
            known: Digests that the caller already has: these nodes and all nodes below them are skipped.
        """
        seen: set[str] = set()
        pending: list[tuple[Node, bool]] = [(self._root, False)]
        while pending:
            node, parts_done = pending.pop()
            digest = _encoding.digest(node)
            if digest in seen or digest in known:
                continue
            if parts_done:
                seen.add(digest)
                yield digest, _encoding.encode(node)
            else:
                pending.append((node, True))
                pending += ((part, False) for part in _nodes.parts_of(node))

    def get(self, path: str) -> FileVersion | None:
        """Return the file at `path`; `None` if the path does not exist or is a directory."""
        child = self._find(path)
        return child if isinstance(child, FileVersion) else None

    def __getitem__(self, path: str) -> FileVersion:
        child = self._find(path)
        if not isinstance(child, FileVersion):
            raise KeyError(path)
        return child

    def is_dir(self, path: str) -> bool:
        """Return whether files exist below `path`; always `True` for `/`."""
        return path == '/' or not isinstance(self._find(path), FileVersion | None)

    def file_above(self, path: str) -> str | None:
        """Return the file at a parent of `path`, if there is one."""
        child: Child | None = self._root
        end = 0
        while child is not None:
            if isinstance(child, FileVersion):
                return path[:end]
            start, end = end + 1, path.find('/', end + 1)
            if end < 0:
                return None
            child = _nodes.find(child, path[start:end])
        return None

    def entries(self, path: str = '/') -> dict[str, FileVersion | Tree]:
        """Return the entries of one directory, sorted by name: `FileVersion` for a file, `Tree` for a directory.

        The result is empty if the directory does not exist.
        """
        children = sorted(_nodes.entries_of(self.subtree(path)._root), key=_entry_name)
        return {name: child if isinstance(child, FileVersion) else Tree._from(child) for name, child in children}

    def subtree(self, path: str) -> Tree:
        """Return the files below a directory, with relative paths; empty if the directory does not exist."""
        child = self._root if path == '/' else self._find(path)
        return Tree() if child is None or isinstance(child, FileVersion) else Tree._from(child)

    def set(self, path: str, version: FileVersion) -> Tree:
        """Return the tree with the file `version` at `path`.

        Raises:
            InvalidPathError: The path is not absolute or has an empty, `.` or `..` component.
            IsADirectoryError: Files exist below `path`.
            NotADirectoryError: A parent of `path` is a file.
        """
        parts = _parts_of(path)
        if self.is_dir(path):
            raise _is_a_directory(path)
        return self._with(parts, version, path)

    def remove(self, path: str) -> Tree:
        """Return the tree without the file at `path`. Raises `KeyError` if it does not exist."""
        if self.get(path) is None:
            raise KeyError(path)
        return self._with(_parts_of(path), None, path)

    def graft(self, path: str, tree: Tree) -> Tree:
        """Return the tree with the files of `tree` below `path`, in place of the existing directory.

        An empty `tree` removes the directory.

        Raises:
            InvalidPathError: The path is not absolute or has an empty, `.` or `..` component.
            NotADirectoryError: `path` or one of its parents is a file.
        """
        if path == '/':
            return tree
        if self.get(path) is not None:
            raise _not_a_directory(path)
        if not tree and not self.is_dir(path):
            return self
        return self._with(_parts_of(path), tree._root if tree else None, path)

    def with_changes(self, changes: Mapping[str, FileVersion | None]) -> Tree:
        """Return the tree after many changes at once; each parent directory is rebuilt only once.

        Args:
            changes: The new version by path; `None` removes the file if it exists.

        Raises:
            InvalidPathError: A path is not absolute or has an empty, `.` or `..` component.
            IsADirectoryError: A file is set at a path below which files remain.
            NotADirectoryError: A file is set below another file.
        """
        directories: dict[tuple[str, ...], dict[str, Child | None]] = {(): {}}
        for path, version in changes.items():
            *parents, name = _parts_of(path)
            _make_directories(directories, tuple(parents))
            directories[tuple(parents)][name] = version
        before: dict[tuple[str, ...], Node] = {(): self._root}
        for parts in sorted(directories.keys() - {()}, key=len):
            child = _nodes.find(before[parts[:-1]], parts[-1])
            if isinstance(child, FileVersion):
                directories[parts[:-1]].setdefault(parts[-1], child)  # the file stays, unless it is changed too
            before[parts] = _nodes.EMPTY if child is None or isinstance(child, FileVersion) else child
        emptied: dict[tuple[str, ...], set[str]] = {}
        for parts in sorted(directories, key=len, reverse=True):
            try:
                node = _with_entries(before[parts], directories[parts], emptied.get(parts, ()))
            except IsADirectoryError as error:
                raise _is_a_directory('/' + '/'.join((*parts, *error.args))) from None
            if not parts:
                return Tree._from(node)
            *above, name = parts
            replaced = directories[tuple(above)].setdefault(name, node)
            if not isinstance(replaced, FileVersion):
                directories[tuple(above)][name] = node
            elif node.entry_count:
                raise _not_a_directory('/' + '/'.join(parts))
            else:
                emptied.setdefault(tuple(above), set()).add(name)
        raise AssertionError('The root is always among the directories.')  # pragma: no cover - it is

    def diff(self, other: Tree) -> TreeDiff:
        """Return the changes from this tree to `other`. Equal directories are not visited."""
        added: list[str] = []
        removed: list[str] = []
        changed: list[str] = []
        pending: list[tuple[str, Child | None, Child | None]] = [('', self._root, other._root)]
        while pending:
            path, before, after = pending.pop()
            was_file, is_file = isinstance(before, FileVersion), isinstance(after, FileVersion)
            if was_file or is_file:
                (changed if was_file and is_file else removed if was_file else added).append(path)
            pending += ((path + tail, old, new) for tail, old, new in unequal_parts(before, after))
        return TreeDiff(added=tuple(sorted(added)), removed=tuple(sorted(removed)), changed=tuple(sorted(changed)))

    def items(self) -> Iterator[tuple[str, FileVersion]]:
        """Yield path and version of each file, sorted by path."""
        pending: list[tuple[str, Child]] = [('', self._root)]
        while pending:
            path, child = pending.pop()
            if isinstance(child, FileVersion):
                yield path, child
            else:
                below = sorted(_nodes.entries_of(child), key=_path_order, reverse=True)
                pending += ((f'{path}/{name}', entry) for name, entry in below)

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self.items())

    def __len__(self) -> int:
        return self._root.file_count

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.get(path) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self._root is other._root or self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f'<Tree of {len(self)} files, {self.digest[:19]}>'

    def _find(self, path: str) -> Child | None:
        if not path.startswith('/'):
            return None
        child: Child | None = self._root
        for name in path[1:].split('/'):
            if child is None or isinstance(child, FileVersion):
                return None
            child = _nodes.find(child, name)
        return child

    def _with(self, parts: list[str], child: Child | None, path: str) -> Tree:
        """Replace the child at `parts` and rebuild its parent directories; empty ones are removed."""
        above: list[Node] = [self._root]
        for name in parts[:-1]:
            below = _nodes.find(above[-1], name) or _nodes.EMPTY
            if isinstance(below, FileVersion):
                raise _not_a_directory(path)
            above.append(below)
        for name, directory in zip(parts[:0:-1], above[:0:-1], strict=True):
            directory = _nodes.with_entry(directory, name, child)
            child = directory if directory.entry_count else None
        return Tree._from(_nodes.with_entry(self._root, parts[0], child))


def versions_at(tree: Tree, paths: Iterable[str]) -> dict[str, FileVersion | None]:
    """Return the file at each of these paths; common parent directories are looked up once."""
    directories: dict[str, Child | None] = {'': tree._root}  # pyright: ignore[reportPrivateUsage] - of a class of this file
    versions: dict[str, FileVersion | None] = {}
    for path in paths:
        above, _, name = path.rpartition('/')
        ahead: list[str] = []
        while above not in directories:
            ahead.append(above)
            above = above.rpartition('/')[0]
        for directory in reversed(ahead):
            directories[directory] = _child_of(directories[above], directory[len(above) + 1 :])
            above = directory
        child = _child_of(directories[above], name)
        versions[path] = child if isinstance(child, FileVersion) else None
    return versions


def _child_of(directory: Child | None, name: str) -> Child | None:
    return None if directory is None or isinstance(directory, FileVersion) else _nodes.find(directory, name)


def unequal_parts(before: Child | None, after: Child | None) -> Iterator[tuple[str, Child | None, Child | None]]:
    """Yield the differences below two children with the same name: `/name` and both children of that name.

    Parts of a split are yielded as they are, with an empty name. Only this function opens nodes to compare them, and it
    is never called for equal ones.
    """
    if isinstance(before, _nodes.Split) and isinstance(after, _nodes.Split):
        pairs = [('', old, new) for old, new in zip(before.slots, after.slots, strict=True) if old is not new]
    else:
        old_entries, new_entries = _entries_below(before), _entries_below(after)
        gone = ((name, old, None) for name, old in old_entries.items() if name not in new_entries)
        here = ((name, old_entries.get(name), new) for name, new in new_entries.items())
        pairs = [(f'/{name}', old, new) for name, old, new in chain(gone, here) if old is not new]
    return ((tail, old, new) for tail, old, new in pairs if not _is_equal(old, new))


def _entries_below(child: Child | None) -> Mapping[str, Child]:
    if isinstance(child, _nodes.Chunk):
        return child.entries
    return {} if child is None or isinstance(child, FileVersion) else dict(_nodes.entries_of(child))


def _is_equal(one: Child | None, two: Child | None) -> bool:
    """Return whether two distinct objects are equal."""
    if one is None or two is None:
        return False
    if isinstance(one, FileVersion) or isinstance(two, FileVersion):
        return one == two
    return _encoding.digest(one) == _encoding.digest(two)


_MAX_NAME_CHARS = 16_383
"""Maximum length of a name in a tree: its length is encoded in 16 bits, and a character may take four bytes."""


def _parts_of(path: str) -> list[str]:
    if not path.startswith('/'):
        raise InvalidPathError(path, 'a tree holds absolute paths. Begin it with `/`.')
    parts = path[1:].split('/')
    if not {'', '.', '..'}.isdisjoint(parts):
        raise InvalidPathError(path, 'a component is empty, `.` or `..`. Write the path without it.')
    if max(map(len, parts)) > _MAX_NAME_CHARS:
        raise InvalidPathError(path, f'a name in it has more than {_MAX_NAME_CHARS:,} characters. Use a shorter one.')
    return parts


def _with_entries(node: Node, changes: Mapping[str, Child | None], emptied: Container[str]) -> Node:
    """Return a directory with changed entries.

    Args:
        node: The directory.
        changes: By name: a file, a directory (removed if it is empty), or `None` to remove a file.
        emptied: Names of directories that a file may replace.

    Raises:
        IsADirectoryError: A file would replace another directory; the argument is its name.
    """
    changed: dict[str, Child | None] = {}
    for name, child in changes.items():
        is_directory = not isinstance(_nodes.find(node, name), FileVersion | None)
        if isinstance(child, FileVersion):
            if is_directory and name not in emptied:
                raise IsADirectoryError(name)
            changed[name] = child
        elif child is not None or not is_directory:
            changed[name] = child if child is not None and child.entry_count else None
    if len(changed) * 8 <= node.entry_count:
        for name, child in changed.items():
            node = _nodes.with_entry(node, name, child)
        return node
    entries = dict(_nodes.entries_of(node)) | changed
    return _nodes.directory_of({name: child for name, child in entries.items() if child is not None})


def _make_directories(directories: dict[tuple[str, ...], dict[str, T]], parents: tuple[str, ...]) -> None:
    while parents not in directories:
        directories[parents] = {}
        parents = parents[:-1]


def _is_a_directory(path: str) -> IsADirectoryError:
    return IsADirectoryError(f'{path!r} is a directory in this tree. Remove the files below it first.')


def _not_a_directory(path: str) -> NotADirectoryError:
    return NotADirectoryError(f'{path!r} would be a file and a directory at once. Remove the file first.')


def _entry_name(entry: tuple[str, Child]) -> str:
    return entry[0]


def _path_order(entry: tuple[str, Child]) -> str:
    """Return the sort key by full path: `/a-b` comes before `/a/c`, because `-` comes before `/`."""
    name, child = entry
    return name if isinstance(child, FileVersion) else f'{name}/'


def _references(digest: str, nodes: Mapping[str, bytes]) -> list[str]:
    data = nodes[digest]
    if _nodes.digest_of(data) != digest:
        raise ValueError(f'The contents of the node {digest} do not match its digest. Fetch it again.')
    return _encoding.references_of(data)
