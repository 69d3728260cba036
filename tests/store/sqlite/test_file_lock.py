"""Locks on open files exclude each other, and end with the file."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic_deep.store.sqlite._file_lock import is_locked, lock


def test_lock_is_visible_until_its_file_is_closed(tmp_path: Path) -> None:
    owner, other = (os.open(tmp_path / 'lock', os.O_CREAT | os.O_RDWR) for _ in range(2))
    lock(owner)
    assert is_locked(other)
    os.close(owner)
    assert not is_locked(other)
    os.close(other)
