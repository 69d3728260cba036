"""Any order of operations: every engine returns the same results as `MemoryRepository`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pydantic_deep.repository import (
    Change,
    Create,
    Delete,
    In,
    MemoryRepository,
    Page,
    Prefix,
    Range,
    Repository,
    RepositoryError,
    Upsert,
    Where,
    open_repository,
)
from pydantic_deep.repository.conformance import FIELDS, Sample, Shade
from pydantic_deep.repository.duckdb import DuckdbRepository
from pydantic_deep.repository.iceberg import IcebergRepository

R = TypeVar('R')
OpenAt = Callable[[], AbstractAsyncContextManager[Repository[Sample]]]

_KEYS = st.sampled_from(['a', 'b', 'B', 'é', '🙂', '\uffff', "'", 'a\0']) | st.text(max_size=3)
_TEXTS = st.sampled_from(['', 'a', 'A', 'ab', '%', '\U0010ffff', '\ud7ff', '\ue000', '\0']) | st.text(max_size=4)
_INTEGERS = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1, 2**63])
_NUMBERS = st.sampled_from([-1e300, -0.0, 0.0, 0.1, 5e-324, 1.0]) | st.floats(allow_nan=False)
_MOMENTS = st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=at) for at in (-1, 0, 1, 10**12)])
_UUIDS = st.sampled_from([UUID(int=at) for at in (0, 1, 2**64, 2**128 - 1)])
_SHADES = st.sampled_from(Shade)

_ROWS = st.builds(
    Sample,
    id=_KEYS,
    name=st.none() | _TEXTS,
    count=st.none() | _INTEGERS,
    weight=_NUMBERS,
    is_done=st.booleans(),
    made_at=st.none() | _MOMENTS,
    owner=st.none() | _UUIDS,
    shade=_SHADES,
)


def _conditions(values: st.SearchStrategy[Any], *, has_range: bool = True) -> st.SearchStrategy[Any]:
    bounds = dict.fromkeys(('ge', 'gt', 'le', 'lt'), values)
    several = st.builds(In, st.lists(st.none() | values, max_size=4))
    ranges = st.fixed_dictionaries({}, optional=bounds).map(lambda given: Range(**given))
    return st.one_of(st.none(), values, several, ranges if has_range else st.nothing())


_WHERES: st.SearchStrategy[Where] = st.fixed_dictionaries(
    {},
    optional={
        'id': _conditions(_KEYS) | st.builds(Prefix, _KEYS),
        'name': _conditions(_TEXTS) | st.builds(Prefix, _TEXTS),
        'count': _conditions(_INTEGERS),
        'weight': _conditions(_NUMBERS),
        'is_done': _conditions(st.booleans(), has_range=False),
        'made_at': _conditions(_MOMENTS),
        'owner': _conditions(_UUIDS.map(str)),
        'shade': _conditions(_SHADES),
    },
)
_NO_WHERE: Where = {}
_SOME_WHERES = st.just(_NO_WHERE) | _WHERES
_ORDERS = st.sampled_from([None, *(f'{sign}{name}' for name in ('id', *FIELDS) for sign in ('', '-'))])
_CHANGES: st.SearchStrategy[list[Change[Sample]]] = st.lists(
    st.builds(Create[Sample], _ROWS) | st.builds(Upsert[Sample], _ROWS) | st.builds(Delete, _KEYS), max_size=4
)
_MANY = st.lists(_ROWS, max_size=12)


class RepositoryMachine(RuleBasedStateMachine):
    """Applies the same operations to two repositories. Results, errors and cursors must be equal."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = MemoryRepository(Sample, fields=FIELDS)
        self.opened = self.open()
        self.rows = self.loop.run_until_complete(self.opened.__aenter__())

    def open(self) -> AbstractAsyncContextManager[Repository[Sample]]:
        """Open a repository without rows."""
        raise NotImplementedError

    def teardown(self) -> None:
        self.loop.run_until_complete(self.opened.__aexit__(None, None, None))
        self.loop.close()

    def both(self, do: Callable[[Any], Coroutine[Any, Any, R]]) -> R | tuple[type[Exception], str]:
        def outcome(rows: object) -> R | tuple[type[Exception], str]:
            try:
                return self.loop.run_until_complete(do(rows))
            except RepositoryError as error:
                return type(error), str(error)

        expected = outcome(self.model)
        assert outcome(self.rows) == expected
        return expected

    @rule(row=_ROWS)
    def create(self, row: Sample) -> None:
        self.both(lambda rows: rows.create(row))

    @rule(rows=_MANY)
    def upsert(self, rows: list[Sample]) -> None:
        for row in rows:
            self.both(lambda to, row=row: to.upsert(row))

    @rule(key=_KEYS)
    def delete(self, key: str) -> None:
        self.both(lambda rows: rows.delete(key))

    @rule(key=_KEYS)
    def get(self, key: str) -> None:
        self.both(lambda rows: rows.get(key))

    @rule(changes=_CHANGES)
    def apply(self, changes: list[Change[Sample]]) -> None:
        self.both(lambda rows: rows.apply(changes))

    @rule(where=_SOME_WHERES)
    def count(self, where: Where) -> None:
        self.both(lambda rows: rows.count(where))

    @rule(where=_SOME_WHERES, order=_ORDERS, limit=st.integers(1, 5), between=_CHANGES)
    def page(self, where: Where, order: str | None, limit: int, between: list[Change[Sample]]) -> None:
        cursor: str | None = None
        while True:
            page: object = self.both(
                lambda rows, cursor=cursor: rows.list(where, order_by=order, limit=limit, cursor=cursor)
            )
            if not isinstance(page, Page) or page.cursor is None:
                break
            if cursor is None:
                self.both(lambda rows: rows.apply(between))
            cursor = page.cursor

    @invariant()
    def all_rows_are_equal(self) -> None:
        self.both(lambda rows: rows.list(limit=1000))


