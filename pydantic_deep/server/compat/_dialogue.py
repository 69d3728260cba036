"""`Dialogue`: a request of another API in a common format: earlier messages, the new prompt, and decisions.

Such clients send the whole dialogue each time. Only its text and files are read: the server has its own history, and
ignores tool calls and results in the request. Pure; `_openai` and its siblings define the formats of the APIs, and
`_dialogue_threads` finds the conversation that a dialogue belongs to.
"""

from __future__ import annotations

import base64
import json
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
    UserPromptPart,
)
from pydantic_ai.settings import ModelSettings

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.http._errors import ServerError

APPROVAL_TOOL: Final = 'approval_required'
"""The tool that a response calls for each pending approval. The tool result is the decision."""

Content: TypeAlias = str | BinaryContent
"""A piece of a user message."""


@dataclass(frozen=True, kw_only=True)
class DialogueMessage:
    """An earlier message."""

    role: Literal['user', 'assistant']
    """The author of the message."""
    content: tuple[Content, ...]
    """Text, and files of the user."""


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
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Model settings for this turn."""


def invalid_request(message: str) -> ServerError:
    """Return the error for a request that the server does not support."""
    return ServerError('invalid', message)


def merge_messages(messages: Iterable[DialogueMessage]) -> list[DialogueMessage]:
    """Join consecutive messages of the same role, and drop empty ones."""
    merged: list[DialogueMessage] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = DialogueMessage(role=message.role, content=(*merged[-1].content, *message.content))
        elif message.content:
            merged.append(message)
    return merged


def build_dialogue(
    *,
    system: Sequence[str],
    messages: Iterable[DialogueMessage],
    decisions: Mapping[str, Decision],
    model_settings: ModelSettings,
) -> Dialogue:
    """Build a dialogue. The messages after the last one of the assistant become its prompt.

    Args:
        system: System prompts of the client.
        messages: All messages in order.
        decisions: Decisions that follow the last message of the model.
        model_settings: Model settings for the turn.

    Raises:
        ServerError: The request contains neither a prompt nor a decision, or both.
    """
    messages = [*messages]
    answered = max(
        (number for number, message in enumerate(messages, start=1) if message.role == 'assistant'), default=0
    )
    prompt = tuple(piece for message in messages[answered:] for piece in message.content)
    if decisions and prompt:
        raise invalid_request(
            'A request cannot contain both decisions and a prompt. Send the decisions first, then the prompt.'
        )
    if not decisions and not prompt:
        raise invalid_request('The last message must come from the user: there is no prompt and no decision.')
    return Dialogue(
        system='\n\n'.join(text for text in system if text.strip()),
        messages=merge_messages(messages[:answered]),
        prompt=prompt,
        decisions=decisions,
        model_settings=model_settings,
    )


def to_model_messages(dialogue: Dialogue) -> list[ModelMessage]:
    """Return the earlier messages as a message history, without tool calls."""
    messages: list[ModelMessage] = []
    system: list[ModelRequestPart] = [SystemPromptPart(dialogue.system)] if dialogue.system else []
    for message in dialogue.messages:
        if message.role == 'user':
            messages.append(ModelRequest(parts=[*system, UserPromptPart(list(message.content))]))
            system = []
        else:
            messages.append(ModelResponse(parts=[TextPart(text_of(message.content))]))
    if system:
        messages.append(ModelRequest(parts=system))
    return messages


def words(text: str) -> tuple[Content, ...]:
    """Return the content of a text, without an empty piece."""
    return (text,) if text else ()


def prompt_of(content: Sequence[Content]) -> str | list[Content]:
    """Return the prompt of a turn with this content."""
    return content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)


def text_of(content: Iterable[Content]) -> str:
    """Return the text of a message."""
    return ''.join(piece for piece in content if isinstance(piece, str))


def file_from_url(url: str) -> BinaryContent:
    """Return the file in a `data:` URL (RFC 2397).

    Raises:
        ServerError: The URL has another scheme and is never fetched, or it is malformed.
    """
    if not url.startswith('data:'):
        raise invalid_request(
            'Files are not fetched from URLs. Send the file itself, as a `data:` URL or as base64, or upload it to the '
            'conversation.'
        )
    head, comma, body = url[len('data:') :].partition(',')
    media_type, _, encoding = head.partition(';')
    if not comma:
        raise invalid_request('A `data:` URL has no comma. Write `data:image/png;base64,…`.')
    if encoding.rpartition(';')[2] == 'base64':
        return file_from_base64(body, media_type)
    return BinaryContent(unquote_to_bytes(body), media_type=media_type or 'text/plain')


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


def parse_decision(text: str) -> Decision:
    """Parse the result of `approval_required`.

    Accepts `approve`, `deny`, `deny: reason`, or JSON such as `{"decision": "edit", "args": {…}}` and
    `{"decision": "respond", "content": …}`, optionally with the `digest` of the displayed call.

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
        raise invalid_request(
            f'The result of `{APPROVAL_TOOL}` must be a decision: `approve`, `deny`, `deny: reason`, or JSON such as '
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


def check_tools(names: Iterable[str]) -> None:
    """Reject tools of the client: agents have their own tools, and the server cannot run others.

    Raises:
        ServerError: There is a tool other than `approval_required`.
    """
    others = sorted({name for name in names if name != APPROVAL_TOOL})
    if others:
        raise invalid_request(
            'The agents of this server have their own tools and cannot call tools of a client. Remove '
            f'{", ".join(others)!r}.'
        )


def model_settings_from(**values: object) -> ModelSettings:
    """Return the settings that are not `None`."""
    settings = ModelSettings()
    settings.update({name: value for name, value in values.items() if value is not None})  # pyright: ignore[reportCallIssue, reportArgumentType] - the names are those of `ModelSettings`
    return settings
