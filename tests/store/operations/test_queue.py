"""Queries of the queue use its indexes, so that their cost does not depend on the runs that have ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from pydantic_deep.store import new_id
from pydantic_deep.store.engine import Operation, Row, Statement, run_blocking
from pydantic_deep.store.operations import _queue
from pydantic_deep.store.sql._migrations import migrate
from pydantic_deep.store.sql.dialect import SQLITE
from pydantic_deep.store.sqlite._threads import run_operation


@pytest.mark.parametrize(
    ('operation', 'index'),
    [
        (lambda: _queue.ready(['analyst'], ['dead'], 10), 'queued_run_ready'),
        (lambda: _queue.ready(['analyst'], ['dead'], 10, only_cancelled=True), 'queued_run_ready'),
        (_queue.workers, 'queued_run_worker'),
        (lambda: _queue.cancelled('worker'), 'queued_run_worker'),
        (lambda: _queue.beat('worker', 1), 'queued_run_worker'),
        (lambda: _queue.prune(1, 10), 'queued_run_ended'),
        (lambda: _queue.find(None, new_id(), None, 10, ended=False), 'queued_run_active'),
    ],
)
def test_query_uses_an_index(operation: Callable[[], Operation[Any]], index: str) -> None:
    connection = sqlite3.connect(':memory:', isolation_level=None)
    run_operation(connection, migrate(SQLITE))
    plans: list[str] = []

    def explain(statement: Statement) -> list[Row]:
        rows = connection.execute(f'EXPLAIN QUERY PLAN {statement.sql}', statement.parameters).fetchall()
        plans.extend(str(row[3]) for row in rows)
        return []

    run_blocking(operation(), explain)
    connection.close()
    assert any(index in plan for plan in plans), plans
