"""Operations at the end of a confined walk: stat, read, write, remove, lock. Every function takes an open directory.

No function follows a link: a name that is one raises `OSError(ELOOP)`, and the walk continues at its target.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from ._confined_root import link_found, open_directory
from ._open_flags import CREATE, READ

_READ_SIZE_BYTES = 65_536
"""Size of the first read of a file of unknown size: large enough for most source files, without wasting memory."""

_MAX_CHUNK_BYTES = 16_777_216
"""Maximum size of each further read of a file."""

MAX_READ_BYTES = 1_073_741_824
"""Maximum size of a file that is read or hashed: far above any text, below the memory of a process, and a limit on the
time for a sparse file of terabytes."""

ERRNO_NOT_REGULAR = errno.EINVAL
"""Error number for anything that is neither a file, a directory nor a link."""

_TEMPORARY_NAME = re.compile(r'\.pydantic-deep-[0-9a-f]{32}\.tmp')

_STALE_NANOSECONDS = 86_400_000_000_000
"""Age at which an unfinished write is stale: one day. A write takes seconds, and a patch of thousands minutes."""

_MAX_OPEN_LEVELS = 32
"""Maximum number of open directories of one tree; a process has 1,024 descriptors or fewer by default."""

_KIND_NAMES = {
    stat.S_IFIFO: 'a FIFO',
    stat.S_IFSOCK: 'a socket',
    stat.S_IFCHR: 'a character device',
    stat.S_IFBLK: 'a block device',
}


class DirectoryLockedError(Exception):
    """Another writer holds the lock of a directory. Nothing was changed, and a retry can succeed."""


def is_temporary(name: str) -> bool:
    """Return whether a name belongs to one of our unfinished writes, which are hidden from users."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def remove_stale_temporaries(directory: int, now: int) -> None:
    """Remove temporary files that killed processes left in an open directory over a day ago.

    If a process was only suspended that long, its write then fails, and the old file is intact.

    Args:
        directory: An open directory.
        now: The current time in nanoseconds since 1970.
    """
    for entry in list_entries(directory):
        with suppress(OSError):  # it was removed by another process, or it remains, which has no effect
            if is_temporary(entry.name) and now - entry.stat(follow_symlinks=False).st_mtime_ns > _STALE_NANOSECONDS:
                os.unlink(entry.name, dir_fd=directory)


def stat_entry(directory: int, name: str) -> os.stat_result:
    """Return the status of an entry that is not a link.

    Raises:
        FileNotFoundError: The name does not exist.
        OSError: With `ELOOP`, it is a link.
    """
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise link_found()
    return status


