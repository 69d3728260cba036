"""Parts of an audit record, derived from the messages of a run: prompt, calls and their outcomes. Pure.

The input is JSON, because a store has JSON and a record holds JSON, and because secrets are redacted from it by then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias, cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import to_jsonable_python

from pydantic_deep._messages.grants import LOAD_TOOL, parse_grant

from ._types import AuditedCall, AuditedGrant, Contents, Outcome

JsonObject: TypeAlias = dict[str, JsonValue]

MAX_CONTENTS_BYTES: Final = 4096
"""How large arguments and results are in the list of calls, as JSON; the messages have them whole."""

MAX_LABEL_CHARS: Final = 256
"""How long what records are filtered by may be, so that any engine can index it."""


@dataclass(kw_only=True)
class ObservedCall:
    """A call as observed while it ran."""

    started_at: datetime | None = None
    """When it began."""
    ended_at: datetime | None = None
    """When it ended."""
    outcome: Outcome | None = None
    """What became of it, if no message says so."""
    result: JsonValue = None
    """What it has returned, if no message has it."""


def dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON; of what JSON cannot hold in them, its `repr`."""
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode='json', fallback=repr)


def dump_value(value: object) -> JsonValue:
    """Return a value as JSON; of what JSON cannot hold, its `repr`."""
    return to_jsonable_python(value, bytes_mode='base64', fallback=repr)


def storable(value: JsonValue) -> JsonValue:
    """Return a value that is valid Unicode: a lone surrogate, which no database takes, is a `?`."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode('utf-8', 'replace'))
    return value


def label_of(metadata: Mapping[str, JsonValue], name: str) -> str | None:
    """Return what metadata have under a name, or under `….name`, if it is text or a number."""
    keys = [name, *(key for key in metadata if key.endswith(f'.{name}'))]
    found = next((metadata[key] for key in keys if metadata.get(key) is not None), None)
    return str(found)[:MAX_LABEL_CHARS] if isinstance(found, str | int) and not isinstance(found, bool) else None


def first_of_run(messages: Sequence[JsonValue], run_id: str) -> int:
    """Return the place of the first message of a run; after the last if there is none."""
    places = (place for place, message in enumerate(messages) if _object(message).get('run_id') == run_id)
    return next(places, len(messages))


def last_response(messages: Sequence[JsonValue], before: int) -> int:
    """Return the place of the last response before another place: the run may end its calls. That place if there is none."""
    places = (place for place in range(before - 1, -1, -1) if _object(messages[place]).get('kind') == 'response')
    return next(places, before)


def question_of(messages: Sequence[JsonValue]) -> str:
    """Return what the user said last; empty if nothing."""
    for message in reversed(messages):
        said = [
            render_prompt(part.get('content')) for part in _parts(message) if part.get('part_kind') == 'user-prompt'
        ]
        if said:
            return '\n'.join(said)
    return ''


def render_prompt(content: JsonValue) -> str:
    """Return a prompt as text: texts as they are, media by kind and size or place."""
    if isinstance(content, str):
        return content
    items = content if isinstance(content, list) else []
    return '\n'.join(filter(None, (item if isinstance(item, str) else _render_item(_object(item)) for item in items)))


def calls_of(
    messages: Sequence[JsonValue],
    first_new: int,
    ran: Mapping[str, Sequence[ObservedCall]],
    *,
    is_waiting: bool,
    answered: Collection[str] = (),
) -> list[AuditedCall]:
    """Return the calls that a run has made, and those that it has ended of the response before it.

    Args:
        messages: The history, without secrets.
        first_new: The first message of the run.
        ran: What was seen of calls, by id and in the order in which they began: an id may come again.
        is_waiting: Whether calls without a result wait for a person.
        answered: The calls of the response before it that had ended by then: pydantic-ai may put their results together
            with its own.
    """
    seen = {id: iter(each) for id, each in ran.items()}
    drafts: list[_Draft] = []
    open_by_id: dict[str, _Draft] = {}
    begin = last_response(messages, first_new)
    for place, message in enumerate(messages[begin:], begin):
        for part in _parts(message):
            id = str(part.get('tool_call_id'))
            match part.get('part_kind'):
                case 'tool-call':
                    drafts.append(_Draft(call=part, is_new=place >= first_new))
                    open_by_id[id] = drafts[-1]
                case 'tool-return' if id in open_by_id:
                    draft = open_by_id.pop(id)
                    draft.returned, draft.is_new = part, draft.is_new or (place >= first_new and id not in answered)
                case _:
                    pass
    return [draft.audited(seen, is_waiting) for draft in drafts if draft.is_new]


def grants_of(messages: Sequence[JsonValue], first_new: int, *, answered: Collection[str] = ()) -> list[AuditedGrant]:
    """Return what skills were granted that a run has loaded.

    Args:
        messages: The history, without secrets.
        first_new: The first message of the run.
        answered: The calls of the response before it that had ended by then.
    """
    parts = (part for message in messages[last_response(messages, first_new) :] for part in _parts(message))
    loads = (
        _object(part.get('metadata'))
        for part in parts
        if part.get('part_kind') == 'tool-return'
        and part.get('tool_name') == LOAD_TOOL
        and part.get('tool_call_id') not in answered
    )
    return [
        AuditedGrant(skill=str(load.get('skill')), commands=list(grant.commands), by=grant.by)
        for load in loads
        if (grant := parse_grant(load)) is not None
    ]


def contents_of(value: JsonValue) -> Contents:
    """Return what is kept of arguments or a result."""
    data = json.dumps(value, sort_keys=True, separators=(',', ':')).encode()
    is_whole = len(data) <= MAX_CONTENTS_BYTES
    return Contents(
        value=value if is_whole else None,
        is_whole=is_whole,
        size_bytes=len(data),
        digest=hashlib.sha256(data).hexdigest(),
    )


@dataclass(kw_only=True)
class _Draft:
    call: JsonObject
    is_new: bool
    """Whether the run has made or ended it."""
    returned: JsonObject | None = None

    def audited(self, seen: Mapping[str, Iterator[ObservedCall]], is_waiting: bool) -> AuditedCall:
        id = str(self.call.get('tool_call_id'))
        ran = next(seen.get(id, iter(())), ObservedCall())
        if self.returned is not None:
            outcome, result = cast('Outcome', self.returned.get('outcome', 'success')), self.returned.get('content')
        else:
            outcome, result = ran.outcome or ('deferred' if is_waiting else 'interrupted'), ran.result
        is_told = self.returned is not None or ran.result is not None
        return AuditedCall(
            id=id,
            name=str(self.call.get('tool_name')),
            arguments=contents_of(_read_arguments(self.call.get('args'))),
            outcome=outcome,
            result=contents_of(result) if is_told else None,
            started_at=ran.started_at,
            ended_at=ran.ended_at,
        )


def _read_arguments(arguments: JsonValue) -> JsonValue:
    """Return arguments as the object that they are, also where the model has written them as text; as they are if not."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _render_item(item: JsonObject) -> str:
    kind = item.get('kind')
    match kind:
        case 'text' | 'text-content' | 'structured-content':
            return str(item.get('content'))
        case 'binary':
            data = str(item.get('data'))
            size = '' if data.startswith('asset:') else f', about {len(data) * 3 // 4} bytes'  # a store has it
            return f'[{item.get("media_type")}{size}]'
        case 'cache-point':
            return ''
        case _:
            return f'[{kind}: {item.get("url") or item.get("file_id")}]'


def _parts(message: JsonValue) -> list[JsonObject]:
    return cast('list[JsonObject]', _object(message).get('parts', []))


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
