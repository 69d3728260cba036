"""Requests in the format of OpenAI."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pydantic_deep.server.compat._dialogue import DialogueMessage
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import openai

PIXEL = 'iVBORw0KGgo='


def file_messages(part: Mapping[str, object]) -> list[dict[str, object]]:
    return [{'role': 'user', 'content': [part]}]


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
