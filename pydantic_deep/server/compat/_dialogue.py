"""`Dialogue`: a request of another API in a common format: earlier messages, the new prompt, and decisions.

Such clients send the whole dialogue each time. The server has its own history, which the dialogue only finds: see
`_dialogue_threads`. An unknown dialogue becomes a history, with calls and results of the client's tools. Pure; `_openai` and its siblings define the formats of the APIs, and
`_dialogue_threads` finds the conversation that a dialogue belongs to.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_ai import BinaryContent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP
from pydantic_ai.settings import ModelSettings, ThinkingEffort, ThinkingLevel

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.http._errors import ServerError

from ._client_tools import APPROVAL_TOOL, ClientCall, ClientResult, ClientTools, with_call_ids


@dataclass(frozen=True, kw_only=True)
class LinkedFile:
    """A file by URL, which is fetched when it becomes part of a history. Until then, the URL identifies it."""

    url: str
    """An `http` or `https` URL."""
    media_type: str | None = None
    """The media type as the client states it."""


Content: TypeAlias = str | BinaryContent | LinkedFile
"""A piece of a user message."""


NOT_FETCHED: Final = (
    'Files are not fetched from this URL. Send the file itself, as a `data:` URL or as base64, or upload it to the '
    'conversation.'
)
"""The message for a URL that is never fetched."""


NOTHING_NEW: Final = 'The last message must come from the user: there is no prompt and no decision.'
"""The message for a request that does not continue its dialogue."""


@dataclass(frozen=True, kw_only=True)
class DialogueMessage:
    """An earlier message."""

    role: Literal['user', 'assistant']
    """The author of the message."""
    content: tuple[Content, ...] = ()
    """Text, and files of the user."""
    calls: tuple[ClientCall, ...] = ()
    """Calls of the client's tools, in a message of the assistant."""
    results: tuple[ClientResult, ...] = ()
    """Results of the client's tools, in a message of the user."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """A parsed request of a client that sends the whole dialogue."""

    system: str = ''
    """The system prompt of the client; empty if there is none."""
    messages: Sequence[DialogueMessage] = ()
    """The earlier messages, without the new prompt."""
    prompt: tuple[Content, ...] = ()
    """The new prompt; empty if the request contains decisions only."""
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """Decisions, keyed by the id of the approval."""
    results: Sequence[ClientResult] = ()
    """Results of the client's tools that follow the last message of the assistant."""
    tools: ClientTools = field(default_factory=ClientTools)
    """The tools of the client."""
    output_schema: Mapping[str, JsonValue] | None = None
    """The JSON schema of the answer; `None` if the agent determines its output."""
    has_plain_output: bool = False
    """Whether an answer by the schema is a string, and is sent without quotes."""
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Model settings for this turn."""


def client_result(id: str, name: str, content: Sequence[Content]) -> ClientResult:
    """Return the result of a call with content of which only the text can be passed on."""
    is_incomplete = any(not isinstance(piece, str) for piece in content)
    return ClientResult(id=id, name=name, content=text_of(content), is_incomplete=is_incomplete)


def invalid_request(message: str) -> ServerError:
    """Return the error for a request that the server does not support."""
    return ServerError('invalid', message)


def count_answered(roles: Iterable[str]) -> int:
    """Return the number of messages up to the last one of the assistant, by the roles of all messages."""
    return max((number for number, role in enumerate(roles, start=1) if role == 'assistant'), default=0)


def merge_messages(messages: Iterable[DialogueMessage]) -> list[DialogueMessage]:
    """Join consecutive messages of the same role, and drop empty ones."""
    merged: list[DialogueMessage] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            last = merged[-1]
            merged[-1] = DialogueMessage(
                role=message.role,
                content=(*last.content, *message.content),
                calls=(*last.calls, *message.calls),
                results=(*last.results, *message.results),
            )
        elif message.content or message.calls or message.results:
            merged.append(message)
    return merged


def build_dialogue(
    *,
    system: Sequence[str],
    messages: Iterable[DialogueMessage],
    decisions: Mapping[str, Decision],
    model_settings: ModelSettings,
    tools: ClientTools | None = None,
    output_schema: Mapping[str, JsonValue] | None = None,
    has_plain_output: bool = False,
    continues: bool = True,
) -> Dialogue:
    """Build a dialogue. The messages after the last one of the assistant become its prompt and its results.

    Args:
        system: System prompts of the client.
        messages: All messages in order.
        decisions: Decisions that follow the last message of the model.
        model_settings: Model settings for the turn.
        tools: The tools of the client.
        output_schema: The JSON schema of the answer.
        has_plain_output: Whether an answer by the schema is a string, and is sent without quotes.
        continues: Whether the request continues the dialogue, and must contain something new.

    Raises:
        ServerError: The request contains neither a prompt nor a decision nor a result, or a prompt and a decision; or a
            result contains more than text.
    """
    messages = [*messages]
    answered = count_answered(message.role for message in messages)
    prompt = tuple(piece for message in messages[answered:] for piece in message.content)
    calls = messages[answered - 1].calls if answered else ()
    results = with_call_ids([result for message in messages[answered:] for result in message.results], calls)
    if decisions and prompt:
        raise invalid_request(
            'A request cannot contain both decisions and a prompt. Send the decisions first, then the prompt.'
        )
    if continues and not decisions and not prompt and not results:
        raise invalid_request(NOTHING_NEW)
    for result in results:
        if result.is_incomplete:
            name = result.name or result.id
            raise invalid_request(f'The result of {name!r} contains more than text. Send text or JSON.')
    return Dialogue(
        system='\n\n'.join(text for text in system if text.strip()),
        messages=merge_messages(messages[:answered]),
        prompt=prompt,
        decisions=decisions,
        results=results,
        tools=tools or ClientTools(),
        output_schema=output_schema,
        has_plain_output=has_plain_output,
        model_settings=model_settings,
    )


def to_model_messages(dialogue: Dialogue) -> list[ModelMessage]:
    """Return the earlier messages as a message history, including results that follow them."""
    messages: list[ModelMessage] = []
    system: list[ModelRequestPart] = [SystemPromptPart(dialogue.system)] if dialogue.system else []
    trailing = DialogueMessage(role='user', results=tuple(dialogue.results))
    calls: list[ToolCallPart] = []
    for message in (*dialogue.messages, *([trailing] if trailing.results else [])):
        if message.role == 'user':
            messages.append(ModelRequest(parts=[*system, *_request_parts(message, calls)]))
            system = []
        else:
            calls = [_call_part(call) for call in message.calls]
            text = text_of(message.content)
            messages.append(ModelResponse(parts=[*([TextPart(text)] if text else []), *calls]))
    if system:
        messages.append(ModelRequest(parts=system))
    return messages


def _call_part(call: ClientCall) -> ToolCallPart:
    args = dict(call.args)
    return ToolCallPart(call.name, args) if call.id is None else ToolCallPart(call.name, args, tool_call_id=call.id)


def _request_parts(message: DialogueMessage, calls: list[ToolCallPart]) -> list[ModelRequestPart]:
    """Return the parts of a message of the user. A result of a call that the client omits becomes text."""
    parts: list[ModelRequestPart] = []
    texts: list[Content] = []
    for result in message.results:
        known = [call for call in calls if call.tool_name == result.name and result.id in (None, call.tool_call_id)]
        if known:
            calls.remove(known[0])
            outcome = 'failed' if result.is_error else 'success'
            parts.append(ToolReturnPart(result.name, result.content, known[0].tool_call_id, outcome=outcome))
        else:
            texts.append(f'{result.name or result.id}: {result.text}')
    content = [*texts, *message.content]
    return [*parts, UserPromptPart(fetched(content))] if content else parts


def words(text: str) -> tuple[Content, ...]:
    """Return the content of a text, without an empty piece."""
    return (text,) if text else ()


def prompt_of(content: Sequence[Content]) -> str | list[str | BinaryContent]:
    """Return the prompt of a turn with this content, whose files by URL have been fetched."""
    return content[0] if len(content) == 1 and isinstance(content[0], str) else fetched(content)


def fetched(content: Iterable[Content]) -> list[str | BinaryContent]:
    """Return content whose files by URL have been fetched (`_linked_files`)."""
    pieces: list[str | BinaryContent] = []
    for piece in content:
        assert not isinstance(piece, LinkedFile)  # noqa: S101 - else the caller has a defect
        pieces.append(piece)
    return pieces


def text_of(content: Iterable[Content]) -> str:
    """Return the text of a message."""
    return ''.join(piece for piece in content if isinstance(piece, str))


def linked_file(url: str, media_type: str | None = None) -> BinaryContent | LinkedFile:
    """Return the file of a URL, which the server fetches later if its host is allowed.

    Args:
        url: A `data:`, `http` or `https` URL.
        media_type: The media type as the client states it.

    Raises:
        ServerError: The URL has another scheme, or it is malformed.
    """
    if url.partition(':')[0].lower() in ('http', 'https'):
        return LinkedFile(url=url, media_type=media_type)
    return file_from_url(url)


def file_from_url(url: str) -> BinaryContent:
    """Return the file in a `data:` URL (RFC 2397).

    Raises:
        ServerError: The URL has another scheme and is never fetched, or it is malformed.
    """
    if not url.startswith('data:'):
        raise invalid_request(NOT_FETCHED)
    head, comma, body = url[len('data:') :].partition(',')
    media_type, _, encoding = head.partition(';')
    if not comma:
        raise invalid_request('A `data:` URL has no comma. Write `data:image/png;base64,…`.')
    if encoding.rpartition(';')[2] == 'base64':
        return file_from_base64(body, media_type)
    return BinaryContent(unquote_to_bytes(body), media_type=media_type or 'text/plain')


def named_file(data: str, name: str | None) -> Content:
    """Return the file in a `data:` URL, or a base64-encoded one whose name determines its media type.

    Raises:
        ServerError: The file cannot be read.
    """
    if data.startswith('data:'):
        return file_from_url(data)
    return file_from_base64(data, mimetypes.guess_type(name or '')[0] or '')


def file_from_base64(data: str, media_type: str) -> BinaryContent:
    """Return a base64-encoded file.

    Raises:
        ServerError: The data is not base64, or the media type is invalid.
    """
    if '/' not in media_type:
        raise invalid_request('A file needs its media type, such as `image/png`.')
    try:
        return BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
    except ValueError:  # includes `binascii.Error`, and the error for non-ASCII characters
        raise invalid_request('A file is not valid base64.') from None


class _DecisionBody(BaseModel):
    model_config = ConfigDict(extra='forbid')
    digest: str | None = None
    """The `view.digest` of the call as the client received it."""


class _Approve(_DecisionBody):
    decision: Literal['approve']


class _Deny(_DecisionBody):
    decision: Literal['deny']
    reason: str = Deny.reason


class _Edit(_DecisionBody):
    decision: Literal['edit']
    args: dict[str, JsonValue]


class _Respond(_DecisionBody):
    decision: Literal['respond']
    content: JsonValue


_DECISIONS: Final[TypeAdapter[_Approve | _Deny | _Edit | _Respond]] = TypeAdapter(
    Annotated[_Approve | _Deny | _Edit | _Respond, Field(discriminator='decision')]
)


def parse_decision(text: str, *, unknown_id: str | None = None) -> Decision:
    """Parse the result of `approval_required`.

    Accepts `approve`, `deny`, `deny: reason`, or JSON such as `{"decision": "edit", "args": {…}}` and
    `{"decision": "respond", "content": …}`, optionally with the `digest` of the displayed call.

    Args:
        text: The text of the result.
        unknown_id: The id of its call, if no message has that call: the result may be of a function.

    Raises:
        ServerError: The text is not a decision, so that nothing is approved by mistake.
    """
    word, colon, reason = text.strip().partition(':')
    if word.strip().lower() == 'approve' and not colon:
        return Approve()
    if word.strip().lower() == 'deny':
        return Deny(reason.strip()) if reason.strip() else Deny()
    try:
        body = _DECISIONS.validate_json(text)
    except ValidationError:
        lost = '' if unknown_id is None else f'No message has the call {unknown_id!r} of a result. Send the call, too. '
        raise invalid_request(
            f'{lost}The result of `{APPROVAL_TOOL}` must be a decision: `approve`, `deny`, `deny: reason`, or JSON such as '
            '{"decision": "edit", "args": {…}}.'
        ) from None
    match body:
        case _Approve():
            return Approve(digest=body.digest)
        case _Deny():
            return Deny(body.reason, digest=body.digest)
        case _Edit():
            return Edit(body.args, digest=body.digest)
        case _:
            return Respond(body.content, digest=body.digest)


def parse_decision_value(value: JsonValue) -> Decision:
    """Parse a decision in JSON: a string, `{"result": …}`, or the decision itself.

    Raises:
        ServerError: The value is not a decision.
    """
    if isinstance(value, dict) and 'decision' not in value and len(value) == 1:
        value = next(iter(value.values()))
    return parse_decision(value if isinstance(value, str) else json.dumps(value))


def refuse_options(options: BaseModel, *names: str) -> None:
    """Refuse options that would change the answer, and that agents do not support.

    Raises:
        ServerError: One of them has a value other than `None` and an empty one.
    """
    for name in names:
        value = getattr(options, name)
        if value:
            alias = type(options).model_fields[name].alias or name
            shown = 'set' if isinstance(value, (list, dict)) else json.dumps(value)[:80]  # others may contain secrets
            raise invalid_request(f'`{alias}` is {shown}, but agents do not support it. Omit it.')


_EFFORTS: Final[Sequence[ThinkingEffort]] = ('xhigh', 'high', 'medium', 'low')


def effort_of(budget_tokens: int) -> ThinkingLevel:
    """Return how much a model thinks within a budget of tokens: the highest effort with at most this budget."""
    if budget_tokens <= 0:
        return budget_tokens < 0  # Google: -1 lets the model decide
    for effort in _EFFORTS:
        if ANTHROPIC_THINKING_BUDGET_MAP[effort] <= budget_tokens:
            return effort
    return 'minimal'


def model_settings_from(**values: object) -> ModelSettings:
    """Return the settings that are not `None`."""
    settings = ModelSettings()
    settings.update({name: value for name, value in values.items() if value is not None})  # pyright: ignore[reportCallIssue, reportArgumentType] - the names are those of `ModelSettings`
    return settings
