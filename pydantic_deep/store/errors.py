"""Errors of a store, all under `StoreError`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import cast

from pydantic_deep.errors import DeepAgentError


class StoreError(DeepAgentError):
    """An operation that a store refused or could not complete. Commits acknowledged before it are safe."""


class StoreUnavailableError(StoreError, OSError):
    """The store cannot be opened, read or written: the disk is full, the file is damaged or the server is unreachable.

    The failed commit had no effect, unless the error is an `UnknownCommitError`. Open the store again once the cause is
    resolved.
    """


class UnknownCommitError(StoreUnavailableError):
    """The connection was lost between a commit and its acknowledgement, and the server did not tell the outcome: all of it was
    applied, or nothing.

    Read the store to find out which. A commit that is repeated with the same ids is refused if the first was applied
    and contained a version or a run.
    """


class StoreCorruptedError(StoreUnavailableError):
    """Stored data is damaged: a row is missing, or a value differs from the one that was written.

    `pydantic-deep store check` lists all damage. Restore the store from a backup.

    Attributes:
        table: The damaged table; `None` if unknown, as for a damaged page of a file.
        row: The id, digest or number of the row; `None` if unknown.
        problem: Description of the damage.
    """

    def __init__(self, table: str | None, row: str | None, problem: str) -> None:
        self.table = table
        self.row = row
        self.problem = problem
        where = '' if table is None else f' in table `{table}`' + ('' if row is None else f', row {row}')
        StoreUnavailableError.__init__(  # a direct call: with multiple inheritance `super()` is another class
            self,
            f'The store is damaged{where}: {problem}. Run `pydantic-deep store check` for a list of all damage, and '
            'restore the store from a backup.',
        )


class StoreFormatError(StoreError, ValueError):
    """The database exists but is not a store, or its format is that of a newer release."""


class StoreClosedError(StoreError, RuntimeError):
    """The store was closed."""


class BackupError(StoreError, ValueError):
    """A backup cannot be made, because contents are missing, or cannot be restored: the file is damaged or something else,
    or the store is not empty.
    """


class StoreReadOnlyError(StoreError):
    """The store was opened with `read_only=True`."""


class StoreProcessError(StoreError, RuntimeError):
    """An open store was used outside the process that opened it, or, with PostgreSQL, outside its event loop.

    A forked process lacks its parent's threads and shares its connections. Open the store again there.
    """


class VersionNotFoundError(StoreError, LookupError):
    """No version has this id.

    Attributes:
        id: The id that was passed.
    """

    def __init__(self, id: str, detail: str = 'It was deleted, or belongs to another store.') -> None:
        self.id = id
        super().__init__(f'There is no version {id!r}. {detail}')


class MissingVersionError(StoreCorruptedError, VersionNotFoundError):
    """A version with descendants is missing without having been deleted.

    Attributes:
        id: The id of the missing version, or of its child.
    """

    def __init__(self, id: str) -> None:
        StoreCorruptedError.__init__(self, 'version', id, 'it is missing, was not deleted, and has descendants')
        self.id = id


class AssetNotFoundError(StoreError, LookupError):
    """No asset has this digest.

    Attributes:
        digest: The digest that was passed.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f'There is no asset {digest!r}. It was collected as garbage, or belongs to another store.')


class VersionConflictError(StoreError):
    """The head of a conversation was moved concurrently.

    Attributes:
        head: The id of the current head.
        yours: The id of the version that was to become the head; it is stored on a branch of its own.
    """

    def __init__(self, head: str | None, yours: str) -> None:
        self.head = head
        self.yours = yours
        super().__init__(
            f'The head of the conversation has moved to version {head}. Your version {yours} is stored on a branch of its '
            'own: merge it, or continue from either.'
        )


class BranchExistsError(StoreError, ValueError):
    """The conversation already has a branch of this name.

    Attributes:
        name: The name of the branch.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'The conversation has a branch {name!r} already. Choose another name.')


class QueryError(StoreError, ValueError):
    """A query of `store.sql` failed or is not read-only; nothing has changed."""


class QueryTimeoutError(QueryError, TimeoutError):
    """A query of `store.sql` exceeded its `timeout_seconds` and was killed."""


class QueryBusyError(QueryError):
    """A query of `store.sql` did not start: the maximum number of queries ran for its whole `wait_seconds`."""


class RunTakenOverError(StoreError):
    """Another process has recovered this run because this one appeared to have crashed. The run stops.

    Attributes:
        run_id: The id of the run.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f'Another process has taken over the run {run_id}. Nothing was committed.')


class UnfinishedCheckoutError(StoreError):
    """A checkout into a directory was interrupted, so its files match no version.

    Attributes:
        backend: The directory, as the store identifies it.
        version_id: The version that was being checked out.
    """

    def __init__(self, backend: str, version_id: str) -> None:
        self.backend = backend
        self.version_id = version_id
        super().__init__(
            f'The checkout of version {version_id} into {_place(backend)} was interrupted, and may have written '
            'some of its files. Check out that version again, or any other, before working in the directory.'
        )


def _place(backend: str) -> str:
    """Return the directory that a backend's JSON names; the text itself if it is not such JSON."""
    try:
        named = cast('object', json.loads(backend))
    except ValueError:
        return backend
    return str(cast('dict[str, object]', named).get('id', backend)) if isinstance(named, dict) else backend


class ApprovalNotFoundError(StoreError, LookupError):
    """No approval has this id.

    Attributes:
        id: The id that was passed.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(
            f'There is no approval {id!r} in this store. `ApprovalInbox(store).list()` and '
            '`pydantic-deep approvals list` show the pending ones.'
        )


class ApprovalAnsweredError(StoreError):
    """The approval was already answered, has expired, or was superseded by one with another id.

    Attributes:
        id: The id of the approval.
        status: The status of the approval.
        by: Who answered it first; `None` if it was not answered.
        at: The time of the answer or of the expiry, in microseconds since 1970; `None` if there is neither.
    """

    def __init__(self, id: str, status: str, by: str | None, at: int | None, detail: str = '') -> None:
        self.id = id
        self.status = status
        self.by = by
        self.at = at
        moment = '' if at is None else f' at {datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="seconds")}'
        verb = 'was' if moment and status != 'expired' else 'is'
        shown = 'answered' if status == 'responded' else status
        super().__init__(f'The approval {id} {verb} {shown}{f" by {by}" if by else ""}{moment}. {detail}'.strip())


class QueueLimitError(StoreError):
    """Too many runs are queued or running, in all processes together.

    Attributes:
        count: The number of runs that have not ended.
        is_of_key: Whether the limit is that of the key, not of the store.
    """

    def __init__(self, count: int, is_of_key: bool) -> None:
        self.count = count
        self.is_of_key = is_of_key
        of = 'of this key' if is_of_key else 'of this store'
        super().__init__(f'{count} runs {of} are already active. Wait until one has ended, or cancel one.')


class VersionBusyError(StoreError):
    """Another run has started from the version, and is active.

    Attributes:
        run_id: The other run.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f'The run {run_id} is active. Wait for it, cancel it, or start from another version.')
