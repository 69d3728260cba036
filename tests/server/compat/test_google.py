"""Requests in the format of Google."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pydantic_deep.server.compat._dialogue import DialogueMessage
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import IMAGE, PIXEL, google


def test_system_messages_become_the_system_text() -> None:
    given: dict[str, Any] = {'systemInstruction': {'parts': [{'text': 'Be brief.'}]}}
    assert google([('user', 'Hi')], **given).system == 'Be brief.'


def test_settings_are_mapped_to_names_of_pydantic_ai() -> None:
    given: dict[str, Any] = {
        'generationConfig': {
            'temperature': 0.5,
            'topP': 0.9,
            'maxOutputTokens': 10,
            'seed': 1,
            'presencePenalty': 0.1,
            'frequency_penalty': 0.2,
            'stopSequences': ['END'],
        }
    }
    assert google([('user', 'Hi')], **given).model_settings == {
        'temperature': 0.5,
        'top_p': 0.9,
        'max_tokens': 10,
        'seed': 1,
        'presence_penalty': 0.1,
        'frequency_penalty': 0.2,
        'stop_sequences': ['END'],
    }


@pytest.mark.parametrize(
    ('given', 'match'),
    [
        ({'tools': [{'functionDeclarations': [{'name': 'r m'}]}]}, "'r m'"),
        ({'tools': [{'googleSearch': {'a': 1}}]}, "'googleSearch'"),
        ({'generationConfig': {'candidateCount': 2}}, '`candidateCount` is 2'),
        ({'generationConfig': {'responseMimeType': 'text/csv'}}, "`responseMimeType` is 'text/csv'"),
        ({'generationConfig': {'responseMimeType': 'text/x.enum'}}, '`responseSchema` of the type `STRING`'),
        ({'generationConfig': {'responseLogprobs': True}}, '`responseLogprobs` is true'),
        ({'generationConfig': {'response_logprobs': False, 'logprobs': 2}}, '`logprobs` is 2'),
        ({'generationConfig': {'responseModalities': ['TEXT', 'IMAGE']}}, "`responseModalities` has 'IMAGE'"),
        ({'generationConfig': {'responseFormat': [{'text': 1}]}}, '`responseFormat` is set'),
        ({'cachedContent': 'cachedContents/1'}, '`cachedContent` is "cachedContents/1"'),
    ],
)
def test_unsupported_options_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ServerError, match=match):
        google([('user', 'Hi')], **given)


@pytest.mark.parametrize(
    'given',
    [
        {'tools': [{'functionDeclarations': [{'name': 'approval_required'}]}], 'safetySettings': []},
        {'generationConfig': {'candidateCount': 1, 'responseMimeType': 'text/plain', 'responseModalities': ['TEXT']}},
    ],
)
def test_options_without_effect_are_accepted(given: dict[str, Any]) -> None:
    assert google([('user', 'Hi')], **given).prompt == ('Hi',)


@pytest.mark.parametrize(
    'given',
    [
        {'contents': [{'parts': [{'inlineData': {'mimeType': 'image/png', 'data': PIXEL}}]}]},
        {'contents': [{'parts': [{'inline_data': {'mime_type': 'image/png', 'data': 'iVBORw0KGgo'}}]}]},
        {'contents': [{'parts': [{'fileData': {'fileUri': f'data:image/png;base64,{PIXEL}'}}]}]},
    ],
)
def test_inline_files_are_part_of_the_prompt(given: dict[str, Any]) -> None:
    assert google([], **given).prompt == (IMAGE,)


def test_top_k_may_be_a_float() -> None:
    assert google([('user', 'Hi')], generationConfig={'topK': 4.0}).model_settings == {'top_k': 4}


def test_google_decision_without_call_id_is_refused() -> None:
    parts = [{'functionResponse': {'name': 'approval_required', 'response': {'result': 'approve'}}}]

    with pytest.raises(ServerError, match="'approval_required' has no `id`"):
        google([], contents=[{'role': 'user', 'parts': parts}])


def test_thoughts_are_dropped() -> None:
    thought = {'role': 'model', 'parts': [{'text': 'Hm.', 'thought': True}, {'text': 'Yes.'}]}
    found = google([], contents=[{'parts': [{'text': 'A?'}]}, thought, {'parts': [{'text': 'B?'}]}])

    assert found.messages[1] == DialogueMessage(role='assistant', content=('Yes.',))


@pytest.mark.parametrize(
    ('config', 'thinking'),
    [
        ({'thinkingBudget': 0}, False),
        ({'thinkingBudget': -1}, True),
        ({'thinkingBudget': 2048}, 'low'),
        ({'thinkingLevel': 'HIGH', 'includeThoughts': True}, 'high'),
        ({'thinkingLevel': 'XHIGH'}, 'xhigh'),
    ],
)
def test_thinking_becomes_an_effort(config: dict[str, Any], thinking: bool | str) -> None:
    found = google([('user', 'Hi')], generationConfig={'thinkingConfig': config})
    assert found.model_settings == {'thinking': thinking}


def test_thoughts_alone_do_not_change_the_effort() -> None:
    found = google([('user', 'Hi')], generationConfig={'thinkingConfig': {'includeThoughts': True}})
    assert found.model_settings == {}


def test_a_single_object_may_stand_for_a_list() -> None:
    """Google's own examples for `curl` send `"contents": {"parts": {"text": …}}`."""
    found = google(
        [],
        contents={'parts': {'text': 'Hi'}},
        system_instruction={'role': 'system', 'parts': {'text': 'You are a cat.'}},
        tools={'functionDeclarations': {'name': 'meow'}},
        toolConfig={'functionCallingConfig': {'mode': 'any'}},
    )
    assert (found.prompt, found.system) == (('Hi',), 'You are a cat.')
    assert ([tool.name for tool in found.tools.tools or ()], found.tools.choice) == (['meow'], ['meow'])


