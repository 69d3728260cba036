"""Retries are reported as they occur."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import CancellationToken
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from typer.testing import Result

from pydantic_deep.cli.approvals._policy import allow_all
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, TurnReport, run_turn
from pydantic_deep.streaming import STREAM_EVENTS, RetriedEvent, StreamEvent, TextEvent
from pydantic_deep.testing import FakeClock, ScriptedModel, call

MakeConversation = Callable[..., Conversation]
Invoke = Callable[..., Result]


async def run(conversation: Conversation) -> tuple[list[StreamEvent], TurnReport]:
    events: list[StreamEvent] = []
    observer = TurnObserver(show=events.append, decide=allow_all)
    return events, await run_turn(conversation, 'Go', stop=CancellationToken(), observer=observer)


def emitted(events: list[StreamEvent]) -> list[dict[str, Any]]:
    """Return the events of capabilities, without delays, which are random."""
    dumped = [STREAM_EVENTS.dump_python(event) for event in events]
    news = [each for each in dumped if each['type'] in ('summarized', 'retried', 'budget')]
    return [{name: value for name, value in each.items() if name != 'delay_seconds'} for each in news]


def streaming_model(*answers: list[str | DeltaToolCalls | Exception]) -> FunctionModel:
    """Return a model that streams these pieces and raises those that are exceptions."""
    remaining = list(answers)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for piece in remaining.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield piece

    return FunctionModel(stream_function=stream)


LOST = ModelConnectionError('m', 'Connection error.')


@pytest.mark.anyio
async def test_retry_event_contains_the_void_text(make_conversation: MakeConversation) -> None:
    model = streaming_model(
        ['Looking.', {1: DeltaToolCall(name='ls', json_args='{}', tool_call_id='x')}],
        ['Half an ', LOST],
        [LOST],
        ['A whole ', 'answer.'],
    )
    events, turn = await run(make_conversation(model))
    assert emitted(events) == snapshot(
        [
            {
                'type': 'retried',
                'path': [],
                'attempt': 2,
                'attempts': 3,
                'reason': 'connection lost',
                'void_text': 'Half an ',
            },
            {
                'type': 'retried',
                'path': [],
                'attempt': 3,
                'attempts': 3,
                'reason': 'connection lost',
                'void_text': '',
            },
        ]
    )
    answer_text = ''
    for event in events:
        if isinstance(event, TextEvent):
            answer_text += event.text
        elif isinstance(event, RetriedEvent):
            answer_text = answer_text.removesuffix(event.void_text)
    assert answer_text == 'Looking.A whole answer.'
    assert turn.end.output == 'A whole answer.'


@pytest.mark.anyio
async def test_subagent_retry_has_its_path_and_text(make_conversation: MakeConversation) -> None:
    task: DeltaToolCalls = {
        0: DeltaToolCall(
            name='task',
            json_args=json.dumps({'subagent': 'general-purpose', 'description': 'Look'}),
            tool_call_id='t',
        )
    }
    events, turn = await run(make_conversation(streaming_model([task], ['Half', LOST], ['Seen.'], ['Done.'])))
    assert turn.end.output == 'Done.'
    assert [(each['path'], each['void_text']) for each in emitted(events)] == [(['general-purpose'], 'Half')]


def test_json_events_have_a_retry_before_the_answer(invoke: Invoke) -> None:
    result = invoke('run', 'Go', '--json', model=ScriptedModel(LOST, 'Done.'))
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line['type'] for line in lines] == ['start', 'retried', 'text', 'usage', 'end']


def test_every_retry_of_a_failed_run_is_printed(invoke: Invoke, work: Path) -> None:
    result = invoke('run', 'Go', model=ScriptedModel(LOST, LOST, LOST))
    emitted = re.sub(r'in \d+\.\d s', 'in 0.5 s', result.stderr)
    assert emitted.startswith(
        f'given in {work}\nattempt 2 of 3 in 0.5 s: connection lost\nattempt 3 of 3 in 0.5 s: connection lost\n'
    )
    assert result.exit_code == 1


@pytest.mark.anyio
async def test_retry_event_is_emitted_before_the_delay(make_conversation: MakeConversation, clock: FakeClock) -> None:
    task = call('task', subagent='general-purpose', description='Look')
    conversation = make_conversation(ScriptedModel(LOST, task, LOST, 'Seen.', 'Done.'))
    emitted: list[tuple[list[str], bool]] = []
    waited = [0.0]

    def show(event: StreamEvent) -> None:
        if isinstance(event, RetriedEvent):
            emitted.append((event.path, clock.monotonic() == sum(waited)))
            waited.append(event.delay_seconds)

    await run_turn(conversation, 'Go', stop=CancellationToken(), observer=TurnObserver(show=show, decide=allow_all))
    assert emitted == [([], True), (['general-purpose'], True)]
