"""What a store refuses or cannot do: one tree under `StoreError`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import cast

from pydantic_deep.errors import DeepAgentError


class StoreError(DeepAgentError):
    """Something that a store refused or could not do; what was acknowledged before is safe."""


class StoreUnavailableError(StoreError, OSError):
    """The store cannot be opened, read or written now: the disk is full, the file damaged, the server gone.

    Nothing of the commit that failed became true, unless it is an `UnknownCommitError`. Open the store again when the
    cause is gone.
    """


class UnknownCommitError(StoreUnavailableError):
    """The connection ended between a commit and its answer: all of it became true, or nothing.

    What the store says when it can be read again is the truth. A commit that is made again, with the ids it had, is
    refused if the first became true and brought a version or a run.
    """


class StoreCorruptedError(StoreUnavailableError):
    """Stored data is damaged: a row is missing, or a value is not the one that was written.

    `pydantic-deep store check` lists everything that is damaged. Restore the store from a backup.

    Attributes:
        table: The table with the damage; `None` if it is not known, as for a damaged page of a file.
        row: The row, by its id, digest or number; `None` if it is not known.
        problem: What is wrong with it.
    """

    def __init__(self, table: str | None, row: str | None, problem: str) -> None:
        self.table = table
        self.row = row
        self.problem = problem
        where = '' if table is None else f' in table `{table}`' + ('' if row is None else f', row {row}')
        StoreUnavailableError.__init__(  # and not the next class of an error that is something else as well
            self,
            f'The store is damaged{where}: {problem}. Run `pydantic-deep store check` for a list of all damage, and '
            'restore the store from a backup.',
        )


class StoreFormatError(StoreError, ValueError):
    """What is there is no store, or one of a newer release."""


class StoreClosedError(StoreError, RuntimeError):
    """The store was closed."""


class BackupError(StoreError, ValueError):
    """A backup cannot be restored: the file is damaged or something else, or the store is not empty."""


class StoreReadOnlyError(StoreError):
    """The store was opened with `read_only=True` and cannot be changed."""


class StoreProcessError(StoreError, RuntimeError):
    """An open store was used outside the process that opened it, or, with PostgreSQL, outside its event loop.

    A process that is forked has none of its parent's threads and shares its connections. Open the store again there.
    """


class VersionNotFoundError(StoreError, LookupError):
    """There is no version of that id.

    Attributes:
        id: The id as it was given.
    """

    def __init__(self, id: str, detail: str = 'It was deleted, or belongs to another store.') -> None:
        self.id = id
        super().__init__(f'There is no version {id!r}. {detail}')


class MissingVersionError(StoreCorruptedError, VersionNotFoundError):
    """A version is missing that others came from and that was not deleted.

    Attributes:
        id: The id of the version, or of the one whose parent it is.
    """

    def __init__(self, id: str) -> None:
        StoreCorruptedError.__init__(self, 'version', id, 'it is missing, was not deleted, and others came from it')
        self.id = id


class AssetNotFoundError(StoreError, LookupError):
    """There is no asset of that digest.

    Attributes:
        digest: The digest as it was given.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f'There is no asset {digest!r}. It was collected as garbage, or belongs to another store.')


class VersionConflictError(StoreError):
    """Somebody else moved the head of a conversation first.

    Attributes:
        head: The id of the version that it points at now.
        yours: The id of the version that was to be the head; it is kept, on a branch of its own.
    """

    def __init__(self, head: str | None, yours: str) -> None:
        self.head = head
        self.yours = yours
        super().__init__(
            f'The conversation has moved on to version {head}. Yours, {yours}, is kept as a branch: merge it, or go on '
            'from either.'
        )


class BranchExistsError(StoreError, ValueError):
    """A conversation has a branch of that name already.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'The conversation has a branch {name!r} already. Choose another name.')


class QueryError(StoreError, ValueError):
    """A query of `store.sql` is not one that only reads, or it fails; nothing has changed."""


class QueryTimeoutError(QueryError, TimeoutError):
    """A query of `store.sql` ran longer than its `timeout_seconds`, and was ended."""


class QueryBusyError(QueryError):
    """A query of `store.sql` was not begun: as many as may run at once did, for as long as it may wait."""


class RunTakenOverError(StoreError):
    """Another process has recovered this run, because this one seemed dead; it stops without doing more.

    Attributes:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f'The run {run_id} is no longer ours: another process goes on with it. Nothing was committed.')


class UnfinishedCheckoutError(StoreError):
    """A checkout into a directory was cut off, so that its files are those of no version.

    Attributes:
        backend: The directory, as the store names it.
        version_id: The version that was to be put there.
    """

    def __init__(self, backend: str, version_id: str) -> None:
        self.backend = backend
        self.version_id = version_id
        super().__init__(
            f'The checkout of version {version_id} into {_place(backend)} was cut off, and some of its files may be there. Check '
            'out that version again, or any other one, before something works there.'
        )


def _place(backend: str) -> str:
    """Return the directory that a store names by JSON; of what is none, the text."""
    try:
        named = cast('object', json.loads(backend))
    except ValueError:
        return backend
    return str(cast('dict[str, object]', named).get('id', backend)) if isinstance(named, dict) else backend


class ApprovalNotFoundError(StoreError, LookupError):
    """There is no approval of that id.

    Attributes:
        id: The id as it was given.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f'There is no approval {id!r} in this store.')


class ApprovalAnsweredError(StoreError):
    """An approval can be answered once, and was: or it expired, or waits on under another id.

    Attributes:
        id: The approval.
        status: What became of it.
        by: Who answered it first.
        at: When, in microseconds since 1970.
    """

    def __init__(self, id: str, status: str, by: str | None, at: int | None, detail: str = '') -> None:
        self.id = id
        self.status = status
        self.by = by
        self.at = at
        moment = '' if at is None else f' at {datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="seconds")}'
        verb = 'was' if moment and status != 'expired' else 'is'
        super().__init__(f'The approval {id} {verb} {status}{f" by {by}" if by else ""}{moment}. {detail}'.strip())
