"""Translation of SQLite errors to store errors, by code."""

from __future__ import annotations

import sqlite3
from typing import Final

from pydantic_deep.store.errors import StoreCorruptedError, StoreError, StoreFormatError, StoreUnavailableError

_ADVICE: Final = {
    sqlite3.SQLITE_BUSY: 'Another process has been writing for a long time. Try again, or look for one that hangs.',
    sqlite3.SQLITE_LOCKED: 'Another process has been writing for a long time. Try again, or look for one that hangs.',
    sqlite3.SQLITE_FULL: 'The disk is full. Make room; later commits will then succeed.',
    sqlite3.SQLITE_READONLY: 'The file or its directory cannot be written. Make both writable and open it again.',
    sqlite3.SQLITE_PERM: 'The file or its directory cannot be written. Make both writable and open it again.',
    sqlite3.SQLITE_CANTOPEN: 'Make sure that its directory exists and can be written.',
    sqlite3.SQLITE_IOERR: 'The disk failed. Make sure that it is mounted and intact, and open the store again.',
    sqlite3.SQLITE_TOOBIG: 'A value is larger than SQLite can store, 1 GB. Store it elsewhere.',
}
_OTHER: Final = 'Open the store again.'


def translate_error(error: sqlite3.Error) -> StoreError:
    """Return the store error for an SQLite error, which becomes its cause."""
    code = getattr(error, 'sqlite_errorcode', 0) & 0xFF
    new: StoreError
    if code == sqlite3.SQLITE_NOTADB:
        new = StoreFormatError('The file is not a SQLite database. Choose another file.')
    elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR) or not hasattr(
        error, 'sqlite_errorcode'
    ):  # invalid UTF-8 has no code
        new = StoreCorruptedError(None, None, f'SQLite says: {error}')
    else:
        new = StoreUnavailableError(f'SQLite says: {error}. {_ADVICE.get(code, _OTHER)}')
    new.__cause__ = error
    return new
