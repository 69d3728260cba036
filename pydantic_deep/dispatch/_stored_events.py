"""The messages of a run and its attempts as stored so far, from which its events are rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage

from pydantic_deep.store import BranchRecord, RunRecord, Store, VersionFilter, VersionNotFoundError, VersionRecord
from pydantic_deep.versions import VersionedAgent

_ALL = 1_000_000
"""An upper bound for the number of versions of a run, one per step, and of the runs of a conversation."""


async def load_attempts(store: Store, run_id: str) -> list[RunRecord]:
    """Return the attempts of a run, oldest first; empty if the run has not begun."""
    record = await store.run(run_id)
    if record is None:
        return []
    attempts = [record]
    while attempts[0].attempt_of is not None and (before := await store.run(attempts[0].attempt_of)) is not None:
        attempts.insert(0, before)
    if record.state == 'interrupted':  # only interrupted runs are resumed
        later = {run.attempt_of: run for run in await store.runs(conversation_id=record.conversation_id, limit=_ALL)}
        while (after := later.get(attempts[-1].id)) is not None:
            attempts.append(after)
    return attempts


async def load_run_messages(
    agent: VersionedAgent[Any, Any], attempts: Sequence[RunRecord]
) -> tuple[list[ModelMessage], int]:
    """Return the last message before a run and the messages of the run, and the number of messages before it.

    Messages that a summary replaced are read from earlier steps, because their events were already sent.
    """
    store, base_id = agent.store, attempts[0].base_id
    records: list[VersionRecord] = []
    for attempt in attempts:
        records += reversed(await store.versions(VersionFilter(run_id=attempt.id), limit=_ALL))
    base = await _find_version(store, base_id)
    branches = {branch.id: branch for branch in await store.branches(attempts[-1].conversation_id)}
    messages = [] if base is None else await _messages_from(agent, base, base.message_count - 1)
    since = len(messages)
    for last, record in zip([base, *records], records, strict=False):
        messages += await _new_messages(agent, last, record, branches)
    if base is None:  # it was deleted: the first step has the whole conversation
        ids = {attempt.id for attempt in attempts}
        start = next((place for place, message in enumerate(messages) if message.run_id in ids), len(messages))
        since = min(start, 1)
        del messages[: start - since]
    return messages, since


async def _find_version(store: Store, id: str | None) -> VersionRecord | None:
    try:
        return None if id is None else await store.version(id)
    except VersionNotFoundError:
        return None


async def _new_messages(
    agent: VersionedAgent[Any, Any],
    before: VersionRecord | None,
    after: VersionRecord,
    branches: dict[str, BranchRecord],
) -> list[ModelMessage]:
    """Return the messages that a version adds to the previous one."""
    known = 0 if before is None else before.message_count
    if before is None or before.branch_id == after.branch_id or branches[after.branch_id].fork_seq >= known:
        return await _messages_from(agent, after, known)
    shared = branches[after.branch_id].fork_seq
    old, new = await _messages_from(agent, before, shared), await _messages_from(agent, after, shared)
    last = max((place for place, message in enumerate(new) if message in old), default=-1)
    return new[last + 1 :]


async def _messages_from(agent: VersionedAgent[Any, Any], record: VersionRecord, start: int) -> list[ModelMessage]:
    return await (await agent.load(record.id)).messages(start=max(0, start))
