"""Deletion of conversations, and of single runs of them.

Data that is no longer referenced is garbage-collected. Audit records are preserved.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from pydantic_deep.store import (
    Commit,
    HeadMove,
    Store,
    VersionBusyError,
    VersionConflictError,
    VersionFilter,
    VersionNotFoundError,
)

from ._run_start import refuse_if_running
from ._state import ServerState
from .http._errors import ServerError
from .runs._pool import busy_error
from .runs._stored_runs import StoredRun

_ALL = 1_000_000
"""An upper bound for the number of runs of a conversation."""


async def delete_conversation(state: ServerState, id: str) -> None:
    """Delete all versions of a conversation, and the conversations of its subagents.

    Raises:
        ServerError: A run of the conversation is running.
    """
    await refuse_if_running(state, id)
    try:
        await state.store.delete_conversations([*await _conversations_below(state.store, id), id])
    except VersionBusyError as error:  # a run has just begun
        raise busy_error(error.run_id) from None


@asynccontextmanager
async def deleted_if_refused(state: ServerState, id: str | None) -> AsyncGenerator[None]:
    """Delete a conversation if the body raises: a refused request leaves nothing behind.

    Args:
        state: The state of the server.
        id: The conversation, which the request has created for its turn; `None` if it continues another one.
    """
    try:
        yield
    except Exception:
        if id is not None:
            await delete_conversation(state, id)
        raise


async def delete_run(state: ServerState, run: StoredRun) -> None:
    """Delete the versions of a run that has ended. Later versions remain, and the head moves back to its base.

    Raises:
        ServerError: The head has moved meanwhile.
    """
    store, conversation = state.store, await state.store.conversation(run.last.conversation_id)
    head_id = None if conversation is None else conversation.head_id
    attempt_ids = {attempt.id for attempt in run.attempts}
    with suppress(VersionNotFoundError):  # without a base, a deleted head leaves the conversation without one
        if head_id is not None and (await store.version(head_id)).run_id in attempt_ids and run.base_id is not None:
            base = await store.version(run.base_id)
            move = HeadMove(conversation_id=base.conversation_id, expected_id=head_id, version_id=base.id)
            try:
                await store.commit(Commit(heads=[move]))
            except VersionConflictError:
                raise ServerError('conflict', 'The conversation changed in the meantime. Delete it again.') from None
    for attempt_id in attempt_ids:
        while versions := await store.versions(VersionFilter(run_id=attempt_id), limit=1):
            await store.delete(versions[0].id)  # also deletes the steps of its turn


async def _conversations_below(store: Store, id: str) -> list[str]:
    """Return the conversations of subagents at any depth."""
    conversation_ids: list[str] = []
    for run in await store.runs(conversation_id=id, limit=_ALL):
        for delegation in await store.delegations(parent_run_id=run.id):
            child = delegation.child_conversation_id
            conversation_ids += [*await _conversations_below(store, child), child]
    return conversation_ids
