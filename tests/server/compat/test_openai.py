"""Requests in the format of OpenAI."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import BinaryContent

from pydantic_deep.server.compat._dialogue import DialogueMessage
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import IMAGE, PIXEL, file_messages, openai


def test_system_messages_become_the_system_text() -> None:
    given: dict[str, Any] = {
        'messages': [{'role': 'developer', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    }
    assert openai([('user', 'Hi')], **given).system == 'Be brief.'


def test_settings_are_mapped_to_names_of_pydantic_ai() -> None:
    given: dict[str, Any] = {
        'temperature': 0.5,
        'top_p': 0.9,
        'max_tokens': 9,
        'max_completion_tokens': 10,
        'seed': 1,
        'presence_penalty': 0.1,
        'frequency_penalty': 0.2,
        'stop': 'END',
        'reasoning_effort': 'low',
        'verbosity': 'high',
        'logit_bias': {'50256': -100},
    }
    assert openai([('user', 'Hi')], **given).model_settings == {
        'temperature': 0.5,
        'top_p': 0.9,
        'max_tokens': 10,
        'seed': 1,
        'presence_penalty': 0.1,
        'frequency_penalty': 0.2,
        'stop_sequences': ['END'],
        'thinking': 'low',
        'openai_text_verbosity': 'high',
        'logit_bias': {'50256': -100},
    }


@pytest.mark.parametrize(
    ('given', 'match'),
    [
        ({'n': 2}, '`n` is 2'),
        ({'logprobs': True}, '`logprobs` is true'),
        ({'moderation': {'model': 'omni-moderation'}}, '`moderation` is set'),
        ({'logprobs': False, 'top_logprobs': 3}, '`top_logprobs` is 3'),
        ({'modalities': ['text', 'audio']}, '`modalities` has more than `text`'),
        ({'audio': {'voice': 'alloy', 'format': 'wav'}}, '`audio` is set'),
        ({'web_search_options': {}}, '`web_search_options`'),
        ({'response_format': {'type': 'json_schema'}}, '`response_format`'),
        ({'tools': [{'type': 'function', 'function': {'name': 'r m'}}]}, "'r m'"),
        ({'tools': [{'type': 'web_search'}]}, "'web_search'"),
        ({'functions': [{'name': 'rm'}]}, '`functions`'),
    ],
)
def test_unsupported_options_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ServerError, match=match):
        openai([('user', 'Hi')], **given)


@pytest.mark.parametrize(
    'given',
    [
        {
            'n': 1,
            'logprobs': False,
            'top_logprobs': 0,
            'modalities': ['text'],
            'response_format': {'type': 'text'},
            'made_up': 1,
        },
        {'tools': [{'type': 'function', 'function': {'name': 'approval_required'}}]},
    ],
)
def test_options_without_effect_are_accepted(given: dict[str, Any]) -> None:
    assert openai([('user', 'Hi')], **given).prompt == ('Hi',)


@pytest.mark.parametrize(
    'given',
    [
        {
            'messages': file_messages(
                {'type': 'image_url', 'image_url': {'url': f'data:image/png;base64,{PIXEL}', 'detail': 'low'}}
            )
        },
        {
            'messages': file_messages(
                {'type': 'file', 'file': {'filename': 'a.png', 'file_data': f'data:image/png;base64,{PIXEL}'}}
            )
        },
        {'messages': file_messages({'type': 'file', 'file': {'filename': 'a.png', 'file_data': PIXEL}})},
    ],
)
def test_inline_files_are_part_of_the_prompt(given: dict[str, Any]) -> None:
    assert openai([], **given).prompt == (IMAGE,)


def test_stop_may_be_a_list() -> None:
    assert openai([('user', 'Hi')], stop=['A', 'B']).model_settings == {'stop_sequences': ['A', 'B']}


def test_audio_and_plain_data_urls_are_read() -> None:
    audio = {'type': 'input_audio', 'input_audio': {'data': 'AAAA', 'format': 'wav'}}
    plain = {'type': 'image_url', 'image_url': {'url': 'data:,A%20b'}}

    assert openai([], messages=file_messages(audio)).prompt == (BinaryContent(b'\0\0\0', media_type='audio/wav'),)
    assert openai([], messages=file_messages(plain)).prompt == (BinaryContent(b'A b', media_type='text/plain'),)


@pytest.mark.parametrize(
    ('part', 'match'),
    [
        ({'type': 'image_url', 'image_url': {'url': 'data:image/png'}}, 'no comma'),
        ({'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,!!'}}, 'not valid base64'),
        ({'type': 'image_url', 'image_url': {'url': f'data:;base64,{PIXEL}'}}, 'media type'),
        ({'type': 'file', 'file': {'file_id': 'file-1'}}, 'by id'),
    ],
)
def test_unreadable_file_is_refused(part: dict[str, object], match: str) -> None:
    with pytest.raises(ServerError, match=match):
        openai([], messages=file_messages(part))


def test_refusal_is_text_of_the_history() -> None:
    refused = [{'type': 'refusal', 'refusal': 'No.'}]
    messages: list[dict[str, object]] = [
        {'role': 'user', 'content': [{'type': 'text', 'text': 'A'}, {'type': 'text', 'text': ''}]},
        {'role': 'assistant', 'content': refused},
        {'role': 'user', 'content': 'B'},
    ]
    found = openai([], messages=messages)

    assert found.messages == [
        DialogueMessage(role='user', content=('A',)),
        DialogueMessage(role='assistant', content=('No.',)),
    ]


def test_no_effort_is_no_thinking() -> None:
    assert openai([('user', 'Hi')], reasoning_effort='none').model_settings == {'thinking': False}


def test_image_in_a_result_is_refused_by_the_name_of_the_function() -> None:
    """An image in an earlier result is ignored, since the server has its own history."""
    function = {'name': 'camera', 'arguments': '{}'}
    asked = {'role': 'assistant', 'tool_calls': [{'id': 'c', 'type': 'function', 'function': function}]}
    image = {'type': 'image_url', 'image_url': {'url': f'data:image/png;base64,{PIXEL}'}}
    result = {'role': 'tool', 'tool_call_id': 'c', 'content': [{'text': 'Seen.'}, image]}
    messages = [{'role': 'user', 'content': 'Look'}, asked, result]

    with pytest.raises(ServerError, match="The result of 'camera' contains more than text"):
        openai([], messages=messages)
    later = [*messages, {'role': 'assistant', 'content': 'A cat.'}, {'role': 'user', 'content': 'And?'}]
    assert openai([], messages=later).messages[2].results[0].content == 'Seen.'
