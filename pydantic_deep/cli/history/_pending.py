"""Versions with pending approvals: finding them, and checking that a run can resume from them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_deep.cli._metadata import DIRECTORY
from pydantic_deep.cli.approvals._policy import NotPendingError, check_unanswered
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.store import ApprovalRecord, Store, VersionFilter, VersionRecord
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
