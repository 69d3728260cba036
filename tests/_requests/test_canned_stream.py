"""Complete responses, streamed in words and pieces of arguments."""

from __future__ import annotations

import json

import pytest
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    AgentStreamEvent,
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent
from pydantic_ai.usage import RequestUsage

from pydantic_deep.testing import ScriptedModel, call
from tests.testing.conftest import AGENT, call_ids

pytestmark = pytest.mark.anyio


async def stream(model: ScriptedModel, prompt: str = 'Go') -> tuple[list[AgentStreamEvent], AgentRunResult[str]]:
    """Run streamed, and return the events and the result."""
    events: list[AgentStreamEvent] = []
    results: list[AgentRunResult[str]] = []
    async with AGENT.run_stream_events(prompt, model=model) as stream_of_events:
        async for event in stream_of_events:
            if isinstance(event, AgentRunResultEvent):
                results.append(event.result)
            else:
                events.append(event)
    return events, results[0]


async def test_exception_is_raised_by_its_streamed_request() -> None:
    with pytest.raises(ConnectionError, match='gone'):
        await stream(ScriptedModel(ConnectionError('gone')))


async def test_usage_is_reported_when_streamed() -> None:
    model = ScriptedModel('Done.', usage=RequestUsage(input_tokens=3, output_tokens=4))
    _, result = await stream(model)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (3, 4)


async def test_stream_reports_usage_and_finish_reason_with_the_last_chunk() -> None:
    answer = ModelResponse(parts=[TextPart('One two')], usage=RequestUsage(output_tokens=2), finish_reason='stop')
    async with model_request_stream(ScriptedModel(answer), [ModelRequest.user_text_prompt('Go')]) as pieces:
        before = (pieces.usage.output_tokens, pieces.finish_reason)
        async for _ in pieces:
            pass
        after = (pieces.usage.output_tokens, pieces.finish_reason)
    assert (before, after) == ((0, None), (2, 'stop'))


async def test_text_and_thinking_stream_by_words() -> None:
    events, result = await stream(ScriptedModel([ThinkingPart('well, now'), '  One two\n\nthree']))
    deltas = [e.delta for e in events if isinstance(e, PartDeltaEvent)]
    starts = [e.part for e in events if isinstance(e, PartStartEvent)]
    assert starts == [ThinkingPart('well, '), TextPart('  One ')]
    assert [d.content_delta for d in deltas if isinstance(d, TextPartDelta)] == ['two\n\n', 'three']
    assert [d.content_delta for d in deltas if isinstance(d, ThinkingPartDelta)] == ['now']
    assert result.output == '  One two\n\nthree'


async def test_arguments_stream_in_chunks() -> None:
    events, result = await stream(ScriptedModel(call('add', a=1_000_000, b=2_000_000), 'Done.'))
    deltas = [e.delta for e in events if isinstance(e, PartDeltaEvent)]
    pieces = [d.args_delta for d in deltas if isinstance(d, ToolCallPartDelta)]
    assert len(pieces) > 1
    assert json.loads(''.join(str(piece) for piece in pieces)) == {'a': 1_000_000, 'b': 2_000_000}
    assert call_ids(result.all_messages()) == ['call-1']


async def test_parts_without_chunks_are_streamed_whole() -> None:
    image = FilePart(BinaryContent(b'png', media_type='image/png'))
    events, result = await stream(ScriptedModel([image, TextPart(''), ThinkingPart(''), 'Done.']))
    assert image in [e.part for e in events if isinstance(e, PartStartEvent)]
    assert [part.part_kind for part in result.response.parts] == ['file', 'text', 'thinking', 'text']


@pytest.mark.parametrize('answer', ['One two three', call('add', a=1, b=2)], ids=['text', 'call'])
async def test_history_is_equal_streamed_and_plain(answer: str | ToolCallPart) -> None:
    plain = await AGENT.run('Go', model=ScriptedModel(answer, 'Done.'))
    _, streamed = await stream(ScriptedModel(answer, 'Done.'))
    assert [m.parts for m in plain.all_messages() if m.kind == 'response'] == [
        m.parts for m in streamed.all_messages() if m.kind == 'response'
    ]
    assert plain.response.model_name == streamed.response.model_name == 'scripted'


async def test_run_stream_yields_the_text_in_chunks() -> None:
    async with AGENT.run_stream('Go', model=ScriptedModel('One two three')) as result:
        texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
    assert texts == ['One ', 'two ', 'three']
    assert result.response.finish_reason is None


async def test_cancelled_stream_preserves_the_received_text() -> None:
    async with AGENT.run_stream('Go', model=ScriptedModel('One two three')) as result:
        async for _ in result.stream_text(debounce_by=None):
            await result.cancel()
            break
    assert result.response.parts == [TextPart('One ')]
    assert result.response.state == 'interrupted'


async def test_model_has_no_provider() -> None:
    model = ScriptedModel('Hi.')
    assert (model.model_name, model.system, model.provider) == ('scripted', 'scripted', None)
    _, result = await stream(model)
    assert result.response.provider_url is None


@pytest.mark.parametrize(('chars', 'longest'), [(1_000, 16), (100_000, 501)])
async def test_long_arguments_have_longer_pieces_instead_of_more(chars: int, longest: int) -> None:
    """Each piece costs as much, however long it is, so a call has at most 200."""
    asked = call('write_file', path='/a.txt', content='x' * chars)
    async with model_request_stream(ScriptedModel(asked), [ModelRequest.user_text_prompt('Go')]) as stream:
        deltas = [event.delta async for event in stream if isinstance(event, PartDeltaEvent)]
    pieces = [str(delta.args_delta) for delta in deltas if isinstance(delta, ToolCallPartDelta)]
    assert json.loads(''.join(pieces)) == asked.args
    assert len(pieces) <= 200
    assert max(map(len, pieces)) == longest
