"""Responses and conversations of OpenAI's Responses API by their ids, with the fields that only their rows have.

Another owner's objects, and deleted ones, do not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import JsonValue

from pydantic_deep.dispatch import load_attempts
from pydantic_deep.repository import RowExistsError, RowNotFoundError
from pydantic_deep.server._deletion import delete_conversation, delete_run
from pydantic_deep.server._openai_objects import OpenaiObject
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.server._state import ServerState
from pydantic_deep.server._turn_task import creation_time
from pydantic_deep.server.access._ownership import Access, AuthorizedConversation, AuthorizedRun, check_id
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.store import VersionFilter, new_id, utc_datetime

from ._linked_files import check_links
from ._response_requests import (
    CONVERSATION,
    RESPONSE,
    FunctionCallItem,
    FunctionCallOutput,
    InputItem,
    InputMessage,
    OtherItem,
)
from ._responses import parse_items

_ITEM_PREFIXES = {'message': 'msg', 'function_call': 'fc', 'function_call_output': 'fco'}
"""The prefixes of the ids of items, keyed by their types."""

_FEW = 100
"""More than the versions of a conversation without turns: its root, and the history that it began with."""


@dataclass(frozen=True, kw_only=True)
class OwnResponse:
    """A response that the caller owns."""

    run: AuthorizedRun
    """The run of the response."""
    row: OpenaiObject
    """Its fields, which are empty if another API started the run."""

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended."""
        local, stored = self.run.local, self.run.stored
        return not stored.is_over if stored is not None else local is None or local.outcome is None


@dataclass(frozen=True, kw_only=True)
class OwnConversation:
    """A conversation that the caller owns."""

    stored: AuthorizedConversation | None
    """The conversation in the store; `None` before its first response, since its agent is not known."""
    row: OpenaiObject
    """Its fields, which are empty if another API created the conversation."""


async def load_response(access: Access, id: str) -> OwnResponse:
    """Return a response that the caller owns.

    Raises:
        ServerError: The caller owns no response with that id.
    """
    with _naming('response'):
        run = await access.run(id.removeprefix(RESPONSE))
        response_id = RESPONSE + (run.id if run.stored is None else run.stored.attempts[0].id)
        row = await _find(access.state, response_id)
        if row is None:
            row = OpenaiObject(id=response_id, owner=access.owner, created_at=creation_time(run.id))
        return OwnResponse(run=run, row=row)


async def load_conversation(access: Access, id: str) -> OwnConversation:
    """Return a conversation that the caller owns.

    Raises:
        ServerError: The caller owns no conversation with that id.
    """
    stored_id = id.removeprefix(CONVERSATION)
    with _naming('conversation'):
        check_id(stored_id)
        row = await _find(access.state, CONVERSATION + stored_id)
        if row is not None and row.owner != access.owner:
            raise not_found()
        if await access.state.store.conversation(stored_id) is None and row is not None:
            return OwnConversation(stored=None, row=row)
        stored = await access.conversation(stored_id)
        created_at = utc_datetime(stored.record.created_at)
        row = row or OpenaiObject(id=CONVERSATION + stored.id, owner=access.owner, created_at=created_at)
        return OwnConversation(stored=stored, row=row)


@contextmanager
def _naming(kind: str) -> Generator[None]:
    """Name the kind of an object that does not exist. Otherwise the error would be that of an unknown model."""
    try:
        yield
    except ServerError:
        message = f'This {kind} does not exist, or this key has no access to it.'
        raise ServerError('not_found', message, facts={'code': f'{kind}_not_found'}) from None


async def create_conversation(access: Access, items: Sequence[InputItem], metadata: Mapping[str, str]) -> OpenaiObject:
    """Create a conversation, which is stored with its first response, and return its row.

    Raises:
        ServerError: See `render_items`.
    """
    id = new_id()
    first = render_items(access.state.settings, items, prefix=f'{id}_first')
    row = OpenaiObject(
        id=CONVERSATION + id,
        owner=access.owner,
        created_at=datetime.now(UTC),
        fields={'metadata': dict(metadata), 'items': first},
    )
    await access.state.openai_objects.create(row)
    return row


