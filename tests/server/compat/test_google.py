"""Requests in the format of Google."""

from __future__ import annotations

from typing import Any

import pytest

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
        ({'generationConfig': {'responseMimeType': 'text/x.enum'}}, '`responseMimeType`'),
    ],
)
def test_unsupported_options_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ServerError, match=match):
        google([('user', 'Hi')], **given)


@pytest.mark.parametrize(
    'given',
    [
        {'tools': [{'functionDeclarations': [{'name': 'approval_required'}]}], 'safetySettings': []},
        {'generationConfig': {'candidateCount': 1, 'responseMimeType': 'text/plain'}},
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
