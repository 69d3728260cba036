"""Recording and playing model traffic, with scripted models and real runs with tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings, PromptedOutput, Tool, WebSearchTool
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.usage import RequestUsage

from pydantic_deep import testing
from pydantic_deep.testing import (
    RecordedModel,
    RecordedRequestError,
    RecordingFormatError,
    RecordingModel,
    ScriptedModel,
    call,
)

pytestmark = pytest.mark.anyio

INSTRUCTIONS = 'You count words.\nAnswer with a number.'


def count_words(path: str) -> int:
    """Count the words of a file."""
    return len(path)


def find_700(path: str) -> int:
    """Count the words of a file."""
    return 700


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


async def run_streamed(agent: Agent, prompt: str) -> list[ModelMessage]:
    """Run with streamed requests, and return the history."""
    async with agent.run_stream_events(prompt) as events:
        results = [event.result async for event in events if isinstance(event, AgentRunResultEvent)]
    return results[0].all_messages()


def text_of(path: Path) -> str:
    return path.read_text()


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


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


async def test_recording_is_readable(recording: Path) -> None:
    assert text_of(recording).count('You count words.') == 1
    assert json.loads(text_of(recording)) == snapshot(
        {
            'format': 'pydantic-deep.recording',
            'format_version': 1,
            'model': {
                'name': 'scripted',
                'system': 'scripted',
                'profile': {
                    'supports_json_schema_output': True,
                    'supports_json_object_output': True,
                    'supports_inline_system_prompts': True,
                },
            },
            'instructions': [
                """\
You count words.
Answer with a number.\
"""
            ],
            'tools': [
                [
                    {
                        'name': 'count_words',
                        'description': 'Count the words of a file.',
                        'parameters': {
                            'additionalProperties': False,
                            'properties': {'path': {'type': 'string'}},
                            'required': ['path'],
                            'type': 'object',
                        },
                    }
                ]
            ],
            'options': [{'output_mode': 'text'}],
            'exchanges': [
                {
                    'messages': [
                        {
                            'kind': 'request',
                            'parts': [{'content': 'How many words?', 'part_kind': 'user-prompt'}],
                        }
                    ],
                    'response': {
                        'parts': [
                            {'content': 'I must read it.', 'part_kind': 'thinking'},
                            {
                                'tool_name': 'count_words',
                                'args': {'path': '/notes'},
                                'tool_call_id': 'call-1',
                                'part_kind': 'tool-call',
                            },
                        ],
                        'usage': {'input_tokens': 11, 'output_tokens': 5},
                        'model_name': 'scripted',
                    },
                },
                {
                    'follows': 0,
                    'messages': [
                        {
                            'kind': 'request',
                            'parts': [
                                {
                                    'tool_name': 'count_words',
                                    'content': 6,
                                    'tool_call_id': 'call-1',
                                    'outcome': 'success',
                                    'part_kind': 'tool-return',
                                }
                            ],
                        }
                    ],
                    'response': {
                        'parts': [{'content': 'There are six.', 'part_kind': 'text'}],
                        'usage': {'input_tokens': 11, 'output_tokens': 5},
                        'model_name': 'scripted',
                    },
                },
            ],
        }
    )


async def test_recording_ends_with_a_newline_and_leaves_no_other_file(recording: Path) -> None:
    assert text_of(recording).endswith('}\n')
    assert names_in(recording.parent) == ['recording.json']


async def test_recording_is_deterministic(recording: Path, tmp_path: Path) -> None:
    again = tmp_path / 'again.json'
    await counter(RecordingModel(script(), again)).run('How many words?')
    assert text_of(again) == text_of(recording)


async def test_a_recording_of_a_recording_is_the_same_file(recording: Path, tmp_path: Path) -> None:
    again = tmp_path / 'again.json'
    await counter(RecordingModel(RecordedModel(recording), again)).run('How many words?')
    assert text_of(again) == text_of(recording)


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


async def test_two_conversations_in_one_file_are_separate(tmp_path: Path) -> None:
    path = tmp_path / 'two.json'
    agent = Agent(RecordingModel(ScriptedModel('A1', 'B1', 'A2', 'B2'), path))
    first, second = await agent.run('a'), await agent.run('b')
    await agent.run('a', message_history=first.all_messages())
    await agent.run('b', message_history=second.all_messages())
    follows = [exchange.get('follows') for exchange in json.loads(path.read_text())['exchanges']]
    assert follows == [None, None, 0, 1]

    played = Agent(RecordedModel(path))
    second = await played.run('b')
    assert (await played.run('b', message_history=second.all_messages())).output == 'B2'


async def test_repeated_request_plays_its_answers_in_order_and_repeats_the_last(tmp_path: Path) -> None:
    path = tmp_path / 'twice.json'
    recorder = Agent(RecordingModel(ScriptedModel('Heads', 'Tails'), path))
    for _ in range(2):
        await recorder.run('Toss')
    model = RecordedModel(path)
    assert model.remaining == 2
    assert [(await Agent(model).run('Toss')).output for _ in range(3)] == ['Heads', 'Tails', 'Tails']
    assert model.remaining == 0


async def test_file_size_is_linear_in_the_conversation(tmp_path: Path) -> None:
    sizes: list[int] = []
    for turns in (10, 20):
        path = tmp_path / f'{turns}.json'
        agent = counter(RecordingModel(ScriptedModel(then=lambda messages, info: 'So it is.'), path))
        history: list[ModelMessage] = []
        for _ in range(turns):
            history = (await agent.run('Is it so?', message_history=history)).all_messages()
        sizes.append(path.stat().st_size)
    assert sizes[1] < 2 * sizes[0]


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


async def test_changed_instruction_raises_with_a_diff(recording: Path) -> None:
    changed = INSTRUCTIONS.replace('a number', 'a word')
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), instructions=changed).run('How many words?')
    error = caught.value
    assert (error.path, error.exchange) == (recording, 0)
    assert error.diff == snapshot("""\
