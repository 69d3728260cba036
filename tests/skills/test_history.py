"""Loaded skills, read from a message history."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest

from pydantic_deep.skills import Skills
from pydantic_deep.testing import ScriptedModel, call

from .conftest import GREETING, Play, WriteSkill

pytestmark = pytest.mark.anyio


async def test_body_in_the_history_is_not_repeated(write_skill: WriteSkill, tmp_path: Path) -> None:
    write_skill('pdf', files=['a.md'])
    load = call('load_skill', name='pdf')
    model = ScriptedModel(load, load, 'one', load, load, 'two')
    agent = Agent(model, capabilities=[Skills([tmp_path / 'skills'])])
    first = await agent.run('go')
    stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    await agent.run('on', message_history=stored)
    again = "The skill 'pdf' is already in this conversation."
    assert [part.content for part in model.requests[-1].tool_returns[1:]] == [again] * 3
    summarized = [ModelRequest.user_text_prompt('We loaded the skill pdf.')]
    model = ScriptedModel(load, 'three')
    await agent.run('on', model=model, message_history=summarized)
    assert '# Do it' in str(model.requests[-1].tool_returns[0].content)


async def test_cleared_result_is_loaded_again(play: Play) -> None:
    model = ScriptedModel(call('load_skill', name='greeting'), 'done')
    result = await Agent(model, capabilities=[Skills([GREETING])]).run('go')
    cleared = ModelMessagesTypeAdapter.dump_json(result.all_messages()).replace(b'Say hello.', b'[cleared]')
    messages = ModelMessagesTypeAdapter.validate_json(cleared)
    assert (await play([GREETING], call('load_skill', name='greeting'), history=messages))[-1] == 'Say hello.'
