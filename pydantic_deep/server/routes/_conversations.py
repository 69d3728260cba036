"""Routes of conversations: create, list, read, rename and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelMessage

from pydantic_deep.fluent import MessageList, TranscriptError
from pydantic_deep.server._deletion import delete_conversation
from pydantic_deep.server._run_start import head_to_change
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._conversations import (
    ConversationChange,
    ConversationPage,
    NewConversation,
    Transcript,
    load_conversation,
)
from pydantic_deep.server.schemas._fields import Name
from pydantic_deep.store import VersionConflictError, VersionFilter, VersionRecord
from pydantic_deep.versions import ApprovalsPendingError
from pydantic_deep.views import ConversationDetails, ConversationSummary

from ._parameters import Cursor, Limit, Runner

MAX_SEARCHED: Final = 500
"""Conversations whose texts one request reads at least, before it returns a page with what it found."""

router = APIRouter(prefix='/api/conversations', tags=['conversations'], route_class=JsonRoute)


@router.post('', status_code=201, summary='Create a conversation', responses=describe_errors('not_found'))
async def create(body: NewConversation, access: Runner, response: Response) -> ConversationDetails:
    """The new conversation has no messages and, unless the application provides some, no files."""
    root = await access.create_conversation(
        body.agent, name=body.name, metadata=body.metadata, instructions=body.instructions
    )
    own = await access.conversation(root.conversation_id)
    response.headers['location'] = f'/api/conversations/{own.id}'
    return await load_conversation(access.state, own)


@router.get('', summary='List conversations, newest first', responses=describe_errors())
async def list_conversations(
    access: Runner,
    agent: Annotated[Name | None, Query(description='Only conversations of this agent.')] = None,
    search: Annotated[
        str | None,
        Query(
            description='Only conversations with this text, in any case, in their name, a prompt or an answer. A page may '
            'have fewer items than `limit` and a cursor: the search continues there.',
            max_length=200,
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ConversationPage:
    """Conversations of the key's owner with agents that the key may use."""
    items: list[ConversationSummary] = []
    before, searched = None if cursor is None else int(cursor), 0
    while True:
        roots = await access.state.store.versions(
            VersionFilter(kinds=['root'], agent_name=agent, metadata={OWNER: access.owner}),
            limit=limit + 1,
            before=before,
        )
        for number, summary in await _search(access, await _summaries(access, roots), search):
            if len(items) == limit:
                return ConversationPage(items=items, cursor=str(before))
            items.append(summary)
            before = number
        searched += len(roots)
        if len(roots) <= limit:
            return ConversationPage(items=items, cursor=None)
        before = roots[-1].number
        if search and searched >= MAX_SEARCHED:
            return ConversationPage(items=items, cursor=str(before))


async def _summaries(access: Access, roots: Sequence[VersionRecord]) -> list[tuple[int, ConversationSummary]]:
    """Return the conversations of roots that the key may use, with the numbers of the roots."""
    found: list[tuple[int, ConversationSummary]] = []
    for root in roots:
        record = await access.state.store.conversation(root.conversation_id)
        if record is not None and root.agent_name in access.state.agents and access.may_use(root.agent_name):
            head = root if record.head_id is None else await access.state.store.version(record.head_id)
            found.append((root.number, access.state.views.conversation_summary(record, head)))
    return found


async def _search(
    access: Access, found: list[tuple[int, ConversationSummary]], search: str | None
) -> list[tuple[int, ConversationSummary]]:
    """Return the conversations with a text, by one query for those whose name does not contain it."""
    if not search:
        return found
    named = {each.id for _, each in found if search.casefold() in (each.name or '').casefold()}
    unnamed = [each.id for _, each in found if each.id not in named]
    matching = named | await access.state.store.conversations_with(search, unnamed)
    return [(number, each) for number, each in found if each.id in matching]


@router.get('/{conversation}', summary='Get a conversation', responses=describe_errors('not_found'))
async def read(conversation: str, access: Runner) -> ConversationDetails:
    """Returns the conversation at its head: state, plan, pending approvals, usage."""
    own = await access.conversation(conversation)
    return await load_conversation(access.state, own)


@router.patch('/{conversation}', summary='Rename a conversation', responses=describe_errors('not_found', 'conflict'))
async def update(conversation: str, body: ConversationChange, access: Runner) -> ConversationDetails:
    """Creates a new version at the head with the new name. Fails while a run is active or an approval is pending."""
    own = await access.conversation(conversation)
    head = await head_to_change(access, own)
    try:
        await own.agent.conversation(own.id, backend=head.backend).rename(body.name)
    except (ApprovalsPendingError, VersionConflictError, LookupError):  # another request has moved or deleted the head
        raise ServerError('conflict', 'The conversation changed in the meantime. Rename it again.') from None
    renamed = await access.conversation(conversation)
    return await load_conversation(access.state, renamed)


@router.delete(
    '/{conversation}',
    status_code=204,
    summary='Delete a conversation',
    responses=describe_errors('not_found', 'conflict'),
)
async def delete(conversation: str, access: Runner) -> None:
    """Deletes all versions on all branches, and the conversations of subagents.

    Data that is no longer referenced is garbage-collected. Audit records are preserved.
    """
    await delete_conversation(access.state, (await access.conversation(conversation)).id)


@router.get(
    '/{conversation}/messages',
    summary='List the messages of a conversation',
    responses=describe_errors('not_found', 'conflict'),
)
async def read_messages(
    conversation: str,
    access: Runner,
    version: Annotated[str | None, Query(description='A version of the conversation; the head if omitted.')] = None,
) -> Transcript:
    """The transcript of the head, or of any version of the conversation. Numbers that JSON cannot represent, such as
    `NaN`, are strings.
    """
    own = await access.conversation(conversation)
    chosen = await access.version_in(own, version)
    messages = await chosen.messages()
    try:
        document = MessageList(messages).to_dict()
    except TranscriptError:  # only non-JSON numbers can cause it, since each message was loaded from a store
        with_strings = _number_strings().validate_json(_number_strings().dump_json(messages))
        document = MessageList(with_strings).to_dict()
    return Transcript.model_validate(document)


@cache
def _number_strings() -> TypeAdapter[list[ModelMessage]]:
    """Return an adapter that serializes NaN and infinities as strings."""
    config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64', ser_json_inf_nan='strings')
    return TypeAdapter(list[ModelMessage], config=config)
