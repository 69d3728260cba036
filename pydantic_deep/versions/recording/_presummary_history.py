"""The history of a conversation before summaries: the messages that they have replaced.

A summary creates a branch that refers to the branch and the number of messages that it rewrites, so nothing is copied
or lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage

from pydantic_deep._messages.summary_metadata import find_summary, read_summary, without_summaries
from pydantic_deep.store import BranchRecord, MessageRecord, Store, VersionRecord
from pydantic_deep.versions._messages import decode_messages


class _Rewrite(NamedTuple):
    branch: BranchRecord
    """The branch with the rewritten history."""
    origin: str
    """The id of the branch with the original history."""
    stop: int
    """The number of messages of the original history."""


async def replaced_messages(store: Store, record: VersionRecord) -> list[MessageRecord]:
    """Return the messages that summaries replaced in the history of a version, oldest first.

    Messages that a summary retained are not included: a later run may have merged them since.
    """
    replaced: list[MessageRecord] = []
    for rewrite in reversed(await _rewrites(store, record)):
        retained_ids = {message.id for message in await store.messages(rewrite.branch.id, rewrite.branch.tip_seq)}
        replaced += [
            message for message in await store.messages(rewrite.origin, rewrite.stop) if message.id not in retained_ids
        ]
    return replaced


async def all_records(store: Store, record: VersionRecord) -> list[MessageRecord]:
    """Return the messages of a version and those replaced in its history, in order of creation.

    A message that was replaced by a changed copy comes before the copy.
    """
    record_by_id: dict[str, MessageRecord] = {}
    for rewrite in reversed(await _rewrites(store, record)):
        record_by_id |= {message.id: message for message in await store.messages(rewrite.origin, rewrite.stop)}
    record_by_id |= {message.id: message for message in await store.messages(record.branch_id, record.message_count)}
    return list(record_by_id.values())


async def all_messages(store: Store, record: VersionRecord) -> list[tuple[str, ModelMessage]]:
    """Return the messages of `all_records`, decoded, each with its id."""
    records = await all_records(store, record)
    return [
        (message_record.id, message)
        for message_record, message in zip(records, await decode_messages(records, store.read_asset), strict=True)
    ]


async def earlier_messages(store: Store, record: VersionRecord) -> list[ModelMessage]:
    """Return the messages of `replaced_messages`, decoded, without summaries."""
    return without_summaries(await decode_messages(await replaced_messages(store, record), store.read_asset))


class Summarized(NamedTuple):
    """A summary, with the history that it replaced."""

    message: ModelMessage
    before: list[str]
    """The ids of the messages of that history."""

    @property
    def is_overflow(self) -> bool:
        """Whether it was created because a request was refused as too long."""
        summary = find_summary([self.message])
        return summary is not None and read_summary(summary).reason == 'overflow'


async def summaries_since(store: Store, record: VersionRecord, base: VersionRecord) -> list[Summarized]:
    """Return the summaries that were created between two versions, oldest first."""
    summaries: list[Summarized] = []
    for rewrite in await _rewrites(store, record):
        if rewrite.branch.id == base.branch_id:
            break
        first = await decode_messages(await store.messages(rewrite.branch.id, 1), store.read_asset)
        if find_summary(first):
            before = [message_record.id for message_record in await store.messages(rewrite.origin, rewrite.stop)]
            summaries += [Summarized(message, before) for message in first]
    return summaries[::-1]


async def _rewrites(store: Store, record: VersionRecord) -> list[_Rewrite]:
    """Return the rewrites of the history of a version, newest first."""
    branches: Mapping[str, BranchRecord] = {
        branch_record.id: branch_record for branch_record in await store.branches(record.conversation_id)
    }
    rewrites: list[_Rewrite] = []
    branch: BranchRecord | None = branches.get(record.branch_id)
    while branch is not None:
        if branch.rewrites_id is not None:
            rewrites.append(_Rewrite(branch, branch.rewrites_id, branch.rewrites_seq or 0))
        before = branch.rewrites_id or (branch.parent_id if branch.fork_seq else None)
        branch = None if before is None else branches.get(before)
    return rewrites
