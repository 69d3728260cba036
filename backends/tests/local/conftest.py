"""Fixtures and helpers for `LocalBackend` tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend
from pydantic_deep_backends.local import _capture as capturing


@pytest.fixture
def local(tmp_path: Path) -> LocalBackend:
    for number in range(50):
        (tmp_path / f'd{number % 5}').mkdir(exist_ok=True)
        (tmp_path / f'd{number % 5}' / str(number)).write_text(str(number))
    return LocalBackend(tmp_path)


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Make opening the file or directory of a name fail. File modes would not stop root."""
    open_file, open_ = capturing.open_file, capturing.Directories.open

    def set_up(name: str, number: int) -> None:
        def failing_file(directory: int, asked: str, max_bytes: int = 0) -> tuple[int, os.stat_result]:
            if asked == name:
                raise OSError(number, os.strerror(number))
            return open_file(directory, asked, max_bytes)

        def failing_open(self: capturing.Directories, path: tuple[str, ...]) -> int:
            if path[-1:] == (name,):
                raise OSError(number, os.strerror(number))
            return open_(self, path)

        monkeypatch.setattr(capturing, 'open_file', failing_file)
        monkeypatch.setattr(capturing.Directories, 'open', failing_open)

    return set_up


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path)
