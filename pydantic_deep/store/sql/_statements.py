"""Helpers of operations: statements over many values, and conversion of values."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value

from . import _codec, _keys

R = TypeVar('R')

CHUNK: Final = 500
"""Maximum number of values in one statement. SQLite allows 32,766, but each count is a separate statement to prepare.
"""

Kind: TypeAlias = Callable[[object], object]


def id_from(value: object) -> str:
    """Read an id."""
    return _keys.unpack_id(cast('bytes', value))


def digest_from(value: object) -> str:
    """Read a digest."""
    return _keys.unpack_digest(cast('bytes', value))


def text_from(value: object) -> str:
    """Read encoded text."""
    return _codec.decode_text(cast('bytes', value))


def bytes_from(value: object) -> bytes:
    """Read encoded bytes."""
    return _codec.decode(cast('bytes', value))


def id_or_none(id: str | None) -> bytes | None:
    """Pack an optional id."""
    return None if id is None else _keys.pack_id(id)


def text_or_none(text: str | None) -> bytes | None:
    """Encode optional text."""
    return None if text is None else _codec.encode_text(text)


def decoded(row: Row, kinds: Sequence[Kind | None]) -> Iterator[object]:
    """Yield the decoded values of a row; a `None` among `kinds` passes the value through unchanged."""
    return (value if kind is None or value is None else kind(value) for value, kind in zip(row, kinds, strict=True))


_ENCODERS: Final[Mapping[Kind, Callable[[Any], Value]]] = {
    id_from: _keys.pack_id,
    digest_from: _keys.pack_digest,
    text_from: _codec.encode_text,
    bytes_from: _codec.encode,
}


def encoded(values: Iterable[Any], kinds: Iterable[Kind | None]) -> Iterator[Value]:
    """Yield values as they are stored, the inverse of `decoded`; further kinds are ignored."""
    pairs = zip(values, kinds, strict=False)
    return (value if kind is None or value is None else _ENCODERS[kind](value) for value, kind in pairs)


def chunks(values: Iterable[R], size: int = CHUNK) -> Iterator[list[R]]:
    """Yield the values in lists of at most `size`."""
    rest = list(values)
    for start in range(0, len(rest), size):
        yield rest[start : start + size]


@lru_cache(maxsize=256)
def marks(count: int, first: int = 1) -> str:
    """Return `?1, ?2, …`."""
    return ', '.join(f'?{number}' for number in range(first, first + count))


def conditions(values: list[Value], *optional: tuple[str, Value]) -> list[str]:
    """Return the conditions with a value, and append these to `values`; `{}` is replaced by the place of the value."""
    where: list[str] = []
    for condition, value in optional:
        if value is not None:
            values.append(value)
            where.append(condition.format(len(values)))
    return where


def select_in(sql: str, values: Iterable[Value], *fixed: Value) -> Operation[list[Row]]:
    """Run a query for any number of values; `{}` is replaced by their placeholders, and the fixed parameters come
    first.
    """
    rows: list[Row] = []
    for chunk in chunks(values):
        rows += yield Statement(sql.format(marks(len(chunk), len(fixed) + 1)), (*fixed, *chunk))
    return rows


def insert(table: str, columns: str, rows: Sequence[Row], suffix: str) -> Operation[list[Row]]:
    """Insert rows with as few statements as possible; return the rows of `RETURNING` in the suffix."""
    returned: list[Row] = []
    for chunk in chunks(rows, 100):
        sql = _insert(table, columns, len(chunk), len(chunk[0]), suffix)
        returned += yield Statement(sql, tuple(value for row in chunk for value in row))
    return returned


@lru_cache(maxsize=256)
def _insert(table: str, columns: str, rows: int, width: int, suffix: str) -> str:
    """Return the statement. A commit needs about a dozen, mostly the same ones."""
    lines = ', '.join(f'({marks(width, 1 + width * row)})' for row in range(rows))
    return f'INSERT INTO {table} ({columns}) VALUES {lines} {suffix}'


def insert_many(table: str, columns: str, rows: Sequence[Row], suffix: str = '') -> Operation[None]:
    """Insert rows without returning any."""
    if rows:
        yield Statement(_insert(table, columns, 1, len(rows[0]), suffix), (), rows)


def update(table: str, columns: str, rows: Sequence[Row]) -> Operation[None]:
    """Update columns of rows, identified by their numbers, which are the first values of `rows`."""
    names = columns.split(', ')
    changes = ', '.join(f'{name} = ?{place}' for place, name in enumerate(names, 2))
    if rows:
        yield Statement(f'UPDATE {table} SET {changes} WHERE number = ?1', (), rows)


def integer(value: Value) -> int:
    """Read an integer."""
    return cast('int', value)
