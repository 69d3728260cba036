"""What clients of other APIs send, in one form: what was said before, what is new, and answers to what waits.

Such clients send the whole dialogue each time. It is taken as words only: the server has its own history, and nothing
that a client claims was called or returned is ever acted on. Pure; the forms of the APIs are in `_openai` and its
neighbours, and which conversation a dialogue belongs to is found by `_dialogue_threads`.
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
"""The tool that an answer calls for each call of the agent that waits for a person. Its result is the decision."""

Content: TypeAlias = str | BinaryContent
"""A piece of what a person says."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something that was said before."""

    role: Literal['user', 'assistant']
    """Who said it."""
    content: tuple[Content, ...]
    """The words, and files of the user."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """A request of such a client."""

    system: str = ''
    """What the client wants the agent to be told; empty if nothing."""
    said: Sequence[Said] = ()
    """The dialogue so far, without what is new."""
    prompt: tuple[Content, ...] = ()
    """What the user says now; nothing where only decisions come."""
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """By the id of an approval, what a person decided."""
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Settings of this turn."""


def invalid(message: str) -> ServerError:
    """Return what is raised for a request that is not taken."""
    return ServerError('invalid', message)


def merged(said: Iterable[Said]) -> list[Said]:
    """Return a dialogue in which nobody speaks twice in a row, and nobody says nothing."""
    found: list[Said] = []
    for each in said:
        if found and found[-1].role == each.role:
            found[-1] = Said(role=each.role, content=(*found[-1].content, *each.content))
        elif each.content:
            found.append(each)
    return found


def dialogue(
    *,
    system: Sequence[str],
    said: Iterable[Said],
    decisions: Mapping[str, Decision],
    model_settings: ModelSettings,
) -> Dialogue:
    """Return a request whose last words of the user are what is new.

    Args:
        system: What the client wants the agent to be told.
        said: Everything that was said, in order. Where decisions come, the user has the last words or none.
        decisions: Answers that come after everything that the model said.
        model_settings: Settings of the turn.

    Raises:
        ServerError: Nothing is new.
    """
    said = [*said]
    answered = max((place for place, each in enumerate(said, start=1) if each.role == 'assistant'), default=0)
    prompt = tuple(piece for each in said[answered:] for piece in each.content)
    if decisions and prompt:
        raise invalid('Answer what waits first, and go on with what you have to say after it: send them one by one.')
    if not decisions and not prompt:
        raise invalid('The last message must be of the user: there is nothing to answer.')
    return Dialogue(
        system='\n\n'.join(text for text in system if text.strip()),
        said=merged(said[:answered]),
        prompt=prompt,
        decisions=decisions,
        model_settings=model_settings,
    )


def as_messages(known: Dialogue) -> list[ModelMessage]:
    """Return what was said before, as a history for an agent that has not heard of it: words, and no calls."""
    messages: list[ModelMessage] = []
    system: list[ModelRequestPart] = [SystemPromptPart(known.system)] if known.system else []
    for each in known.said:
        if each.role == 'user':
            messages.append(ModelRequest(parts=[*system, UserPromptPart(list(each.content))]))
            system = []
        else:
            messages.append(ModelResponse(parts=[TextPart(text_of(each.content))]))
    if system:
        messages.append(ModelRequest(parts=system))
    return messages


def text_of(content: Iterable[Content]) -> str:
    """Return the words of something that was said."""
    return ''.join(each for each in content if isinstance(each, str))


def file_from_url(url: str) -> BinaryContent:
    """Return what a `data:` URL holds (RFC 2397).

    Raises:
        ServerError: It is another URL, which this server never fetches, or it cannot be read.
    """
    if not url.startswith('data:'):
        raise invalid(
            'Files by URL are not fetched. Send the file itself, as a `data:` URL or as base64, or upload it to the '
            'conversation.'
        )
    head, comma, body = url[len('data:') :].partition(',')
    media_type, _, encoding = head.partition(';')
    if not comma:
        raise invalid('A `data:` URL has no comma: write `data:image/png;base64,…`.')
    if encoding.rpartition(';')[2] == 'base64':
        return file_from_base64(body, media_type)
    return BinaryContent(unquote_to_bytes(body), media_type=media_type or 'text/plain')


def file_from_base64(data: str, media_type: str) -> BinaryContent:
    """Return a file that was sent as base64.

    Raises:
        ServerError: It is not base64, or its media type is none.
    """
    if '/' not in media_type:
        raise invalid('A file needs its media type, such as `image/png`.')
    try:
        return BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
    except ValueError:  # `binascii.Error` is one; letters beyond ASCII are another
        raise invalid('A file is not valid base64.') from None


class _Decided(BaseModel):
    model_config = ConfigDict(extra='forbid')
    digest: str | None = None
    """The `view.digest` of the call as the client was told it."""


class _Approve(_Decided):
    decision: Literal['approve']


class _Deny(_Decided):
    decision: Literal['deny']
    reason: str = Deny.reason


class _Edit(_Decided):
    decision: Literal['edit']
    args: dict[str, JsonValue]


class _Respond(_Decided):
    decision: Literal['respond']
    content: JsonValue


_DECISIONS: Final[TypeAdapter[_Approve | _Deny | _Edit | _Respond]] = TypeAdapter(
    Annotated[_Approve | _Deny | _Edit | _Respond, Field(discriminator='decision')]
)


def decision_from(text: str) -> Decision:
    """Return what the result of `approval_required` decides.

    `approve`, `deny`, `deny: why`, or JSON such as `{"decision": "edit", "args": {…}}` and
    `{"decision": "respond", "content": …}`, with the `digest` of what was shown if the client sends it.

    Raises:
        ServerError: It decides nothing. Nothing is approved by mistake.
    """
    word, colon, reason = text.strip().partition(':')
    if word.strip().lower() == 'approve' and not colon:
        return Approve()
    if word.strip().lower() == 'deny':
        return Deny(reason.strip()) if reason.strip() else Deny()
    try:
        decided = _DECISIONS.validate_json(text)
    except ValidationError:
        raise invalid(
            f'The result of `{APPROVAL_TOOL}` must be a decision: `approve`, `deny`, `deny: reason`, or JSON such as '
            '{"decision": "edit", "args": {…}}.'
        ) from None
    match decided:
        case _Approve():
            return Approve(digest=decided.digest)
        case _Deny():
            return Deny(decided.reason, digest=decided.digest)
        case _Edit():
            return Edit(decided.args, digest=decided.digest)
        case _:
            return Respond(decided.content, digest=decided.digest)


def decision_from_json(value: JsonValue) -> Decision:
    """Return what a result decides that comes as JSON: a text, `{"result": text}` or the decision itself.

    Raises:
        ServerError: It decides nothing.
    """
    if isinstance(value, dict) and 'decision' not in value and len(value) == 1:
        value = next(iter(value.values()))
    return decision_from(value if isinstance(value, str) else json.dumps(value))


def check_tools(names: Iterable[str]) -> None:
    """Refuse tools of the client's: an agent brings its own, and nobody would run these.

    Raises:
        ServerError: There is one besides `approval_required`.
    """
    others = sorted({name for name in names if name != APPROVAL_TOOL})
    if others:
        raise invalid(
            f'The agents of this server bring their own tools and call none of a client: leave {", ".join(others)!r} out.'
        )


def settings_from(**given: object) -> ModelSettings:
    """Return those settings that were given."""
    settings = ModelSettings()
    settings.update({name: value for name, value in given.items() if value is not None})  # pyright: ignore[reportCallIssue, reportArgumentType] - the names are those of `ModelSettings`
    return settings
