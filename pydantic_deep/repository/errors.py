"""Errors of a repository."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic_deep.errors import DeepAgentError, ValidationError


class RepositoryError(DeepAgentError):
    """An operation that a repository refused or could not complete."""


class RowNotFoundError(RepositoryError, LookupError):
    """No row has this key."""

    def __init__(self, model: str, key: str) -> None:
        super().__init__(f'There is no {model} with the key {key!r}. `list` returns the existing ones.')
        self.model = model
        """The name of the model."""
        self.key = key
        """The requested key."""


class RowExistsError(RepositoryError, ValueError):
    """A row with this key exists already."""

    def __init__(self, model: str, key: str) -> None:
        super().__init__(f'There is a {model} with the key {key!r} already. Use `upsert` to replace it.')
        self.model = model
        """The name of the model."""
        self.key = key
        """The key of both rows."""


class UnknownFieldError(RepositoryError, ValueError):
    """A field is not available for filters and ordering."""

    def __init__(self, model: str, field: str, known: Iterable[str]) -> None:
        names = ', '.join(sorted(known))
        super().__init__(f'{model} cannot be filtered or ordered by {field!r}. Available fields: {names}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The name that was passed."""


class InvalidFieldError(RepositoryError, ValueError):
    """A repository cannot be opened with this key or these fields."""

    def __init__(self, model: str, field: str, reason: str) -> None:
        super().__init__(f'{model} cannot be opened with the field {field!r}: {reason}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The name that was passed."""


class InvalidQuestionError(RepositoryError, ValidationError):
    """A condition does not fit its field, or the limit is out of bounds."""

    def __init__(self, model: str, field: str, reason: str) -> None:
        Exception.__init__(self, f'The query of {model} has an invalid {field!r}: {reason}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """Name of the field, or `limit`."""


class InvalidRowError(RepositoryError, ValueError):
    """A row cannot be stored; nothing was written."""

    def __init__(self, model: str, field: str | None, reason: str) -> None:
        where = '' if field is None else f', because of {field!r}'
        super().__init__(f'This {model} cannot be stored{where}: {reason}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The field, as a dotted path; `None` if unknown."""


class UnreadableRowError(RepositoryError, ValueError):
    """A stored row is not valid for the model, which has changed since the row was written."""

    def __init__(self, model: str, key: str, field: str, reason: str) -> None:
        super().__init__(
            f'The row {key!r} is no longer a valid {model}, because of {field!r}: {reason}. Give the field a default, '
            'replace the row with `upsert`, or remove it with `delete`.'
        )
        self.model = model
        """The name of the model."""
        self.key = key
        """The key of the row."""
        self.field = field
        """The field, as a dotted path."""


class InvalidCursorError(RepositoryError, ValueError):
    """A cursor is malformed, or belongs to another query."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            f'{cursor!r} is not a cursor of this query. Pass `page.cursor` with the same `where` and `order_by`, or no '
            'cursor for the first page.'
        )
        self.cursor = cursor
        """The cursor that was passed."""


class RepositoryClosedError(RepositoryError, RuntimeError):
    """The repository was closed."""


class RepositoryFormatError(RepositoryError, ValueError):
    """The database belongs to another program, or cannot contain repositories."""


class RepositoryUnavailableError(RepositoryError, OSError):
    """The repository cannot be opened, read or written."""
