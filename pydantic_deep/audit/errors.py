"""What an audit refuses."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class AuditError(DeepAgentError):
    """An audit refused something."""


class RunNotFoundError(AuditError, LookupError):
    """The store has no run of this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f'The store has no run {run_id!r}. `store.runs()` lists those that it has.')
        self.run_id = run_id
        """The id that was asked for."""


class NoHistoryError(AuditError, ValueError):
    """The history of a record is in a store, and no store was given."""

    def __init__(self, version_id: str) -> None:
        super().__init__(
            f'The history of this record is in version {version_id!r}. Pass the store that has it: '
            '`rehydrate(record, store)`.'
        )
        self.version_id = version_id
        """The version that has it."""
