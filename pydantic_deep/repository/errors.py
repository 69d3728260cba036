"""What a repository refuses."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic_deep.errors import DeepAgentError


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


class RepositoryUnavailableError(RepositoryError, OSError):
    """It cannot be opened, read or written now."""
