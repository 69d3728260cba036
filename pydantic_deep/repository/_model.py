"""`RowModel`: the key and the filterable fields of a model, and the encoding of its rows. Shared by all engines."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from ._kinds import Cell, Column, Kind, cell_of, column_of
from ._question import Condition, Question, read_conditions, read_question
from ._types import Where
from .errors import InvalidFieldError, InvalidRowError, UnreadableRowError

T = TypeVar('T', bound=BaseModel)

MAX_KEY_BYTES: Final = 512
MAX_TEXT_BYTES: Final = 2048
"""Maximum sizes of a key and of a filterable text, as UTF-8: an index entry of PostgreSQL contains both, and has at
most 2,704 bytes.
"""


@dataclass(frozen=True, kw_only=True)
class EncodedRow:
    """A row as engines store it."""

    key: str
    """The key of the row, in stored form."""
    body: str
    """The whole row, as JSON."""
    cells: Mapping[str, Cell | None]
    """The value of each filterable field other than the key, keyed by field name."""


class RowModel(Generic[T]):
    """A model, with its key and its filterable fields.

    A row is stored in the form of `model_dump_json`, with field names instead of aliases, and without computed fields.
    Data that the model excludes from its JSON (`Field(exclude=True)`, the content of a `SecretStr`) is not stored, and
    NaN and infinities in lists, dictionaries and other models are null, unless the model sets `ser_json_inf_nan`.

    Args:
        model: The model.
        key: The key field: text, or a UUID.
        fields: Fields for filters and ordering, in addition to the key.

    Raises:
        TypeError: The model is not a pydantic model.
        InvalidFieldError: The model has no such field, or values of its type cannot be compared.
    """

    def __init__(self, model: type[T], *, key: str, fields: Collection[str]) -> None:
        given = cast('object', model)
        if not isinstance(given, type) or not issubclass(given, BaseModel):
            raise TypeError(f'`model` is {model!r}. Pass a pydantic model: a subclass of `BaseModel`.')
        self.model = model
        """The pydantic model of the rows."""
        self.key: Column = self._read_key(key)
        """The column of the key."""
        if isinstance(fields, str):
            raise InvalidFieldError(self.name, fields, f'`fields` are several names: write `fields=({fields!r},)`')
        self.columns: Mapping[str, Column] = {name: self._read_column(name) for name in fields if name != key}
        """The filterable fields other than the key, keyed by name."""
        self._filterable = {self.key.name: self.key, **self.columns}

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.__name__

    def key_of(self, key: str) -> str | None:
        """Return the key in stored form; `None` if no row can have it."""
        try:
            return _checked_key(cell_of(self.key.kind, key))
        except ValueError:
            return None

    def encode(self, item: T) -> EncodedRow:
        """Encode a row.

        Raises:
            InvalidRowError: The row is of another class, cannot be decoded again, or has a value that cannot be
                compared.
        """
        if type(item) is not self.model:
            raise InvalidRowError(self.name, self.key.name, f'the row is a {type(item).__name__}, not a {self.name}')
        try:
            body = item.model_dump_json(round_trip=True, by_alias=False, warnings=False)
            written = self._validate(body)
        except PydanticSerializationError as error:
            raise InvalidRowError(self.name, None, str(error)) from error
        except ValidationError as error:
            field, reason = _first_of(error)
            raise InvalidRowError(self.name, field, f'it cannot be read again: {reason}') from error
        for name in self.model.model_fields:
            value = cast('object', getattr(item, name))
            if isinstance(value, float) and not isfinite(value) and getattr(written, name) is None:
                raise InvalidRowError(self.name, name, f'{value} is not a finite number, and would be read as null')
        cells = {name: self._cell(written, column) for name, column in self.columns.items()}
        return EncodedRow(key=cast('str', self._cell(written, self.key)), body=body, cells=cells)

    def decode(self, key: str, body: str) -> T:
        """Decode a row.

        Raises:
            UnreadableRowError: The row is not valid for the model, which has changed since it was written.
        """
        try:
            return self._validate(body)
        except ValidationError as error:
            raise UnreadableRowError(self.name, key, *_first_of(error)) from error

    def encode_again(self, key: str, body: str) -> EncodedRow:
        """Encode a row for new columns. Its JSON is unchanged, including fields that this model lacks.

        Raises:
            UnreadableRowError: The row is not valid for the model.
        """
        return replace(self.encode(self.decode(key, body)), body=body)

    def question(
        self, where: Where | None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Question:
        """Validate the arguments of `list`. Raises the same errors."""
        return read_question(
            self.name, self._filterable, self.key, where, order_by=order_by, limit=limit, cursor=cursor
        )  # fmt: skip

    def conditions(self, where: Where | None) -> tuple[Condition, ...]:
        """Validate the arguments of `count`. Raises the same errors."""
        return read_conditions(self.name, self._filterable, where)

    def _read_key(self, name: str) -> Column:
        column = self._read_column(name)
        if column.kind not in (Kind.TEXT, Kind.UUID) or column.is_nullable:
            raise InvalidFieldError(self.name, name, 'a key must be text or a UUID, and not null')
        return column

    def _read_column(self, name: str) -> Column:
        field = self.model.model_fields.get(name)
        if field is None:
            raise InvalidFieldError(
                self.name, name, f'the fields of the model are {", ".join(self.model.model_fields)}'
            )
        column = column_of(name, field.annotation)
        if column is None:
            reason = 'use text, int, float, bool, datetime, UUID or Enum, each optionally null'
            raise InvalidFieldError(self.name, name, f'values of {field.annotation!r} cannot be compared: {reason}')
        return column

    def _validate(self, body: str) -> T:
        return self.model.model_validate_json(body, by_alias=False, by_name=True)

    def _cell(self, item: T, column: Column) -> Cell | None:
        value = cast('object', getattr(item, column.name))
        if value is None:
            return None
        try:
            cell = cell_of(column.kind, value)
            return _checked_key(cell) if column is self.key else _checked_length(cell, MAX_TEXT_BYTES)
        except ValueError as error:
            raise InvalidRowError(self.name, column.name, str(error)) from None


def _checked_key(cell: Cell) -> str:
    if not cell:
        raise ValueError('a key must not be empty')
    return cast('str', _checked_length(cell, MAX_KEY_BYTES))


def _checked_length(cell: Cell, limit: int) -> Cell:
    if isinstance(cell, str) and (size := len(cell.encode())) > limit:
        raise ValueError(f'filterable text has at most {limit:,} bytes, and {cell[:40]!r}... has {size:,}')
    return cell


def _first_of(error: ValidationError) -> tuple[str, str]:
    """Return the field of the first validation error, as a dotted path, and its message."""
    first = error.errors(include_url=False)[0]
    return '.'.join(map(str, first['loc'])), first['msg']
