"""The directory nodes that a `Tree` is made of: persistent, and of one shape for the same files.

A directory is a `Chunk` of at most `MAX_CHUNK_ENTRIES` entries. One with more is a `Split`: `FAN_OUT` slots, chosen
by the bits of the SHA-256 of the name, each of them again a chunk or a split. The shape follows from the entries
alone, never from the order in which they came, so equal directories have equal encodings and equal digests.

Nodes never change after they are made; a change makes new nodes along one path and shares the rest. Nothing here
recurses over the depth of a path, which may be thousands of components; splits nest a handful of levels.

Not here: how nodes are written down, and their digests (`_encoding`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_CHUNK_ENTRIES: Final = 64
"""Entries of one chunk. A change rewrites one chunk of each directory above it, about 70 bytes an entry: 64 keep
that under 5 KB, while a directory of ordinary size is still one node."""

FAN_OUT: Final = 16
"""Slots of a split: one hexadecimal digit of the hash of the name. A change of one file among 10,000 in a single
directory rewrites two splits of about 60 bytes a slot and one chunk of about 40 entries."""

ALGORITHM: Final = 'sha256'
"""The name of the hash of contents and nodes."""

MAX_COUNT: Final = 2**63 - 1
"""The most bytes of a file and the most files of a tree: what `len` can say, and well below what an encoding holds."""

_MODES: Final = (0o644, 0o755)
_DIGEST_PATTERN: Final = re.compile(r'[a-z0-9-]{1,32}:(?:[0-9a-f]{2}){16,64}')


def digest_of(data: bytes) -> str:
    """Return the digest of contents: the name of the algorithm, a colon, lower-case hexadecimal digits.

    The algorithm is SHA-256 (FIPS 180-4): `sha256:e3b0c442…` for no bytes at all.
    """
    return f'{ALGORITHM}:{hashlib.sha256(data).hexdigest()}'


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FileVersion:
    """The contents and the mode of one file at one moment.

    Versions are equal when digest, size and mode are; a backend may use a subclass that carries more.

    Raises:
        ValueError: The digest, size or mode is not one that a tree can hold.
    """

    digest: str
    """The contents, as `digest_of` names them."""
    size: int
    """Size of the contents in bytes."""
    mode: int = 0o644
    """The permission bits that matter, as in git: `0o755` if the owner may execute the file, `0o644` otherwise."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(
                f'The mode {self.mode:#o} is not one of a tree. Use 0o755 for executable files, else 0o644.'
            )
        if not 0 <= self.size <= MAX_COUNT:
            raise ValueError(f'A file cannot have {self.size} bytes. Give its size in bytes.')
        if _DIGEST_PATTERN.fullmatch(self.digest) is None:
            raise ValueError(f'{self.digest!r} is not a digest. Use `digest_of(data)`.')

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileVersion):
            return NotImplemented
        return self.digest == other.digest and self.size == other.size and self.mode == other.mode

    def __hash__(self) -> int:
        return hash((self.digest, self.size, self.mode))


class Chunk:
    """A directory, or the part of it in one slot of a split, as one list of entries."""

    __slots__ = ('entries', 'file_count', 'sealed')

    def __init__(self, entries: Mapping[str, Child], file_count: int) -> None:
        self.entries: Final = entries
        """Child by name; never changed."""
        self.file_count: Final = file_count
        """Files in and below it."""
        self.sealed: bytes | None = None
        """The raw digest once it was computed: `digest` fills it in."""

    @property
    def entry_count(self) -> int:
        """How many names it holds."""
        return len(self.entries)


class Split:
    """A directory of more than `MAX_CHUNK_ENTRIES` entries, or such a part of one."""

    __slots__ = ('entry_count', 'file_count', 'level', 'sealed', 'slots')

    def __init__(self, slots: tuple[Node | None, ...], level: int) -> None:
        self.slots: Final = slots
        """`FAN_OUT` parts; `None` where no name falls."""
        self.level: Final = level
        """Which hexadecimal digit of the name's hash chooses the slot."""
        self.entry_count: Final = sum(part.entry_count for part in slots if part is not None)
        """How many names it holds."""
        self.file_count: Final = sum(part.file_count for part in slots if part is not None)
        """Files in and below it."""
        self.sealed: bytes | None = None
        """The raw digest once it was computed: `digest` fills it in."""


Node: TypeAlias = Chunk | Split
Child: TypeAlias = FileVersion | Node

EMPTY: Final = Chunk({}, 0)
"""The directory without entries. Only the root of a tree may be it."""


def find(node: Node, name: str) -> Child | None:
    """Return what a directory holds under `name`."""
    while isinstance(node, Split):
        part = node.slots[_slot_of(name, node.level)]
        if part is None:
            return None
        node = part
    return node.entries.get(name)


def entries_of(node: Node) -> Iterator[tuple[str, Child]]:
    """Yield the entries of one directory, in no particular order."""
    if isinstance(node, Chunk):
        yield from node.entries.items()
    else:
        for part in node.slots:
            if part is not None:
                yield from entries_of(part)


def directory_of(entries: Mapping[str, Child], level: int = 0) -> Node:
    """Return the one node that stands for these entries."""
    if len(entries) <= MAX_CHUNK_ENTRIES:
        return Chunk(entries, sum(_files_in(child) for child in entries.values()))
    buckets: list[dict[str, Child]] = [{} for _ in range(FAN_OUT)]
    for name, child in entries.items():
        buckets[_slot_of(name, level)][name] = child
    return Split(tuple(directory_of(bucket, level + 1) if bucket else None for bucket in buckets), level)


def with_entry(node: Node, name: str, child: Child | None, level: int = 0) -> Node:
    """Return the directory with `child` under `name`; `None` takes the name away."""
    if isinstance(node, Chunk):
        return _chunk_with_entry(node, name, child, level)
    slot = _slot_of(name, level)
    part = with_entry(node.slots[slot] or EMPTY, name, child, level + 1)
    changed = Split((*node.slots[:slot], part if part.entry_count else None, *node.slots[slot + 1 :]), level)
    if changed.entry_count > MAX_CHUNK_ENTRIES:
        return changed
    return Chunk(dict(entries_of(changed)), changed.file_count)


def parts_of(node: Node) -> list[Node]:
    """Return the nodes that the encoding of `node` refers to."""
    if isinstance(node, Split):
        return [part for part in node.slots if part is not None]
    return [child for child in node.entries.values() if not isinstance(child, FileVersion)]


def check_directory(node: Node) -> None:
    """Raise `ValueError` if `node` is only a part of a directory."""
    if isinstance(node, Split) and node.level:
        raise ValueError('A node stands for a directory but is a part of one. Fetch the nodes of the tree again.')


def encode_name(name: str) -> bytes:
    """Return a name as it is encoded and hashed."""
    return name.encode('utf-8', 'surrogatepass')


def _slot_of(name: str, level: int) -> int:
    byte = hashlib.sha256(encode_name(name)).digest()[level // 2]
    return byte & 15 if level % 2 else byte >> 4


def _files_in(child: Child | None) -> int:
    if child is None:
        return 0
    return 1 if isinstance(child, FileVersion) else child.file_count


def _chunk_with_entry(node: Chunk, name: str, child: Child | None, level: int) -> Node:
    entries = dict(node.entries)
    before = entries.pop(name, None)
    if child is not None:
        entries[name] = child
    if len(entries) > MAX_CHUNK_ENTRIES:
        return directory_of(entries, level)
    return Chunk(entries, node.file_count - _files_in(before) + _files_in(child))
