"""`RowModel`: what every engine shares. Which field is the key, which can be asked by, and how a row is written and read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
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
"""Of a key and of a text that can be asked by, as UTF-8: an entry of an index of PostgreSQL has both, and 2,704 bytes."""


@dataclass(frozen=True, kw_only=True)
class EncodedRow:
    """A row as engines keep it."""

    key: str
    """Its key."""
    body: str
    """All of it, as JSON."""
    cells: Mapping[str, Cell | None]
    """By name of each field that can be asked by, but for the key: its value."""


class RowModel(Generic[T]):
    """A model, with its key and the fields that can be asked by.

    A row is kept as `model_dump_json` writes it, with the names of its fields, not their aliases, and without computed
    fields. What a model leaves out of its JSON (`Field(exclude=True)`, the contents of a `SecretStr`) is not kept.

    Args:
        model: The model.
        key: The field that is the key: text, or a UUID.
        fields: Fields that can be filtered and ordered by; the key always can.

    Raises:
        InvalidFieldError: The model has no such field, or values of its type cannot be compared.
    """

    def __init__(self, model: type[T], *, key: str, fields: Collection[str]) -> None:
        self.model = model
        """The model."""
        self.key = self._read_key(key)
        """The key."""
        if isinstance(fields, str):
            raise InvalidFieldError(self.name, fields, f'`fields` are several names: write `fields=({fields!r},)`')
        self.columns: Mapping[str, Column] = {name: self._read_column(name) for name in fields if name != key}
        """By name, the fields that can be asked by, but for the key."""
        self._askable = {self.key.name: self.key, **self.columns}

    @property
    def name(self) -> str:
        """That of the model."""
        return self.model.__name__

    def key_of(self, key: str) -> str | None:
        """Return the key as it is kept, or `None` if no row can have it."""
        try:
            return _checked_key(cell_of(self.key.kind, key))
        except ValueError:
            return None

    def encode(self, item: T) -> EncodedRow:
        """Write a row.

        Raises:
            InvalidRowError: It is of another class, cannot be read again, or a field cannot be compared.
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
        cells = {name: self._cell(written, column) for name, column in self.columns.items()}
        return EncodedRow(key=cast('str', self._cell(written, self.key)), body=body, cells=cells)

    def decode(self, key: str, body: str) -> T:
        """Read a row.

        Raises:
            UnreadableRowError: It is none of the model, which has changed since it was written.
        """
        try:
            return self._validate(body)
        except ValidationError as error:
            raise UnreadableRowError(self.name, key, *_first_of(error)) from error

    def encode_again(self, key: str, body: str) -> EncodedRow:
        """Write a row for other columns. Its JSON stays as it is, with fields that this model does not have.

        Raises:
            UnreadableRowError: It is none of the model.
        """
        return replace(self.encode(self.decode(key, body)), body=body)

    def question(
        self, where: Where | None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Question:
        """Check what `list` was asked. Raises what it raises."""
        return read_question(
            self.name, self._askable, self.key, where, order_by=order_by, limit=limit, cursor=cursor
        )  # fmt: skip

    def conditions(self, where: Where | None) -> tuple[Condition, ...]:
        """Check what `count` was asked. Raises what it raises."""
        return read_conditions(self.name, self._askable, where)

    def _read_key(self, name: str) -> Column:
        column = self._read_column(name)
        if column.kind not in (Kind.TEXT, Kind.UUID) or column.is_nullable:
            raise InvalidFieldError(self.name, name, 'a key is text or a UUID, and never null')
        return column

    def _read_column(self, name: str) -> Column:
        field = self.model.model_fields.get(name)
        if field is None:
            raise InvalidFieldError(self.name, name, f'its fields are {", ".join(self.model.model_fields)}')
        column = column_of(name, field.annotation)
        if column is None:
            reason = 'fields of text, int, float, bool, datetime, UUID and Enum are, each null or not'
            raise InvalidFieldError(self.name, name, f'values of {field.annotation!r} are not compared: {reason}')
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
        raise ValueError('a key is not empty')
    return cast('str', _checked_length(cell, MAX_KEY_BYTES))


def _checked_length(cell: Cell, limit: int) -> Cell:
    if isinstance(cell, str) and (size := len(cell.encode())) > limit:
        raise ValueError(f'text that can be asked by has at most {limit:,} bytes, and {cell[:40]!r}... has {size:,}')
    return cell


def _first_of(error: ValidationError) -> tuple[str, str]:
    """Return the field of the first complaint, with dots, and what it says."""
    first = error.errors(include_url=False)[0]
    return '.'.join(map(str, first['loc'])), first['msg']
