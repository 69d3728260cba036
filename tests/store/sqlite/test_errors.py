"""Errors of SQLite as errors of a store, with advice."""

from __future__ import annotations

import sqlite3

import pytest

from pydantic_deep.store import StoreFormatError
from pydantic_deep.store.sqlite._errors import translate_error


@pytest.mark.parametrize(
    ('code', 'advice'),
    [
        (sqlite3.SQLITE_READONLY, 'cannot be written'), (sqlite3.SQLITE_FULL, 'Make room'),
        (sqlite3.SQLITE_BUSY, 'Another process'), (sqlite3.SQLITE_IOERR_FSYNC, 'The disk failed'),
        (sqlite3.SQLITE_PROTOCOL, 'Open the store again'),
    ],
)  # fmt: skip
def test_errors_include_advice(code: int, advice: str) -> None:
    error = sqlite3.OperationalError('it failed')
    error.sqlite_errorcode = code
    new = translate_error(error)
    assert advice in str(new)
    assert new.__cause__ is error


def test_file_that_is_not_a_database_is_a_format_error() -> None:
    error = sqlite3.DatabaseError('file is not a database')
    error.sqlite_errorcode = sqlite3.SQLITE_NOTADB
    assert type(translate_error(error)) is StoreFormatError
