"""Threads of user interfaces: lookup of the conversation by the id that the client chose.

The same id refers to different conversations of different owners. AG-UI and Vercel AI share the threads of an owner and
an agent.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime

from pydantic_deep.repository import RowExistsError, RowNotFoundError
from pydantic_deep.server._state import ServerState
from pydantic_deep.server._threads import Thread
from pydantic_deep.server.access._callers import Caller, authorize_agent
from pydantic_deep.server.access._ownership import (
    AuthorizedConversation,
    ServedVersion,
    authorize_conversation,
    create_conversation,
    version_in,
)
from pydantic_deep.store import VersionNotFoundError


async def find_thread(state: ServerState, caller: Caller, agent: str, thread: str) -> AuthorizedConversation | None:
    """Return the conversation of a thread, or `None` if there is none yet or it was deleted.

    Raises:
        ServerError: The caller may not use the agent.
    """
    authorize_agent(state, caller, agent)
    id = _row_id(caller.owner, agent, thread)
    try:
        row = await state.threads.get(id)
    except RowNotFoundError:
        return None
    try:
        root = await state.store.version(row.version_id)
    except VersionNotFoundError:
        await state.threads.delete(id)
        return None
    return await authorize_conversation(state, caller, root.conversation_id)


async def open_thread(state: ServerState, caller: Caller, agent: str, thread: str) -> ServedVersion:
    """Return the head of the conversation of a thread. Creates the conversation if there is none.

    Raises:
        ServerError: The caller may not use the agent.
    """
    own = await find_thread(state, caller, agent, thread)
    if own is not None:
        return await version_in(state, caller, own, None)
    root = await create_conversation(state, caller, agent)
    row = Thread(
        id=_row_id(caller.owner, agent, thread),
        owner=caller.owner,
        version_id=root.id,
        created_at=datetime.now(UTC),
    )
    try:
        await state.threads.create(row)
    except RowExistsError:  # a concurrent request created the thread first
        with suppress(VersionNotFoundError):
            await state.store.delete(root.id)
        return await open_thread(state, caller, agent, thread)
    return root


def _row_id(owner: str, agent: str, thread: str) -> str:
    """Return the row id of a thread. It never equals that of a dialogue (`compat._dialogue_threads`)."""
    return hashlib.sha256(json.dumps(['thread', owner, agent, thread]).encode()).hexdigest()
