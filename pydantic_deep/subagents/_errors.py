"""What is refused when a subagent is described, before any run."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class InvalidSubagentError(DeepAgentError, ValueError):
    """A subagent is described in a way that cannot work.

    Attributes:
        name: Its name, as it was given.
    """

    def __init__(self, name: object, reason: str) -> None:
        self.name = name
        super().__init__(f'{str(name)[:200]!r} cannot be a subagent: {reason}')
