"""Versions with pending approvals: finding them, and checking that a run can resume from them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic_deep.cli._metadata import DIRECTORY, SETTINGS
from pydantic_deep.cli.approvals._policy import NotPendingError, check_unanswered
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.store import ApprovalRecord, Store, VersionFilter, VersionRecord
from pydantic_deep.versions import SuspendedRun, suspended_runs, workspace_key
from pydantic_deep.views import is_pending

from ._revisions import Revisions


async def find_pending(revisions: Revisions) -> VersionRecord:
    """Return the newest version of a directory that has pending approvals.

    Raises:
        NotPendingError: There is none.
    """
    paused = revisions.walk(VersionFilter(metadata={DIRECTORY: revisions.directory}, states=['awaiting_approval']))
    async for record in paused:
        if await is_pending(revisions.store, record):
            return record
    raise NotPendingError(f'No version of {revisions.directory} has pending approvals.')


async def find_resumable(revisions: Revisions) -> VersionRecord:
    """Return the newest version of a directory whose turn can be finished: it has pending approvals, or its process
    stopped.

    Raises:
        NotPendingError: There is none.
    """
    try:
        return await find_pending(revisions)
    except NotPendingError:
        for run in reversed(await suspended_runs(revisions.store)):
            record = None if run.version_id is None else await revisions.store.version(run.version_id)
            place = None if record is None or record.backend is None else workspace_key(record.backend)
            if record is not None and place == revisions.workspace and is_own(record) and can_finish(run, record):
                return record
        raise


def is_own(record: VersionRecord) -> bool:
    """Return whether the command line created a version, whose agent it can create again."""
    return SETTINGS in json.loads(record.metadata)


def can_finish(run: SuspendedRun, record: VersionRecord) -> bool:
    """Return whether a suspended run can continue a version: its last step, or the version that it began from."""
    return run.version_id == record.id and not run.has_moved_on


async def check_pending(store: Store, record: VersionRecord) -> Sequence[ApprovalRecord]:
    """Return all approvals of a version from which a run can resume, answered ones included.

    Raises:
        NotPendingError: The version did not pause for approvals, or a run has resumed it.
    """
    if record.state != 'awaiting_approval':
        raise NotPendingError(f'The version {short_id(record.id)} has no pending approvals: it is {record.state}.')
    approvals = await store.approvals(status=None, version_id=record.id, limit=10_000)
    await check_unanswered(store, record.id, approvals)
    return approvals