--- recorded
+++ actual
@@ -1,5 +1,5 @@
 instructions:
   You count words.
-  Answer with a number.
+  Answer with a word.
 tools:
   -\
""")
    assert str(error) == (
        f'{str(recording)!r} has no response to this request. The most similar exchange is 0 (of 0 to 1). '
        f'If the change is intended, record the conversation again with `RecordingModel`.\n{error.diff}'
    )


async def test_changed_tool_description_raises_with_a_diff(recording: Path) -> None:
    def count_words(path: str) -> int:
        """Count the words of a text file."""
        return len(path)

    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), tool=count_words).run('How many words?')
    assert caught.value.diff == snapshot("""\
--- recorded
+++ actual
@@ -5,5 +5,5 @@
   -
     name: count_words
-    description: Count the words of a file.
+    description: Count the words of a text file.
     parameters:
       additionalProperties: false\
""")


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


async def test_diff_of_a_long_prompt_is_truncated(recording: Path) -> None:
    long = '\n'.join(f'Rule {n} is to be kept.' for n in range(1000))
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), instructions=long).run('How many words?')
    lines = caught.value.diff.splitlines()
    assert len(lines) == 61
    assert lines[-1].startswith('… ')


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


HAND_WRITTEN = {
    'format': 'pydantic-deep.recording',
    'format_version': 1,
    'model': {'name': 'claude-opus-5-5'},
    'exchanges': [
        {
            'messages': [{'kind': 'request', 'parts': [{'content': 'Hello', 'part_kind': 'user-prompt'}]}],
            'response': {'parts': [{'content': 'Hi', 'part_kind': 'text'}], 'usage': {'input_tokens': 5}},
        },
        {
            'follows': 0,
            'messages': [{'kind': 'request', 'parts': [{'content': 'Bye', 'part_kind': 'user-prompt'}]}],
            'response': {'parts': [{'content': 'So long', 'part_kind': 'text'}]},
        },
    ],
}


def write(path: Path, change: Callable[[dict[str, object]], None]) -> Path:
    content = json.loads(json.dumps(HAND_WRITTEN))
    change(content)
    path.write_text(json.dumps(content))
    return path


async def test_recording_can_be_written_by_hand(tmp_path: Path) -> None:
    model = RecordedModel(write(tmp_path / 'hand.json', lambda content: None))
    first = await Agent(model).run('Hello')
    second = await Agent(model).run('Bye', message_history=first.all_messages())
    assert (first.output, second.output, first.usage.input_tokens) == ('Hi', 'So long', 5)
    assert (model.model_name, model.system, model.remaining) == ('claude-opus-5-5', 'recorded', 0)


async def test_documented_recording_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / 'documented.json'
    await anyio.Path(path).write_text(str(testing.__doc__).partition('```json\n')[2].partition('```')[0])

    def ls() -> str:
        """…"""
        raise NotImplementedError

    tool = Tool.from_schema(ls, 'ls', '…', {'type': 'object'})
    agent = Agent(RecordedModel(path), instructions='You are a careful analyst.', tools=[tool])
    assert (await agent.run('Hello', model_settings=ModelSettings(temperature=0))).output == 'Hi'


async def test_empty_recording_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / 'empty.json', lambda content: content.update(exchanges=[]))
    with pytest.raises(RecordedRequestError, match=r'It is empty\.') as caught:
        await Agent(RecordedModel(path)).run('Hello')
    assert (caught.value.exchange, caught.value.diff) == (None, '')


WRONG: list[tuple[dict[str, object], str]] = [
    ({'format_version': 2}, 'format_version'),
    ({'format': 'something else'}, 'pydantic-deep.recording'),
    ({'exchange': []}, 'Extra inputs are not permitted'),
    ({'exchanges': [{'follows': 0, 'messages': [], 'response': {'parts': []}}]}, 'Exchange 0 follows 0'),
    ({'exchanges': [{'tools': 3, 'messages': [], 'response': {'parts': []}}]}, 'refers to tools'),
    ({'exchanges': [{'messages': [], 'response': {'parts': [{'part_kind': 'noise'}]}}]}, 'noise'),
]


@pytest.mark.parametrize(('change', 'reason'), WRONG)
async def test_invalid_recording_is_refused(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    path = write(tmp_path / 'other.json', lambda content: content.update(change))
    with pytest.raises(RecordingFormatError, match=reason) as caught:
        RecordedModel(path)
    assert caught.value.path == path


async def test_missing_recording_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RecordedModel(tmp_path / 'missing.json')


async def test_stored_history_continues_a_recording(tmp_path: Path) -> None:
    path = write(tmp_path / 'hand.json', lambda content: None)
    first = await Agent(RecordedModel(path)).run('Hello')
    stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
    assert (await Agent(RecordedModel(path)).run('Bye', message_history=stored)).output == 'So long'
