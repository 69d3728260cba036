"""What is refused when a subagent is described, before any run."""

from __future__ import annotations

from pydantic_deep.errors import ValidationError


class InvalidSubagentError(ValidationError):
    """A subagent is described in a way that cannot work.

    Attributes:
        name: Its name, as it was given.
        field: The field that cannot be.
    """

    def __init__(self, name: object, reason: str, *, field: str = 'name') -> None:
        self.name = name
        super().__init__(field, f'{str(name)[:200]!r} cannot be a subagent: {reason}')
