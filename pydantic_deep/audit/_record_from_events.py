"""Parts of an audit record, derived from the messages of a run: prompt, calls and their outcomes. Pure.

Messages are JSON here: stores contain JSON, records contain JSON, and secrets have already been redacted from it.
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
"""Maximum size of arguments and results in the list of calls, in bytes of JSON. The messages contain them in full."""

MAX_LABEL_CHARS: Final = 256
"""Maximum length of values that records can be filtered by. Every database engine can index this length."""


@dataclass(kw_only=True)
class ObservedCall:
    """A tool call as it was observed during execution."""

    started_at: datetime | None = None
    """The time when execution started."""
    ended_at: datetime | None = None
    """The time when execution ended."""
    outcome: Outcome | None = None
    """The outcome, if no message contains it."""
    result: JsonValue = None
    """The result, if no message contains it."""


def dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON, with values that JSON cannot represent as their `repr`."""
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode='json', fallback=repr)


def dump_value(value: object) -> JsonValue:
    """Return a value as JSON, with parts that JSON cannot represent as their `repr`."""
    return to_jsonable_python(value, bytes_mode='base64', fallback=repr)


def storable(value: JsonValue) -> JsonValue:
    """Return a value as valid Unicode. Lone surrogates, which databases reject, are replaced by `?`."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode('utf-8', 'replace'))
    return value


def label_of(metadata: Mapping[str, JsonValue], name: str) -> str | None:
    """Return the metadata value of a key or of `….key`, if it is a string or a number."""
    keys = [name, *(key for key in metadata if key.endswith(f'.{name}'))]
    value = next((metadata[key] for key in keys if metadata.get(key) is not None), None)
    return str(value)[:MAX_LABEL_CHARS] if isinstance(value, str | int) and not isinstance(value, bool) else None


def first_of_run(messages: Sequence[JsonValue], run_id: str) -> int:
    """Return the index of the first message of a run, or the number of messages if there is none."""
    indexes = (index for index, message in enumerate(messages) if _object(message).get('run_id') == run_id)
    return next(indexes, len(messages))


def last_response(messages: Sequence[JsonValue], before: int) -> int:
    """Return the index of the last response before another index. The run may provide results for its calls.

    If there is no such response, return `before`.
    """
    indexes = (index for index in range(before - 1, -1, -1) if _object(messages[index]).get('kind') == 'response')
    return next(indexes, before)


def question_of(messages: Sequence[JsonValue]) -> str:
    """Return the last user prompt as text; empty if there is none."""
    for message in reversed(messages):
        prompts = [
            render_prompt(part.get('content')) for part in _parts(message) if part.get('part_kind') == 'user-prompt'
        ]
        if prompts:
            return '\n'.join(prompts)
    return ''


def render_prompt(content: JsonValue) -> str:
    """Return a prompt as text, with a placeholder for each media item that shows its type and its size or location."""
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
    """Return the calls that a run made, and earlier calls that it provided results for.

    Args:
        messages: The history, with secrets redacted.
        first_new: The index of the first message of the run.
        ran: Observed calls by id, in the order of execution. An id may occur more than once.
        is_waiting: Whether calls without a result are pending approval.
        answered: Ids of calls before the run that already had a result. pydantic-ai may put these results into one
            message with those of the run.
    """
    seen = {id: iter(calls) for id, calls in ran.items()}
    drafts: list[_Draft] = []
    open_by_id: dict[str, _Draft] = {}
    begin = last_response(messages, first_new)
    for index, message in enumerate(messages[begin:], begin):
        for part in _parts(message):
            id = str(part.get('tool_call_id'))
            match part.get('part_kind'):
                case 'tool-call':
                    drafts.append(_Draft(call=part, is_new=index >= first_new))
                    open_by_id[id] = drafts[-1]
                case 'tool-return' if id in open_by_id:
                    draft = open_by_id.pop(id)
                    draft.returned, draft.is_new = part, draft.is_new or (index >= first_new and id not in answered)
                case _:
                    pass
    return [draft.audited(seen, is_waiting) for draft in drafts if draft.is_new]


def grants_of(messages: Sequence[JsonValue], first_new: int, *, answered: Collection[str] = ()) -> list[AuditedGrant]:
    """Return the grants of the skills that a run loaded.

    Args:
        messages: The history, with secrets redacted.
        first_new: The index of the first message of the run.
        answered: Ids of calls before the run that already had a result.
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
    """Return arguments or a result in the form of the record, without the value if it is too large."""
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
    """Whether the run made the call or provided its result."""
    returned: JsonObject | None = None

    def audited(self, seen: Mapping[str, Iterator[ObservedCall]], is_waiting: bool) -> AuditedCall:
        id = str(self.call.get('tool_call_id'))
        ran = next(seen.get(id, iter(())), ObservedCall())
        if self.returned is not None:
            outcome, result = cast('Outcome', self.returned.get('outcome', 'success')), self.returned.get('content')
        else:
            outcome, result = ran.outcome or ('deferred' if is_waiting else 'interrupted'), ran.result
        has_result = self.returned is not None or ran.result is not None
        return AuditedCall(
            id=id,
            name=str(self.call.get('tool_name')),
            arguments=contents_of(_read_arguments(self.call.get('args'))),
            outcome=outcome,
            result=contents_of(result) if has_result else None,
            started_at=ran.started_at,
            ended_at=ran.ended_at,
        )


def _read_arguments(arguments: JsonValue) -> JsonValue:
    """Return arguments as an object, decoded from JSON if the model wrote valid JSON text."""
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
            # The data of stored media is a reference, which does not contain the size.
            size = '' if data.startswith('asset:') else f', about {len(data) * 3 // 4} bytes'
            return f'[{item.get("media_type")}{size}]'
        case 'cache-point':
            return ''
        case _:
            return f'[{kind}: {item.get("url") or item.get("file_id")}]'


def _parts(message: JsonValue) -> list[JsonObject]:
    return cast('list[JsonObject]', _object(message).get('parts', []))


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
