"""Suspended runs: runs without an end in the store that no process works on. `_recovery` resumes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic_deep.store import RunRecord, Store, VersionFilter, VersionNotFoundError, VersionRecord, utc_datetime
from pydantic_deep.versions._run_options import load_options
from pydantic_deep.versions._turn import ALL_RUNS
from pydantic_deep.versions.recording._attempts import attempts_of
from pydantic_deep.versions.recording._prompts import Prompt, decode_prompt


@dataclass(frozen=True, kw_only=True)
class SuspendedRun:
    """A run without an end in the store: its process crashed, or the store failed when the run ended."""

    id: str
    """The `run_id`, for `VersionedAgent.recover` and `VersionedAgent.cancel`."""
    agent_name: str
    """The name of the agent that runs it."""
    conversation_id: str
    """The conversation that it belongs to."""
    version_id: str | None
    """Its newest version, or the one that it began from; `None` if that was deleted."""
    has_moved_on: bool
    """Whether the conversation has moved on since. If so, `recover` resumes the run only if it is named."""
    started_at: datetime
    """When it began, in UTC."""
    prompt: Prompt | None
    """Its prompt, if no version has it yet, because the process crashed before the first step."""


async def suspended_runs(
    store: Store, *, agent_name: str | None = None, conversation_id: str | None = None
) -> list[SuspendedRun]:
    """Return the suspended runs of a store, oldest first, without those of subagents.

    Args:
        store: The store.
        agent_name: Only those of one agent.
        conversation_id: Only those of one conversation.
    """
    suspended: list[SuspendedRun] = []
    for run in await store.orphans(ALL_RUNS):
        is_wanted = agent_name in (None, run.agent_name) and conversation_id in (None, run.conversation_id)
        if is_wanted and run.parent_run_id is None:
            version = await last_version(store, run)
            suspended.append(
                SuspendedRun(
                    id=run.id,
                    agent_name=run.agent_name,
                    conversation_id=run.conversation_id,
                    version_id=None if version is None else version.id,
                    has_moved_on=await has_moved_on(store, run),
                    started_at=utc_datetime(run.started_at),
                    prompt=None if run.prompt is None else decode_prompt(run.prompt),
                )
            )
    return suspended


async def last_version(store: Store, run: RunRecord) -> VersionRecord | None:
    """Return the newest version of a run, or the one that it began from; `None` if that was deleted."""
    newest = await store.versions(VersionFilter(run_id=run.id), limit=1)
    if newest:
        return newest[0]
    try:
        return await store.version(run.base_id or '')
    except VersionNotFoundError:
        return None


async def has_moved_on(store: Store, run: RunRecord) -> bool:
    """Return whether a later turn began while a run was suspended, or the head of the conversation was moved."""
    own = {attempt.id for attempt in await attempts_of(store, run)}
    for later in await store.runs(conversation_id=run.conversation_id, limit=ALL_RUNS):
        if not own.isdisjoint(load_options(later).after):
            has_failed = later.state == 'failed' or later.error is not None
            was_refused = has_failed and not await store.versions(VersionFilter(run_id=later.id), limit=1)
            if not was_refused:  # for example because the suspended run has claimed the answers
                return True
    expected = load_options(run).head
    conversation = await store.conversation(run.conversation_id)
    if expected is None or conversation is None or conversation.head_id in (None, expected):
        return False
    head = await store.version(conversation.head_id)
    return head.run_id not in own
