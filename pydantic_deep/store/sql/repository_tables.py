"""Tables of repositories in the database of a store: how one is created, and how a backup recognizes one."""

from __future__ import annotations

import re
from typing import Final

from pydantic_deep.store.engine import Statement

from .dialect import Dialect

NO_COLUMNS: Final = '{"made": 0, "columns": []}'
"""The layout of a repository's table that has only keys and bodies."""

_ROWS_TABLE: Final = re.compile('rows_[a-z][a-z0-9_]{0,47}')


def repository_table() -> Statement:
    """Return the statement that creates the table of a database's repositories."""
    return Statement(
        'CREATE TABLE repository (name TEXT PRIMARY KEY, key_field TEXT NOT NULL, key_kind TEXT NOT NULL,'
        ' layout TEXT NOT NULL)'
    )


def rows_table(dialect: Dialect, table: str) -> Statement:
    """Return the statement that creates the table of a repository, with keys and bodies."""
    return Statement(
        f'CREATE TABLE {table} (key {dialect.text_type} NOT NULL, body TEXT NOT NULL,'
        f' CONSTRAINT by_key_{table} PRIMARY KEY (key))'
    )


def is_rows_table(name: str) -> bool:
    """Return whether a table belongs to a repository."""
    return _ROWS_TABLE.fullmatch(name) is not None
