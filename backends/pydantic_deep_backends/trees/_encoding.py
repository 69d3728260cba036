"""The encoding of the nodes of a tree, and their digests.

All integers are big-endian, nothing is optional, and every variable part is preceded by its length:

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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ._nodes import (
    ALGORITHM,
    FAN_OUT,
    MAX_COUNT,
    Child,
    Chunk,
    FileVersion,
    Node,
    check_directory,
    directory_of,
    encode_name,
    entries_of,
    parts_of,
)

_CHUNK_MAGIC: Final = b'pdt1c'
_SPLIT_MAGIC: Final = b'pdt1s'
_MAX_LEVEL: Final = 31
"""The maximum level of a split: beyond it, 128 bits of the hashes of its names would have to be equal."""

_RESERVED_NAMES: Final = frozenset({'', '.', '..'})
_MODE_KINDS: Final = {0o644: b'f', 0o755: b'x'}
_KIND_MODES: Final = {b'f': 0o644, b'x': 0o755}


def digest(node: Node) -> str:
    """Return the digest of a directory: the hash of its encoding, which contains the digests of its children."""
    return f'{ALGORITHM}:{_raw_digest(node).hex()}'


def encode(node: Node) -> bytes:
    """Return the encoding of one node, without its children."""
    if isinstance(node, Chunk):
        names = sorted((encode_name(name), child) for name, child in node.entries.items())
        return _CHUNK_MAGIC + b''.join(_encode_entry(name, child) for name, child in names)
    pieces = [_SPLIT_MAGIC, node.level.to_bytes(1, 'big')]
    for slot, part in enumerate(node.slots):
        if part is not None:
            pieces += (slot.to_bytes(1, 'big'), _encode_node_digest(part))
            pieces += (part.entry_count.to_bytes(8, 'big'), part.file_count.to_bytes(8, 'big'))
    return b''.join(pieces)


def decode(data: bytes, node_by_digest: Mapping[str, Node]) -> Node:
    """Return the node that was encoded as `data`.

    The result is rebuilt from the entries. Compare digests to check that `data` was in canonical form.

    Args:
        data: A result of `encode`.
        node_by_digest: The nodes that it references.

    Raises:
        ValueError: `data` is not the encoding of a node.
    """
    level, references = _parse(data)
    node = _rebuild(level, references, node_by_digest)
    if node.file_count > MAX_COUNT:
        raise ValueError('A node cannot have that many files below it. Pass a node from `Tree.nodes`.')
    return node


def references_of(data: bytes) -> list[str]:
    """Return the digests of the nodes that an encoded node references. Raises `ValueError` like `decode`."""
    level, references = _parse(data)
    return [reference.digest for reference in references if level is not None or reference.kind == b'd']


def node_references(data: bytes) -> tuple[list[str], list[str]]:
    """Return the references of one node of a tree: the digests of nodes and the digests of files.

    This is all that a garbage collector needs, whereas `Tree.from_nodes` needs all nodes at once.

    Args:
        data: An encoded node, as yielded by `Tree.nodes`.

    Raises:
        ValueError: `data` is not an encoded node.
    """
    level, references = _parse(data)
    if level is not None:
        return [reference.digest for reference in references], []
    nodes = [reference.digest for reference in references if reference.kind == b'd']
    return nodes, [reference.digest for reference in references if reference.kind != b'd']


def _rebuild(level: int | None, references: list[_Reference], node_by_digest: Mapping[str, Node]) -> Node:
    if level is not None:
        parts = (node_by_digest[reference.digest] for reference in references)
        return directory_of(dict(entry for part in parts for entry in entries_of(part)), level)
    return directory_of({ref.name: _decode_child(ref, node_by_digest) for ref in references})


def _raw_digest(node: Node) -> bytes:
    """Compute missing digests from the bottom up, without recursion: a path may be deeper than Python's stack."""
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


def _encode_entry(name: bytes, child: Child) -> bytes:
    length = len(name).to_bytes(2, 'big')
    if isinstance(child, FileVersion):
        return _MODE_KINDS[child.mode] + length + name + _encode_file(child.digest, child.size)
    return b'd' + length + name + _encode_node_digest(child) + child.file_count.to_bytes(8, 'big')


@lru_cache(maxsize=4096)
def _encode_file(digest: str, size: int) -> bytes:
    """Return the encoded digest and size of a file, cached because a change encodes its whole directory again."""
    algorithm, _, digits = digest.partition(':')
    return _encode_digest(algorithm, bytes.fromhex(digits)) + size.to_bytes(8, 'big')


def _encode_node_digest(node: Node) -> bytes:
    return _encode_digest(ALGORITHM, _raw_digest(node))


def _encode_digest(algorithm: str, raw: bytes) -> bytes:
    name = algorithm.encode('ascii')
    return len(name).to_bytes(1, 'big') + name + len(raw).to_bytes(1, 'big') + raw


@dataclass(frozen=True, slots=True)
class _Reference:
    """An entry of a chunk, or a slot of a split, which has no kind and name."""

    digest: str
    size: int
    kind: bytes = b''
    name: str = ''


def _parse(data: bytes) -> tuple[int | None, list[_Reference]]:
    """Parse an encoding; return the level of a split (`None` for a chunk) and the references."""
    reader = _Reader(data)
    magic = reader.take(len(_CHUNK_MAGIC))
    references: list[_Reference] = []
    if magic == _CHUNK_MAGIC:
        while not reader.at_end:
            kind, name = reader.take(1), reader.take(reader.number(2)).decode('utf-8', 'surrogatepass')
            references.append(_Reference(reader.digest(), reader.number(8), kind, name))
        return None, references
    if magic != _SPLIT_MAGIC:
        raise ValueError(f'A node cannot start with {magic!r}. Pass a node from `Tree.nodes`.')
    level = reader.number(1)
    while not reader.at_end:
        reader.take(1)
        references.append(_Reference(reader.digest(), reader.number(8)))
        reader.take(8)
    if level > _MAX_LEVEL or len(references) > FAN_OUT:
        raise ValueError(f'A split cannot have {len(references)} slots at level {level}. Fetch it again.')
    return level, references


def _decode_child(reference: _Reference, node_by_digest: Mapping[str, Node]) -> Child:
    if reference.name in _RESERVED_NAMES or '/' in reference.name:
        raise ValueError(f'An entry cannot be named {reference.name!r}. Pass a node from `Tree.nodes`.')
    if reference.kind in _KIND_MODES:
        return FileVersion(digest=reference.digest, size=reference.size, mode=_KIND_MODES[reference.kind])
    if reference.kind != b'd' or not reference.size:
        raise ValueError(f'An entry cannot be of the kind {reference.kind!r}. Pass a node from `Tree.nodes`.')
    node = node_by_digest[reference.digest]
    check_directory(node)
    return node


class _Reader:
    """Reads an encoding from front to back."""

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
