"""The process that holds a replica, tested in this process: its messages, answers and shutdown."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.store.analytics import _database_process as process
from pydantic_deep.store.analytics._database_process import (
    DatabaseServer,
    QueryRequest,
    Settings,
    Statement,
    decode,
    encode,
    receive,
    send,
    size_of,
)

pytestmark = pytest.mark.slow

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**127), 2**127) | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.dates() | st.times() | st.timedeltas()
    | st.decimals(allow_nan=False) | st.uuids()
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers() | st.dates(), inner)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_every_value_round_trips(value: object) -> None:
    assert decode(encode(value)) == value


def test_values_keep_their_types() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    values = [
        {'bytes': 'ff'}, {1: (2, [3])}, b'\xff', moment, date(2026, 1, 2), time(3, 4), timedelta(1, 2, 3),
        Decimal('1.50'), UUID(int=1), '\ud800', math.inf, True, 2**127,
    ]  # fmt: skip
    arrived = decode(encode(values))
    assert repr(arrived) == repr(values)
    assert decode(encode([bytearray(b'a'), memoryview(b'b')])) == [b'a', b'b']


@pytest.mark.parametrize('value', [object(), [object()], {'a': {object()}}, 1j])
def test_unsupported_value_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match='cannot be bound'):
        encode(value)


def test_deeply_nested_value_is_refused() -> None:
    value: list[object] = []
    for _ in range(sys.getrecursionlimit() + 10):
        value = [value]
    with pytest.raises(ValueError, match='recursion'):
        encode(value)


@pytest.mark.parametrize('data', [b'', b'{"what": 1}', b'{"date": 1}', b'{"uuid": "x"}', b'{}', b'[' * 100_000])
def test_invalid_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r'.'):
        decode(data)


def test_size_of_a_value_includes_its_contents() -> None:
    assert size_of({'a': ['x' * 1000, ('y' * 1000,)]}) > 2000


@pytest.fixture
def pipe() -> Any:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_message_over_the_maximum_length_is_refused(pipe: tuple[int, int]) -> None:
    send(pipe[1], 'x' * 100)
    with pytest.raises(ValueError, match='102 bytes'):
        receive(pipe[0], 101)


NO_SETTINGS: Settings = {}
NOTHING: list[Statement] = []
ORDER = QueryRequest('SELECT 1 AS a', [], 1, 2**30, 1000, 5, False)


def answers(order: QueryRequest, pipe: tuple[int, int], settings: Settings = NO_SETTINGS) -> list[Any]:
    """Return everything that a query writes."""
    host = DatabaseServer(None, settings, [])
    process.run_query(host._connection.cursor(), order, pipe[1])  # pyright: ignore[reportPrivateUsage]
    found: list[Any] = []
    while not found or found[-1][0] in ('columns', 'rows'):
        found.append(receive(pipe[0], 20_000))
    host._connection.close()  # pyright: ignore[reportPrivateUsage]
    return found


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        ({}, [['columns', ['a']], ['rows', [[1]]], ['end', False]]),
        ({'sql': 'FROM range(6)'}, [['columns', ['range']], ['too large', 'The query returns more than 5 rows.']]),
        (
            {'sql': 'FROM range(6)', 'may_truncate': True},
            [['columns', ['range']], ['rows', [[0], [1], [2], [3], [4]]], ['end', True]],
        ),
        ({'sql': 'SELECT [1, 2] AS a'}, [['columns', ['a']], ['rows', [[[1, 2]]]], ['end', False]]),
        ({'sql': "SELECT repeat('x', 2000) AS a"}, [['columns', ['a']], ['too large', 'The result takes more than 1,000 bytes.']]),
        ({'sql': 'SELECT 1; SELECT 2'}, [['failed', 'There are 2 statements; pass one query.']]),
    ],
)  # fmt: skip
def test_query_is_answered(pipe: tuple[int, int], changes: dict[str, Any], expected: list[object]) -> None:
    assert answers(ORDER._replace(**changes), pipe) == expected


def test_invalid_or_failing_query_is_answered_with_an_error(pipe: tuple[int, int]) -> None:
    [[kind, text]] = answers(ORDER._replace(sql='DROP TABLE a'), pipe)
    assert kind == 'failed'
    assert str(text).startswith('DROP is not allowed')
    [[kind, text]] = answers(ORDER._replace(sql="SELECT error(repeat('x', 20000))"), pipe)
    assert (kind, len(str(text))) == ('failed', 10_000)


def test_query_out_of_memory_is_answered_with_an_error(pipe: tuple[int, int]) -> None:
    order = ORDER._replace(sql='SELECT count(DISTINCT range) FROM range(10000000)')
    assert answers(order, pipe, {'memory_limit': '10MB', 'temp_directory': ''})[-1] == [
        'memory', Like('Out of Memory Error'),
    ]  # fmt: skip


class Like(str):
    """Equal to every text with this prefix."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(str(self))

    __hash__ = str.__hash__


def unconfined(connection: object, order: QueryRequest, cancel_pipe: int) -> None:
    """Skip the confinement, which would affect this process."""


