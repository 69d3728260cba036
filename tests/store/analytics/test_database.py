"""The process of a database, as its parent sees it: failed starts, ended processes, and stopped queries."""

from __future__ import annotations

import sys

import pytest

from pydantic_deep.store import SqlLimits
from pydantic_deep.store.analytics._database import Database, DatabaseError
from pydantic_deep.store.analytics._database_process import QueryRequest
from pydantic_deep.store.analytics._replica import Query, Replica
from pydantic_deep.store.errors import QueryError

pytestmark = pytest.mark.slow

ORDER = QueryRequest('SELECT 1 AS a', [], 1, 2**30, 1000, 5, False)


def test_missing_interpreter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'executable', '/nowhere/python')
    with pytest.raises(DatabaseError, match='no process can be started'):
        Database(None, {})


def test_process_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'executable', '/bin/false')
    with pytest.raises(DatabaseError, match='has ended'):
        Database(None, {})


def test_ended_database_accepts_no_query() -> None:
    database = Database(None, {})
    database.close()
    with pytest.raises(DatabaseError, match='has ended'):
        database.start_query(ORDER)
    with pytest.raises(DatabaseError, match='has ended'):
        database.execute('SELECT 1')


def test_query_stopped_before_its_start_does_not_run() -> None:
    query = Query('SELECT 1', (), SqlLimits(), None)
    query.stop()
    replica = Replica()
    with pytest.raises(QueryError, match='ended without a result'):
        query.run(replica)
    replica.close()
