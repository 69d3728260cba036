"""The file of a recorded conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, ModelSettings, Tool
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from pydantic_deep import testing
from pydantic_deep.testing import (
    RecordedModel,
    RecordedRequestError,
    RecordingFormatError,
    RecordingModel,
    ScriptedModel,
)

from .conftest import counter, names_in, script, text_of

pytestmark = pytest.mark.anyio


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
