"""The parts of a request that must match a recorded one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, PromptedOutput, WebSearchTool
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import BinaryContent

from pydantic_deep.testing import RecordedModel, RecordedRequestError, RecordingModel, ScriptedModel, call

pytestmark = pytest.mark.anyio


async def test_files_are_recorded_as_digests_and_matched(tmp_path: Path) -> None:
    path = tmp_path / 'files.json'
    image = BinaryContent(b'\x89PNG' * 1000, media_type='image/png')
    await Agent(RecordingModel(ScriptedModel('A picture.'), path)).run(['What is it?', image])
    assert path.stat().st_size < 2000
    agent = Agent(RecordedModel(path))
    assert (await agent.run(['What is it?', image])).output == 'A picture.'
    with pytest.raises(RecordedRequestError):
        await agent.run(['What is it?', BinaryContent(b'other', media_type='image/png')])


async def test_structured_output_is_part_of_the_request(tmp_path: Path) -> None:
    class Count(BaseModel):
        words: int

    class Sum(BaseModel):
        total: int

    path = tmp_path / 'output.json'
    model = ScriptedModel(call('final_result', words=6), '{"words": 7}')
    recorder = Agent(RecordingModel(model, path))
    await recorder.run('Count', output_type=Count)
    await recorder.run('Count', output_type=PromptedOutput(Count))
    agent = Agent(RecordedModel(path))
    assert (await agent.run('Count', output_type=Count)).output == Count(words=6)
    assert (await agent.run('Count', output_type=PromptedOutput(Count))).output == Count(words=7)
    with pytest.raises(RecordedRequestError):
        await agent.run('Count', output_type=Sum)


async def test_native_tools_are_part_of_the_request(tmp_path: Path) -> None:
    path = tmp_path / 'native.json'
    await Agent(RecordingModel(ScriptedModel('Found.'), path), capabilities=[NativeTool(WebSearchTool())]).run('Look')
    agent = Agent(RecordedModel(path))
    assert (await agent.run('Look', capabilities=[NativeTool(WebSearchTool())])).output == 'Found.'
    with pytest.raises(RecordedRequestError):
        await agent.run('Look')
