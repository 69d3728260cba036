"""Requests in the format of Anthropic."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import IMAGE, PIXEL, answered, anthropic, file_messages


def test_system_messages_become_the_system_text() -> None:
    given: dict[str, Any] = {'system': [{'type': 'text', 'text': 'Be brief.'}]}
    assert anthropic([('user', 'Hi')], **given).system == 'Be brief.'


def test_system_messages_within_the_dialogue_become_the_system_text() -> None:
    """They may be anywhere, also after the last message of the user."""
    parts = [{'type': 'text', 'text': 'Use metric '}, {'type': 'text', 'text': 'units.'}]
    said = [('user', 'Hi'), ('system', 'No lists.'), ('assistant', 'Hello.'), ('user', 'How far?'), ('system', parts)]
    found = anthropic([], system='Be brief.', messages=[{'role': role, 'content': content} for role, content in said])

    assert found.system == 'Be brief.\n\nNo lists.\n\nUse metric units.'
    assert [message.content for message in found.messages] == [('Hi',), ('Hello.',)]
    assert found.prompt == ('How far?',)


@pytest.mark.parametrize(
    ('given', 'match'),
    [
        ({'tools': [{'name': 'r m', 'input_schema': {'type': 'object'}}]}, "'r m'"),
        ({'tools': [{'name': 'a', 'input_schema': {'type': 'array'}}]}, 'must have the type `object`'),
        ({'tools': [{'name': 'web_search', 'type': 'web_search_20250305'}]}, "'web_search_20250305'"),
        ({'inference_geo': 'us'}, '`inference_geo` is "us"'),
        ({'mcp_servers': [{'type': 'url', 'url': 'https://x', 'authorization_token': 't'}]}, '`mcp_servers` is set,'),
        ({'container': 'container_1'}, '`container` is "container_1"'),
    ],
)
def test_unsupported_options_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ServerError, match=match):
        anthropic([('user', 'Hi')], **given)


def test_options_without_effect_are_accepted() -> None:
    given: dict[str, Any] = {'tools': [{'name': 'approval_required'}], 'service_tier': 'auto', 'container': None}
    assert anthropic([('user', 'Hi')], **given).prompt == ('Hi',)


@pytest.mark.parametrize(
    'given',
    [
        {
            'messages': file_messages(
                {'type': 'image', 'source': {'type': 'base64', 'media_type': 'image/png', 'data': PIXEL}}
            )
        },
        {
            'messages': file_messages(
                {'type': 'image', 'source': {'type': 'url', 'url': f'data:image/png;base64,{PIXEL}'}}
            )
        },
    ],
)
def test_inline_files_are_part_of_the_prompt(given: dict[str, Any]) -> None:
    assert anthropic([], **given).prompt == (IMAGE,)


def test_settings_are_mapped_to_names_of_pydantic_ai() -> None:
    found = anthropic([('user', 'Hi')], temperature=0, top_p=1, top_k=4, stop_sequences=['A', 'B'])

    assert found.model_settings == {
        'max_tokens': 9,
        'temperature': 0,
        'top_p': 1,
        'top_k': 4,
        'stop_sequences': ['A', 'B'],
    }


def test_text_documents_are_read() -> None:
    document = {'type': 'document', 'source': {'type': 'text', 'media_type': 'text/plain', 'data': 'Words'}}

    assert anthropic([], messages=file_messages(document)).prompt == ('Words',)


def test_title_and_context_of_a_document_are_read_before_it() -> None:
    source = {'type': 'text', 'media_type': 'text/plain', 'data': 'Words'}
    document = {'type': 'document', 'source': source, 'title': 'Rivers', 'context': 'From 2024.'}

    assert anthropic([], messages=file_messages(document)).prompt == ('Rivers\nFrom 2024.', 'Words')


def test_citations_are_refused() -> None:
    source = {'type': 'text', 'media_type': 'text/plain', 'data': 'Words'}
    document = {'type': 'document', 'source': source, 'citations': {'enabled': True}}

    with pytest.raises(ServerError, match='`citations` of a document'):
        anthropic([], messages=file_messages(document))


@pytest.mark.parametrize(
    ('given', 'thinking'),
    [
        ({'thinking': {'type': 'disabled'}, 'output_config': {'effort': 'high'}}, False),
        ({'thinking': {'type': 'adaptive'}}, True),
        ({'thinking': {'type': 'between_tools'}}, True),
        ({'thinking': {'type': 'adaptive'}, 'output_config': {'effort': 'max'}}, 'max'),
        ({'output_config': {'effort': 'low'}}, 'low'),
        ({'thinking': {'type': 'enabled', 'budget_tokens': 1024}}, 'minimal'),
        ({'thinking': {'type': 'enabled', 'budget_tokens': 10_000}}, 'medium'),
        ({'thinking': {'type': 'enabled', 'budget_tokens': 40_000}}, 'xhigh'),
    ],
)
def test_thinking_becomes_an_effort(given: dict[str, Any], thinking: bool | str) -> None:
    """A budget becomes the highest effort whose own budget fits into it."""
    assert anthropic([('user', 'Hi')], **given).model_settings == {'max_tokens': 9, 'thinking': thinking}


def test_decision_with_a_prompt_is_refused() -> None:
    request = answered('approve')[anthropic]
    request['messages'][-1]['content'].append({'type': 'text', 'text': 'And then?'})

    with pytest.raises(ServerError, match='cannot contain both decisions and a prompt'):
        anthropic([], **request)
