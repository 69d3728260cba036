"""Messages without configuration, where they are no messages."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from pydantic_deep.fluent._portable import portable


@pytest.mark.parametrize('value', ['text', None, 3, ['a'], {'kind': 'request'}, {'parts': 'none'}])
def test_what_is_no_message_stays_as_it_is(value: JsonValue) -> None:
    assert portable(value) == value


def test_what_is_no_part_stays_and_configuration_goes() -> None:
    message: JsonValue = {
        'kind': 'request',
        'instructions': 'CANARY',
        'parts': [
            'text',
            {'part_kind': 'system-prompt', 'content': 'CANARY'},
            {'part_kind': 'user-prompt', 'content': 'Hi'},
        ],
    }

    assert portable(message) == {'kind': 'request', 'parts': ['text', {'part_kind': 'user-prompt', 'content': 'Hi'}]}
