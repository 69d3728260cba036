"""Distinguishes a directory from a copy of it, from one created again at its path, and from one on another machine.

A directory is identified by four values, none of which is written into it: the machine, the inode, the creation time of
the inode, and the time of its last change. If one of the first three differs, it is another directory. The last never
decreases, unless the disk was reset to an earlier state or is a copy of one. File systems without creation times reuse
a freed inode for the next directory, so nothing there proves that the directory is the same.

Not here: how callers react to the result (`versions` of pydantic-deep).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_MACHINE_IDS: Final = ('/etc/machine-id', '/var/lib/dbus/machine-id')
"""Files that contain the id of the system; see machine-id(5). Containers often have none."""

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
"""From `linux/fcntl.h` and `linux/stat.h`."""

_STATX_BYTES: Final = 256
_MASK_AT: Final = 0
_BTIME_AT: Final = 80
"""Size of `struct statx`, and the offsets of `stx_mask` and `stx_btime`, on every architecture; see statx(2)."""


class _Directory(NamedTuple):
    machine: str
    inode: int
    born_ns: int | None
    """`None` if the file system does not record it."""
    changed_ns: int


def identify(descriptor: int) -> str:
    """Return the identity of an open directory as a storable text."""
    return json.dumps(_attributes_of(descriptor)._asdict(), separators=(',', ':'))


def recognize(descriptor: int, identity: str) -> bool | None:
    """Return whether an open directory is the identified one; `None` if that cannot be determined.

    Args:
        descriptor: The directory.
        identity: A value that `identify` returned. A value in another format cannot be compared.
    """
    try:
        then = _Directory(**json.loads(identity))
        now = _attributes_of(descriptor)
        if now[:3] != then[:3] or now.changed_ns < then.changed_ns:
            return False
    except (ValueError, TypeError):
        return None
    return None if now.born_ns is None else True


def _attributes_of(descriptor: int) -> _Directory:
    status = os.fstat(descriptor)
    return _Directory(_machine(), status.st_ino, _born_ns(descriptor) or None, status.st_ctime_ns)


def _born_ns(descriptor: int) -> int:
    """Return the creation time of an inode in nanoseconds since 1970; 0 if unknown."""
    if sys.platform != 'linux':
        return int(getattr(os.fstat(descriptor), 'st_birthtime', 0) * 1_000_000_000)
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = getattr(_libc(), 'statx', None)  # Python has no other access to it before 3.15
    if statx is None or statx(descriptor, b'', _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return 0
    (mask,) = struct.unpack_from('=I', buffer, _MASK_AT)
    seconds, nanoseconds = struct.unpack_from('=qI', buffer, _BTIME_AT)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else 0


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _machine() -> str:
    """Return a digest of the id of this machine, which must not be exposed; empty if there is none."""
    for path in map(Path, _MACHINE_IDS):
        try:
            id = path.read_bytes().strip()
        except OSError:
            continue
        if id:
            return hashlib.sha256(b'pydantic-deep directory\0' + id).hexdigest()[:16]
    return ''
