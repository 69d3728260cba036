"""Ownership checks. Another owner's resources answer 404. Every id in a request is loaded here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import JsonValue

from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server._state import OWNER, ServerState
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_runs import StoredRun, load_run
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

from ._callers import Caller, authorize_agent

RESERVED = 'server.'
"""The prefix of metadata keys that clients may not set."""

ServedVersion: TypeAlias = AgentVersion[Any, Any]
"""A version of a served agent."""

_UUID = re.compile('[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')


@dataclass(frozen=True, kw_only=True)
class AuthorizedConversation:
    """A conversation that the caller owns."""

    record: ConversationRecord
    agent: ServedAgent
    newest: VersionRecord
    """The newest version of the conversation, which may differ from its head."""

    @property
    def id(self) -> str:
        """The id of the conversation."""
        return self.record.id


@dataclass(frozen=True, kw_only=True)
class AuthorizedApproval:
    """An approval that the caller owns."""

    record: ApprovalRecord
    agent: ServedAgent
    version: ServedVersion
    """The version that the approval belongs to."""


@dataclass(frozen=True, kw_only=True)
class AuthorizedRun:
    """A run that the caller owns: in this process, in the store, or in both."""

    id: str
    agent: ServedAgent
    local: ServerRun | None
    """The run, if it is running in this process or its log is cached."""
    stored: StoredRun | None
    """The stored run; `None` if it failed before it was stored."""


async def create_conversation(
    state: ServerState,
    caller: Caller,
    agent_name: str,
    *,
    name: str | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    instructions: str | None = None,
) -> ServedVersion:
    """Create a conversation for the caller, and return its root.

    Raises:
        ServerError: The caller may not use the agent, or the metadata contain a reserved key.
    """
    agent = authorize_agent(state, caller, agent_name)
    reserved = sorted(key for key in metadata or {} if key.startswith(RESERVED))
    if reserved:
        raise ServerError('invalid', f'Keys of `metadata` that start with {RESERVED!r} are reserved: {reserved}.')
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


async def authorize_conversation(state: ServerState, caller: Caller, id: str) -> AuthorizedConversation:
    """Return a conversation that the caller owns.

    Raises:
        ServerError: The caller owns no conversation with that id.
    """
    check_id(id)
    record = await state.store.conversation(id)
    newest = await state.store.versions(VersionFilter(conversation_id=id, metadata={OWNER: caller.owner}), limit=1)
    if record is None or not newest:
        raise not_found()
    return AuthorizedConversation(
        record=record, agent=authorize_agent(state, caller, record.agent_name), newest=newest[0]
    )


async def authorize_version(state: ServerState, caller: Caller, id: str) -> ServedVersion:
    """Return a version that the caller owns.

    Raises:
        ServerError: The caller owns no version with that id.
    """
    check_id(id)
    try:
        record = await state.store.version(id)
    except VersionNotFoundError:
        raise not_found() from None
    conversation = await authorize_conversation(state, caller, record.conversation_id)
    return await load_version(state, caller, conversation.agent, record)


async def authorize_run(state: ServerState, caller: Caller, id: str) -> AuthorizedRun:
    """Return a run that the caller owns.

    Raises:
        ServerError: The caller owns no run with that id.
    """
    check_id(id)
    local = state.runs.get(id)
    stored = await load_run(state.store, state.runs, id)
    if local is None and stored is None:
        raise not_found()
    if local is not None and local.state == 'suspended':
        if stored is None:  # it was never stored
            local.state = 'failed'
        elif stored.state != 'suspended':  # it has been resumed or cancelled since
            local = None
    conversation_id = stored.last.conversation_id if local is None and stored is not None else ''
    conversation = await authorize_conversation(
        state, caller, conversation_id if local is None else local.conversation_id
    )
    return AuthorizedRun(id=id, agent=conversation.agent, local=local, stored=stored)


async def authorize_approval(state: ServerState, caller: Caller, id: str) -> AuthorizedApproval:
    """Return an approval that the caller owns.

    Raises:
        ServerError: The caller owns no approval with that id.
    """
    check_id(id)
    try:
        record = await state.store.approval(id)
    except ApprovalNotFoundError:
        raise not_found() from None
    version = await authorize_version(state, caller, record.version_id)
    return AuthorizedApproval(record=record, agent=authorize_agent(state, caller, version.agent_name), version=version)


async def load_version(state: ServerState, caller: Caller, agent: ServedAgent, record: VersionRecord) -> ServedVersion:
    """Load a version with its files, for a caller that is known to own it."""
    backend = None if state.make_backend is None else state.make_backend(caller.owner, record.conversation_id)
    return await agent.load(record.id, backend=backend)


def check_id(id: str) -> None:
    """Refuse partial ids. The store accepts prefixes, which could match another owner's resource.

    Raises:
        ServerError: The id is not complete.
    """
    if not _UUID.fullmatch(id):
        raise not_found()


async def version_in(state: ServerState, caller: Caller, own: AuthorizedConversation, id: str | None) -> ServedVersion:
    """Return a version of a conversation, by default its head.

    Raises:
        ServerError: The conversation has no version with that id, or its head was deleted.
    """
    if id is None:
        head = await find_head(state, caller, own)
        if head is None:
            raise ServerError('conflict', 'The head of the conversation was deleted. Move it to another version.')
        return head
    version = await authorize_version(state, caller, id)
    if version.conversation_id != own.id:
        raise not_found()
    return version


async def find_head(state: ServerState, caller: Caller, own: AuthorizedConversation) -> ServedVersion | None:
    """Return the head of a conversation, or `None` if it was deleted."""
    if own.record.head_id is None:
        return None
    return await load_version(state, caller, own.agent, await state.store.version(own.record.head_id))