def open_file(directory: int, name: str, max_bytes: int = 0) -> tuple[int, os.stat_result]:
    """Open a regular file for reading, without ever blocking; return the descriptor and its status.

    Raises:
        IsADirectoryError: The name is a directory.
        OSError: With `ELOOP`, it is a link; with `EINVAL`, it is not a file; with `EFBIG`, it is larger than
            `MAX_READ_BYTES` and `max_bytes`.
    """
    try:
        descriptor = os.open(name, READ, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):  # a socket cannot be opened: Linux, macOS
            check_regular(stat_entry(directory, name))
        raise
    try:
        status = os.fstat(descriptor)
        check_regular(status)
        _check_size(status.st_size, max_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, status


def check_regular(status: os.stat_result) -> None:
    """Raise unless the status is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        kind = _KIND_NAMES.get(stat.S_IFMT(status.st_mode), 'a special file')
        raise OSError(ERRNO_NOT_REGULAR, f'It is {kind}. Only regular files can be read and written')


def read_file(directory: int, name: str, check: Callable[[os.stat_result], None]) -> bytes:
    """Return the contents of a regular file. Raises as `open_file`, and as `check` with the status of the open file."""
    descriptor, status = open_file(directory, name)
    try:
        check(status)
        return b''.join(read_chunks(descriptor, max(status.st_size + 1, _READ_SIZE_BYTES)))
    finally:
        os.close(descriptor)


def read_start(directory: int, name: str, size_bytes: int, check: Callable[[os.stat_result], None]) -> bytes:
    """Return the first bytes of a listed file, at most `size_bytes`, with as few system calls as possible."""
    descriptor = os.open(name, READ, dir_fd=directory)
    try:
        check(os.fstat(descriptor))
        chunks: list[bytes] = []
        for chunk in read_chunks(descriptor):
            chunks.append(chunk[:size_bytes])
            size_bytes -= len(chunk)
            if size_bytes <= 0:
                break
        return chunks[0] if len(chunks) == 1 else b''.join(chunks)
    finally:
        os.close(descriptor)


def read_chunks(descriptor: int, size_bytes: int = _READ_SIZE_BYTES) -> Iterator[bytes]:
    """Yield the remaining contents of a file in growing chunks, until a read returns nothing.

    Raises:
        OSError: With `EFBIG`, the file grew beyond `MAX_READ_BYTES` meanwhile.
    """
    total_bytes = 0
    while chunk := os.read(descriptor, size_bytes):
        total_bytes += len(chunk)
        _check_size(total_bytes)
        yield chunk
        size_bytes = min(size_bytes * 4, _MAX_CHUNK_BYTES)


def _check_size(size_bytes: int, max_bytes: int = 0) -> None:
    max_bytes = max(max_bytes, MAX_READ_BYTES)
    if size_bytes > max_bytes:
        raise OSError(errno.EFBIG, f'It has {size_bytes:,} bytes. At most {max_bytes:,} can be read')


def replace_file(directory: int, name: str, data: bytes, *, mode: int | None) -> None:
    """Write a file so that readers see the old contents or the new, even after a crash.

    The data is written to a new file in the same directory, which is then renamed: other hard links keep the old
    contents, and the file belongs to the user of this process. The caller must hold the lock of the directory.

    Args:
        directory: An open directory.
        name: A name in it; an existing file or link of this name is replaced.
        data: The new contents.
        mode: The exact permission bits; `None` for those that the umask of the process leaves.

    Raises:
        IsADirectoryError: The name is a directory.
        OSError: The write failed; the old file is intact.
    """
    temporary = f'.pydantic-deep-{secrets.token_hex(16)}.tmp'
    try:
        descriptor = start_file(directory, temporary, data, mode=mode, new_mode=0o666)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)


def start_file(directory: int, name: str, data: bytes, *, mode: int | None, new_mode: int) -> int:
    """Write a new file and return its descriptor. The file is not synchronized, and is not removed on failure.

    Args:
        directory: An open directory.
        name: A name that does not exist in it.
        data: The contents.
        mode: The exact permission bits; `None` for `new_mode`.
        new_mode: The permission bits before the umask of the process is applied.
    """
    # Until it has its final mode, no other user may read it. The kernel applies the umask to a new file.
    descriptor = os.open(name, CREATE, new_mode if mode is None else 0o600, dir_fd=directory)
    try:
        write_all(descriptor, data)
        if mode is not None:
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def writable_mode(directory: int, name: str) -> int | None:
    """Return the permission bits of a file that is about to be replaced; `None` if it does not exist.

    Raises:
        IsADirectoryError: The name is a directory.
        PermissionError: The file is not writable, although it could be replaced.
        OSError: With `ELOOP`, the name is a link; with `EINVAL`, it is not a file.
    """
    try:
        status = stat_entry(directory, name)
    except FileNotFoundError:
        return None
    check_regular(status)
    try:
        os.close(os.open(name, READ | os.O_WRONLY, dir_fd=directory))
    except OSError as error:
        # A running program cannot be opened for writing, but it can be replaced.
        if error.errno != errno.ETXTBSY:
            raise
    return stat.S_IMODE(status.st_mode)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` at the position of an open file."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def remove_entry(directory: int, name: str) -> None:
    """Remove a file, a link, or a directory with everything in it. Links are not followed."""
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        _remove_tree(directory, name)
    else:
        os.unlink(name, dir_fd=directory)
    os.fsync(directory)


def _remove_tree(directory: int, name: str) -> None:
    top = open_directory(directory, name)
    try:
        while _empty(top, top, _MAX_OPEN_LEVELS):
            pass
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=directory)


def _empty(directory: int, top: int, levels_left: int) -> bool:
    """Remove the contents of a directory; return whether there were any.

    A directory that is too deep to be opened together with all its parents is moved up to `top` and emptied later.
    """
    entries = list_entries(directory)
    for entry in entries:
        with suppress(FileNotFoundError):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=directory)
            elif levels_left == 0:
                os.rename(entry.name, secrets.token_hex(16), src_dir_fd=directory, dst_dir_fd=top)
            else:
                below = open_directory(directory, entry.name)
                try:
                    _empty(below, top, levels_left - 1)
                finally:
                    os.close(below)
                os.rmdir(entry.name, dir_fd=directory)
    return bool(entries)


def list_entries(directory: int, most: int | None = None) -> list[os.DirEntry[str]]:
    """Return the entries of an open directory, unordered and including our temporary files; at most `most`."""
    with os.scandir(directory) as entries:
        return list(islice(entries, most))


@contextmanager
def locked(directory: int) -> Generator[None]:
    """Hold the lock of an open directory: one writer at a time among threads, instances and processes.

    The lock is `flock` on the directory itself, so it leaves no file behind and ends with the process. It is advisory:
    it affects only writers that use it.

    Raises:
        DirectoryLockedError: Another writer holds it.
    """
    import fcntl  # missing on Windows

    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DirectoryLockedError from None
    try:
        yield
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)
