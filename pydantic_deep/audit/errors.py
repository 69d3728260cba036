"""Errors of the audit functions."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class AuditError(DeepAgentError):
    """Base class of audit errors."""


class RunNotFoundError(AuditError, LookupError):
    """The store has no run with this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f'The store has no run {run_id!r}. `store.runs()` lists its runs.')
        self.run_id = run_id
        """The requested run id."""


class NoHistoryError(AuditError, ValueError):
    """The history of a record is in a store, but no store was given."""

    def __init__(self, version_id: str) -> None:
        super().__init__(
            f'The history of this record is in version {version_id!r}. Pass its store: `rehydrate(record, store)`.'
        )
        self.version_id = version_id
        """The version with the history."""
