"""The records that a store reads and writes. All are deeply immutable: structured values are JSON text.

A store knows nothing about agents. Messages, settings, todos and outputs are JSON that its callers write and read; ids
are text; times are microseconds since 1970, UTC.

Records are named tuples because a lineage has thousands of them: a tuple takes a sixth of the time of a frozen
dataclass, and a seal covers its values in order. Only `sql/_rows.py` relies on the order. Elsewhere, pass keywords and
read fields by name.
"""

from ._approvals import ApprovalRecord, ApprovalStatus, Decision
from ._assets import AssetRecord, NewAsset
from ._basics import Json, now, utc_datetime
from ._commits import Append, Commit, Committed, GarbageReport, HeadMove, NewMessage, RunEnd
from ._conversations import BranchRecord, ConversationRecord, MessageRecord
from ._queue import LoggedEntries, QueuedRunRecord, QueueState, RunProgress
from ._runs import CallRecord, CallStatus, DelegationRecord, RequestKind, RequestRecord, RunRecord, RunState
from ._versions import LineageRecord, VersionChanges, VersionFilter, VersionKind, VersionRecord, VersionState
from ._workspaces import WorkspaceRecord, checkout_claim, claimed_checkouts

__all__ = (
    'Append',
    'ApprovalRecord',
    'ApprovalStatus',
    'AssetRecord',
    'BranchRecord',
    'CallRecord',
    'CallStatus',
    'Commit',
    'Committed',
    'ConversationRecord',
    'Decision',
    'DelegationRecord',
    'GarbageReport',
    'HeadMove',
    'Json',
    'LineageRecord',
    'LoggedEntries',
    'MessageRecord',
    'NewAsset',
    'NewMessage',
    'QueueState',
    'QueuedRunRecord',
    'RequestKind',
    'RequestRecord',
    'RunEnd',
    'RunProgress',
    'RunRecord',
    'RunState',
    'VersionChanges',
    'VersionFilter',
    'VersionKind',
    'VersionRecord',
    'VersionState',
    'WorkspaceRecord',
    'checkout_claim',
    'claimed_checkouts',
    'now',
    'utc_datetime',
)
