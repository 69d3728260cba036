"""The format of transcripts: what a document has in it, which formats can be read, and what is said of a wrong one. Pure.

Format 1 is `{"format_version": 1, "messages": […]}`. Messages are those of pydantic-ai, as its
`ModelMessagesTypeAdapter` writes them, without configuration (`_portable_messages`). Earlier releases wrote instructions and
system prompts into them: these are left out when such a document is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from pydantic import JsonValue, ValidationError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import ErrorDetails, from_json, to_json

from pydantic_deep._messages.media import inline_media, media_digests
from pydantic_deep._messages.message_json import message_adapter
from pydantic_deep_backends import digest_of

from ._portable_messages import portable
from ._short_repr import short_repr
from .errors import TranscriptError

FORMAT_VERSION: Final = 1
"""The format that is written."""

MAX_DEPTH: Final = 100
"""How deeply a transcript may be nested. A subagent's history within a history takes about 10 levels; what is nested
deeper than Python can follow must not stop the program that loads it."""

Document = dict[str, JsonValue]
"""A transcript as JSON."""

MIGRATIONS: Final[dict[int, Callable[[Document], Document]]] = {}
"""What makes of a document of a format one of the next: there is one for each format but the newest. It may trust
nothing of the document but its `format_version`, and raises `TranscriptError` for what it cannot read."""

BYTE_ORDER_MARK: Final = '\ufeff'
"""What some editors put before a text. It is no JSON, and says nothing of UTF-8."""

_MAX_ROLE_CHARS: Final = 40
"""How long a `kind` may be to be called the role of a message."""

_MAX_PROBLEM_CHARS: Final = 700
"""How much is said of what is wrong: the longest list of kinds that a part may have, and not all of a wrong one."""

_KEYS = ('format_version', 'messages')


def dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON, without configuration.

    Raises:
        TranscriptError: JSON cannot hold one of them. It says which, and what of it.
    """
    try:
        return _dump(messages)
    except ValueError:
        for index, message in enumerate(messages):
            try:
                _dump([message])
            except ValueError as error:
                raise TranscriptError(
                    f'Message {index} ({message.kind}) cannot be written: JSON cannot hold what is in it. {error}. '
                    'Change that value or leave the message out.',
                    index=index,
                    role=message.kind,
                    value=message,
                ) from None
        raise  # pragma: no cover - messages that JSON cannot hold together have one that it cannot hold