def check_engine(open_one: OpenAt, examples: int) -> None:
    class Machine(RepositoryMachine):
        def open(self) -> AbstractAsyncContextManager[Repository[Sample]]:
            return open_one()

    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen = settings(max_examples=examples, stateful_step_count=20, suppress_health_check=slow)
    run_state_machine_as_test(Machine, settings=chosen)


@pytest.mark.slow
def test_sqlite_in_memory_matches_the_memory_repository() -> None:
    """004-04: the same answers from every engine."""
    check_engine(lambda: open_repository('memory:', Sample, fields=FIELDS), examples=60)


@pytest.mark.slow
def test_sqlite_file_matches_the_memory_repository(tmp_path_factory: pytest.TempPathFactory) -> None:
    def open_one() -> AbstractAsyncContextManager[Repository[Sample]]:
        return open_repository(f'sqlite:///{tmp_path_factory.mktemp("rows")}/rows.db', Sample, fields=FIELDS)

    check_engine(open_one, examples=10)


@pytest.mark.slow
def test_postgresql_matches_the_memory_repository(new_postgres_url: Callable[[], str]) -> None:
    check_engine(lambda: open_repository(new_postgres_url(), Sample, fields=FIELDS), examples=15)


@pytest.mark.slow
def test_duckdb_matches_the_memory_repository() -> None:
    """004-08: DuckDB."""

    @asynccontextmanager
    async def open_one() -> AsyncGenerator[Repository[Sample]]:
        async with await DuckdbRepository.open(':memory:', Sample, fields=FIELDS) as rows:
            yield rows

    check_engine(open_one, examples=25)


@pytest.mark.slow
def test_iceberg_matches_the_memory_repository(tmp_path_factory: pytest.TempPathFactory) -> None:
    """004-08: Iceberg; few examples, because each change is a commit."""

    @asynccontextmanager
    async def open_one() -> AsyncGenerator[Repository[Sample]]:
        async with await IcebergRepository.open(tmp_path_factory.mktemp('rows'), Sample, fields=FIELDS) as rows:
            yield rows

    check_engine(open_one, examples=2)
