"""Fixtures for the tests of conversations: messages with every kind of part, and conversations in memory and on a
store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    CachePoint,
    CapabilityInstructionSource,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionBaselinePart,
    InstructionDeltaPart,
    InstructionDigest,
    InstructionId,
    LoadCapabilityCallPart,
    LoadCapabilityReturnPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelSettingsDeltaPart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SpeechPart,
    StructuredContent,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    ToolSearchCallPart,
    ToolSearchReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.usage import RequestUsage

from pydantic_deep.fluent import Conversation, MessageList, PromptBuilder, TranscriptError, prompt
from pydantic_deep.fluent._format import Document
from pydantic_deep.store import Store, open_store
from pydantic_deep.testing import ScriptedModel, call

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PIXEL = b'\x89PNG\r\n\x1a\n\x00\xff'


@pytest.fixture
def golden() -> Path:
    """The directory with a transcript of every format."""
    return Path(__file__).parent / 'golden'


@pytest.fixture
def every_kind() -> list[ModelMessage]:
    """Messages with every kind of part, and with values that are hard to serialize."""
    state = InstructionId(source=CapabilityInstructionSource(id='todos'), name='state')
    return [
        ModelRequest(
            [
                SystemPromptPart('You are terse.', timestamp=WHEN),
                UserPromptPart(
                    [
                        'What is this? Ünïcode, \u2028 and 😀',
                        TextContent(content='a text', metadata={'source': 'form'}),
                        StructuredContent(value={'rows': [1, 2.5, None]}, tag='table'),
                        ImageUrl(url='https://example.com/a.png', media_type='image/png', identifier='png'),
                        AudioUrl(url='https://example.com/a.mp3', media_type='audio/mpeg', identifier='mp3'),
                        VideoUrl(url='https://example.com/a.mp4', media_type='video/mp4', identifier='mp4'),
                        DocumentUrl(url='https://example.com/a.pdf', media_type='application/pdf', identifier='pdf'),
                        BinaryImage(data=PIXEL, media_type='image/png', identifier='pixel'),
                        UploadedFile(file_id='file-1', provider_name='openai', media_type='text/plain', identifier='f'),
                        CachePoint(),
                    ],
                    timestamp=WHEN,
                ),
            ],
            instructions='Be terse.',
            timestamp=WHEN,
            run_id='run-1',
            conversation_id='conversation-1',
        ),
        ModelResponse(
            [
                ThinkingPart(
                    'Hm.', id='rs_1', signature='c2lnbmF0dXJl', provider_name='anthropic', provider_details={'n': 1}
                ),
                ThinkingPart('', id='redacted', signature='ZW5jcnlwdGVk', provider_name='openai'),
                TextPart('Let me look.', id='msg_1', provider_name='openai'),
                ToolCallPart('look', '{"a": 1,, "ü": "\\ud83d', tool_call_id='broken'),
                ToolCallPart('look', {'deep': {'list': [1, [2, {'x': None}]]}}, tool_call_id='dict'),
                ToolCallPart('look', None, tool_call_id='none'),
                ToolCallPart('look', '', tool_call_id='empty'),
                ToolCallPart('look', '{"same": 1, "same": 2}', tool_call_id='same', provider_details={'k': 'v'}),
            ],
            usage=RequestUsage(input_tokens=10, output_tokens=5, details={'reasoning_tokens': 3}),
            model_name='m',
            provider_name='anthropic',
            provider_response_id='resp_1',
            finish_reason='tool_call',
            timestamp=WHEN,
            run_id='run-1',
            conversation_id='conversation-1',
        ),
        ModelRequest(
            [
                ToolReturnPart(
                    'look',
                    'Not JSON.',
                    'broken',
                    outcome='retried',
                    retry=RetryInfo(cause='validation_error', attempt=1, max_retries=3),
                    timestamp=WHEN,
                ),
                ToolReturnPart(
                    'look',
                    ['a picture', BinaryImage(data=PIXEL, media_type='image/png', identifier='pixel')],
                    'dict',
                    metadata={'path': '/a'},
                    timestamp=WHEN,
                ),
                ToolReturnPart('look', {'kind': 'binary', 'data': 'asset:not-media'}, 'none', timestamp=WHEN),
                ToolReturnPart('look', 'No such file.', 'empty', outcome='failed', timestamp=WHEN),
                ToolReturnPart('look', 'A person said no.', 'same', outcome='denied', timestamp=WHEN),
                RetryFeedbackPart('Say more.', retry=RetryInfo(cause='no_output'), timestamp=WHEN),
                InstructionBaselinePart(instructions=[InstructionDigest(id=state, dynamic=True, content_hash='abc')]),
                InstructionDeltaPart(id=state, content='One todo is left.'),
                ToolAvailabilityDeltaPart(tools_added=['load'], tool_call_id='dict'),
                ModelSettingsDeltaPart(settings={'thinking': 'high'}),
            ],
            timestamp=WHEN,
            metadata={'trace': 'x'},
        ),
        ModelResponse(
            [
                ToolSearchCallPart(args={'queries': ['files']}, tool_call_id='search'),
                LoadCapabilityCallPart(args={'id': 'pdf'}, tool_call_id='load'),
                NativeToolCallPart('web_search', {'query': 'x'}, 'native', provider_name='openai'),
                NativeToolReturnPart('web_search', [{'url': 'x'}], 'native', timestamp=WHEN, provider_name='openai'),
                FilePart(BinaryImage(data=PIXEL, media_type='image/png', identifier='pixel')),
                CompactionPart(id='cmp_1', provider_name='openai', provider_details={'encrypted_content': 'eA=='}),
                SpeechPart(
                    speaker='assistant',
                    transcript='Spoken.',
                    audio=BinaryContent(data=b'RIFF', media_type='audio/wav', identifier='wav'),
                ),
            ],
            timestamp=WHEN,
        ),
        ModelRequest(
            [
                ToolSearchReturnPart(content={'discovered_tools': []}, tool_call_id='search', timestamp=WHEN),
                LoadCapabilityReturnPart(content={'instructions': 'Read it.'}, tool_call_id='load', timestamp=WHEN),
                CompactionPart('What was said.', metadata={'pydantic_deep': {'reason': 'tokens'}}),
                SpeechPart(speaker='user', transcript='Go on.', interrupted_at_ms=250),
                UserPromptPart('Go on.', timestamp=WHEN),
            ],
            timestamp=WHEN,
        ),
        ModelResponse([ToolCallPart('look', '{}', tool_call_id='dict')], state='interrupted', timestamp=WHEN),
        ModelRequest(
            [ToolReturnPart('look', 'Interrupted.', 'dict', outcome='interrupted', timestamp=WHEN)],
            state='interrupted',
            timestamp=WHEN,
        ),
        ModelResponse([TextPart('')], finish_reason='content_filter', timestamp=WHEN),
    ]


@pytest.fixture
def spoken(every_kind: list[ModelMessage]) -> list[ModelMessage]:
    """The messages of `every_kind` without the configuration of an agent."""
    configured = (
        SystemPromptPart,
        InstructionBaselinePart,
        InstructionDeltaPart,
        ToolAvailabilityDeltaPart,
        ModelSettingsDeltaPart,
    )
    spoken: list[ModelMessage] = []
    for message in every_kind:
        if isinstance(message, ModelRequest):
            parts = [part for part in message.parts if not isinstance(part, configured)]
            without = replace(message, parts=parts, instructions=None)
        else:
            without = replace(message, model_name=None, provider_name=None, provider_response_id=None)
        spoken.append(replace(without, metadata=None, run_id=None, conversation_id=None))
    loaded = cast('list[Any]', spoken[4].parts)
    loaded[1] = replace(loaded[1], content={})
    results = cast('list[Any]', spoken[2].parts)
    results[0] = replace(results[0], retry=RetryInfo(cause='validation_error', attempt=1))
    return spoken


class Begin(Protocol):
    """Creates a builder of conversations with an agent, in memory or on a store."""

    def __call__(
        self, agent: AbstractAgent[Any, Any], **options: Any
    ) -> PromptBuilder[Any, Conversation[Any, Any]]: ...


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store('memory:') as store:
        yield store


@pytest.fixture(params=['plain', 'stored'])
def begin(request: pytest.FixtureRequest, store: Store) -> Begin:
    """Build conversations in memory and on a store: both behave the same."""

    def make(agent: AbstractAgent[Any, Any], **options: Any) -> PromptBuilder[Any, Conversation[Any, Any]]:
        return prompt(agent, store=store if request.param == 'stored' else None, **options)

    return make


class Told(Protocol):
    """Summarizes messages, one line each."""

    def __call__(self, messages: Iterable[ModelMessage]) -> list[str]: ...


@pytest.fixture
def told() -> Told:
    """Each message as a line: `user: hi`, `call a`, `a: A`, `text`; results other than success show their outcome."""

    def part(each: object) -> str:
        match each:
            case UserPromptPart(content=content):
                return f'user: {content}'
            case ToolCallPart(tool_name=name):
                return f'call {name}'
            case ToolReturnPart(tool_name=name, outcome='success', content=content):
                return f'{name}: {content}'
            case ToolReturnPart(tool_name=name, outcome=outcome):
                return f'{name}: {outcome}'
            case TextPart(content=content):
                return content
            case _:
                return type(each).__name__

    return lambda messages: [' + '.join(map(part, message.parts)) for message in messages]


USER = ModelRequest([UserPromptPart('Hello')])


ASSISTANT = ModelResponse([TextPart('Hi.')])


def refused(document: Any) -> TranscriptError:
    with pytest.raises(TranscriptError) as caught:
        MessageList.from_dict(document)
    return caught.value


def with_part(part: object, kind: str = 'request') -> Document:
    good = {'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': 'Hello'}]}
    return {'format_version': 1, 'messages': [good, {'kind': kind, 'parts': [part]}]}  # type: ignore[list-item]


INTERRUPTED = ['user: Go', 'call a + call b', 'a: interrupted + b: interrupted']


class Tools:
    """Two tools that record their calls; one of them can be paused."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.is_running = anyio.Event()
        self.may_end = anyio.Event()
        self.may_end.set()

    async def a(self) -> str:
        self.ran.append('a')
        return 'A'

    async def b(self) -> str:
        self.is_running.set()
        await self.may_end.wait()
        self.ran.append('b')
        return 'B'

    def agent(self, *steps: Any, **options: Any) -> Agent[object, str]:
        return Agent(ScriptedModel(*steps), tools=[self.a, self.b], **options)


@pytest.fixture
def tools() -> Tools:
    return Tools()


PARALLEL = [call('a'), call('b')]


def times(a: int, b: int) -> int:
    """Multiply."""
    return a * b
