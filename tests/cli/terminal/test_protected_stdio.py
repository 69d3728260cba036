"""Standard streams for a protocol: what else is written goes to standard error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from pydantic_deep.cli.terminal._protected_stdio import protected_stdio


def test_other_output_goes_to_standard_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the streams are protected, what this process and its children print goes to standard error, and they find
    no input."""
    (stdin, feed), (read, stdout) = os.pipe(), os.pipe()
    with os.fdopen(stdin) as input, os.fdopen(stdout, 'w') as output, (tmp_path / 'errors').open('w') as errors:
        for name, file in (('stdin', input), ('stdout', output), ('stderr', errors)):
            monkeypatch.setattr(sys, name, file)
        with protected_stdio() as (incoming, outgoing):
            print('printed', flush=True)
            subprocess.run(['/bin/echo', 'child'], stdout=stdout, check=True)
            assert os.read(stdin, 10) == b''
            os.write(feed, b'message')
            assert incoming.read(7) == b'message'
            outgoing.write(b'answer')
        os.write(stdout, b' restored')
        assert os.read(read, 100) == b'answer restored'
    assert (tmp_path / 'errors').read_text() == 'printed\nchild\n'
    for descriptor in (feed, read):
        os.close(descriptor)


def test_streams_may_be_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of the process cannot be protected, and remain open."""
    streams = TextIOWrapper(BytesIO(b'message')), TextIOWrapper(BytesIO())
    monkeypatch.setattr(sys, 'stdin', streams[0])
    monkeypatch.setattr(sys, 'stdout', streams[1])
    with protected_stdio() as files:
        assert files == (streams[0].buffer, streams[1].buffer)
    assert not files[0].closed


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """Replace the streams of the process, and yield a descriptor that feeds its input."""
    stdin, feed = os.pipe()
    with os.fdopen(stdin) as input, open(os.devnull, 'w') as output, open(os.devnull, 'w') as errors:
        for name, file in (('stdin', input), ('stdout', output), ('stderr', errors)):
            monkeypatch.setattr(sys, name, file)
        yield feed
    os.close(feed)


def test_input_ends_with_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for a message ends, so that the process can. The next Ctrl-C interrupts as usual."""
    before = signal.getsignal(signal.SIGINT)
    with piped(monkeypatch) as feed, protected_stdio() as (incoming, _), ThreadPoolExecutor(1) as thread:
        os.write(feed, b'message')
        assert incoming.readable()
        assert thread.submit(incoming.read, 7).result() == b'message'
        waiting = thread.submit(incoming.read, 7)
        signal.raise_signal(signal.SIGINT)
        assert waiting.result() == b''
        assert signal.getsignal(signal.SIGINT) is before
    with piped(monkeypatch), protected_stdio():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_streams_are_protected_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the main thread handles signals. In another one, the input ends with its data."""

    def read() -> bytes:
        with protected_stdio() as (incoming, _):
            return incoming.read(7)

    with piped(monkeypatch) as feed, ThreadPoolExecutor(1) as thread:
        os.write(feed, b'message')
        assert thread.submit(read).result() == b'message'
