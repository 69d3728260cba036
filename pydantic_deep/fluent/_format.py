"""The transcript format: its contents, supported versions, and error messages. Pure.

Format 1 is `{"format_version": 1, "messages": […]}`. Messages have the form of pydantic-ai's
`ModelMessagesTypeAdapter`, without configuration (`_portable_messages`). Earlier releases included instructions and
system prompts, which are removed when such a document is loaded.
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
"""The format version that is written."""

MAX_DEPTH: Final = 100
"""Maximum nesting depth of a transcript. The nested history of a subagent takes about 10 levels; documents that exceed
Python's recursion limit must not crash the program that loads them.
"""

Document = dict[str, JsonValue]
"""A transcript as JSON."""

MIGRATIONS: Final[dict[int, Callable[[Document], Document]]] = {}
"""Functions that convert a document from one format version to the next, for each version but the latest. They can rely
only on `format_version`, and raise `TranscriptError` for documents that they cannot read.
"""

BYTE_ORDER_MARK: Final = '\ufeff'
"""A byte order mark, which some editors add. It is not valid JSON."""

_MAX_ROLE_CHARS: Final = 40
"""Maximum length of a `kind` that is shown as the role of a message."""

_MAX_PROBLEM_CHARS: Final = 700
"""Maximum length of a validation error message: the longest list of allowed kinds fits, but an invalid value may not.
"""

_KEYS = ('format_version', 'messages')


def dump_messages(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON, without configuration.

    Raises:
        TranscriptError: JSON cannot represent a message. The error names the message and the value.
    """
    try:
        return _dump(messages)
    except ValueError:
        for index, message in enumerate(messages):
            try:
                _dump([message])
            except ValueError as error:
                raise TranscriptError(
                    f'Message {index} ({message.kind}) cannot be written: JSON cannot represent it. {error}. '
                    'Change the value or remove the message.',
                    index=index,
                    role=message.kind,
                    value=message,
                ) from None
        raise  # pragma: no cover - at least one message is invalid by itself


