"""`Access`: the resources that a caller may use. Another owner's resources answer 404.

Every id in a request is loaded here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import JsonValue

from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server._api_keys import KeyScope
from pydantic_deep.server._state import OWNER, ServerState
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_runs import StoredRun, is_final, load_run
from pydantic_deep.store import (
    ApprovalNotFoundError,
    ApprovalRecord,
    ConversationRecord,
    QueuedRunRecord,
    VersionFilter,
    VersionNotFoundError,
    VersionRecord,
    new_id,
)
from pydantic_deep.versions import AgentVersion, SupportsFilling
from pydantic_deep_backends import BackendProtocol

from ._identity import Caller, Identity

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
    """The stored run; `None` if it failed before it was stored, or has not begun."""
    queued: QueuedRunRecord | None = None
    """Its record in the queue, if workers execute it."""

    @property
    def has_ended(self) -> bool:
        """Whether the store has the end of the run, which `local` may not have yet."""
        return is_final(None if self.stored is None else self.stored.last, self.queued)


@dataclass(frozen=True, kw_only=True)
class Access:
    """The resources that the caller of a request may use."""

    state: ServerState
    caller: Caller
    """The sender of the request. An owner may have several keys."""

    @property
    def owner(self) -> str:
        """The owner of the resources."""
        return self.identity.owner

    @property
    def identity(self) -> Identity:
        """Who sends the request, and what they may do."""
        return self.caller.identity

    def has(self, scope: KeyScope) -> bool:
        """Return whether the caller has a scope. `admin` includes all scopes."""
        return scope in self.identity.scopes or 'admin' in self.identity.scopes

    def may_use(self, agent: str) -> bool:
        """Return whether the caller may use an agent."""
        return self.identity.agents is None or agent in self.identity.agents

    def agent(self, name: str) -> ServedAgent:
        """Return an agent that the caller may use.

        Raises:
            ServerError: There is no such agent, or the caller may not use it.
        """
        agent = self._find_agent(name)
        if agent is None:
            raise ServerError(
                'not_found',
                'This agent does not exist, or this key has no access to it. `GET /api/agents` lists those that it has.',
            )
        return agent

    def _find_agent(self, name: str) -> ServedAgent | None:
        return self.state.agents.get(name) if self.may_use(name) else None

    def model(self, name: str) -> ServedAgent:
        """Return the agent that a request names as its model.

        Raises:
            ServerError: See `agent`. The error says that a model is meant, so it is not for resources of an agent.
        """
        try:
            return self.agent(name)
        except ServerError:
            raise ServerError(
                'not_found',
                'This model does not exist, or this key has no access to it. `GET /v1/models` lists those that it has.',
            ) from None

    async def create_conversation(
        self,
        agent_name: str,
        *,
        name: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        instructions: str | None = None,
        id: str | None = None,
    ) -> ServedVersion:
        """Create a conversation for the caller, and return its root.

        Args:
            agent_name: The agent of the conversation.
            name: A display name.
            metadata: Metadata of all versions.
            instructions: Instructions for all turns.
            id: An unused id from `new_id`, by default a new one.

        Raises:
            ServerError: The caller may not use the agent, or the metadata contain a reserved key.
        """
        agent = self.agent(agent_name)
        reserved = sorted(key for key in metadata or {} if key.startswith(RESERVED))
        if reserved:
            raise ServerError('invalid', f'Keys of `metadata` that start with {RESERVED!r} are reserved: {reserved}.')
        id = new_id() if id is None else id
        return await agent.create(
            name=name,
            metadata={**(metadata or {}), OWNER: self.owner},
            # Directories are filled before the first turn, and do not exist yet.
            backend=None if isinstance(self.state.make_backend, SupportsFilling) else self._backend(id),
            instructions=() if instructions is None else instructions,
            conversation_id=id,
        )

    async def conversation(self, id: str) -> AuthorizedConversation:
        """Return a conversation that the caller owns.

        Raises:
            ServerError: The caller owns no conversation with that id.
        """
        check_id(id)
        store, wanted = self.state.store, VersionFilter(conversation_id=id, metadata={OWNER: self.owner})
        record, newest = await store.conversation(id), await store.versions(wanted, limit=1)
        agent = None if record is None else self._find_agent(record.agent_name)
        if record is None or not newest or agent is None:
            raise not_found()
        return AuthorizedConversation(record=record, agent=agent, newest=newest[0])

    async def version(self, id: str) -> ServedVersion:
        """Return a version that the caller owns.

        Raises:
            ServerError: The caller owns no version with that id.
        """
        check_id(id)
        try:
            record = await self.state.store.version(id)
        except VersionNotFoundError:
            raise not_found() from None
        conversation = await self.conversation(record.conversation_id)
        return await self.load_version(conversation.agent, record)

    async def run(
        self, id: str, *, follow: bool = True, conversations: dict[str, AuthorizedConversation] | None = None
    ) -> AuthorizedRun:
        """Return a run that the caller owns.

        Args:
            id: The run.
            follow: Whether to mirror the events of a run that another process executes.
            conversations: Conversations that the caller is known to own, by id. Others are added.

        Raises:
            ServerError: The caller owns no run with that id.
        """
        check_id(id)
        known = {} if conversations is None else conversations
        local, queued = self.state.runs.get(id), None
        if local is None or local.is_mirrored:
            queued = await self.state.store.queue.get(id)
        if queued is not None:
            await self._known_conversation(queued.conversation_id, known)
            local = await self.state.runs.follow(id) if follow else local
        stored = await load_run(self.state.store, self.state.runs, id)
        if local is None and stored is None and queued is None:
            raise not_found()
        if local is not None and local.state == 'suspended':
            if stored is None:  # it was never stored
                local.state = 'failed'
            elif stored.state != 'suspended':  # it has been resumed or cancelled since
                local = None
        places = [local, None if stored is None else stored.last, queued]
        conversation_id = next(place.conversation_id for place in places if place is not None)
        conversation = await self._known_conversation(conversation_id, known)
        return AuthorizedRun(id=id, agent=conversation.agent, local=local, stored=stored, queued=queued)

    async def _known_conversation(self, id: str, known: dict[str, AuthorizedConversation]) -> AuthorizedConversation:
        if id not in known:
            known[id] = await self.conversation(id)
        return known[id]

    async def approval(self, id: str) -> AuthorizedApproval:
        """Return an approval that the caller owns.

        Raises:
            ServerError: The caller owns no approval with that id.
        """
        check_id(id)
        try:
            record = await self.state.store.approval(id)
        except ApprovalNotFoundError:
            raise not_found() from None
        return AuthorizedApproval(record=record, version=await self.version(record.version_id))

    async def load_version(self, agent: ServedAgent, record: VersionRecord) -> ServedVersion:
        """Load a version with its files, which the caller is known to own."""
        return await agent.load(record.id, backend=self._backend(record.conversation_id))

    async def version_in(self, own: AuthorizedConversation, id: str | None = None) -> ServedVersion:
        """Return a version of a conversation, by default its head.

        Raises:
            ServerError: The conversation has no version with that id, or its head was deleted.
        """
        if id is not None:
            version = await self.version(id)
            if version.conversation_id != own.id:
                raise not_found()
            return version
        if own.record.head_id is None:
            raise ServerError('conflict', 'The head of the conversation was deleted. Move it to another version.')
        return await self.load_version(own.agent, await self.state.store.version(own.record.head_id))

    def _backend(self, conversation_id: str) -> BackendProtocol | None:
        make_backend = self.state.make_backend
        return None if make_backend is None else make_backend(self.owner, conversation_id)


def check_id(id: str) -> None:
    """Refuse partial ids. The store accepts prefixes, which could match another owner's resource.

    Raises:
        ServerError: The id is not complete.
    """
    if not _UUID.fullmatch(id):
        raise not_found()
