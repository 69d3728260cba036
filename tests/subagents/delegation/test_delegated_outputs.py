"""Outputs of subagents, as the parent receives them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, call


class Answer(BaseModel):
    """An answer."""

    value: int


class Other(BaseModel):
    """Another answer."""

    text: str


def double(value: int) -> int:
    return value * 2


def shout(text: str) -> str:
    return text.upper()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ('output_type', 'response', 'expected'),
    [
        (str, 'text', 'text'),
        (Answer, call('final_result', value=1), Answer(value=1)),
        ([Answer, Other], call('final_result_Other', text='x'), Other(text='x')),
        (Answer | Other, call('final_result_Answer', value=3), Answer(value=3)),
        (Answer | str, 'or text', 'or text'),
        (ToolOutput(Answer, name='answer'), call('answer', value=4), Answer(value=4)),
        (NativeOutput([Answer]), '{"value": 5}', Answer(value=5)),
        (NativeOutput(Answer), '{"value": 5}', Answer(value=5)),
        (PromptedOutput(Answer), '{"value": 6}', Answer(value=6)),
        (double, call('final_result', value=7), 14),
        (TextOutput(shout), 'hey', 'HEY'),
    ],
)
@pytest.mark.parametrize('is_built', [True, False])
async def test_structured_outputs_are_returned_as_data(
    ask: Any, output_type: Any, response: str | ToolCallPart, expected: object, is_built: bool
) -> None:
    model = ScriptedModel(response)
    worker = (
        Subagent('worker', 'Works.', agent=Agent(model, output_type=output_type))
        if is_built
        else Subagent('worker', 'Works.', model=model, output_type=output_type)
    )
    returned: ToolReturnPart = await ask(worker)
    assert (returned.outcome, returned.content) == ('success', expected)
