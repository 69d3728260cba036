"""Requests of other APIs as prompts, decisions and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server import ServerSettings
from pydantic_deep.server.compat._anthropic import MessagesRequest, anthropic_session_id
from pydantic_deep.server.compat._dialogue import (
    Dialogue,
    DialogueMessage,
    parse_decision,
    parse_decision_value,
    to_model_messages,
)
from pydantic_deep.server.compat._google import GenerateContentRequest
from pydantic_deep.server.compat._linked_files import fetch_content
from pydantic_deep.server.compat._openai import ChatCompletionRequest, openai_session_id
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import PIXEL, Wire, answered, anthropic, file_messages, google, openai


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


SECRETS = 'http://169.254.169.254/latest/meta-data'


def url_in(url: str) -> dict[Callable[..., Dialogue], dict[str, Any]]:
    """Return requests with a file by URL."""
    return {
        openai: {'messages': file_messages({'type': 'image_url', 'image_url': {'url': url}})},
        anthropic: {'messages': file_messages({'type': 'document', 'source': {'type': 'url', 'url': url}})},
        google: {'contents': [{'parts': [{'fileData': {'fileUri': url, 'mimeType': 'image/png'}}]}]},
    }


@pytest.mark.parametrize('url', ['file:///etc/passwd', 'ftp://h/a', 'gs://h/a', '//h/a', 'a.png', ' data:,a'])
def test_other_urls_are_never_fetched(wire: Wire, url: str) -> None:
    """Only pages of the web have domains that the operator can allow."""
    with pytest.raises(ServerError, match='are not fetched'):
        wire([], **url_in(url)[wire])


@pytest.mark.anyio
@pytest.mark.parametrize('url', [SECRETS, 'HTTPS://example.org/a.png'])
async def test_urls_are_fetched_by_nobody_by_default(wire: Wire, url: str) -> None:
    """SSRF: without a setting of the operator, no host named by a client is contacted."""
    dialogue = wire([], **url_in(url)[wire])
    with pytest.raises(ServerError, match='are not fetched'):
        await fetch_content(ServerSettings(), dialogue.prompt)


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
    assert of_openai(safety_identifier='u') == 'u'
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


def test_calls_and_results_in_a_foreign_history_are_read() -> None:
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
        (user, asks, result, answer) = found.messages
        assert (user.content, answer.content) == (('A',), ('B',))
        assert [each.name for each in (*asks.calls, *result.results)] == ['look', 'look']
        assert (found.prompt, found.decisions) == (('C',), {})


def test_text_of_a_tool_result_is_the_decision() -> None:
    def decided(*parts: dict[str, object]) -> Dialogue:
        result = {'type': 'tool_result', 'tool_use_id': 't', 'content': [*parts]}
        return anthropic([], messages=[{'role': 'user', 'content': 'A'}, {'role': 'assistant', 'content': 'B'}, {'role': 'user', 'content': [result]}])  # fmt: skip

    assert decided({'type': 'text', 'text': 'approve'}, {'type': 'image'}).decisions == {'t': Approve()}
    with pytest.raises(
        ServerError, match=r"No message has the call 't' of a result\. Send the call, too\. The result of"
    ):
        decided({'type': 'image'})
