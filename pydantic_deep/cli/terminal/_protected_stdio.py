"""Standard input and output for the messages of a protocol, and for nothing else."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@contextmanager
def protected_stdio() -> Generator[tuple[BinaryIO, BinaryIO]]:
    """Yield files for the messages. Meanwhile, all other output goes to standard error, and other input is empty.

    So `print` of a tool and the output of a child process do not get between the messages. The input also ends with
    Ctrl-C; the second time, that interrupts as usual.
    """
    try:
        stdin, stdout, stderr = (stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr))
    except (OSError, ValueError):  # they are objects, as in a test
        yield sys.stdin.buffer, sys.stdout.buffer
        return
    with protected_descriptors(stdin, stdout, stderr) as (incoming, outgoing), _until_interrupt(incoming) as messages:
        yield messages, outgoing


class _Interruptible(io.RawIOBase):
    """A file that ends when its data ends, or when another descriptor can be read, even if a thread waits for data."""

    def __init__(self, file: io.FileIO, interrupted: int) -> None:
        self._file = file
        self._interrupted = interrupted

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        ready, _, _ = select.select([self._file, self._interrupted], [], [])
        return 0 if self._interrupted in ready else self._file.readinto(buffer) or 0


@contextmanager
def _until_interrupt(file: BinaryIO) -> Generator[BinaryIO]:
    """Yield the file, ended by the first SIGINT. Only the main thread handles signals, and Windows waits for sockets only."""
    if os.name == 'nt' or threading.current_thread() is not threading.main_thread():
        yield file
        return
    interrupted, interrupt = os.pipe()

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        os.write(interrupt, b'.')

    before = signal.signal(signal.SIGINT, end)
    try:
        yield cast('BinaryIO', _Interruptible(cast('io.FileIO', file), interrupted))
    finally:
        signal.signal(signal.SIGINT, before)
        for descriptor in (interrupted, interrupt):
            os.close(descriptor)


@contextmanager
def protected_descriptors(stdin: int, stdout: int, stderr: int) -> Generator[tuple[BinaryIO, BinaryIO]]:
    """Do the same with other descriptors than those of the process."""
    kept = os.dup(stdin), os.dup(stdout)  # the files of the messages may be closed before the end
    # Input has no buffer: a thread that still reads would lock it, so that it could not be closed.
    with os.fdopen(os.dup(stdin), 'rb', buffering=0) as incoming, os.fdopen(os.dup(stdout), 'wb') as outgoing:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, stdin)
        os.close(nothing)
        os.dup2(stderr, stdout)
        try:
            yield incoming, outgoing
        finally:
            for descriptor, original in zip(kept, (stdin, stdout), strict=True):
                os.dup2(descriptor, original)
                os.close(descriptor)
