"""The format of transcripts: what is refused, and how the error names it."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    StructuredContent,
    TextContent,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from pydantic_deep.fluent import MessageList, TranscriptError
from pydantic_deep.fluent._format import MAX_DEPTH

from .conftest import ASSISTANT, USER, refused, with_part


@pytest.mark.parametrize('value', [math.nan, {'a': [math.inf]}, {'a': object()}, -math.inf, {1, math.nan}])
def test_unserializable_value_raises_and_names_the_message(tmp_path: Path, value: object) -> None:
    """R11: A message that JSON cannot represent is named by `save` and `to_dict`, and `NaN` never becomes `null`."""
    parts: list[ModelMessage] = [
        ModelRequest([ToolReturnPart('look', value, 'c')]),
        ModelRequest([ToolReturnPart('look', 'seen', 'c', metadata={'found': value})]),
        ModelRequest([UserPromptPart([StructuredContent(value=0, content='x'), TextContent('x', metadata=value)])]),
        ModelResponse([ToolCallPart('look', {'a': value}, 'c')]),
    ]
    for message in parts:
        messages = MessageList([USER, ASSISTANT, message])
        for write in (messages.to_dict, partial(messages.save, tmp_path / 'a.json')):
            with pytest.raises(TranscriptError, match=f'^Message 2 .{message.kind}. cannot be written: JSON') as error:
                write()
            assert (error.value.index, error.value.role, error.value.value) == (2, message.kind, message)
    assert not (tmp_path / 'a.json').exists()


def test_save_refuses_a_transcript_that_could_not_be_loaded(tmp_path: Path) -> None:
    """R11: The error names the message."""
    nested: object = 'x'
    for _ in range(MAX_DEPTH):
        nested = [nested]
    MessageList().save(tmp_path / 'a.json')
    with pytest.raises(TranscriptError, match='nested more than 100 levels deep'):
        MessageList([ModelRequest([ToolReturnPart('look', nested, 'c')])]).save(tmp_path / 'a.json')
    half = ModelRequest.user_text_prompt('\ud83d')
    with pytest.raises(
        TranscriptError, match=r'Message 1 \(request\) cannot be written: it contains invalid Unicode'
    ) as error:
        MessageList([ModelRequest.user_text_prompt('a'), half]).save(tmp_path / 'a.json')
    assert (error.value.index, error.value.role) == (1, 'request')
    assert MessageList.load(tmp_path / 'a.json') == MessageList()


@pytest.mark.parametrize(
    ('document', 'field', 'message'),
    [
        (
            [],
            None,
            'A transcript is an object with `format_version` and `messages`, but this is []. Create one '
            'from pydantic-ai messages with `MessageList(messages)`.',
        ),
        (
            {'messages': []},
            'format_version',
            'The `format_version` of a transcript must be a whole number, but is None. This release writes 1.',
        ),
        (
            {'format_version': True, 'messages': []},
            'format_version',
            'The `format_version` of a transcript must be a whole number, but is True. This release writes 1.',
        ),
        (
            {'format_version': 7, 'messages': []},
            'format_version',
            'The transcript has format_version 7, but this release reads up to 1. Update pydantic-deep.',
        ),
        (
            {'format_version': 0, 'messages': []},
            'format_version',
            'There is no format_version 0: formats begin with 1. Was it written by pydantic-deep?',
        ),
        (
            {'format_version': 1},
            'messages',
            'The `messages` of a transcript must be a list, but are None.',
        ),
        (
            {'format_version': 1, 'messages': [], 'tools': ['rm']},
            'tools',
            "A transcript has 'format_version' and 'messages' and nothing else, but this one has 'tools'. Remove it"
            ': settings and tools belong to the conversation.',
        ),
    ],
)
def test_invalid_transcript_raises_with_the_reason(document: object, field: str | None, message: str) -> None:
    """R12, C30, C3: Settings and tools are refused, and newer formats are named."""
    error = refused(document)
    assert (error.index, error.role, error.field, str(error)) == (None, None, field, message)


ADVICE = 'Correct it or remove the message; if a newer release wrote it, update pydantic-ai.'


@pytest.mark.parametrize(
    ('part', 'kind', 'field', 'message'),
    [
        (
            {'part_kind': 'hologram', 'content': 'x'},
            'request',
            'parts[0].part_kind',
            "Message 1 (request) is invalid at `parts[0].part_kind`: 'hologram'. Input tag 'hologram' found using",
        ),
        (
            {'content': 'x'},
            'request',
            'parts[0].part_kind',
            'Message 1 (request) is invalid at `parts[0].part_kind`: None',
        ),
        (
            {'part_kind': 'user-prompt', 'content': 5},
            'request',
            'parts[0].content',
            'Message 1 (request) is invalid at `parts[0].content`: 5. Input should be a valid string.',
        ),
        (
            {'part_kind': 'user-prompt', 'content': ['x', {'kind': 'hologram', 'url': 'x'}]},
            'request',
            'parts[0].content[1].kind',
            "Message 1 (request) is invalid at `parts[0].content[1].kind`: 'hologram'. Input should be",
        ),
        (
            {'part_kind': 'tool-return', 'content': 'x'},
            'request',
            'parts[0].tool_name',
            "Message 1 (request) is invalid at `parts[0].tool_name`: {'part_kind': 'tool-return', 'content': 'x'}. "
            'Field required.',
        ),
        (
            {'part_kind': 'file', 'content': {'kind': 'binary', 'data': '!!!', 'media_type': 'image/png'}},
            'response',
            'parts[0].content.data',
            "Message 1 (response) is invalid at `parts[0].content.data`: '!!!'. Data should be valid base64",
        ),
        (
            {'part_kind': 'text', 'content': 'x'},
            'oracle',
            'kind',
            "Message 1 (oracle) is invalid at `kind`: 'oracle'. Input tag 'oracle' found using 'kind'",
        ),
    ],
)
def test_invalid_message_is_named_with_field_and_value(part: object, kind: str, field: str, message: str) -> None:
    """R12: The error names the message, its role, the field, the value, and a remedy."""
    error = refused(with_part(part, kind))
    assert (error.index, error.role, error.field) == (1, kind, field)
    assert str(error).startswith(message)
    assert str(error).endswith(ADVICE)


@pytest.mark.parametrize(
    ('message', 'said'),
    [('Hello', "Message 0 is invalid at `kind`: 'Hello'."), ({'parts': []}, 'Message 0 is invalid at `kind`: None.')],
)
def test_invalid_message_without_a_known_role_has_no_role(message: object, said: str) -> None:
    error = refused({'format_version': 1, 'messages': [message]})
    assert (error.index, error.role) == (0, None)
    assert str(error).startswith(said)
