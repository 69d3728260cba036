"""Statements over many values: few statements, in the order of the values."""

from __future__ import annotations

from typing import TypeVar

from pydantic_deep.store import new_id
from pydantic_deep.store.engine import Operation, Row, Statement, run_blocking
from pydantic_deep.store.sql._statements import (
    CHUNK,
    bytes_from,
    decoded,
    digest_from,
    encoded,
    id_from,
    insert,
    insert_many,
    select_in,
    text_from,
    update,
)
from pydantic_deep_backends import digest_of

R = TypeVar('R')


def statements_of(operation: Operation[R]) -> tuple[R, list[Statement]]:
    """Run an operation whose statements return their parameters as rows."""
    made: list[Statement] = []

    def execute(statement: Statement) -> list[Row]:
        made.append(statement)
        return [(value,) for value in statement.parameters]

    return run_blocking(operation, execute), made


def test_query_for_many_values_is_made_in_chunks_with_the_fixed_values_first() -> None:
    values = range(2 * CHUNK + 1)
    rows, made = statements_of(select_in('SELECT a FROM t WHERE b = ?1 AND a IN ({})', values, 'x'))
    assert [row for row in rows if row != ('x',)] == [(value,) for value in values]
    assert [len(statement.parameters) for statement in made] == [CHUNK + 1, CHUNK + 1, 2]
    assert made[-1].sql == 'SELECT a FROM t WHERE b = ?1 AND a IN (?2)'


def test_query_for_no_values_makes_no_statement() -> None:
    assert statements_of(select_in('SELECT a FROM t WHERE a IN ({})', [])) == ([], [])


def test_rows_are_inserted_with_few_statements() -> None:
    rows: list[Row] = [(number, str(number)) for number in range(201)]
    returned, made = statements_of(insert('t', 'a, b', rows, 'RETURNING a'))
    assert returned == [(value,) for row in rows for value in row]
    assert [len(statement.parameters) for statement in made] == [200, 200, 2]
    assert made[-1].sql == 'INSERT INTO t (a, b) VALUES (?1, ?2) RETURNING a'


def test_rows_without_results_are_one_statement() -> None:
    rows: list[Row] = [(1, 'a'), (2, 'b')]
    for operation, sql in (
        (insert_many('t', 'a, b', rows, 'ON CONFLICT DO NOTHING'), 'INSERT INTO t (a, b) VALUES (?1, ?2) ON CONFLICT DO NOTHING'),
        (update('t', 'b', rows), 'UPDATE t SET b = ?2 WHERE number = ?1'),
    ):  # fmt: skip
        _, [statement] = statements_of(operation)
        assert (statement.sql, statement.many) == (sql, rows)
    assert statements_of(insert_many('t', 'a', [])) == statements_of(update('t', 'a', [])) == (None, [])


def test_values_are_decoded_as_they_were_encoded() -> None:
    kinds = (id_from, digest_from, text_from, bytes_from, None, id_from)
    values = (new_id(), digest_of(b''), 'text ' * 100, b'\x00\xff', 7, None)
    stored = tuple(encoded(values, kinds))
    assert stored != values
    assert tuple(decoded(stored, kinds)) == values
