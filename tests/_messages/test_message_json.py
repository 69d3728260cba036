"""Histories as JSON: nothing is lost, not even the numbers that JSON lacks."""

from __future__ import annotations

import json
import math

import pytest
from pydantic import JsonValue, ValidationError
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from pydantic_deep._messages.message_json import dump_history, parse_history


def history(content: object) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart('go'), ToolReturnPart('measure', content, tool_call_id='c')])]


def test_history_is_a_json_value_that_is_parsed_again() -> None:
    messages = history({'value': 1.5})
    dumped = dump_history(messages)
    assert isinstance(dumped, list)
    assert parse_history(json.loads(json.dumps(dumped, allow_nan=False))) == messages


@pytest.mark.parametrize('number', [math.inf, -math.inf, math.nan])
def test_history_with_a_number_that_json_lacks_is_one_string(number: float) -> None:
    dumped = dump_history(history({'value': number}))
    assert isinstance(dumped, str)
    (request,) = parse_history(json.loads(json.dumps(dumped, allow_nan=False)))
    part = request.parts[1]
    assert isinstance(part, ToolReturnPart)
    assert repr(part.content) == repr({'value': number})


@pytest.mark.parametrize('value', [None, 'text', {}, [{'kind': 'unknown'}]])
def test_other_values_are_refused(value: JsonValue) -> None:
    with pytest.raises(ValidationError):
        parse_history(value)
