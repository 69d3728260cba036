"""Messages of clients: the prompt of a turn, or the decisions on the calls of a task. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from a2a.types import Part
from fastapi.exceptions import RequestValidationError
from google.protobuf.json_format import MessageToDict
from pydantic import JsonValue, ValidationError
from pydantic_ai import BinaryContent

from pydantic_deep.approvals import Decision
from pydantic_deep.server.compat._dialogue import Content, linked_file
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.schemas._approvals import Answer, pending_call, to_decision
from pydantic_deep.server.schemas._fields import Id
from pydantic_deep.views import StoredApproval

RESUME: Final = {'decision': 'resume'}
"""The data of a message that resumes a task whose calls were answered elsewhere, or whose process crashed."""

HOW_TO_ANSWER: Final = (
    'Send a message to this task with a data part for each call: {"approval": …, "decision": …, "digest": …}, where '
    '`approval` and `digest` are those of the call. A denied call may have a `reason`; `respond` needs `content`, `edit` '
    '`args`.'
)
"""How a client answers the calls of a task."""

MAX_NUMBER: Final = 2**53
"""Larger whole numbers are not exact in the types of A2A (`google.protobuf.Value`), which hold all numbers as doubles."""


class TaskAnswer(Answer):
    """A data part with a decision."""

    approval: Id
    """The id of the approval."""


@dataclass(frozen=True, kw_only=True)
class TaskAnswers:
    """The decisions of a message."""

    answers: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """The decisions, keyed by the `pending_id` of the calls. Empty to resume with decisions that were made elsewhere."""
    reason: str | None = None
    """The text of the message, which is the reason for all decisions."""


def prompt_content(parts: Iterable[Part]) -> tuple[Content, ...]:
    """Return the content of a prompt: text, files, and data as JSON.

    Raises:
        ServerError: A file has no media type, its URL is of a kind that is never fetched, or a part is empty.
    """
    return tuple(map(_content, parts))


def _content(part: Part) -> Content:
    match part.WhichOneof('content'):
        case 'text':
            return part.text
        case 'data':
            return json.dumps(_data(part), ensure_ascii=False)
        case 'url':
            return linked_file(part.url, part.media_type or None)
        case 'raw' if '/' in part.media_type:
            return BinaryContent(part.raw, media_type=part.media_type)
        case 'raw':
            raise ServerError('invalid', f'A file has the media type {part.media_type!r}. Name one, as `image/png`.')
        case _:
            raise ServerError('invalid', 'A part is empty. It needs `text`, `data`, `raw` or `url`.')


def is_resumption(parts: Sequence[Part]) -> bool:
    """Return whether a message resumes a task, without a decision of its own."""
    return [_data(part) for part in parts if part.HasField('data')] == [RESUME]


def parse_answers(parts: Sequence[Part], approvals: Sequence[StoredApproval]) -> TaskAnswers:
    """Return the decisions of a message to a task. A text alone answers its only pending call, if that is a question.

    Args:
        parts: The parts of the message.
        approvals: The approvals of the task, also those that were answered.

    Raises:
        ServerError: The message contains no decisions, one on another call, two on one call, or something else.
        RequestValidationError: A decision is malformed.
    """
    if not {part.WhichOneof('content') for part in parts} <= {'text', 'data'}:
        raise ServerError('invalid', f'A message to a task with pending calls has no files. {HOW_TO_ANSWER}')
    text = '\n'.join(part.text for part in parts if part.HasField('text')).strip() or None
    given = [_data(part) for part in parts if part.HasField('data')]
    if is_resumption(parts):
        return TaskAnswers(reason=text)
    pending = [approval for approval in approvals if approval.status == 'pending']
    if not given:
        shown = [pending_call(approval) for approval in pending]
        if text is None or len(shown) != 1 or not shown[0].is_question:
            raise ServerError('invalid', f'The message has no decision on a call of this task. {HOW_TO_ANSWER}')
        answer = Answer(decision='respond', content=text, digest=shown[0].digest)
        return TaskAnswers(answers={pending[0].pending_id: to_decision(answer)})
    pending_ids = {approval.id: approval.pending_id for approval in approvals}
    answers: dict[str, Decision] = {}
    for answer in map(_answer, given):
        id = pending_ids.get(answer.approval)
        if id is None:
            known = ', '.join(approval.id for approval in pending) or 'none'
            raise ServerError('invalid', f'This task has no approval {answer.approval!r}. Pending ones: {known}.')
        if id in answers:
            raise ServerError('invalid', f'The approval {answer.approval} has two decisions. Send one.')
        answers[id] = to_decision(answer)
    return TaskAnswers(answers=answers, reason=text)


def _data(part: Part) -> JsonValue:
    """Return the data of a part. Whole numbers, which A2A transports as doubles, are whole numbers again."""
    return _exact(MessageToDict(part.data))


def _exact(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _exact(value) for name, value in cast('dict[str, object]', data).items()}
    if isinstance(data, list):
        return [_exact(value) for value in cast('list[object]', data)]
    if not isinstance(data, float) or not data.is_integer():
        return data
    if abs(data) >= MAX_NUMBER:
        raise ServerError(
            'invalid', f'The number {data:.0f} is not exact in A2A. Send numbers of {MAX_NUMBER} or more as text.'
        )
    return int(data)


def _answer(data: JsonValue) -> TaskAnswer:
    if not isinstance(data, dict):
        raise ServerError('invalid', f'A decision is a JSON object. {HOW_TO_ANSWER}')
    try:
        return TaskAnswer.model_validate(data)
    except ValidationError as error:
        problems = [{**problem, 'loc': ('data', *problem['loc'])} for problem in error.errors(include_url=False)]
        raise RequestValidationError(problems) from None
