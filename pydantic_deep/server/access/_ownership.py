"""Whose what is: what belongs to another owner is not there, for anybody. Every id that comes in comes through here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import JsonValue

from pydantic_deep.server._state import OWNER, ServedAgent, ServerState
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_run_events import StoredRun, load_run
from pydantic_deep.store import (
    ApprovalNotFoundError,
    ApprovalRecord,
    ConversationRecord,
    VersionFilter,
    VersionNotFoundError,
    VersionRecord,
    new_id,
)
from pydantic_deep.versions import AgentVersion

from ._authentication import Caller, agent_for

RESERVED = 'server.'
"""What keys of metadata begin with that clients may not write."""

ServedVersion: TypeAlias = AgentVersion[Any, Any]
"""A version of an agent that is served."""

_UUID = re.compile('[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')


@dataclass(frozen=True, kw_only=True)
class OwnConversation:
    """A conversation of the caller's."""

    record: ConversationRecord
    agent: ServedAgent
    newest: VersionRecord
    """Its newest version, wherever its head is."""

    @property
    def id(self) -> str:
        """The conversation."""
        return self.record.id


@dataclass(frozen=True, kw_only=True)
class OwnApproval:
    """An approval of the caller's."""

    record: ApprovalRecord
    agent: ServedAgent
    version: ServedVersion
    """The version that waits, or has waited."""


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """A run of the caller's: of this process, in the store, or both."""

    id: str
    agent: ServedAgent
    here: ServerRun | None
    """The run, if it works here or its log is here still."""
    stored: StoredRun | None
    """As the store has it; `None` of one that failed before it began."""


async def create_conversation(
    state: ServerState,
    caller: Caller,
    agent_name: str,
    *,
    name: str | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    instructions: str | None = None,
) -> ServedVersion:
    """Return the root of a new conversation of the caller's.

    Raises:
        ServerError: The caller may not use the agent, or the metadata have a key that is the server's.
    """
    agent = agent_for(state, caller, agent_name)
    taken = sorted(key for key in metadata or {} if key.startswith(RESERVED))
    if taken:
        raise ServerError('invalid', f"Keys of `metadata` that begin with {RESERVED!r} are the server's: {taken}.")
    id = new_id()
    backend = None if state.make_backend is None else state.make_backend(caller.owner, id)
    owned = {**(metadata or {}), OWNER: caller.owner}
    return await agent.create(
        name=name,
        metadata=owned,
        backend=backend,
        instructions=() if instructions is None else instructions,
        conversation_id=id,
    )


async def own_conversation(state: ServerState, caller: Caller, id: str) -> OwnConversation:
    """Return a conversation of the caller's.

    Raises:
        ServerError: There is none of that id that the caller may see.
    """
    check_id(id)
    record = await state.store.conversation(id)
    found = await state.store.versions(VersionFilter(conversation_id=id, metadata={OWNER: caller.owner}), limit=1)
    if record is None or not found:
        raise not_found()
    return OwnConversation(record=record, agent=agent_for(state, caller, record.agent_name), newest=found[0])


async def own_version(state: ServerState, caller: Caller, id: str) -> ServedVersion:
    """Return a version of the caller's.

    Raises:
        ServerError: There is none of that id that the caller may see.
    """
    check_id(id)
    try:
        record = await state.store.version(id)
    except VersionNotFoundError:
        raise not_found() from None
    conversation = await own_conversation(state, caller, record.conversation_id)
    return await load_version(state, caller, conversation.agent, record)


async def own_run(state: ServerState, caller: Caller, id: str) -> OwnRun:
    """Return a run of the caller's.

    Raises:
        ServerError: There is none of that id that the caller may see.
    """
    check_id(id)
    here = state.hub.get(id)
    stored = await load_run(state, id)
    if here is None and stored is None:
        raise not_found()
    if here is not None and here.state == 'suspended':
        if stored is None:  # it never began
            here.state = 'failed'
        elif stored.state != 'suspended':  # it was resumed or cancelled since
            here = None
    conversation_id = stored.last.conversation_id if here is None and stored is not None else ''
    conversation = await own_conversation(state, caller, conversation_id if here is None else here.conversation_id)
    return OwnRun(id=id, agent=conversation.agent, here=here, stored=stored)


async def own_approval(state: ServerState, caller: Caller, id: str) -> OwnApproval:
    """Return an approval of the caller's.

    Raises:
        ServerError: There is none of that id that the caller may see.
    """
    check_id(id)
    try:
        record = await state.store.approval(id)
    except ApprovalNotFoundError:
        raise not_found() from None
    version = await own_version(state, caller, record.version_id)
    return OwnApproval(record=record, agent=agent_for(state, caller, version.agent_name), version=version)


async def load_version(state: ServerState, caller: Caller, agent: ServedAgent, record: VersionRecord) -> ServedVersion:
    """Return the handle of a version that is known to be the caller's, with its files."""
    backend = None if state.make_backend is None else state.make_backend(caller.owner, record.conversation_id)
    return await agent.load(record.id, backend=backend)


def check_id(id: str) -> None:
    """Refuse what is no id in full: beginnings of ids, which a store takes, could fit what belongs to others.

    Raises:
        ServerError: It is none.
    """
    if not _UUID.fullmatch(id):
        raise not_found()
