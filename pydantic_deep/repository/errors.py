"""What a repository refuses."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic_deep.errors import DeepAgentError, ValidationError


class RepositoryError(DeepAgentError):
    """A repository refused something or could not do it."""


class RowNotFoundError(RepositoryError, LookupError):
    """There is no row with this key."""

    def __init__(self, model: str, key: str) -> None:
        super().__init__(f'There is no {model} with the key {key!r}. `list` shows those that are there.')
        self.model = model
        """The name of the model."""
        self.key = key
        """The key that was asked for."""


class RowExistsError(RepositoryError, ValueError):
    """There is a row with this key already."""

    def __init__(self, model: str, key: str) -> None:
        super().__init__(f'There is a {model} with the key {key!r} already. Use `upsert` to replace it.')
        self.model = model
        """The name of the model."""
        self.key = key
        """The key of both."""


class UnknownFieldError(RepositoryError, ValueError):
    """A field cannot be filtered or ordered by."""

    def __init__(self, model: str, field: str, known: Iterable[str]) -> None:
        names = ', '.join(sorted(known))
        super().__init__(f'{model} cannot be asked by {field!r}. Fields that can: {names}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The name that was given."""


class InvalidFieldError(RepositoryError, ValueError):
    """A repository cannot be opened with such a key, or such fields to ask by."""

    def __init__(self, model: str, field: str, reason: str) -> None:
        super().__init__(f'{model} cannot be opened with the field {field!r}: {reason}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The name that was given."""


class InvalidQuestionError(RepositoryError, ValidationError):
    """A condition does not fit its field, or the limit is out of bounds."""

    def __init__(self, model: str, field: str, reason: str) -> None:
        Exception.__init__(self, f'{model} cannot be asked by {field!r} like that: {reason}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The field, or `limit`."""


class InvalidRowError(RepositoryError, ValueError):
    """A row cannot be kept; nothing was written."""

    def __init__(self, model: str, field: str | None, reason: str) -> None:
        where = '' if field is None else f', because of {field!r}'
        super().__init__(f'This {model} cannot be kept{where}: {reason}.')
        self.model = model
        """The name of the model."""
        self.field = field
        """The field, with dots where it lies in others; `None` if it is not known."""


class UnreadableRowError(RepositoryError, ValueError):
    """A row that is there is none of the model, which has changed since it was written."""

    def __init__(self, model: str, key: str, field: str, reason: str) -> None:
        super().__init__(
            f'The row {key!r} is no {model} any more, because of {field!r}: {reason}. Give the field a default, '
            'replace the row with `upsert`, or remove it with `delete`.'
        )
        self.model = model
        """The name of the model."""
        self.key = key
        """The key of the row."""
        self.field = field
        """The field, with dots where it lies in others."""


class InvalidCursorError(RepositoryError, ValueError):
    """A cursor is none of ours, or belongs to another question."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            f'{cursor!r} is no cursor of this question. Pass on what `page.cursor` was, with the same `where` and '
            '`order_by`, or leave it out to begin.'
        )
        self.cursor = cursor
        """What was given."""


class RepositoryClosedError(RepositoryError, RuntimeError):
    """It was closed."""


class RepositoryFormatError(RepositoryError, ValueError):
    """What is there is no database that can have repositories."""


class RepositoryUnavailableError(RepositoryError, OSError):
    """It cannot be opened, read or written now."""
