"""The directory nodes of a `Tree`: persistent, and with one canonical shape for the same files.

A directory is a `Chunk` of at most `MAX_CHUNK_ENTRIES` entries. A larger one is a `Split` into `FAN_OUT` slots,
selected by the bits of the SHA-256 of the name; each slot is again a chunk or a split. The shape depends only on the
entries, never on the order of changes, so equal directories have equal encodings and equal digests.

Nodes are immutable: a change creates new nodes along one path and shares the rest. Nothing here recurses over the depth
of a path, which may be thousands of components; splits nest only a few levels.

Not here: the encoding of nodes and their digests (`_encoding`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_CHUNK_ENTRIES: Final = 64
"""Maximum number of entries in a chunk. A change rewrites one chunk of each parent directory, about 70 bytes per entry:
with 64, that is under 5 KB, while a directory of ordinary size is still one node."""

FAN_OUT: Final = 16
"""Slots of a split: one hexadecimal digit of the hash of the name. A change of one file among 10,000 in a single
directory rewrites two splits of about 60 bytes per slot and one chunk of about 40 entries."""

ALGORITHM: Final = 'sha256'
"""The hash algorithm of contents and nodes."""

MAX_COUNT: Final = 2**63 - 1
"""Maximum size of a file and number of files in a tree: the maximum of `len`, and well within the encoding."""

_MODES: Final = (0o644, 0o755)
_DIGEST_PATTERN: Final = re.compile(r'[a-z0-9-]{1,32}:(?:[0-9a-f]{2}){16,64}')


def digest_of(data: bytes) -> str:
    """Return the digest of contents: the algorithm, a colon, lower-case hexadecimal digits.

    The algorithm is SHA-256 (FIPS 180-4): `sha256:e3b0c442…` for empty contents.
    """
    return f'{ALGORITHM}:{hashlib.sha256(data).hexdigest()}'


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FileVersion:
    """The contents and the mode of one file at one point in time.

    Versions with equal digest, size and mode are equal; a backend may use a subclass with more data.

    Raises:
        ValueError: The digest, size or mode is not valid in a tree.
    """

    digest: str
    """The digest of the contents, in the format of `digest_of`."""
    size: int
    """Size of the contents in bytes."""
    mode: int = 0o644
    """The relevant permission bits, as in git: `0o755` if the owner may execute the file, otherwise `0o644`."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(
                f'The mode {self.mode:#o} is not valid in a tree. Use 0o755 for executable files, otherwise 0o644.'
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
    """A directory, or the part of one in a slot of a split, as one list of entries."""

    __slots__ = ('entries', 'file_count', 'sealed')

    def __init__(self, entries: Mapping[str, Child], file_count: int) -> None:
        self.entries: Final = entries
        """Children by name; immutable."""
        self.file_count: Final = file_count
        """Number of files in this node and below."""
        self.sealed: bytes | None = None
        """The raw digest, cached by `digest`; `None` until it is computed."""

    @property
    def entry_count(self) -> int:
        """Number of entries in this node."""
        return len(self.entries)


class Split:
    """A directory, or a part of one, with more than `MAX_CHUNK_ENTRIES` entries."""

    __slots__ = ('entry_count', 'file_count', 'level', 'sealed', 'slots')

    def __init__(self, slots: tuple[Node | None, ...], level: int) -> None:
        self.slots: Final = slots
        """`FAN_OUT` parts; `None` for an empty slot."""
        self.level: Final = level
        """Index of the hexadecimal digit of the name's hash that selects the slot."""
        self.entry_count: Final = sum(part.entry_count for part in slots if part is not None)
        """Number of entries in all slots."""
        self.file_count: Final = sum(part.file_count for part in slots if part is not None)
        """Number of files in this node and below."""
        self.sealed: bytes | None = None
        """The raw digest, cached by `digest`; `None` until it is computed."""


Node: TypeAlias = Chunk | Split
Child: TypeAlias = FileVersion | Node

EMPTY: Final = Chunk({}, 0)
"""The empty directory. Only the root of a tree may be empty."""


def find(node: Node, name: str) -> Child | None:
    """Return the child with this name; `None` if there is none."""
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
    """Return the canonical node for these entries."""
    if len(entries) <= MAX_CHUNK_ENTRIES:
        return Chunk(entries, sum(_files_in(child) for child in entries.values()))
    buckets: list[dict[str, Child]] = [{} for _ in range(FAN_OUT)]
    for name, child in entries.items():
        buckets[_slot_of(name, level)][name] = child
    return Split(tuple(directory_of(bucket, level + 1) if bucket else None for bucket in buckets), level)


def with_entry(node: Node, name: str, child: Child | None, level: int = 0) -> Node:
    """Return the directory with `child` under `name`; `None` removes the name."""
    if isinstance(node, Chunk):
        return _chunk_with_entry(node, name, child, level)
    slot = _slot_of(name, level)
    part = with_entry(node.slots[slot] or EMPTY, name, child, level + 1)
    changed = Split((*node.slots[:slot], part if part.entry_count else None, *node.slots[slot + 1 :]), level)
    if changed.entry_count > MAX_CHUNK_ENTRIES:
        return changed
    return Chunk(dict(entries_of(changed)), changed.file_count)


def parts_of(node: Node) -> list[Node]:
    """Return the nodes that the encoding of `node` references."""
    if isinstance(node, Split):
        return [part for part in node.slots if part is not None]
    return [child for child in node.entries.values() if not isinstance(child, FileVersion)]


def check_directory(node: Node) -> None:
    """Raise `ValueError` if `node` is only a part of a directory."""
    if isinstance(node, Split) and node.level:
        raise ValueError('A node is only a part of a directory. Fetch the nodes of the tree again.')


def encode_name(name: str) -> bytes:
    """Return the encoded form of a name, which is also hashed."""
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
