"""The contents of responses and conversations of OpenAI's Responses API, rebuilt from the store.

Ids of items are derived from those of runs and approvals, so they are the same in every process. The items of a
conversation are those of the responses that lead to its head: an item on another branch is not among them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache
from typing import Literal, TypeAlias, TypedDict

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelResponse, TextPart, ToolReturnPart, UserContent, UserPromptPart

from pydantic_deep._messages.call_ids import unescape_call_id
from pydantic_deep.approvals import Decision, Deny, Respond
from pydantic_deep.dispatch import load_run_messages
from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server._openai_objects import OpenaiObject
from pydantic_deep.server._run_start import head_to_change
from pydantic_deep.server.access._ownership import Access, AuthorizedRun
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs._stored_runs import StoredRun
from pydantic_deep.store import ApprovalRecord, VersionNotFoundError, new_id, utc_datetime
from pydantic_deep.streaming import openai_response
from pydantic_deep.versions import InboxItem

from ._client_events import client_events, parse_texts, stored_events
from ._client_results import is_client_call
from ._dialogue import Dialogue, to_model_messages
from ._linked_files import fetch_history
from ._response_objects import (
    OwnConversation,
    OwnResponse,
    change_fields,
    first_items,
    load_response,
    render_items,
)
from ._response_requests import APPROVAL, RESPONSE, InputItem, InputMessage, TextOptions
from ._responses import output_schema_of, parse_items
from ._turns import NEW_INSTRUCTIONS

Prompt: TypeAlias = str | Sequence[UserContent]
"""The prompt of a turn."""

_ALL = 10_000
"""An upper bound for the number of approvals of a version."""


async def build_response(access: Access, own: OwnResponse) -> dict[str, JsonValue]:
    """Return a response as it is in the store; one that runs, with its steps so far."""
    run, fields = own.run, dict[str, JsonValue]()
    if run.stored is None and run.local is not None and run.local.state == 'queued' and not run.has_ended:
        fields['status'] = 'queued'
    events = parse_texts(client_events(access, stored_events(run), schema=schema_of(own.row)))
    return openai_response(
        [event async for event in events if event is not None],
        **rendering_of(own.row, run.agent.name, completed_at=completed_at(run), **fields),
    )


def completed_at(run: AuthorizedRun) -> int | None:
    """Return when a response was completed, in seconds since 1970; `None` if it was not."""
    ended_at = None if run.stored is None else run.stored.last.ended_at
    return None if ended_at is None else int(utc_datetime(ended_at).timestamp())


class Rendering(TypedDict):
    """The options of `ResponsesEncoder` and `openai_response`."""

    id: str
    model: str
    created_at: int
    completed_at: int | None
    tool_calls: bool
    thinking: bool
    fields: dict[str, JsonValue]


def rendering_of(row: OpenaiObject, model: str, *, completed_at: int | None = None, **fields: JsonValue) -> Rendering:
    """Return the options with which a response is rendered. The given fields take precedence over those of its row."""
    reasoning = row.fields.get('reasoning')
    return Rendering(
        id=row.id,
        model=model,
        created_at=int(row.created_at.timestamp()),
        completed_at=completed_at,
        tool_calls=True,
        thinking=isinstance(reasoning, dict) and reasoning.get('summary') is not None,
        fields={**row.fields, **fields},
    )


def schema_of(row: OpenaiObject) -> dict[str, JsonValue] | None:
    """Return the schema of the answer, if the client asked for an answer as JSON."""
    text = row.fields.get('text')
    return None if text is None else output_schema_of(TextOptions.model_validate(text))


async def input_items(access: Access, own: OwnResponse) -> list[JsonValue]:
    """Return the input items of a response: the prompt, or decisions on approvals."""
    items: list[JsonValue] = []
    stored = own.run.stored
    prompt: Prompt | None
    if stored is not None and stored.version is not None:
        prompt = await _prompt_of(own.run.agent, stored, stored.version.id)
    else:
        places = (None if stored is None else stored.last, own.run.queued)
        data = next((place.prompt for place in places if place is not None and place.prompt is not None), None)
        prompt = None if data is None else _prompts().validate_json(data)
    if stored is not None and stored.base_id is not None:
        items += await _results_before_prompt(access, own.run.agent, stored.base_id)
        attempts = {attempt.id for attempt in stored.attempts}
        records = await access.state.store.approvals(status=None, version_id=stored.base_id, limit=_ALL)
        answered = [record for record in records if record.resumed_by in attempts]
        if answered:
            base = await own.run.agent.load(stored.base_id)
            names = {tool.name for tool in await base.external_tools()}
            items += [_answer_item(record, names) for record in answered]
    if prompt is not None:
        items.append(_message_item(f'msg_{own.row.id.removeprefix(RESPONSE)}_input', 'user', _parts(prompt)))
    return items


async def _results_before_prompt(access: Access, agent: ServedAgent, base_id: str) -> list[JsonValue]:
    """Return the results that a request contained beside its prompt. They are in a version of their own (`with_results`)."""
    try:
        base = await agent.load(base_id)
    except VersionNotFoundError:
        return []
    if base.record.kind != 'edit' or base.record.parent_id is None:
        return []
    records = await access.state.store.approvals(status=None, version_id=base.record.parent_id, limit=_ALL)
    ids = {unescape_call_id(record.pending_id): record.id for record in records}
    returned = [part for part in (await base.messages())[-1].parts if isinstance(part, ToolReturnPart)]
    return [
        _output_item(ids[part.tool_call_id], part.model_response_str(wrap_if_error=False))
        for part in returned
        if part.tool_call_id in ids
    ]


async def _prompt_of(agent: ServedAgent, run: StoredRun, version_id: str) -> Prompt | None:
    """Return the prompt of a run. If the version before it was deleted, only the messages have it."""
    try:
        return await (await agent.load(version_id)).prompt()
    except VersionNotFoundError:
        messages, since = await load_run_messages(agent, run.attempts)
    parts = (part for message in messages[since:] for part in message.parts)
    return next((part.content for part in parts if isinstance(part, UserPromptPart)), None)


async def conversation_items(access: Access, own: OwnConversation) -> list[JsonValue]:
    """Return the items of a conversation up to its head, oldest first."""
    items = first_items(own.row.fields)
    found: list[OwnResponse | list[JsonValue]] = []
    version_id = None if own.stored is None else own.stored.record.head_id
    while own.stored is not None and version_id is not None:
        try:
            record = await access.state.store.version(version_id)
        except VersionNotFoundError:  # it was deleted, and what led to it is not known any more
            break
        version_id = record.parent_id
        if record.run_id is not None:
            response = await load_response(access, RESPONSE + record.run_id)
            found.append(response)
            version_id = None if response.run.stored is None else response.run.stored.base_id
        elif record.kind == 'edit' and version_id is not None:
            found.append(await _added_items(own.stored.agent, record.id, version_id, has_first=bool(items)))
    for piece in reversed(found):
        if isinstance(piece, OwnResponse):
            items += await input_items(access, piece)
            output = (await build_response(access, piece))['output']
            items += output if isinstance(output, list) else []
        else:
            items += piece
    return items


async def _added_items(agent: ServedAgent, version_id: str, parent_id: str, *, has_first: bool) -> list[JsonValue]:
    """Return the messages of a version that its parent does not have; none if the parent was deleted.

    Args:
        agent: The agent.
        version_id: The version.
        parent_id: Its parent.
        has_first: Whether the messages after the root are the first items of the conversation, with ids of their own.
    """
    try:
        parent = await agent.load(parent_id)
    except VersionNotFoundError:
        return []
    if has_first and parent.record.kind == 'root':
        return []
    messages = (await (await agent.load(version_id)).messages())[len(await parent.messages()) :]
    items: list[JsonValue] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            content: list[JsonValue] = [
                {'type': 'output_text', 'text': part.content, 'annotations': []}
                for part in message.parts
                if isinstance(part, TextPart)
            ]
            role = 'assistant'
        else:
            prompts = [part.content for part in message.parts if isinstance(part, UserPromptPart)]
            content, role = [piece for prompt in prompts for piece in _parts(prompt)], 'user'
        if content:
            items.append(_message_item(f'msg_{version_id}_added{len(items)}', role, content))
    return items


async def find_item(access: Access, own: OwnConversation, id: str) -> JsonValue:
    """Return an item of a conversation.

    Raises:
        ServerError: There is no such item up to the head of the conversation.
    """
    items = await conversation_items(access, own)
    found = next((item for item in items if _id_of(item) == id), None)
    if found is None:
        message = 'This conversation has no such item up to its head. List the items to see their ids.'
        raise ServerError('not_found', message, facts={'code': 'item_not_found'})
    return found


async def add_items(access: Access, own: OwnConversation, items: Sequence[InputItem]) -> list[JsonValue]:
    """Add messages to a conversation, and return them. They are a new version, to which the head moves.

    Raises:
        ServerError: See `render_items`; a run is running or approvals are pending; or the conversation has responses, and
            an item is not a message of the user or the assistant.
        VersionConflictError: The head was moved in the meantime.
    """
    if own.stored is None:
        added = render_items(access.state.settings, items, prefix=f'{new_id()}_first')
        await change_fields(access.state, own.row, lambda fields: {'items': [*first_items(fields), *added]})
        return added
    if not all(isinstance(item, InputMessage) for item in items):
        raise ServerError(
            'invalid', 'Only messages can be added to a conversation that has responses. Remove the other `items`.'
        )
    system, messages, _ = parse_items(items)
    if system:
        raise ServerError(
            'invalid',
            'A conversation that has responses gets messages of the user and the assistant only. Send the other text as '
            '`instructions` of the next response.',
        )
    head = await head_to_change(access, own.stored)
    added = await fetch_history(access.state.settings, Dialogue(messages=messages))
    new = [message for each in added.messages for message in to_model_messages(Dialogue(messages=[each]))]
    version = await head.with_messages([*await head.messages(), *new], moves_head=True)
    return await _added_items(own.stored.agent, version.id, head.id, has_first=False)


async def remove_item(access: Access, own: OwnConversation, id: str) -> OpenaiObject:
    """Remove one of the messages that a conversation begins with, and return the row of the conversation.

    Raises:
        ServerError: There is no such item, or the conversation has responses, which are versions.
    """
    await find_item(access, own, id)
    if own.stored is not None:
        raise ServerError(
            'conflict',
            'The items of a conversation that has responses are in versions, which never change. Continue an earlier '
            'response with `previous_response_id`, or delete the whole response with `DELETE /v1/responses/{id}`.',
        )
    return await change_fields(
        access.state, own.row, lambda fields: {'items': [item for item in first_items(fields) if _id_of(item) != id]}
    )


def _id_of(item: JsonValue) -> str:
    return str(item['id']) if isinstance(item, dict) else ''


def _message_item(id: str, role: str, content: list[JsonValue]) -> JsonValue:
    return {'id': id, 'type': 'message', 'role': role, 'status': 'completed', 'content': content}


def page(
    items: Sequence[JsonValue], *, order: Literal['asc', 'desc'], after: str | None, limit: int
) -> dict[str, JsonValue]:
    """Return a page of items in OpenAI's format.

    Args:
        items: All items, oldest first.
        order: The order of the page.
        after: The id of the last item of the previous page.
        limit: The maximum number of items in the page.

    Raises:
        ServerError: No item has the id `after`.
    """
    ordered = [*items] if order == 'asc' else [*reversed(items)]
    ids = [*map(_id_of, ordered)]
    if after is not None and after not in ids:
        raise ServerError('invalid', '`after` is not the id of an item in this list. Omit it to start over.')
    start = 0 if after is None else ids.index(after) + 1
    data = ordered[start : start + limit]
    return {
        'object': 'list',
        'data': data,
        'first_id': ids[start] if data else None,
        'last_id': ids[start + len(data) - 1] if data else None,
        'has_more': start + len(data) < len(ordered),
    }


def _answer_item(record: ApprovalRecord, names: set[str]) -> JsonValue:
    """Return the item that answered a pending call: the result of a function of the client, or a decision."""
    decision = InboxItem.from_record(record).decision
    if is_client_call(record, names):
        return _output_item(record.id, decision.content if isinstance(decision, Respond) else _reason_of(decision))
    return {
        'id': f'mcpa_{record.id}',
        'type': 'mcp_approval_response',
        'approval_request_id': APPROVAL + record.id,
        'approve': not isinstance(decision, Deny),
        'reason': _reason_of(decision),
    }


def _output_item(call_id: str, content: JsonValue) -> JsonValue:
    return {
        'id': f'fco_{call_id}',
        'type': 'function_call_output',
        'status': 'completed',
        'call_id': call_id,
        'output': content if isinstance(content, str) else json.dumps(content, ensure_ascii=False),
    }


def _reason_of(decision: Decision | None) -> str | None:
    return decision.reason if isinstance(decision, Deny) else None


def _parts(prompt: Prompt) -> list[JsonValue]:
    content = [prompt] if isinstance(prompt, str) else prompt
    return [_part(piece) for piece in content if not (isinstance(piece, str) and piece.startswith(NEW_INSTRUCTIONS))]


def _part(piece: UserContent) -> JsonValue:
    """Return a piece of a prompt. Of pieces that only Python code can send, the type is named."""
    match piece:
        case str():
            return {'type': 'input_text', 'text': piece}
        case BinaryContent():
            url = f'data:{piece.media_type};base64,{base64.b64encode(piece.data).decode()}'
            if piece.is_image:
                return {'type': 'input_image', 'image_url': url, 'detail': 'auto'}
            return {'type': 'input_file', 'file_data': url}
        case _:
            return {'type': 'input_text', 'text': f'[{piece.kind}]'}


@cache
def _prompts() -> TypeAdapter[Prompt]:
    return TypeAdapter(str | Sequence[UserContent])
