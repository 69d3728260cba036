"""Engines with a dialect of SQL, which checks and backups need."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from pydantic_deep.store import SqlStore

pytestmark = pytest.mark.anyio


async def test_engine_without_a_dialect_has_no_checks_or_backups(tmp_path: Path) -> None:
    store = SqlStore(cast('Any', object()))

    with pytest.raises(TypeError, match='A object has no dialect, which a check needs'):
        await store.check()
    with pytest.raises(TypeError, match='A object has no dialect, which a backup needs'):
        await store.backup(tmp_path / 'store.backup')
