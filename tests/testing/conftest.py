"""Helpers of the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.messages import ModelMessage, ThinkingPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from pydantic_deep.testing import RecordingModel, ScriptedModel, call

INSTRUCTIONS = 'You count words.\nAnswer with a number.'

AGENT = Agent(name='adder', instructions='Add up.')


@AGENT.tool_plain
def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise ModelRetry('No debts.')
    return a + b


def call_ids(messages: list[ModelMessage]) -> list[str]:
    return [p.tool_call_id for m in messages for p in m.parts if isinstance(p, ToolCallPart)]


def count_words(path: str) -> int:
    """Count the words of a file."""
    return len(path)


def script() -> ScriptedModel:
    return ScriptedModel(
        [ThinkingPart('I must read it.', signature='opaque'), call('count_words', path='/notes')],
        'There are six.',
        usage=RequestUsage(input_tokens=11, output_tokens=5),
    )


def counter(model: Model, *, instructions: str = INSTRUCTIONS, tool: Callable[..., object] = count_words) -> Agent:
    return Agent(model, instructions=instructions, tools=[Tool(tool, name='count_words')])


@pytest.fixture
async def recording(tmp_path: Path) -> Path:
    """Record a conversation with two requests and one tool call."""
    path = tmp_path / 'recording.json'
    await counter(RecordingModel(script(), path)).run('How many words?')
    return path


def text_of(path: Path) -> str:
    return path.read_text()


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
