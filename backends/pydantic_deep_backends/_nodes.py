"""The directory nodes that a `Tree` is made of: persistent, content-addressed, with a documented encoding.

A directory is a `Chunk` of at most `MAX_CHUNK_ENTRIES` entries. One with more is a `Split`: `FAN_OUT` slots, chosen
by the bits of the SHA-256 of the name, each of them again a chunk or a split. The shape follows from the entries
alone, never from the order in which they came, so equal directories have equal encodings and equal digests.

Nodes never change after they are made; a change makes new nodes along one path and shares the rest. Nothing here
recurses over the depth of a path, which may be thousands of components; splits nest a handful of levels.

Encoding, all integers big-endian, nothing optional, every variable part behind its length:

```
chunk   b"pdt1c" then per entry, sorted by the bytes of its name:
          kind    1 byte: b"f" file 0o644, b"x" file 0o755, b"d" directory
          name    u16 length, then UTF-8 (lone surrogates as their three bytes, so that every name has one encoding)
          digest  u8 length and ASCII name of the algorithm, u8 length and raw bytes
          size    u64: bytes of the file; number of files below the directory
split   b"pdt1s" u8 level, then per used slot, in order:
          slot    u8
          digest  as above
          entries u64: entries of the directory in this slot
          files   u64: files in and below this slot
```
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

_CHUNK_MAGIC: Final = b'pdt1c'
_SPLIT_MAGIC: Final = b'pdt1s'
_ALGORITHM: Final = 'sha256'
_DIGEST_PATTERN: Final = re.compile(r'[a-z0-9-]{1,32}:(?:[0-9a-f]{2}){16,64}')
_RESERVED_NAMES: Final = frozenset({'', '.', '..'})
_MODE_KINDS: Final = {0o644: b'f', 0o755: b'x'}
_KIND_MODES: Final = {b'f': 0o644, b'x': 0o755}


def digest_of(data: bytes) -> str:
    """Return the digest of contents: the name of the algorithm, a colon, lower-case hexadecimal digits.

    The algorithm is SHA-256 (FIPS 180-4): `sha256:e3b0c442…` for no bytes at all.
    """
    return f'{_ALGORITHM}:{hashlib.sha256(data).hexdigest()}'


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
        if self.mode not in _MODE_KINDS:
            raise ValueError(
                f'The mode {self.mode:#o} is not one of a tree. Use 0o755 for executable files, else 0o644.'
            )
        if self.size < 0:
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


def digest(node: Node) -> str:
    """Return the digest of a directory: of its encoding, in which stand the digests of all below it."""
    return f'{_ALGORITHM}:{_raw_digest(node).hex()}'


def parts_of(node: Node) -> list[Node]:
    """Return the nodes that the encoding of `node` refers to."""
    if isinstance(node, Split):
        return [part for part in node.slots if part is not None]
    return [child for child in node.entries.values() if not isinstance(child, FileVersion)]


def encode(node: Node) -> bytes:
    """Return the encoding of one node, without those below it."""
    if isinstance(node, Chunk):
        names = sorted((_encode_name(name), child) for name, child in node.entries.items())
        return _CHUNK_MAGIC + b''.join(_encode_entry(name, child) for name, child in names)
    pieces = [_SPLIT_MAGIC, node.level.to_bytes(1, 'big')]
    for slot, part in enumerate(node.slots):
        if part is not None:
            pieces += (slot.to_bytes(1, 'big'), _encode_node_digest(part))
            pieces += (part.entry_count.to_bytes(8, 'big'), part.file_count.to_bytes(8, 'big'))
    return b''.join(pieces)


def decode(data: bytes, node_by_digest: Mapping[str, Node]) -> Node:
    """Return the node that was encoded as `data`.

    The result is built anew from the entries: compare digests to learn whether `data` had the one right form.

    Args:
        data: What `encode` returned.
        node_by_digest: The nodes that it refers to.

    Raises:
        ValueError: `data` is not the encoding of a node.
    """
    level, references = _parse(data)
    if level is not None:
        parts = (node_by_digest[reference.digest] for reference in references)
        return directory_of(dict(entry for part in parts for entry in entries_of(part)), level)
    return directory_of({ref.name: _decode_child(ref, node_by_digest) for ref in references})


def references_of(data: bytes) -> list[str]:
    """Return the digests of the nodes that an encoded node refers to. Raises `ValueError` like `decode`."""
    level, references = _parse(data)
    return [reference.digest for reference in references if level is not None or reference.kind == b'd']


def check_directory(node: Node) -> None:
    """Raise `ValueError` if `node` is only a part of a directory."""
    if isinstance(node, Split) and node.level:
        raise ValueError('A node stands for a directory but is a part of one. Fetch the nodes of the tree again.')


def _slot_of(name: str, level: int) -> int:
    byte = hashlib.sha256(_encode_name(name)).digest()[level // 2]
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


def _raw_digest(node: Node) -> bytes:
    """Compute the digests that are missing, from the bottom up: a path may be deeper than the stack of Python."""
    pending = [node]
    while pending:
        top = pending[-1]
        missing = [part for part in parts_of(top) if part.sealed is None] if top.sealed is None else []
        if missing:
            pending += missing
            continue
        pending.pop()
        if top.sealed is None:
            top.sealed = hashlib.sha256(encode(top)).digest()
    assert node.sealed is not None  # noqa: S101 - the loop ended, so `node` itself was popped
    return node.sealed


def _encode_name(name: str) -> bytes:
    return name.encode('utf-8', 'surrogatepass')


def _encode_entry(name: bytes, child: Child) -> bytes:
    length = len(name).to_bytes(2, 'big')
    if isinstance(child, FileVersion):
        algorithm, _, digits = child.digest.partition(':')
        digest_part = _encode_digest(algorithm, bytes.fromhex(digits))
        return _MODE_KINDS[child.mode] + length + name + digest_part + child.size.to_bytes(8, 'big')
    return b'd' + length + name + _encode_node_digest(child) + child.file_count.to_bytes(8, 'big')


def _encode_node_digest(node: Node) -> bytes:
    return _encode_digest(_ALGORITHM, _raw_digest(node))


def _encode_digest(algorithm: str, raw: bytes) -> bytes:
    name = algorithm.encode('ascii')
    return len(name).to_bytes(1, 'big') + name + len(raw).to_bytes(1, 'big') + raw


@dataclass(frozen=True, slots=True)
class _Reference:
    """One entry of a chunk, or one slot of a split without a kind and a name."""

    digest: str
    size: int
    kind: bytes = b''
    name: str = ''


def _parse(data: bytes) -> tuple[int | None, list[_Reference]]:
    """Take an encoding apart: the level of a split or `None`, and what it refers to."""
    reader = _Reader(data)
    magic = reader.take(len(_CHUNK_MAGIC))
    references: list[_Reference] = []
    if magic == _CHUNK_MAGIC:
        while not reader.at_end:
            kind, name = reader.take(1), reader.take(reader.number(2)).decode('utf-8', 'surrogatepass')
            references.append(_Reference(reader.digest(), reader.number(8), kind, name))
        return None, references
    if magic != _SPLIT_MAGIC:
        raise ValueError(f'A node cannot start with {magic!r}. Pass what `Tree.nodes` yielded.')
    level = reader.number(1)
    while not reader.at_end:
        reader.take(1)
        references.append(_Reference(reader.digest(), reader.number(8)))
        reader.take(8)
    return level, references


def _decode_child(reference: _Reference, node_by_digest: Mapping[str, Node]) -> Child:
    if reference.name in _RESERVED_NAMES or '/' in reference.name:
        raise ValueError(f'An entry cannot be named {reference.name!r}. Pass what `Tree.nodes` yielded.')
    if reference.kind in _KIND_MODES:
        return FileVersion(digest=reference.digest, size=reference.size, mode=_KIND_MODES[reference.kind])
    if reference.kind != b'd' or not reference.size:
        raise ValueError(f'An entry cannot be of the kind {reference.kind!r}. Pass what `Tree.nodes` yielded.')
    node = node_by_digest[reference.digest]
    check_directory(node)
    return node


class _Reader:
    """Takes an encoding apart from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def take(self, count: int) -> bytes:
        piece = self._data[self._position : self._position + count]
        if len(piece) < count:
            raise ValueError(f'The node ends after {len(self._data)} bytes, in the middle of an entry. Fetch it again.')
        self._position += count
        return piece

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), 'big')

    def digest(self) -> str:
        algorithm = self.take(self.number(1)).decode('ascii')
        return f'{algorithm}:{self.take(self.number(1)).hex()}'