def test_null_is_an_absent_field() -> None:
    """JSON of protocol buffers may have null for each absent field. The values of a call keep theirs."""
    call = {'id': None, 'name': 'meow', 'args': {'loud': None}}
    found = google(
        [],
        contents=[
            {'role': None, 'parts': [{'text': 'Hi', 'thought': None, 'inlineData': None, 'videoMetadata': None}]},
            {
                'role': 'model',
                'parts': [{'text': None, 'functionCall': call}, {'functionCall': {**call, 'args': None}}],
            },
            {'parts': [{'functionResponse': {'name': 'meow', 'response': {'result': None}, 'parts': None}}]},
        ],
        systemInstruction=None,
        generationConfig={'thinkingConfig': None, 'responseJsonSchema': None},
        tools=[{'functionDeclarations': [{'name': 'meow', 'parameters': None}], 'googleSearch': None}],
        toolConfig={'functionCallingConfig': None},
        labels=None,
    )
    assert [dict(made.args) for made in found.messages[1].calls] == [{'loud': None}, {}]
    assert [result.content for result in found.results] == [{'result': None}]
    assert [tool.name for tool in found.tools.tools or ()] == ['meow']
    with pytest.raises(ValidationError):
        google([], contents=[{'parts': [5]}])


def test_a_part_that_the_model_would_not_read_is_refused() -> None:
    """Such parts of the model are ignored, since the server has its own history."""
    part = {'executableCode': {'code': '1'}}
    with pytest.raises(ServerError, match="A part contains 'executableCode'"):
        google([], contents=[{'parts': [part, {'text': 'Hi'}]}])
    with pytest.raises(ServerError, match="A part contains 'nothing'"):
        google([], contents=[{'parts': [{}, {'text': 'Hi'}]}])
    found = google(
        [], contents=[{'parts': [{'text': 'A'}]}, {'role': 'model', 'parts': [part]}, {'parts': [{'text': 'B'}]}]
    )
    assert found.prompt == ('B',)


def test_results_may_have_the_role_tool() -> None:
    """The guide of Google's client for functions sends them so, without ids."""
    called: dict[str, Any] = {'role': 'model', 'parts': [{'functionCall': {'name': 'read', 'args': {}}}]}
    result = {'role': 'tool', 'parts': [{'functionResponse': {'name': 'read', 'response': {'result': 1}}}]}
    found = google([], contents=[{'parts': [{'text': 'A'}]}, called, result])
    assert [result.name for result in found.results] == ['read']


def test_types_of_a_json_schema_may_be_in_upper_case() -> None:
    """The guide of Google's client for structured answers writes them so."""
    schema = {'type': 'OBJECT', 'properties': {'name': {'type': 'STRING'}}}
    found = google([('user', 'Hi')], generationConfig={'responseJsonSchema': schema})
    assert found.output_schema == {'type': 'object', 'properties': {'name': {'type': 'string'}}}
