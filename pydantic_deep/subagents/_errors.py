"""Errors in the description of a subagent, raised before any run."""

from __future__ import annotations

from pydantic_deep.errors import ValidationError


class InvalidSubagentError(ValidationError):
    """The description of a subagent is invalid.

    Attributes:
        name: The given name of the subagent.
        field: The invalid field.
    """

    def __init__(self, name: object, reason: str, *, field: str = 'name') -> None:
        self.name = name
        super().__init__(field, f'{str(name)[:200]!r} cannot be a subagent: {reason}')
