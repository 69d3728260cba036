"""Which conversation a thread of a user interface is: such clients choose the ids of their threads themselves.

So ids of two owners may be the same, and are two conversations; those of one owner and one agent are one, whether it
is AG-UI or Vercel AI that asks.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime

from pydantic_deep.repository import RowExistsError, RowNotFoundError
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._authentication import Caller, agent_for
from pydantic_deep.server.access._ownership import OwnConversation, ServedVersion, create_conversation, own_conversation
from pydantic_deep.server.compat._dialogue_threads import Thread
from pydantic_deep.server.routes._conversations import version_in
from pydantic_deep.store import VersionNotFoundError


async def find_thread(state: ServerState, caller: Caller, agent: str, thread: str) -> OwnConversation | None:
    """Return the conversation of a thread; `None` if nothing was said in it, or it was deleted.

    Raises:
        ServerError: The caller may not use the agent.
    """
    agent_for(state, caller, agent)
    key = _key(caller.owner, agent, thread)
    try:
        row = await state.threads.get(key)
    except RowNotFoundError:
        return None
    try:
        root = await state.store.version(row.version_id)
    except VersionNotFoundError:
        await state.threads.delete(key)
        return None
    return await own_conversation(state, caller, root.conversation_id)


async def open_thread(state: ServerState, caller: Caller, agent: str, thread: str) -> ServedVersion:
    """Return the version that a thread goes on from: the head of its conversation, which begins now if there is none.

    Raises:
        ServerError: The caller may not use the agent.
    """
    found = await find_thread(state, caller, agent, thread)
    if found is not None:
        return await version_in(state, caller, found, None)
    root = await create_conversation(state, caller, agent)
    row = Thread(
        id=_key(caller.owner, agent, thread),
        owner=caller.owner,
        version_id=root.id,
        created_at=datetime.now(UTC),
    )
    try:
        await state.threads.create(row)
    except RowExistsError:  # another request was faster: the thread is its conversation
        with suppress(VersionNotFoundError):
            await state.store.delete(root.id)
        return await open_thread(state, caller, agent, thread)
    return root


def _key(owner: str, agent: str, thread: str) -> str:
    """Return the key of a thread: never that of a dialogue, whose third part is no thread (`compat._dialogue_threads`)."""
    return hashlib.sha256(json.dumps(['thread', owner, agent, thread]).encode()).hexdigest()
