"""What is done at the end of a confined walk: look, read, write, remove, lock. Every function takes an open directory.

Nothing here follows a link: where a name is one, `OSError(ELOOP)` says so, and the walk goes on from there.
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
"""How much one `read` of a file of unknown size asks for: most source files whole, and no page more than they need."""

_MAX_CHUNK_BYTES = 16_777_216
"""The most that one `read` of a file asks for after the first."""

MAX_READ_BYTES = 1_073_741_824
"""The largest file that is read or hashed: far above any text, below what would end the process, and a bound on the
time that a sparse file of terabytes takes."""

ERRNO_NOT_REGULAR = errno.EINVAL
"""The number of the error for what is neither a file, a directory nor a link."""

_TEMPORARY_NAME = re.compile(r'\.pydantic-deep-[0-9a-f]{32}\.tmp')

_STALE_NANOSECONDS = 86_400_000_000_000
"""When an unfinished write counts as left over: after a day. One takes seconds, and a patch of thousands minutes."""

_MAX_OPEN_LEVELS = 32
"""How many directories of one tree are open at once; a process has 1,024 descriptors or fewer by default."""

_KIND_NAMES = {
    stat.S_IFIFO: 'a FIFO',
    stat.S_IFSOCK: 'a socket',
    stat.S_IFCHR: 'a character device',
    stat.S_IFBLK: 'a block device',
}


class DirectoryLockedError(Exception):
    """Somebody else holds the lock of a directory; nothing was done, and trying again helps."""


def is_temporary(name: str) -> bool:
    """Return whether a name is one of our unfinished writes, which nobody should see."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def remove_stale_temporaries(directory: int, now: int) -> None:
    """Remove from an open directory what killed processes were writing there: our unfinished writes of over a day.

    A process that was only stopped for that long gets an error from its write then, and the old file is whole.

    Args:
        directory: An open directory.
        now: Nanoseconds since 1970.
    """
    for entry in list_entries(directory):
        with suppress(OSError):  # it is gone, or stays: nobody sees it
            if is_temporary(entry.name) and now - entry.stat(follow_symlinks=False).st_mtime_ns > _STALE_NANOSECONDS:
                os.unlink(entry.name, dir_fd=directory)


def stat_entry(directory: int, name: str) -> os.stat_result:
    """Return the status of an entry that is not a link.

    Raises:
        FileNotFoundError: Nothing is there.
        OSError: With `ELOOP`, a link is there.
    """
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise link_found()
    return status


def open_file(directory: int, name: str) -> tuple[int, os.stat_result]:
    """Open a regular file to read it, without ever waiting; return the descriptor and its status.

    Raises:
        IsADirectoryError: A directory is there.
        OSError: With `ELOOP`, a link is there; with `EINVAL`, what is there is not a file; with `EFBIG`, it is larger
            than `MAX_READ_BYTES`.
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
        _check_size(status.st_size)
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
    """Return the contents of a regular file. Raises as `open_file`, and as `check` for the status of the open file."""
    descriptor, status = open_file(directory, name)
    try:
        check(status)
        return b''.join(read_chunks(descriptor, max(status.st_size + 1, _READ_SIZE_BYTES)))
    finally:
        os.close(descriptor)


def read_start(directory: int, name: str, size_bytes: int, check: Callable[[os.stat_result], None]) -> bytes:
    """Return the first bytes of what a listing called a file, `size_bytes` at most, with as few calls as possible."""
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
    """Yield what is left of a file in growing chunks; the end is where a read returns nothing.

    Raises:
        OSError: With `EFBIG`, it grew beyond `MAX_READ_BYTES` meanwhile.
    """
    total_bytes = 0
    while chunk := os.read(descriptor, size_bytes):
        total_bytes += len(chunk)
        _check_size(total_bytes)
        yield chunk
        size_bytes = min(size_bytes * 4, _MAX_CHUNK_BYTES)


def _check_size(size_bytes: int) -> None:
    if size_bytes > MAX_READ_BYTES:
        raise OSError(errno.EFBIG, f'It has {size_bytes:,} bytes. At most {MAX_READ_BYTES:,} can be read')


def replace_file(directory: int, name: str, data: bytes, *, mode: int | None, new_mode: int = 0o666) -> None:
    """Write a file so that others see the old contents or the new, also after a crash.

    The data goes into a new file beside it, which takes its name: another hard link keeps the old contents, and the
    file belongs to the user of this process. The caller holds the lock of the directory.

    Args:
        directory: An open directory.
        name: A name in it; a file or a link that bears it is replaced.
        data: All of the new contents.
        mode: The exact permission bits; `None` for `new_mode`.
        new_mode: The permission bits before the umask of the process takes some.

    Raises:
        IsADirectoryError: A directory is there.
        OSError: The write failed and the old file is whole.
    """
    temporary = f'.pydantic-deep-{secrets.token_hex(16)}.tmp'
    try:
        descriptor = start_file(directory, temporary, data, mode=mode, new_mode=new_mode)
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
    """Write a new file, and return its descriptor. It is not on the disk for certain, and stays there if this fails.

    Args:
        directory: An open directory.
        name: A name that is not in it.
        data: All of its contents.
        mode: The exact permission bits; `None` for `new_mode`.
        new_mode: The permission bits before the umask of the process takes some.
    """
    # Until it has the mode of the old file, nobody else may read it. The kernel applies the umask to a new one.
    descriptor = os.open(name, CREATE, new_mode if mode is None else 0o600, dir_fd=directory)
    try:
        _write(descriptor, data)
        if mode is not None:
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def writable_mode(directory: int, name: str) -> int | None:
    """Return the permission bits of a file that is about to be replaced; `None` if nothing is there.

    Raises:
        IsADirectoryError: A directory is there.
        PermissionError: The file may not be written, though it could be replaced.
        OSError: With `ELOOP`, a link is there; with `EINVAL`, what is there is not a file.
    """
    try:
        status = stat_entry(directory, name)
    except FileNotFoundError:
        return None
    check_regular(status)
    try:
        os.close(os.open(name, READ | os.O_WRONLY, dir_fd=directory))
    except OSError as error:
        # A program that is running cannot be opened for writing, but it can be replaced.
        if error.errno != errno.ETXTBSY:
            raise
    return stat.S_IMODE(status.st_mode)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def remove_entry(directory: int, name: str) -> None:
    """Remove a file, a link, or a directory with everything in it; no link is followed."""
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
    """Remove what a directory holds; return whether it held anything.

    A directory too deep to be opened beside all those above it is moved up to `top`, and emptied from there.
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
    """Return the entries of an open directory, in no order, our unfinished writes among them; `most` of them if given."""
    with os.scandir(directory) as entries:
        return list(islice(entries, most))


@contextmanager
def locked(directory: int) -> Generator[None]:
    """Hold the lock of an open directory: one writer at a time among threads, instances and processes.

    The lock is `flock` on the directory itself, so it leaves no file behind and ends with the process. It is
    advisory: it keeps out those who ask for it.

    Raises:
        DirectoryLockedError: Somebody else holds it.
    """
    import fcntl  # which Windows lacks

    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DirectoryLockedError from None
    try:
        yield
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)