def _dump(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    dumped = [portable(message) for message in message_adapter().dump_python(list(messages), mode='json')]
    json.dumps(dumped, allow_nan=False)
    return dumped


def render_document(document: Document) -> bytes:
    """Return a transcript as JSON that `parse_text` and `parse_document` read.

    Raises:
        TranscriptError: There is none. It says which message is wrong.
    """
    _check_depth(document)
    try:
        return to_json(document)
    except ValueError:  # a text with half a character in it
        messages = cast('list[JsonValue]', document['messages'])
    index = next(index for index, message in enumerate(messages) if not _is_writable(message))
    raise TranscriptError(
        f'{_where(index, messages[index])} cannot be written: a text in it is no Unicode, such as half of a surrogate '
        'pair. Correct it or leave the message out.',
        index=index,
        role=_role(messages[index]),
        value=messages[index],
    )


def _is_writable(message: JsonValue) -> bool:
    try:
        return bool(to_json(message))
    except ValueError:
        return False


def parse_text(text: str | bytes) -> JsonValue:
    """Return what JSON says.

    Raises:
        TranscriptError: It is no JSON.
    """
    text = text.removeprefix(BYTE_ORDER_MARK) if isinstance(text, str) else text.removeprefix(BYTE_ORDER_MARK.encode())
    try:
        return from_json(text)
    except ValueError as error:
        raise TranscriptError(
            f'This is no JSON: {error}. It begins with {short_repr(text[:40])}.', value=text
        ) from None


def parse_document(document: object, media: Mapping[str, bytes]) -> list[ModelMessage]:
    """Return the messages of a transcript.

    Args:
        document: The transcript, as JSON.
        media: The bytes of media that it has by digest.

    Raises:
        TranscriptError: It is none.
    """
    if not isinstance(document, Mapping):
        raise TranscriptError(
            f'A transcript is an object with `format_version` and `messages`, and this is {short_repr(document)}. Make one '
            'of messages that are objects of pydantic-ai with `MessageList(messages)`.',
            value=document,
        )
    _check_depth(cast('Mapping[object, object]', document))
    current = _migrated(dict(cast('Mapping[str, JsonValue]', document)))
    for key in current:
        if key not in _KEYS:
            raise TranscriptError(
                f'A transcript has {" and ".join(map(repr, _KEYS))} and nothing else, and this one has {key!r}. Leave '
                'it out: settings and tools belong to the conversation.',
                field=key,
                value=current[key],
            )
    messages = current.get('messages')
    if not isinstance(messages, list):
        raise TranscriptError(
            f'The `messages` of a transcript are a list, and here they are {short_repr(messages)}.',
            field='messages',
            value=messages,
        )
    written = _inlined(messages, media)
    validated = _validated(written)
    said = [portable(message) for message in written]
    return validated if said == written else _validated(said)


def _migrated(document: Document) -> Document:
    """Return a document in the newest format."""
    version = document.get('format_version')
    if not isinstance(version, int) or isinstance(version, bool):
        raise TranscriptError(
            f'The `format_version` of a transcript is a whole number, and here it is {short_repr(version)}. '
            f'This release writes {FORMAT_VERSION}.',
            field='format_version',
            value=version,
        )
    if version > FORMAT_VERSION:
        raise TranscriptError(
            f'The transcript has format_version {short_repr(version)}, and this release reads up to {FORMAT_VERSION}. '
            'Update pydantic-deep.',
            field='format_version',
            value=version,
        )
    for step in range(version, FORMAT_VERSION):
        migrate = MIGRATIONS.get(step)
        if migrate is None:
            raise TranscriptError(
                f'There is no format_version {version}: formats begin with {min(MIGRATIONS, default=FORMAT_VERSION)}. '
                'Was it written by pydantic-deep?',
                field='format_version',
                value=version,
            )
        document = {**migrate(document), 'format_version': step + 1}
    return document


def _check_depth(document: object) -> None:
    """Refuse what is nested too deeply, without following it down."""
    level: list[object] = [document]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                below += cast('Mapping[object, object]', value).values()
            elif isinstance(value, (list, tuple)):
                below += cast('Sequence[object]', value)
        if not below:
            return
        level = below
    raise TranscriptError(f'The transcript is nested more than {MAX_DEPTH} levels deep. No conversation is.')


def _inlined(messages: list[JsonValue], media: Mapping[str, bytes]) -> list[JsonValue]:
    inlined: list[JsonValue] = []
    for index, message in enumerate(messages):
        for digest in sorted(media_digests(message)):
            if digest_of(media.get(digest, b'')) != digest:
                raise TranscriptError(
                    f'{_where(index, message)} refers to media with the digest {digest!r}, which `media` does not have. '
                    'Pass their bytes as `media=`, or export the transcript with `inline_media=True`.',
                    index=index,
                    role=_role(message),
                    field='data',
                    value=digest,
                )
        inlined.append(inline_media(message, media))
    return inlined


def _validated(messages: list[JsonValue]) -> list[ModelMessage]:
    try:
        return ModelMessagesTypeAdapter.validate_python(messages)
    except ValidationError as error:
        found = [_Wrong.of(each, messages) for each in error.errors(include_url=False)]
    # Where several kinds may stand, each says why it is not it: the one that got furthest says it best.
    wrong = max((each for each in found if each.at == found[0].at), key=lambda each: each.depth)
    message = messages[wrong.at]
    raise TranscriptError(
        f'{_where(wrong.at, message)} is wrong at `{wrong.field}`: {short_repr(wrong.value)}. {wrong.problem}. '
        'Correct it or leave the message out; if a newer release wrote it, update pydantic-ai.',
        index=wrong.at,
        role=_role(message),
        field=wrong.field,
        value=wrong.value,
    )


class _Wrong(NamedTuple):
    """What is wrong with a message, in the words of the document."""

    at: int
    """Which message."""
    depth: int
    """How many steps into the message there are."""
    field: str
    value: object
    problem: str

    @classmethod
    def of(cls, error: ErrorDetails, messages: list[JsonValue]) -> _Wrong:
        """Say where in a message an error is; in its location, names of unions stand between the fields."""
        location, kind = error['loc'], error['type']
        index = cast('int', location[0])
        at: object = messages[index]
        path, depth = '', 0
        for step in location[1:]:
            below = _below(at, step)
            if below is not None:
                at, depth = below.value, depth + 1
                path += f'[{step}]' if isinstance(step, int) else f'.{step}'
        value: object = error['input']
        if kind == 'missing':
            path += f'.{location[-1]}'
        elif kind in ('union_tag_invalid', 'union_tag_not_found'):
            tag = 'part_kind' if path else 'kind'
            path += f'.{tag}'
            value = cast('dict[str, object]', at).get(tag) if isinstance(at, dict) else at
        return cls(index, depth, path.removeprefix('.') or 'kind', value, error['msg'][:_MAX_PROBLEM_CHARS])


class _Below(NamedTuple):
    value: object


def _below(value: object, step: str | int) -> _Below | None:
    """Return what is at a step of a location; `None` if the step is no place in the document."""
    if isinstance(value, dict) and step in value:
        return _Below(cast('dict[str | int, object]', value)[step])
    if isinstance(value, list) and isinstance(step, int):
        return _Below(cast('list[object]', value)[step])
    return None


def _where(index: int, message: JsonValue) -> str:
    role = _role(message)
    return f'Message {index}' if role is None else f'Message {index} ({role})'


def _role(message: JsonValue) -> str | None:
    role = message.get('kind') if isinstance(message, dict) else None
    return role if isinstance(role, str) and len(role) <= _MAX_ROLE_CHARS else None
