"""Exit codes in reports, and commands that never start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pydantic_deep_backends.commands._execution import Execution, exit_code_of
from pydantic_deep_backends.commands._local_process import start_locally
from pydantic_deep_backends.sandbox import _bwrap as bwrap


@pytest.mark.parametrize('report', [b'', b'x', b'1.5', b'9' * 60, b'-1', b'127'], ids=ascii)
def test_malformed_report_has_no_exit_code(report: bytes) -> None:
    assert exit_code_of(report) is None


def test_execution_stopped_before_start_never_starts() -> None:
    def start() -> bwrap.SandboxCommand:
        raise AssertionError

    execution = Execution(start=start, check=lambda: None, output_bytes=1, timeout_seconds=None)
    assert not execution.stop()
    assert execution.run() is None


@pytest.mark.slow
def test_failed_chdir_leaks_no_descriptors(descriptors: Callable[[], list[str]]) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        start_locally(['true'], '/pydantic-deep/none', {})
    assert descriptors() == before
