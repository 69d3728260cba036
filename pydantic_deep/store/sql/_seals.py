"""Seals: a checksum in each row, verified on every read, so that changed values are detected.

A seal covers the values of a record, with digests and ids in place of the database's row numbers. It detects damage; it
is not a signature and does not authenticate a row.

Fields may be appended to a record if rows without them have `None` there: trailing `None`s are not covered.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, NoReturn, TypeVar

from pydantic_deep.store.engine import Row, Value
from pydantic_deep.store.errors import StoreCorruptedError

from . import _keys

R = TypeVar('R')

DAMAGED: Final = (StoreCorruptedError, ValueError, TypeError, AttributeError, LookupError)
"""The exceptions that decoding a damaged row raises."""


def seal(values: Sequence[object]) -> int:
    """Return the seal of values: CRC-32 (ISO 3309) of their texts in UTF-8, joined by NUL."""
    while values and values[-1] is None:
        values = values[:-1]
    return zlib.crc32('\0'.join(map(str, values)).encode())


def check_seal(table: str, name: object, values: Sequence[object], stored: Value) -> None:
    """Raise `StoreCorruptedError` if a row differs from the one that was written.

    Args:
        table: The table of the row.
        name: The name of the row for the error.
        values: The values that the seal covers.
        stored: The seal in the row.
    """
    if seal(values) != stored:
        raise StoreCorruptedError(table, str(name), 'a value differs from the one that was written')


def reads(table: str) -> Callable[[Callable[[Row], R]], Callable[[Row], R]]:
    """Decorate a function that reads a row: its exceptions become damage of the row named by the first value."""

    def decorate(read: Callable[[Row], R]) -> Callable[[Row], R]:
        @wraps(read)
        def guarded(row: Row) -> R:
            try:
                return read(row)
            except DAMAGED as error:
                raise_damage(table, row[0], error)

        return guarded

    return decorate


def raise_damage(table: str, key: Value, error: Exception) -> NoReturn:
    """Raise the error of decoding a row as a `StoreCorruptedError` that names the row."""
    if not isinstance(error, StoreCorruptedError):
        raise StoreCorruptedError(table, row_name(key), f'it cannot be decoded ({error})') from error
    if error.table is None:
        raise StoreCorruptedError(table, row_name(key), error.problem) from error
    raise error


def row_name(key: Value) -> str:
    """Return the text by which an error names a row with this id, digest or number."""
    if not isinstance(key, bytes):
        return str(key)
    try:
        return _keys.unpack_id(key) if key[:1] != b'\1' or len(key) == 16 else _keys.unpack_digest(key)
    except ValueError:
        return key.hex()
