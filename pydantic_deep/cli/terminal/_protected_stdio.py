"""Standard input and output for the messages of a protocol, and for nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def protected_stdio() -> Generator[tuple[BinaryIO, BinaryIO]]:
    """Yield files for the messages. Meanwhile, all other output goes to standard error, and other input is empty.

    So `print` of a tool and the output of a child process do not get between the messages.
    """
    try:
        stdin, stdout, stderr = (stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr))
    except (OSError, ValueError):  # they are objects, as in a test
        yield sys.stdin.buffer, sys.stdout.buffer
        return
    with protected_descriptors(stdin, stdout, stderr) as files:
        yield files


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
