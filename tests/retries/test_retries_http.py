"""Every fault over real HTTP: the providers' own SDKs against a third-party server that breaks its responses.

The server is `llmock`. Faults that it cannot produce are in `test_retries_bodies.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from llmock.scenarios import Behavior, Fail, Reply, StreamFault
from llmock.testing import LLMockServer
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRequestRejectedError, ModelServerError
from pydantic_ai.messages import ModelMessage, ModelResponse, PartEndEvent, PartStartEvent, ToolReturnPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings

from pydantic_deep.retries import CutAnswerError, ModelRetriedEvent

from .conftest import ANSWER, CALL, KEY, WIRES, Turn, Waits, openai_chat, take_turn

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures('loopback')]

each_wire = pytest.mark.parametrize('wire', WIRES)

IN_TEXT = {'openai-chat': 4, 'openai-responses': 8, 'anthropic': 6, 'google': 4}
"""Number of chunks after which part of the text has been sent."""


@pytest.fixture
def server(llmock_server: LLMockServer) -> Iterator[LLMockServer]:
    """The server, reset before and after the test."""
    llmock_server.state.reset()
    yield llmock_server
    llmock_server.state.reset()


def play(server: LLMockServer, *faults: Behavior) -> None:
    """Add faults to the server, followed by a turn of one call and an answer.

    A request consumes its reply even if the stream breaks, so each broken stream gets a reply of its own.
    """
    broken = [fault for fault in faults if isinstance(fault, StreamFault)]
    server.state.scenarios.add(*faults, *(Reply(tool_calls=(CALL,)) for _ in broken))
    server.state.scenarios.add(Reply(tool_calls=(CALL,)), Reply(text=ANSWER))


def contents_of(messages: list[ModelMessage]) -> list[list[tuple[str, object]]]:
    """Return a history without ids and times, which differ in each run."""
    return [
        [(part.part_kind, getattr(part, 'args', None) or getattr(part, 'content', None)) for part in message.parts]
        for message in messages
    ]


def finish_reasons(turn: Turn) -> list[bool]:
    responses = [message for message in turn.result.all_messages() if isinstance(message, ModelResponse)]
    return ['finish_reason' in (response.provider_details or {}) for response in responses]


@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@pytest.mark.parametrize('status', [429, 500, 503, 529])
@each_wire
async def test_transient_failure_leaves_no_trace_in_the_history(
    server: LLMockServer, waits: Waits, wire: str, status: int, streamed: bool
) -> None:
    provider, make = WIRES[wire]
    play(server)
    expected = await take_turn(make(server.base_url(provider)), waits, streamed=streamed)
    play(server, Fail(status, retry_after=11))
    turn = await take_turn(make(server.base_url(provider)), waits, streamed=streamed)

    assert contents_of(turn.result.all_messages()) == contents_of(expected.result.all_messages())
    assert turn.result.output == ANSWER
    assert turn.tool_runs == expected.tool_runs == [['Paris', 'London']]
    assert turn.result.usage.requests == 2
    assert len(server.state.journal.records(wait=2)) == 2 + 3
    assert waits.seconds == [11]
    assert len(turn.retried) == streamed


@pytest.mark.parametrize('fault', ['disconnect', 'truncate', 'malformed'])
@pytest.mark.parametrize('after_chunks', [0, 4])
@each_wire
async def test_broken_stream_is_retried_and_its_call_runs_once(
    server: LLMockServer, waits: Waits, wire: str, fault: Any, after_chunks: int
) -> None:
    provider, make = WIRES[wire]
    after = 0 if wire == 'google' else after_chunks  # Google sends a call in one piece
    play(server, StreamFault(fault, after_chunks=after))
    turn = await take_turn(make(server.base_url(provider)), waits, streamed=True)

    assert turn.tool_runs == [['Paris', 'London']]
    assert turn.result.output == ANSWER
    assert finish_reasons(turn) == [True, True]
    assert len(server.state.journal.records(wait=2)) == 3
    assert waits.seconds == [0.5]
    assert len(turn.retried) == 1


@pytest.mark.parametrize('fault', ['disconnect', 'truncate', 'malformed'])
@each_wire
async def test_answer_that_breaks_after_some_text_is_complete_in_the_end(
    server: LLMockServer, waits: Waits, wire: str, fault: Any
) -> None:
    provider, make = WIRES[wire]
    server.state.scenarios.add(StreamFault(fault, after_chunks=IN_TEXT[wire]), Reply(text=ANSWER, times=2))
    turn = await take_turn(make(server.base_url(provider)), waits, streamed=True)

    assert turn.result.output == ANSWER
    assert [event.is_void for event in turn.retried] == [True]
    assert finish_reasons(turn) == [True]
    kinds = [type(event) for event in turn.events]
    at = kinds.index(ModelRetriedEvent)
    # Started parts end before the event and start again after it.
    assert kinds[at - 1 : at + 2] == [PartEndEvent, ModelRetriedEvent, PartStartEvent]
    assert [event.index for event in turn.events if isinstance(event, PartStartEvent)] == [0, 0]


@each_wire
async def test_rejected_request_is_made_once(server: LLMockServer, waits: Waits, wire: str) -> None:
    provider, make = WIRES[wire]
    play(server, Fail(400))
    with pytest.raises(ModelRequestRejectedError):
        await take_turn(make(server.base_url(provider)), waits, streamed=True)
    assert len(server.state.journal.records(wait=2)) == 1


@pytest.mark.parametrize('streamed', [False, True], ids=['plain', 'streamed'])
@each_wire
async def test_the_last_error_is_raised_when_no_attempt_is_left(
    server: LLMockServer, waits: Waits, wire: str, streamed: bool
) -> None:
    provider, make = WIRES[wire]
    server.state.scenarios.add(Fail(500, times=None))
    with pytest.raises(ModelServerError) as caught:
        await take_turn(make(server.base_url(provider)), waits, streamed=streamed)
    assert len(server.state.journal.records(wait=2)) == 3
    assert caught.value.__notes__ == [
        'pydantic-deep: attempt 3 at this request was the last, after: server error (500), server error (500); '
        '`attempts` is 3.'
    ]


@each_wire
async def test_answer_truncated_in_every_attempt_raises(server: LLMockServer, waits: Waits, wire: str) -> None:
    provider, make = WIRES[wire]
    server.state.scenarios.add(
        StreamFault('truncate', after_chunks=IN_TEXT[wire], times=None), Reply(text=ANSWER, times=None)
    )
    with pytest.raises(CutAnswerError, match='without a finish reason'):
        await take_turn(make(server.base_url(provider)), waits, streamed=True)
    assert len(server.state.journal.records(wait=2)) == 3


async def test_anthropic_request_is_streamed_even_if_the_run_is_not(server: LLMockServer, waits: Waits) -> None:
    url = server.base_url('anthropic')
    settings = ModelSettings(max_tokens=64_000)  # requires a stream in the SDK
    model = AnthropicModel('claude-opus-5-5', provider=AnthropicProvider(base_url=url, api_key=KEY), settings=settings)
    server.state.scenarios.add(StreamFault('truncate', after_chunks=6), Reply(text=ANSWER, times=2))
    turn = await take_turn(model, waits, streamed=False)

    assert [request.stream for request in server.state.journal.records(wait=2)] == [True, True]
    assert turn.result.output == ANSWER
    assert [attempt.error for attempt in turn.result.response.failed_attempts or ()] == [
        'CutAnswerError: the answer was cut'
    ]


async def test_openai_sdk_retries_within_each_attempt(server: LLMockServer, waits: Waits) -> None:
    server.state.scenarios.add(Fail(500, retry_after=0.001, times=None))
    agent = Agent(openai_chat(server.base_url('openai')), capabilities=[waits.retries(attempts=2)])
    with pytest.raises(ModelServerError):
        async with agent:
            await agent.run('Hello')
    assert len(server.state.journal.records(wait=2)) == 2 * 3


async def test_history_has_one_result_of_a_retried_call(server: LLMockServer, waits: Waits) -> None:
    play(server, StreamFault('truncate', after_chunks=4))
    turn = await take_turn(openai_chat(server.base_url('openai')), waits, streamed=True)
    parts = [part for message in turn.result.all_messages() for part in message.parts]
    assert [part.content for part in parts if isinstance(part, ToolReturnPart)] == ['rain, sun']
