"""JSON of events and values with lone surrogates."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic_ai import FunctionToolCallEvent
from pydantic_ai.messages import ToolCallPart

from pydantic_deep.streaming import ToolCallEvent, ToolResultEvent, render_event
from tests.streaming.runs.conftest import translate

pytestmark = pytest.mark.anyio


async def test_arguments_with_a_lone_surrogate_are_emitted() -> None:
    [emitted] = translate(FunctionToolCallEvent(ToolCallPart('ls', {'path': '\ud83d'}, tool_call_id='c')))
    assert isinstance(emitted, ToolCallEvent)
    assert emitted.args == '{"path":"\\ud83d"}'
    assert replace(emitted, args='').id == 'c'


def test_lone_surrogate_is_rendered() -> None:
    event = ToolResultEvent(id='c', name='ls', outcome='success', content='a\ud83d')
    rendered = render_event(event)
    assert rendered.encode()
    assert json.loads(rendered)['content'] == 'a\ud83d'
