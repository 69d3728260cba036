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
from pydantic_deep.server._threads import Thread
from pydantic_deep.server.access._ownership import Access, AuthorizedConversation, ServedVersion
from pydantic_deep.store import VersionNotFoundError


async def find_thread(access: Access, agent: str, thread: str) -> AuthorizedConversation | None:
    """Return the conversation of a thread, or `None` if there is none yet or it was deleted.

    Raises:
        ServerError: The caller may not use the agent.
    """
    access.agent(agent)
    id = _row_id(access.owner, agent, thread)
    try:
        row = await access.state.threads.get(id)
    except RowNotFoundError:
        return None
    try:
        root = await access.state.store.version(row.version_id)
    except VersionNotFoundError:
        # unless a concurrent request has replaced it
        await access.state.threads.update(id, lambda current: None if current == row else current)
        return None
    return await access.conversation(root.conversation_id)


async def open_thread(access: Access, agent: str, thread: str) -> ServedVersion:
    """Return the head of the conversation of a thread. Creates the conversation if there is none.

    Raises:
        ServerError: The caller may not use the agent.
    """
    own = await find_thread(access, agent, thread)
    if own is not None:
        return await access.version_in(own)
    root = await access.create_conversation(agent)
    row = Thread(
        id=_row_id(access.owner, agent, thread),
        owner=access.owner,
        version_id=root.id,
        created_at=datetime.now(UTC),
    )
    try:
        await access.state.threads.create(row)
    except RowExistsError:  # a concurrent request created the thread first
        with suppress(VersionNotFoundError):
            await access.state.store.delete(root.id)
        return await open_thread(access, agent, thread)
    return root


def _row_id(owner: str, agent: str, thread: str) -> str:
    """Return the row id of a thread. It never equals that of a dialogue (`compat._dialogue_threads`)."""
    return hashlib.sha256(json.dumps(['thread', owner, agent, thread]).encode()).hexdigest()