def _dump(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    dumped = [portable(message) for message in message_adapter().dump_python(list(messages), mode='json')]
    json.dumps(dumped, allow_nan=False)
    return dumped


def render_document(document: Document) -> bytes:
    """Return a transcript as JSON that `parse_text` and `parse_document` can read.

    Raises:
        TranscriptError: A message is invalid. The error names it.
    """
    _check_depth(document)
    try:
        return to_json(document)
    except ValueError:  # a text with a lone surrogate
        messages = cast('list[JsonValue]', document['messages'])
    index = next(index for index, message in enumerate(messages) if not _is_writable(message))
    raise TranscriptError(
        f'{_where(index, messages[index])} cannot be written: it contains invalid Unicode, such as a lone '
        'surrogate. Correct it or remove the message.',
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
    """Parse JSON.

    Raises:
        TranscriptError: The text is not valid JSON.
    """
    text = text.removeprefix(BYTE_ORDER_MARK) if isinstance(text, str) else text.removeprefix(BYTE_ORDER_MARK.encode())
    try:
        return from_json(text)
    except ValueError as error:
        raise TranscriptError(
            f'This is not valid JSON: {error}. It begins with {short_repr(text[:40])}.', value=text
        ) from None


def parse_document(document: object, media: Mapping[str, bytes]) -> list[ModelMessage]:
    """Return the messages of a transcript.

    Args:
        document: The transcript as JSON.
        media: The bytes of media that the transcript refers to, keyed by digest.

    Raises:
        TranscriptError: The document is not a valid transcript.
    """
    if not isinstance(document, Mapping):
        raise TranscriptError(
            f'A transcript is an object with `format_version` and `messages`, but this is {short_repr(document)}. Create one '
            'from pydantic-ai messages with `MessageList(messages)`.',
            value=document,
        )
    _check_depth(cast('Mapping[object, object]', document))
    current = _migrated(dict(cast('Mapping[str, JsonValue]', document)))
    for key in current:
        if key not in _KEYS:
            raise TranscriptError(
                f'A transcript has {" and ".join(map(repr, _KEYS))} and nothing else, but this one has {key!r}. Remove '
                'it: settings and tools belong to the conversation.',
                field=key,
                value=current[key],
            )
    messages = current.get('messages')
    if not isinstance(messages, list):
        raise TranscriptError(
            f'The `messages` of a transcript must be a list, but are {short_repr(messages)}.',
            field='messages',
            value=messages,
        )
    written = _inlined(messages, media)
    validated = _validated(written)
    portable_messages = [portable(message) for message in written]
    return validated if portable_messages == written else _validated(portable_messages)


def _migrated(document: Document) -> Document:
    """Return a document in the latest format."""
    version = document.get('format_version')
    if not isinstance(version, int) or isinstance(version, bool):
        raise TranscriptError(
            f'The `format_version` of a transcript must be a whole number, but is {short_repr(version)}. '
            f'This release writes {FORMAT_VERSION}.',
            field='format_version',
            value=version,
        )
    if version > FORMAT_VERSION:
        raise TranscriptError(
            f'The transcript has format_version {short_repr(version)}, but this release reads up to {FORMAT_VERSION}. '
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
    """Raise if a document is nested too deeply, without recursion."""
    level: list[object] = [document]
    for _ in range(MAX_DEPTH):
        children: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                children += cast('Mapping[object, object]', value).values()
            elif isinstance(value, (list, tuple)):
                children += cast('Sequence[object]', value)
        if not children:
            return
        level = children
    raise TranscriptError(
        f'The transcript is nested more than {MAX_DEPTH} levels deep. No conversation is nested that deeply.'
    )


def _inlined(messages: list[JsonValue], media: Mapping[str, bytes]) -> list[JsonValue]:
    inlined: list[JsonValue] = []
    for index, message in enumerate(messages):
        for digest in sorted(media_digests(message)):
            data = media.get(digest)
            if data is None or digest_of(data) != digest:
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
        problems = [_MessageProblem.of(candidate, messages) for candidate in error.errors(include_url=False)]
    # For a union there is an error for each member. The one that matched deepest is the most helpful.
    problem = max(
        (candidate for candidate in problems if candidate.at == problems[0].at), key=lambda candidate: candidate.depth
    )
    message = messages[problem.at]
    raise TranscriptError(
        f'{_where(problem.at, message)} is invalid at `{problem.field}`: {short_repr(problem.value)}. {problem.problem}. '
        'Correct it or remove the message; if a newer release wrote it, update pydantic-ai.',
        index=problem.at,
        role=_role(message),
        field=problem.field,
        value=problem.value,
    )


class _MessageProblem(NamedTuple):
    """A validation error of a message, with its path in the document."""

    at: int
    """The index of the message in the document."""
    depth: int
    """The number of steps from the message to the invalid value."""
    field: str
    value: object
    problem: str

    @classmethod
    def of(cls, error: ErrorDetails, messages: list[JsonValue]) -> _MessageProblem:
        """Locate a validation error in its message. The location of the error contains names of unions between the
        fields.
        """
        location, kind = error['loc'], error['type']
        index = cast('int', location[0])
        at: object = messages[index]
        path, depth = '', 0
        for step in location[1:]:
            child = _child_at(at, step)
            if child is not None:
                at, depth = child.value, depth + 1
                path += f'[{step}]' if isinstance(step, int) else f'.{step}'
        value: object = error['input']
        if kind == 'missing':
            path += f'.{location[-1]}'
        elif kind in ('union_tag_invalid', 'union_tag_not_found'):
            tag = 'part_kind' if path else 'kind'
            path += f'.{tag}'
            value = cast('dict[str, object]', at).get(tag) if isinstance(at, dict) else at
        return cls(index, depth, path.removeprefix('.') or 'kind', value, error['msg'][:_MAX_PROBLEM_CHARS])


class _Child(NamedTuple):
    value: object


def _child_at(value: object, step: str | int) -> _Child | None:
    """Return the child at a step of a location; `None` if the step is not part of the document."""
    if isinstance(value, dict) and step in value:
        return _Child(cast('dict[str | int, object]', value)[step])
    if isinstance(value, list) and isinstance(step, int):
        return _Child(cast('list[object]', value)[step])
    return None


def _where(index: int, message: JsonValue) -> str:
    role = _role(message)
    return f'Message {index}' if role is None else f'Message {index} ({role})'


def _role(message: JsonValue) -> str | None:
    role = message.get('kind') if isinstance(message, dict) else None
    return role if isinstance(role, str) and len(role) <= _MAX_ROLE_CHARS else None