def test_forked_query_answers_and_exits(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def end(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(process, 'os', SimpleNamespace(fork=lambda: 0, _exit=end, write=os.write, close=os.close))
    monkeypatch.setattr(process, 'confine', unconfined)
    host = DatabaseServer(None, {}, [])
    ours, theirs = socket.socketpair()
    with pytest.raises(SystemExit, match='0'), ours:
        host.fork_query(ORDER, os.dup(pipe[1]), os.dup(pipe[0]), theirs)
    monkeypatch.undo()
    assert theirs.fileno() == -1
    assert receive(pipe[0], 1000) == ['columns', ['a']]


def test_parent_does_not_wait_for_its_fork(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, 'os', SimpleNamespace(fork=lambda: 7, close=os.close))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        DatabaseServer(None, NO_SETTINGS, []).fork_query(ORDER, os.dup(pipe[1]), os.dup(pipe[0]), theirs)
        assert theirs.fileno() != -1


def test_failed_fork_is_reported(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(11, 'Resource temporarily unavailable')

    monkeypatch.setattr(process, 'os', SimpleNamespace(fork=fail, write=os.write, close=os.close))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        DatabaseServer(None, {}, []).fork_query(ORDER, os.dup(pipe[1]), os.dup(pipe[0]), theirs)
    monkeypatch.undo()
    assert receive(pipe[0], 1000) == [
        'failed', 'No process can be started for the query: Resource temporarily unavailable.',
    ]  # fmt: skip


@pytest.mark.parametrize(('is_read', 'is_folded'), [(False, True), (True, False)])
def test_long_log_is_merged_into_a_file_without_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read: bool, is_folded: bool
) -> None:
    monkeypatch.setattr(process, 'reap_children', lambda: is_read)
    monkeypatch.setattr(process, '_WAL_BYTES', 0)
    host = DatabaseServer(f'{tmp_path}/a.duckdb', {}, [('CREATE TABLE a (i BIGINT)', ())])
    host.run([('INSERT INTO a FROM range(1000)', ())])
    assert (tmp_path / 'a.duckdb.wal').exists() is not is_folded
    monkeypatch.setattr(process, 'reap_children', lambda: False)
    host.close()
    assert not (tmp_path / 'a.duckdb.wal').exists()


def test_failed_statements_are_rolled_back() -> None:
    host = DatabaseServer(None, {}, [('CREATE TABLE a (i BIGINT)', ())])
    with pytest.raises(Exception, match='nowhere'):
        host.run([('INSERT INTO a VALUES (1)', ()), ('FROM nowhere', ())])
    assert host.run([('SELECT count(*) FROM a', ())]) == [(0,)]


def waits(results: list[int | None]) -> Callable[..., tuple[int, int]]:
    """Return a `waitpid` with these results, where `None` means no child."""

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        result = results.pop(0)
        if result is None:
            raise ChildProcessError
        return result, 0

    return waitpid


@pytest.mark.parametrize(('results', 'is_left'), [([None], False), ([7, 8, None], False), ([7, 0], True)])
def test_exited_children_are_reaped(monkeypatch: pytest.MonkeyPatch, results: list[int | None], is_left: bool) -> None:
    monkeypatch.setattr(process, 'os', SimpleNamespace(waitpid=waits(results), WNOHANG=1))
    assert process.reap_children() is is_left
    assert not results


def test_database_is_closed_after_its_last_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    host = DatabaseServer(None, {}, [])
    results: list[int | None] = [0, 7, 0, None, None]
    monkeypatch.setattr(process, 'os', SimpleNamespace(waitpid=waits(results), WNOHANG=1))
    host.close()
    assert not results


def test_server_handles_messages_until_its_socket_is_closed(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[QueryRequest] = []

    def note(self: DatabaseServer, order: QueryRequest, out: int, cancel_pipe: int, control: socket.socket) -> None:
        asked.append(order)
        os.close(out)
        os.close(cancel_pipe)

    monkeypatch.setattr(DatabaseServer, 'fork_query', note)
    monkeypatch.setattr(process, 'reap_children', lambda: False)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=process.serve, args=(theirs,))
    thread.start()
    with ours, theirs:
        process.send_to(ours, [None, NO_SETTINGS, [('CREATE TABLE a (i BIGINT)', ())]])
        assert process.receive_from(ours)[0] == ('done', None)
        process.send_to(ours, list(ORDER), pipe)
        process.send_to(ours, [('SELECT 1', ())])
        assert process.receive_from(ours)[0] == ['done', [(1,)]]
        process.send_to(ours, [('FROM nowhere', ())])
        assert process.receive_from(ours)[0] == ['failed', Like('Catalog Error')]
        ours.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert asked == [ORDER]


def test_database_that_cannot_be_opened_is_reported() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process.send_to(ours, ['/nowhere/a.duckdb', NO_SETTINGS, NOTHING])
        process.serve(theirs)
        assert process.receive_from(ours)[0] == ['failed', Like('IO Error')]


def test_memory_is_read_from_the_kernel_if_available(tmp_path: Path) -> None:
    assert process.data_bytes() > 0
    assert process.data_bytes(tmp_path / 'statm') == 0
