"""Requests of three APIs, as the dialogue that each of them parses to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pytest
from pydantic_ai import BinaryContent

from pydantic_deep.server.compat._anthropic import MessagesRequest, parse_anthropic_request
from pydantic_deep.server.compat._dialogue import Dialogue
from pydantic_deep.server.compat._google import GenerateContentRequest, parse_google_request
from pydantic_deep.server.compat._openai import ChatCompletionRequest, parse_openai_request

PIXEL = 'iVBORw0KGgo='
IMAGE = BinaryContent(b'\x89PNG\r\n\x1a\n', media_type='image/png')


class Wire(Protocol):
    """The parser of one of the three APIs."""

    def __call__(self, said: list[tuple[str, str]], **more: Any) -> Dialogue: ...


def openai(said: list[tuple[str, str]], **more: Any) -> Dialogue:
    messages = more.pop('messages', [{'role': role, 'content': text} for role, text in said])
    return parse_openai_request(ChatCompletionRequest.model_validate({'model': 'a', 'messages': messages, **more}))


def anthropic(said: list[tuple[str, str]], **more: Any) -> Dialogue:
    messages = more.pop('messages', [{'role': role, 'content': text} for role, text in said])
    body = {'model': 'a', 'max_tokens': 9, 'messages': messages, **more}
    return parse_anthropic_request(MessagesRequest.model_validate(body))


def google(said: list[tuple[str, str]], **more: Any) -> Dialogue:
    names = {'user': 'user', 'assistant': 'model'}
    contents = more.pop('contents', [{'role': names[role], 'parts': [{'text': text}]} for role, text in said])
    return parse_google_request(GenerateContentRequest.model_validate({'contents': contents, **more}))


@pytest.fixture(params=[openai, anthropic, google], ids=['openai', 'anthropic', 'google'])
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param


def answered(text: str) -> dict[Wire, dict[str, Any]]:
    """Return requests that answer the approval `a-1`."""
    call = {'id': 'a-1', 'type': 'function', 'function': {'name': 'approval_required', 'arguments': '{}'}}
    return {
        openai: {
            'messages': [
                {'role': 'user', 'content': 'Go'},
                {'role': 'assistant', 'content': None, 'tool_calls': [call]},
                {'role': 'tool', 'tool_call_id': 'a-1', 'content': [{'type': 'text', 'text': text}]},
            ]
        },
        anthropic: {
            'messages': [
                {'role': 'user', 'content': 'Go'},
                {
                    'role': 'assistant',
                    'content': [{'type': 'tool_use', 'id': 'a-1', 'name': 'approval_required', 'input': {}}],
                },
                {
                    'role': 'user',
                    'content': [
                        {'type': 'tool_result', 'tool_use_id': 'a-1', 'content': [{'type': 'text', 'text': text}]}
                    ],
                },
            ]
        },
        google: {
            'contents': [
                {'role': 'user', 'parts': [{'text': 'Go'}]},
                {'role': 'model', 'parts': [{'functionCall': {'id': 'a-1', 'name': 'approval_required', 'args': {}}}]},
                {
                    'role': 'user',
                    'parts': [
                        {'functionResponse': {'id': 'a-1', 'name': 'approval_required', 'response': {'result': text}}}
                    ],
                },
            ]
        },
    }


def file_messages(part: Mapping[str, object]) -> list[dict[str, object]]:
    return [{'role': 'user', 'content': [part]}]
