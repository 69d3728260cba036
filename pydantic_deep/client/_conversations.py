"""Conversations: create, list, get, rename and delete them, and read their messages."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping

from pydantic import JsonValue

from pydantic_deep.fluent import MessageList
from pydantic_deep.views import ConversationDetails, ConversationSummary

from ._connection import Connection, parse, present, segment


class ConversationsClient:
    """The conversations of the owner of the key: `client.conversations`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        agent: str,
        *,
        name: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        instructions: str | None = None,
    ) -> ConversationDetails:
        """Create a conversation without messages.

        Args:
            agent: The name of the agent.
            name: A display name, one line.
            metadata: Metadata, stored with all versions.
            instructions: Instructions for all turns, in addition to the agent's own.
        """
        body = {'agent': agent, 'name': name, 'metadata': metadata, 'instructions': instructions}
        return await self._connection.post(ConversationDetails, '/api/conversations', present(body))

    def list(self, *, agent: str | None = None, search: str | None = None) -> AsyncGenerator[ConversationSummary]:
        """Yield conversations, newest first.

        Args:
            agent: Only conversations of this agent.
            search: Only conversations with this text, in any case, in their name, a prompt or an answer.
        """
        return self._connection.items(ConversationSummary, '/api/conversations', agent=agent, search=search)

    async def get(self, conversation_id: str) -> ConversationDetails:
        """Return a conversation with its state at the head: the plan, pending approvals, usage."""
        return await self._connection.get(ConversationDetails, _path(conversation_id))

    async def messages(self, conversation_id: str, *, version_id: str | None = None) -> MessageList:
        """Return the messages of the head, or of any version of the conversation."""
        path = f'{_path(conversation_id)}/messages'
        return MessageList.from_dict(
            json.loads(await self._connection.send('GET', path, params={'version': version_id}))
        )

    async def rename(self, conversation_id: str, name: str) -> ConversationDetails:
        """Rename a conversation, as a new version. Fails while a run is active or an approval is pending."""
        body = await self._connection.send('PATCH', _path(conversation_id), json={'name': name})
        return parse(ConversationDetails, body)

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation with all versions and the conversations of subagents. Audit records are preserved."""
        await self._connection.send('DELETE', _path(conversation_id))


def _path(conversation_id: str) -> str:
    return f'/api/conversations/{segment("conversation_id", conversation_id)}'