def render_items(settings: ServerSettings, items: Sequence[InputItem], *, prefix: str) -> list[JsonValue]:
    """Return items that a client adds to a conversation, as they are listed: messages, and calls with their results.

    Reasoning has no content here, and is omitted.

    Args:
        settings: The settings of the server.
        items: The items.
        prefix: The part of the ids before the number.

    Raises:
        ServerError: An item is a reference or concerns an approval, or contains a file that cannot be read.
    """
    rendered: list[JsonValue] = []
    for number, item in enumerate(items):
        if isinstance(item, OtherItem) and item.type == 'reasoning':
            continue
        if not isinstance(item, InputMessage | FunctionCallItem | FunctionCallOutput):
            raise ServerError(
                'invalid',
                f'An item of the type {item.type!r} cannot be added to a conversation. Add messages, and calls of functions '
                'with their results.',
            )
        fields: dict[str, JsonValue] = item.model_dump(mode='json', exclude_none=True)
        kind = item.type or 'message'
        if isinstance(item, InputMessage) and isinstance(item.content, str):
            part = 'output_text' if item.role == 'assistant' else 'input_text'
            fields['content'] = [{'type': part, 'text': item.content}]
        rendered.append(
            {**fields, 'type': kind, 'id': f'{_ITEM_PREFIXES[kind]}_{prefix}{number}', 'status': 'completed'}
        )
    _, parsed, _ = parse_items(items)  # a file that cannot be read is refused now
    check_links(settings, [piece for message in parsed for piece in message.content])
    return rendered


async def change_fields(
    state: ServerState, row: OpenaiObject, change: Callable[[Mapping[str, JsonValue]], Mapping[str, JsonValue]]
) -> OpenaiObject:
    """Change fields of a conversation, and return its row.

    Args:
        state: The state of the server.
        row: The row as last loaded; another request may have changed it since.
        change: Returns new values of fields for the current ones.

    Raises:
        ServerError: The conversation was deleted meanwhile.
    """

    def change_row(current: OpenaiObject | None) -> OpenaiObject:
        if current is not None and current.is_deleted:
            raise not_found()
        base = current or row
        return base.model_copy(update={'fields': {**base.fields, **change(base.fields)}})

    with _naming('conversation'):
        changed = await state.openai_objects.update(row.id, change_row)
    assert changed is not None  # noqa: S101 - `change_row` always returns a row
    return changed


def first_items(fields: Mapping[str, JsonValue]) -> list[JsonValue]:
    """Return the items of a conversation before its first response, from the fields of its row."""
    items = fields.get('items')
    return [*items] if isinstance(items, list) else []


def render_conversation(row: OpenaiObject) -> dict[str, JsonValue]:
    """Return a conversation in OpenAI's format."""
    return {
        'id': row.id,
        'object': 'conversation',
        'created_at': int(row.created_at.timestamp()),
        'metadata': row.fields.get('metadata', {}),
    }


async def store_response_row(access: Access, run_id: str, *, fields: Mapping[str, JsonValue], system: str) -> None:
    """Store the row of a new response. A repeated decision has the row of the first one."""
    row = OpenaiObject(
        id=RESPONSE + run_id, owner=access.owner, created_at=datetime.now(UTC), fields=dict(fields), system=system
    )
    with suppress(RowExistsError):
        await access.state.openai_objects.create(row)


async def system_after(state: ServerState, run_id: str | None) -> str:
    """Return the SHA-256 of the system prompt that is in effect after a run; empty if there is none."""
    attempts = [] if run_id is None else await load_attempts(state.store, run_id)
    row = await _find(state, RESPONSE + attempts[0].id) if attempts else None
    return '' if row is None else row.system


async def delete_response(access: Access, own: OwnResponse) -> None:
    """Delete the versions of a response, and its conversation if nothing else is in it.

    Raises:
        ServerError: The response is in progress, or the head of its conversation has moved meanwhile.
    """
    state, stored = access.state, own.run.stored
    if own.is_running or (stored is not None and stored.is_suspended):
        raise ServerError('conflict', f'The response {own.row.id} is in progress. Cancel it first.')
    await _mark_deleted(state, own.row)  # first, so that a partial deletion leaves nothing to read
    if stored is None:
        return
    await delete_run(state, stored)
    conversation_id = stored.last.conversation_id
    rest = await state.store.versions(VersionFilter(conversation_id=conversation_id), limit=_FEW)
    has_row = await _find(state, CONVERSATION + conversation_id) is not None
    if not has_row and all(version.run_id is None for version in rest):
        await delete_conversation(state, conversation_id)


async def delete_own_conversation(access: Access, own: OwnConversation) -> None:
    """Delete a conversation with all its versions.

    Raises:
        ServerError: A run of the conversation is running.
    """
    if own.stored is not None:
        await delete_conversation(access.state, own.stored.id)
    await _mark_deleted(access.state, own.row)


async def _mark_deleted(state: ServerState, row: OpenaiObject) -> None:
    """Record that an object was deleted. The row remains without its fields, so that the id stays unknown."""
    await state.openai_objects.upsert(row.model_copy(update={'fields': {}, 'is_deleted': True}))


def digest_of(system: str) -> str:
    """Return the SHA-256 of a system prompt; empty for an empty one."""
    return hashlib.sha256(system.encode()).hexdigest() if system else ''


async def _find(state: ServerState, id: str) -> OpenaiObject | None:
    try:
        row = await state.openai_objects.get(id)
    except RowNotFoundError:
        return None
    if row.is_deleted:
        raise not_found()
    return row
