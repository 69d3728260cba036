"""Standard streams for a protocol: what else is written goes to standard error."""

from __future__ import annotations

import os
import subprocess
import sys
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
