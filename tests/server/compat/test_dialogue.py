"""Requests of other APIs as prompts, decisions and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.compat._anthropic import MessagesRequest, anthropic_session_id
from pydantic_deep.server.compat._dialogue import (
    Dialogue,
    DialogueMessage,
    parse_decision,
    parse_decision_value,
    to_model_messages,
)
from pydantic_deep.server.compat._google import GenerateContentRequest
from pydantic_deep.server.compat._openai import ChatCompletionRequest, openai_session_id
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import Wire, answered, anthropic, google, openai

PIXEL = 'iVBORw0KGgo='
IMAGE = BinaryContent(b'\x89PNG\r\n\x1a\n', media_type='image/png')


def test_last_user_messages_are_the_prompt_and_the_rest_is_history(wire: Wire) -> None:
    found = wire([('user', 'Hello'), ('assistant', 'Hi.'), ('user', 'Read'), ('user', 'this')])

    assert found.prompt == ('Read', 'this')
    assert found.messages == [
        DialogueMessage(role='user', content=('Hello',)),
        DialogueMessage(role='assistant', content=('Hi.',)),
    ]
    assert found.decisions == {}


def test_request_that_ends_with_the_assistant_is_refused(wire: Wire) -> None:
    with pytest.raises(ServerError, match='last message must come from the user'):
        wire([('user', 'Hello'), ('assistant', 'Hi')])


def test_empty_messages_are_dropped(wire: Wire) -> None:
    found = wire([('user', 'One'), ('assistant', ''), ('user', 'Two')])

    assert found.messages == [DialogueMessage(role='user', content=('One',))]
    assert found.prompt == ('Two',)


@pytest.mark.parametrize(
    ('read', 'given'),
    [
        (openai, {'messages': [{'role': 'developer', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]}),
        (anthropic, {'system': [{'type': 'text', 'text': 'Be brief.'}]}),
        (google, {'systemInstruction': {'parts': [{'text': 'Be brief.'}]}}),
    ],
)
def test_system_messages_become_the_system_text(read: Wire, given: dict[str, Any]) -> None:
    assert read([('user', 'Hi')], **given).system == 'Be brief.'


@pytest.mark.parametrize(
    ('read', 'given'),
    [
        (
            openai,
            {
                'temperature': 0.5,
                'top_p': 0.9,
                'max_tokens': 9,
                'max_completion_tokens': 10,
                'seed': 1,
                'presence_penalty': 0.1,
                'frequency_penalty': 0.2,
                'stop': 'END',
            },
        ),
        (
            google,
            {
                'generationConfig': {
                    'temperature': 0.5,
                    'topP': 0.9,
                    'maxOutputTokens': 10,
                    'seed': 1,
                    'presencePenalty': 0.1,
                    'frequency_penalty': 0.2,
                    'stopSequences': ['END'],
                }
            },
        ),
    ],
)
def test_settings_are_mapped_to_names_of_pydantic_ai(read: Wire, given: dict[str, Any]) -> None:
    assert read([('user', 'Hi')], **given).model_settings == {
        'temperature': 0.5,
        'top_p': 0.9,
        'max_tokens': 10,
        'seed': 1,
        'presence_penalty': 0.1,
        'frequency_penalty': 0.2,
        'stop_sequences': ['END'],
    }


def test_settings_of_anthropic_and_top_k_are_mapped() -> None:
    found = anthropic([('user', 'Hi')], temperature=0, top_p=1, top_k=4, stop_sequences=['A', 'B'])

    assert found.model_settings == {
        'max_tokens': 9,
        'temperature': 0,
        'top_p': 1,
        'top_k': 4,
        'stop_sequences': ['A', 'B'],
    }
    assert google([('user', 'Hi')], generationConfig={'topK': 4.0}).model_settings == {'top_k': 4}
    assert openai([('user', 'Hi')], stop=['A', 'B']).model_settings == {'stop_sequences': ['A', 'B']}


@pytest.mark.parametrize(
    ('read', 'given', 'match'),
    [
        (openai, {'n': 2}, '`n` is 2'),
        (openai, {'logprobs': True}, '`logprobs`'),
        (openai, {'response_format': {'type': 'json_object'}}, '`response_format`'),
        (openai, {'tools': [{'type': 'function', 'function': {'name': 'rm'}}]}, "'rm'"),
        (openai, {'tools': [{'type': 'web_search'}]}, "'tools'"),
        (openai, {'functions': [{'name': 'rm'}]}, "'rm'"),
        (anthropic, {'tools': [{'name': 'rm', 'input_schema': {'type': 'object'}}]}, "'rm'"),
        (google, {'tools': [{'functionDeclarations': [{'name': 'rm'}]}]}, "'rm'"),
        (google, {'tools': [{'googleSearch': {'a': 1}}]}, "'googleSearch'"),
        (google, {'generationConfig': {'candidateCount': 2}}, '`candidateCount` is 2'),
        (google, {'generationConfig': {'responseMimeType': 'application/json'}}, '`responseMimeType`'),
    ],
)
def test_unsupported_options_are_refused_by_name(read: Wire, given: dict[str, Any], match: str) -> None:
    with pytest.raises(ServerError, match=match):
        read([('user', 'Hi')], **given)


@pytest.mark.parametrize(
    ('read', 'given'),
    [
        (openai, {'n': 1, 'logprobs': False, 'response_format': {'type': 'text'}, 'made_up': 1}),
        (openai, {'tools': [{'type': 'function', 'function': {'name': 'approval_required'}}]}),
        (anthropic, {'tools': [{'name': 'approval_required'}], 'thinking': {'type': 'enabled'}}),
        (google, {'tools': [{'functionDeclarations': [{'name': 'approval_required'}]}], 'safetySettings': []}),
        (google, {'generationConfig': {'candidateCount': 1, 'responseMimeType': 'text/plain'}}),
    ],
)
def test_options_without_effect_are_accepted(read: Wire, given: dict[str, Any]) -> None:
    assert read([('user', 'Hi')], **given).prompt == ('Hi',)


def file_messages(part: Mapping[str, object]) -> list[dict[str, object]]:
    return [{'role': 'user', 'content': [part]}]


@pytest.mark.parametrize(
    ('read', 'given'),
    [
        (
            openai,
            {
                'messages': file_messages(
                    {'type': 'image_url', 'image_url': {'url': f'data:image/png;base64,{PIXEL}', 'detail': 'low'}}
                )
            },
        ),
        (
            openai,
            {
                'messages': file_messages(
                    {'type': 'file', 'file': {'filename': 'a.png', 'file_data': f'data:image/png;base64,{PIXEL}'}}
                )
            },
        ),
        (
            anthropic,
            {
                'messages': file_messages(
                    {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': PIXEL}}
                )
            },
        ),
        (
            anthropic,
            {
                'messages': file_messages(
                    {'type': 'image', 'source': {'type': 'url', 'url': f'data:image/png;base64,{PIXEL}'}}
                )
            },
        ),
        (google, {'contents': [{'parts': [{'inlineData': {'mimeType': 'image/png', 'data': PIXEL}}]}]}),
        (
            google,
            {'contents': [{'parts': [{'inline_data': {'mime_type': 'image/png', 'data': 'iVBORw0KGgo'}}]}]},
        ),
        (google, {'contents': [{'parts': [{'fileData': {'fileUri': f'data:image/png;base64,{PIXEL}'}}]}]}),
    ],
)
def test_inline_files_are_part_of_the_prompt(read: Wire, given: dict[str, Any]) -> None:
    assert read([], **given).prompt == (IMAGE,)


def test_audio_text_documents_and_plain_data_urls_are_read() -> None:
    audio = {'type': 'input_audio', 'input_audio': {'data': 'AAAA', 'format': 'wav'}}
    document = {'type': 'document', 'source': {'type': 'text', 'media_type': 'text/plain', 'data': 'Words'}}
    plain = {'type': 'image_url', 'image_url': {'url': 'data:,A%20b'}}

    assert openai([], messages=file_messages(audio)).prompt == (BinaryContent(b'\0\0\0', media_type='audio/wav'),)
    assert anthropic([], messages=file_messages(document)).prompt == ('Words',)
    assert openai([], messages=file_messages(plain)).prompt == (BinaryContent(b'A b', media_type='text/plain'),)


SECRETS = 'http://169.254.169.254/latest/meta-data'


@pytest.mark.parametrize(
    'url', [SECRETS, 'https://example.org/a.png', 'file:///etc/passwd', 'ftp://h/a', '//h/a', 'a.png', ' data:,a']
)
def test_urls_are_never_fetched(wire: Wire, url: str) -> None:
    """SSRF: no host named by a client is contacted."""
    given: dict[Callable[..., Dialogue], dict[str, Any]] = {
        openai: {'messages': file_messages({'type': 'image_url', 'image_url': {'url': url}})},
        anthropic: {'messages': file_messages({'type': 'document', 'source': {'type': 'url', 'url': url}})},
        google: {'contents': [{'parts': [{'fileData': {'fileUri': url, 'mimeType': 'image/png'}}]}]},
    }
    with pytest.raises(ServerError, match='are not fetched'):
        wire([], **given[wire])


def test_result_of_the_last_call_is_a_decision(wire: Wire) -> None:
    found = wire([], **answered('approve')[wire])

    assert found.decisions == {'a-1': Approve()}
    assert found.prompt == ()
    assert found.messages == [DialogueMessage(role='user', content=('Go',))]


@pytest.mark.parametrize(
    ('text', 'decision'),
    [
        (' Approve ', Approve()),
        ('deny', Deny()),
        ('Deny: not on a Friday ', Deny('not on a Friday')),
        ('{"decision": "approve"}', Approve()),
        ('{"decision": "deny", "reason": "no"}', Deny('no')),
        ('{"decision": "edit", "args": {"path": "/a"}}', Edit({'path': '/a'})),
        ('{"decision": "respond", "content": [1]}', Respond([1])),
    ],
)
def test_decision_is_a_word_or_json(text: str, decision: Decision) -> None:
    assert parse_decision(text) == decision


@pytest.mark.parametrize(
    'text',
    ['', 'ok', 'yes', 'approve: but carefully', '{"decision": "approve", "args": {}}', '{"decision": "edit"}', '[]'],
)
def test_invalid_decision_is_refused(text: str) -> None:
    with pytest.raises(ServerError, match='must be a decision'):
        parse_decision(text)


@pytest.mark.parametrize(
    'value',
    [
        'deny: no',
        {'result': 'deny: no'},
        {'output': {'decision': 'deny', 'reason': 'no'}},
        {'decision': 'deny', 'reason': 'no'},
    ],
)
def test_json_decision_may_be_nested_in_a_result(value: JsonValue) -> None:
    assert parse_decision_value(value) == Deny('no')


def test_results_of_earlier_calls_are_ignored(wire: Wire) -> None:
    request = answered('whatever another model made of it')[wire]
    (messages,) = request.values()
    role, key = ('model', 'parts') if wire is google else ('assistant', 'content')
    words: Any = [{'text': 'Done.'}] if wire is google else 'Done.'
    more: Any = [{'text': 'Thanks'}] if wire is google else 'Thanks'
    messages += [{'role': role, key: words}, {'role': 'user', key: more}]

    found = wire([], **request)

    assert found.decisions == {}
    assert found.prompt == ('Thanks',)


def test_session_id_of_the_client_is_found() -> None:
    said = [{'role': 'user', 'content': 'Hi'}]

    def of_openai(**more: object) -> str | None:
        return openai_session_id(ChatCompletionRequest.model_validate({'model': 'a', 'messages': said, **more}))

    def of_anthropic(**more: object) -> str | None:
        return anthropic_session_id(MessagesRequest.model_validate({'model': 'a', 'messages': said, **more}))

    assert of_openai(user='u', metadata={'session_id': 's'}) == 's'
    assert of_openai(user='u') == 'u'
    assert of_openai() is None
    assert of_anthropic(metadata={'user_id': 'u'}) == 'u'
    assert of_anthropic() is None


def test_request_without_messages_is_invalid() -> None:
    for model, field in ((ChatCompletionRequest, 'messages'), (MessagesRequest, 'messages')):
        with pytest.raises(ValidationError, match=field):
            model.model_validate({'model': 'a', 'messages': []})
    with pytest.raises(ValidationError, match='contents'):
        GenerateContentRequest.model_validate({'contents': []})


def test_history_becomes_text_messages_without_calls(wire: Wire) -> None:
    known = wire([('user', 'A'), ('assistant', 'B'), ('user', 'C')])
    messages = to_model_messages(Dialogue(system='S', messages=known.messages))

    (request, response) = messages
    assert isinstance(request, ModelRequest)
    assert isinstance(response, ModelResponse)
    (system, user), (answer,) = request.parts, response.parts
    assert isinstance(system, SystemPromptPart)
    assert isinstance(user, UserPromptPart)
    assert isinstance(answer, TextPart)
    assert (system.content, user.content, answer.content) == ('S', ['A'], 'B')


def test_dialogue_without_history_contains_only_its_system_text() -> None:
    (message,) = to_model_messages(openai([('user', 'A')], messages=[
        {'role': 'system', 'content': 'S'}, {'role': 'user', 'content': 'A'},
    ]))  # fmt: skip

    assert [type(part) for part in message.parts] == [SystemPromptPart]
    assert to_model_messages(openai([('user', 'A')])) == []


pytestmark = pytest.mark.anyio


def test_tool_results_in_a_foreign_history_are_ignored() -> None:
    image = {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': PIXEL}}
    by_anthropic: list[dict[str, object]] = [
        {'role': 'user', 'content': 'A'},
        {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 't', 'name': 'look', 'input': {}}]},
        {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 't', 'content': [image]}]},
        {
            'role': 'assistant',
            'content': [
                {'type': 'server_tool_use', 'id': 's', 'name': 'web_search', 'input': {}},
                {'type': 'web_search_tool_result', 'tool_use_id': 's', 'content': []},
                {'type': 'text', 'text': 'B'},
            ],
        },
        {'role': 'user', 'content': 'C'},
    ]
    by_google: list[dict[str, object]] = [
        {'role': 'user', 'parts': [{'text': 'A'}]},
        {'role': 'model', 'parts': [{'functionCall': {'name': 'look', 'args': {}}}]},
        {'role': 'user', 'parts': [{'functionResponse': {'name': 'look', 'response': {'seen': 1}}}]},
        {'role': 'model', 'parts': [{'text': 'B'}]},
        {'role': 'user', 'parts': [{'text': 'C'}]},
    ]
    for found in (anthropic([], messages=by_anthropic), google([], contents=by_google)):
        assert found.messages == [
            DialogueMessage(role='user', content=('A',)),
            DialogueMessage(role='assistant', content=('B',)),
        ]
        assert (found.prompt, found.decisions) == (('C',), {})


def test_text_of_a_tool_result_is_the_decision() -> None:
    def decided(*parts: dict[str, object]) -> Dialogue:
        result = {'type': 'tool_result', 'tool_use_id': 't', 'content': [*parts]}
        return anthropic([], messages=[{'role': 'user', 'content': 'A'}, {'role': 'assistant', 'content': 'B'}, {'role': 'user', 'content': [result]}])  # fmt: skip

    assert decided({'type': 'text', 'text': 'approve'}, {'type': 'image'}).decisions == {'t': Approve()}
    with pytest.raises(ServerError, match='must be a decision'):
        decided({'type': 'image'})
