"""Recording and playing model traffic."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.run import AgentRunResultEvent

from pydantic_deep.testing import RecordedModel, RecordedRequestError, RecordingModel, ScriptedModel

from .conftest import counter, names_in, script, text_of

pytestmark = pytest.mark.anyio


def find_700(path: str) -> int:
    """Count the words of a file."""
    return 700


async def run_streamed(agent: Agent, prompt: str) -> list[ModelMessage]:
    """Run with streamed requests, and return the history."""
    async with agent.run_stream_events(prompt) as events:
        results = [event.result async for event in events if isinstance(event, AgentRunResultEvent)]
    return results[0].all_messages()


def responses_of(messages: list[ModelMessage]) -> list[object]:
    """Return the responses of the model."""
    return [(m.parts, m.usage, m.model_name) for m in messages if isinstance(m, ModelResponse)]


async def test_recording_is_played_without_a_model(recording: Path) -> None:
    model = RecordedModel(recording)
    result = await counter(model).run('How many words?')
    assert result.output == 'There are six.'
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (2, 22, 10)
    assert [p.tool_call_id for p in result.all_messages()[1].parts if isinstance(p, ToolCallPart)] == ['call-1']
    assert (model.model_name, model.system, model.remaining) == ('scripted', 'scripted', 0)


async def test_streamed_and_plain_recordings_are_equal_and_interchangeable(recording: Path, tmp_path: Path) -> None:
    streamed = tmp_path / 'streamed.json'
    await run_streamed(counter(RecordingModel(script(), streamed)), 'How many words?')
    assert text_of(streamed) == text_of(recording)
    plain = await counter(RecordedModel(streamed)).run('How many words?')
    assert responses_of(await run_streamed(counter(RecordedModel(recording)), 'How many words?')) == responses_of(
        plain.all_messages()
    )


async def test_run_stream_plays_the_text_in_chunks(recording: Path) -> None:
    async with counter(RecordedModel(recording)).run_stream('How many words?') as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert texts == ['There ', 'are ', 'six.']


async def test_concurrent_runs_play_one_recording(recording: Path) -> None:
    agent = counter(RecordedModel(recording))
    outputs: list[str] = []

    async def ask() -> None:
        outputs.append((await agent.run('How many words?')).output)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert outputs == ['There are six.'] * 20


async def test_repeated_request_plays_its_answers_in_order_and_repeats_the_last(tmp_path: Path) -> None:
    path = tmp_path / 'twice.json'
    recorder = Agent(RecordingModel(ScriptedModel('Heads', 'Tails'), path))
    for _ in range(2):
        await recorder.run('Toss')
    model = RecordedModel(path)
    assert model.remaining == 2
    assert [(await Agent(model).run('Toss')).output for _ in range(3)] == ['Heads', 'Tails', 'Tails']
    assert model.remaining == 0


async def test_a_new_recording_replaces_the_old_one(recording: Path) -> None:
    agent = counter(RecordingModel(ScriptedModel('Hello.'), recording))
    assert RecordedModel(recording).remaining == 2
    await agent.run('Hi')
    assert RecordedModel(recording).remaining == 1


async def test_failed_response_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / 'failed.json'
    agent = Agent(RecordingModel(ScriptedModel('One.', ConnectionError('gone')), path))
    await agent.run('a')
    with pytest.raises(ConnectionError):
        await agent.run('b')
    assert RecordedModel(path).remaining == 1


async def test_cancelled_stream_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / 'left.json'
    agent = Agent(RecordingModel(ScriptedModel('One two three'), path))
    async with agent.run_stream('Go') as result:
        async for _ in result.stream_text(debounce_by=None):
            await result.cancel()
            break
    assert names_in(tmp_path) == []


async def test_abandoned_stream_is_not_recorded(tmp_path: Path) -> None:
    model = RecordingModel(ScriptedModel('One two three'), tmp_path / 'left.json')
    async with model_request_stream(model, [ModelRequest.user_text_prompt('Go')]) as stream:
        async for _ in stream:
            break
    assert names_in(tmp_path) == []


async def test_changed_user_prompt_raises(recording: Path) -> None:
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording)).run('How many letters?')
    assert caught.value.exchange == 0
    assert '+        content: How many letters?' in caught.value.diff


async def test_changed_setting_raises(recording: Path) -> None:
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording)).run('How many words?', model_settings=ModelSettings(temperature=1))
    assert '+    temperature: 1' in caught.value.diff


async def test_changed_tool_result_raises(recording: Path) -> None:
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), tool=find_700).run('How many words?')
    assert caught.value.exchange == 1
    assert '+        content: 700' in caught.value.diff


async def test_request_after_the_end_raises(recording: Path) -> None:
    agent = counter(RecordedModel(recording))
    history = (await agent.run('How many words?')).all_messages()
    with pytest.raises(RecordedRequestError) as caught:
        await agent.run('And letters?', message_history=history)
    assert caught.value.exchange == 1
    assert [line for line in caught.value.diff.splitlines() if line.startswith('-') and line[1:2] != '-'] == []


async def test_unknown_request_is_an_assertion_error(recording: Path) -> None:
    with pytest.raises(AssertionError):
        await Agent(RecordedModel(recording)).run('Hi')


async def test_match_prompt_ignores_tool_results(recording: Path) -> None:
    model = RecordedModel(recording, match='prompt')
    result = await counter(model, tool=find_700).run('How many words?')
    assert result.output == 'There are six.'
    returns = [p.content for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    assert returns == [700]


async def test_match_prompt_still_compares_the_prompt(recording: Path) -> None:
    with pytest.raises(RecordedRequestError):
        await counter(RecordedModel(recording, match='prompt'), instructions='Guess.').run('How many words?')


async def test_settings_and_profile_of_the_model_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / 'settings.json'
    settings = ModelSettings(temperature=0.5, timeout=3, extra_headers={'x-key': 'secret'})
    profile = ModelProfile(supports_inline_system_prompts=True, context_window=1000)
    await Agent(RecordingModel(ScriptedModel('Hi.', settings=settings, profile=profile), path)).run('Hello')
    model = RecordedModel(path)
    assert (await Agent(model).run('Hello')).output == 'Hi.'
    assert model.settings == {'temperature': 0.5}
    assert (model.profile.get('supports_inline_system_prompts'), model.context_window) == (True, 1000)
    assert 'secret' not in path.read_text()


async def test_invalid_arguments_are_played_unchanged(tmp_path: Path) -> None:
    path = tmp_path / 'bad.json'
    broken = [ToolCallPart('count_words', text, tool_call_id=text) for text in ('{"path": ', '[1]')]
    await counter(RecordingModel(ScriptedModel(broken, 'Sorry.'), path)).run('Go', retries={'tools': 3})
    result = await counter(RecordedModel(path)).run('Go', retries={'tools': 3})
    assert [p.args for p in result.all_messages()[1].parts if isinstance(p, ToolCallPart)] == ['{"path": ', '[1]']


async def test_direct_model_request_can_be_recorded(tmp_path: Path) -> None:
    path = tmp_path / 'direct.json'
    request = ModelRequest(parts=[SystemPromptPart('Be brief.'), UserPromptPart('Hi')], instructions='Go on.')
    await RecordingModel(ScriptedModel('Ho.'), path).request([request], None, ModelRequestParameters())
    assert json.loads(path.read_text())['instructions'] == ['Go on.']
    response = await RecordedModel(path).request([request], None, ModelRequestParameters())
    assert response.parts == [TextPart('Ho.')]
