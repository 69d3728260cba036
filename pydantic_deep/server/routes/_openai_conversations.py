"""Conversations of OpenAI's Responses API, with their items: conversations of the store.

The mapping is in the docstring of `compat._responses`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field, JsonValue

from pydantic_deep._examples import example_config
from pydantic_deep.server.compat._response_items import add_items, conversation_items, find_item, page, remove_item
from pydantic_deep.server.compat._response_objects import (
    change_fields,
    create_conversation,
    delete_own_conversation,
    load_conversation,
    render_conversation,
)
from pydantic_deep.server.compat._response_requests import InputItem, Metadata
from pydantic_deep.server.http._json_route import JsonRoute

from ._parameters import Runner
from ._responses import ITEMS, After, ItemLimit, Order, deleted, with_example

router = APIRouter(prefix='/v1', tags=['openai'], route_class=JsonRoute)

_CONVERSATION: dict[str, JsonValue] = {
    'id': 'conv_01a21f80-0d5e-7c9e-9d2b-7f6c0c6a1b11',
    'object': 'conversation',
    'created_at': 1795824000,
    'metadata': {'topic': 'sales'},
}
_ITEM: dict[str, JsonValue] = {
    'id': 'msg_01a21f80-0d5e-7c9e-9d2b-7f6c0c6a1b12_input',
    'type': 'message',
    'role': 'user',
    'status': 'completed',
    'content': [{'type': 'input_text', 'text': 'Read sales.csv.'}],
}


class NewOpenaiConversation(BaseModel):
    """A conversation to create. Its first response determines its agent."""

    model_config = example_config({'metadata': {'topic': 'sales'}})

    items: Annotated[list[InputItem], Field(max_length=20)] | None = None
    """Messages to begin with."""
    metadata: Metadata | None = None
    """Metadata, returned with the conversation."""


class OpenaiConversationChange(BaseModel):
    """New metadata of a conversation."""

    model_config = example_config({'metadata': {'topic': 'sales'}})

    metadata: Metadata
    """Metadata, which replaces the old."""


class NewOpenaiItems(BaseModel):
    """Messages to add to a conversation."""

    model_config = example_config({'items': [{'role': 'user', 'content': 'Read sales.csv.'}]})

    items: Annotated[list[InputItem], Field(min_length=1, max_length=20)]
    """The messages."""


@router.post('/conversations', summary='Create a conversation', responses=with_example(_CONVERSATION))
async def create_openai_conversation(body: NewOpenaiConversation, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. The first response of the conversation determines its agent."""
    return render_conversation(await create_conversation(access, body.items or [], body.metadata or {}))


@router.get('/conversations/{conversation}', summary='Get a conversation', responses=with_example(_CONVERSATION))
async def read_openai_conversation(conversation: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    return render_conversation((await load_conversation(access, conversation)).row)


@router.post(
    '/conversations/{conversation}',
    summary='Change the metadata of a conversation',
    responses=with_example(_CONVERSATION),
)
async def update_openai_conversation(
    conversation: str, body: OpenaiConversationChange, access: Runner
) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    own = await load_conversation(access, conversation)
    return render_conversation(
        await change_fields(access.state, own.row, lambda fields: {'metadata': {**body.metadata}})
    )


@router.delete(
    '/conversations/{conversation}',
    summary='Delete a conversation',
    responses=with_example(deleted(_CONVERSATION['id'], 'conversation.deleted')),
)
async def delete_openai_conversation(conversation: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Deletes all responses of the conversation too."""
    own = await load_conversation(access, conversation)
    await delete_own_conversation(access, own)
    return deleted(own.row.id, 'conversation.deleted')


@router.get(
    '/conversations/{conversation}/items', summary='List the items of a conversation', responses=with_example(ITEMS)
)
async def list_openai_conversation_items(
    conversation: str, access: Runner, order: Order = 'desc', limit: ItemLimit = 20, after: After = None
) -> dict[str, JsonValue]:
    """Requires the scope `run`. Lists the items up to the head of the conversation."""
    items = await conversation_items(access, await load_conversation(access, conversation))
    return page(items, order=order, after=after, limit=limit)


@router.post(
    '/conversations/{conversation}/items', summary='Add items to a conversation', responses=with_example(ITEMS)
)
async def add_openai_conversation_items(
    conversation: str, body: NewOpenaiItems, access: Runner
) -> dict[str, JsonValue]:
    """Requires the scope `run`. Adds messages, which are a new version. The head moves to it."""
    items = await add_items(access, await load_conversation(access, conversation), body.items)
    return page(items, order='asc', after=None, limit=len(body.items))


@router.get(
    '/conversations/{conversation}/items/{item}',
    summary='Get an item of a conversation',
    responses=with_example(_ITEM),
)
async def read_openai_conversation_item(conversation: str, item: str, access: Runner) -> JsonValue:
    """Requires the scope `run`."""
    return await find_item(access, await load_conversation(access, conversation), item)


@router.delete(
    '/conversations/{conversation}/items/{item}',
    summary='Remove an item from a conversation',
    responses=with_example(_CONVERSATION),
)
async def remove_openai_conversation_item(conversation: str, item: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Only before the first response, after which the items are in versions."""
    return render_conversation(await remove_item(access, await load_conversation(access, conversation), item))
