"""What tells a directory from a copy of it, from one made anew at its path, and from that of another machine.

A directory is known by four things, none of which is written into it: the machine, the inode, the moment of birth of
the inode, and the moment of its last change. The first three are equal or it is another directory; the last never goes
back, unless the disk was set back to an earlier state or is a copy of one. File systems that keep no birth times give
a freed inode to the next directory, so that nothing there proves that it is the same one.

Not here: what follows from it (`versions` of pydantic-deep).
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
"""Where a system keeps its id; see machine-id(5). Containers often have none."""

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
"""From `linux/fcntl.h` and `linux/stat.h`."""

_STATX_BYTES: Final = 256
_MASK_AT: Final = 0
_BTIME_AT: Final = 80
"""The size of `struct statx`, and where `stx_mask` and `stx_btime` are in it, on every architecture; see statx(2)."""


class _Directory(NamedTuple):
    machine: str
    inode: int
    born_ns: int | None
    """`None` where the file system does not say."""
    changed_ns: int


def identify(descriptor: int) -> str:
    """Return what identifies an open directory, as a text to be kept."""
    return json.dumps(_look_at(descriptor)._asdict(), separators=(',', ':'))


def recognize(descriptor: int, identity: str) -> bool | None:
    """Return whether an open directory is the one that was identified; `None` if that cannot be told.

    Args:
        descriptor: The directory.
        identity: What `identify` returned. One of another form cannot be compared.
    """
    try:
        then = _Directory(**json.loads(identity))
        now = _look_at(descriptor)
        if now[:3] != then[:3] or now.changed_ns < then.changed_ns:
            return False
    except (ValueError, TypeError):
        return None
    return None if now.born_ns is None else True


def _look_at(descriptor: int) -> _Directory:
    status = os.fstat(descriptor)
    return _Directory(_machine(), status.st_ino, _born_ns(descriptor) or None, status.st_ctime_ns)


def _born_ns(descriptor: int) -> int:
    """Return the moment of birth of an inode, in nanoseconds since 1970; 0 where it is not known."""
    if sys.platform != 'linux':
        return int(getattr(os.fstat(descriptor), 'st_birthtime', 0) * 1_000_000_000)
    found = ctypes.create_string_buffer(_STATX_BYTES)
    statx = getattr(_libc(), 'statx', None)  # before Python 3.15 there is no other way to it
    if statx is None or statx(descriptor, b'', _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return 0
    (mask,) = struct.unpack_from('=I', found, _MASK_AT)
    seconds, nanoseconds = struct.unpack_from('=qI', found, _BTIME_AT)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else 0


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _machine() -> str:
    """Return a digest of the id of this machine, which is not to be shown as it is; empty where there is none."""
    for path in map(Path, _MACHINE_IDS):
        try:
            id = path.read_bytes().strip()
        except OSError:
            continue
        if id:
            return hashlib.sha256(b'pydantic-deep directory\0' + id).hexdigest()[:16]
    return ''
