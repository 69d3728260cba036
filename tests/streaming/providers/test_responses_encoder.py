"""Responses of OpenAI's API: each event is validated by the union of the official SDK, and the order by its grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from openai.types.responses import Response

from pydantic_deep.streaming import (
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    Frame,
    NoticeEvent,
    ResponsesEncoder,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    openai_response,
)
from tests.streaming.conftest import response_event, waiting

START = StartEvent(id='run-1', model='clerk')
USAGE = UsageEvent(input_tokens=10, output_tokens=4, cache_read_tokens=3, cache_write_tokens=2, requests=2)
LOOKED = ToolResultEvent(id='1', name='look', outcome='success', content='it')
PAUSED: list[StreamEvent] = [
    ApprovalRequiredEvent(
        approvals=[waiting('a-1', tool='pay', amount=1), waiting('a-2', tool='pay', path=('clerk',))]
    ),
    EndEvent(finish_reason='tool_call', status='awaiting_approval'),
]


def stream(events: Sequence[StreamEvent], *, thinking: bool = False) -> list[Any]:
    """Return the encoded events, each validated by the SDK's union."""
    encoder = ResponsesEncoder(id='resp_r', model='clerk', created_at=1, thinking=thinking)
    frames: list[Frame] = [*encoder.begin(), *(frame for event in events for frame in encoder.encode(event))]
    frames += encoder.finish()
    told = [response_event(frame) for frame in frames]
    assert [frame.event for frame in frames] == [each.type for each in told]
    assert [each.sequence_number for each in told] == list(range(len(told)))
    return told


def types(told: Sequence[Any]) -> list[str]:
    return [each.type.removeprefix('response.') for each in told]


def whole(events: Sequence[StreamEvent], **options: Any) -> Any:
    """Return the response that is not streamed, validated by the SDK."""
    return Response.model_validate(openai_response(events, id='resp_r', created_at=1, **options))


def test_text_is_streamed_in_the_documented_order() -> None:
    """A message is added, its part is added, its text arrives in deltas, and each of them is completed."""
    told = stream([START, TextEvent(text='Hel'), TextEvent(text='lo'), USAGE, EndEvent(status='complete')])
    assert types(told) == snapshot(
        [
            'created',
            'in_progress',
            'output_item.added',
            'content_part.added',
            'output_text.delta',
            'output_text.delta',
            'output_text.done',
            'content_part.done',
            'output_item.done',
            'completed',
        ]
    )
    done = told[-1].response
    assert (done.id, done.model, done.created_at, done.status) == ('resp_r', 'clerk', 1, 'completed')
    assert (done.output_text, done.output[0].id, done.output[0].phase) == ('Hello', 'msg_r_0', 'final_answer')
    assert done.completed_at is not None


def test_usage_is_in_the_last_event() -> None:
    """The last event has the usage, with the tokens of the cache."""
    usage = stream([START, USAGE, TextEvent(text='x'), EndEvent()])[-1].response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (10, 4, 14)
    assert (usage.input_tokens_details.cached_tokens, usage.input_tokens_details.cache_write_tokens) == (3, 2)


def test_text_before_a_tool_result_is_a_commentary() -> None:
    """Each text before a tool result is a message of its own, and the texts are joined as separate paragraphs."""
    events = [START, TextEvent(text='I look.'), LOOKED, LOOKED, TextEvent(text='It is 1.'), EndEvent()]
    for done in (stream(events)[-1].response, whole(events)):
        assert [(item.phase, item.content[0].text) for item in done.output] == [
            ('commentary', 'I look.\n\n'),
            ('final_answer', 'It is 1.'),
        ]
        assert done.output_text == 'I look.\n\nIt is 1.'
        assert [item.id for item in done.output] == ['msg_r_0', 'msg_r_1']


def test_thinking_is_the_summary_of_a_reasoning_item() -> None:
    """A reasoning item comes before the text that follows it, with the events of its summary."""
    events = [START, ThinkingEvent(text='Let '), ThinkingEvent(text='me see', signature='s'), TextEvent(text='1')]
    told = stream([*events, EndEvent()], thinking=True)
    assert types(told)[2:9] == snapshot(
        [
            'output_item.added',
            'reasoning_summary_part.added',
            'reasoning_summary_text.delta',
            'reasoning_summary_text.delta',
            'reasoning_summary_text.done',
            'reasoning_summary_part.done',
            'output_item.done',
        ]
    )
    thought, message = told[-1].response.output
    assert (thought.id, thought.summary[0].text, message.id) == ('rs_r_0', 'Let me see', 'msg_r_1')


def test_thinking_is_hidden_unless_it_is_requested() -> None:
    """Without a request for summaries, a response has no reasoning items."""
    done = whole([START, ThinkingEvent(text='Hm'), TextEvent(text='1'), EndEvent()])
    assert [item.type for item in done.output] == ['message']


def test_thoughts_of_their_own_signature_are_separate_items() -> None:
    """A signature ends a thought; one without text adds no item; a thought that nothing ends is completed by text."""
    thoughts = [ThinkingEvent(text='A', signature='s'), ThinkingEvent(text='', signature='s'), ThinkingEvent(text='B')]
    done = whole([START, TextEvent(text='So'), *thoughts, TextEvent(text='1'), EndEvent()], thinking=True)
    assert [item.type for item in done.output] == ['message', 'reasoning', 'reasoning', 'message']
    assert done.output_text == 'So\n\n1'


def test_text_and_thinking_of_subagents_are_hidden() -> None:
    """Only the agent itself speaks in a response."""
    events = [
        START,
        TextEvent(text='x', path=['scribe']),
        ThinkingEvent(text='y', path=['scribe']),
        NoticeEvent(text='z'),
    ]
    assert types(stream([*events, EndEvent()], thinking=True)) == ['created', 'in_progress', 'completed']


def test_pending_approvals_are_items_with_the_view_of_the_call() -> None:
    """Each pending call is an approval request that names the tool, the arguments and the path of subagents."""
    told = stream([START, TextEvent(text='May I?'), *PAUSED])
    assert types(told)[-6:] == snapshot(
        [
            'output_item.done',
            'output_item.added',
            'output_item.done',
            'output_item.added',
            'output_item.done',
            'completed',
        ]
    )
    message, first, second = told[-1].response.output
    assert message.content[0].text == 'May I?'
    assert (first.type, first.id, first.name, first.server_label) == (
        'mcp_approval_request',
        'mcpr_a-1',
        'pay',
        'clerk',
    )
    assert json.loads(first.arguments) == {'amount': 1}
    assert first.view['tool'] == ['pay']
    assert second.path == ['clerk']


def test_calls_that_the_client_answers_are_function_calls() -> None:
    """The text before a call is a commentary; calls of a run that answers them itself are hidden."""
    events = [START, TextEvent(text='I ask.'), ToolCallEvent(id='c1', name='look', args='{"at":1}'), EndEvent()]
    encoder = ResponsesEncoder(id='resp_r', model='m', tool_calls=True)
    told = [response_event(frame) for event in events for frame in encoder.encode(event)]
    assert types(told)[-6:] == snapshot(
        [
            'output_item.done',
            'output_item.added',
            'function_call_arguments.delta',
            'function_call_arguments.done',
            'output_item.done',
            'completed',
        ]
    )
    message, called = told[-1].response.output
    assert (message.phase, message.content[0].text) == ('commentary', 'I ask.')
    assert (called.id, called.call_id, called.name, called.arguments) == ('fc_r_1', 'c1', 'look', '{"at":1}')
    assert [item.type for item in whole(events).output] == ['message']


@pytest.mark.parametrize(('reason', 'named'), [('length', 'max_output_tokens'), ('content_filter', 'content_filter')])
def test_a_response_that_was_cut_by_the_provider_is_incomplete(reason: Any, named: str) -> None:
    """The last event is `response.incomplete` with the reason, and the text is marked as incomplete."""
    told = stream([START, TextEvent(text='Hal'), EndEvent(finish_reason=reason)])
    done = told[-1].response
    assert (told[-1].type, done.status, done.incomplete_details.reason) == ('response.incomplete', 'incomplete', named)
    assert (done.output[0].status, done.completed_at) == ('incomplete', None)


@pytest.mark.parametrize(
    ('error', 'status', 'code'),
    [
        (ErrorEvent(kind='run_failed', message='It failed.', status=500), 'failed', 'server_error'),
        (ErrorEvent(kind='rate_limited', message='Too fast.', status=429), 'failed', 'rate_limit_exceeded'),
    ],
)
def test_a_failure_ends_the_stream_with_its_error(error: ErrorEvent, status: str, code: str) -> None:
    """The last event is `response.failed` with the error, and nothing follows it."""
    told = stream([START, TextEvent(text='Hal'), error, EndEvent(finish_reason='error', status='failed')])
    done = told[-1].response
    assert (told[-1].type, done.status, done.error.code) == ('response.failed', status, code)
    assert (done.error.message, done.output[0].status) == (error.message, 'incomplete')


def test_a_cancelled_run_is_a_cancelled_response() -> None:
    """OpenAI has no event for it: the last event is `response.failed`, and the status is `cancelled`."""
    told = stream([START, ErrorEvent(kind='cancelled', message='The run was cancelled.')])
    assert (told[-1].type, told[-1].response.status, told[-1].response.error) == ('response.failed', 'cancelled', None)


def test_an_end_without_its_error_is_a_failure() -> None:
    """A run that was interrupted never looks like one that succeeded."""
    told = stream([START, EndEvent(finish_reason='error', status='interrupted')])
    assert (told[-1].type, told[-1].response.error.type) == ('response.failed', 'interrupted')


def test_a_stream_that_breaks_off_ends_with_an_error_and_not_a_failed_response() -> None:
    """The run may go on, so the response has not failed; nothing follows the error."""
    told = stream([START, TextEvent(text='Hal')])
    assert (told[-1].type, told[-1].code) == ('error', 'truncated')


def test_a_response_in_progress_has_the_text_so_far() -> None:
    """A response that is retrieved while it is in progress contains the open message."""
    done = whole([START, TextEvent(text='Hal')])
    assert (done.status, done.output_text, done.output[0].status) == ('in_progress', 'Hal', 'in_progress')


def test_a_queued_response_is_created_as_queued() -> None:
    """A response that waits for a worker is queued until its run begins."""
    encoder = ResponsesEncoder(id='resp_r', model='m')
    frames = [*encoder.begin(is_queued=True), *encoder.encode(START), *encoder.encode(EndEvent())]
    told = [response_event(frame) for frame in frames]
    assert [(each.type, each.response.status) for each in told] == [
        ('response.created', 'queued'),
        ('response.queued', 'queued'),
        ('response.in_progress', 'in_progress'),
        ('response.completed', 'completed'),
    ]


def test_a_stream_without_a_start_is_begun_by_its_first_event() -> None:
    """The order holds for a stream whose first event is a text or an approval."""
    encoder = ResponsesEncoder(id='resp_r', model='m')
    assert [frame.event for frame in encoder.encode(TextEvent(text='x'))][:2] == [
        'response.created',
        'response.in_progress',
    ]
    assert types(stream(PAUSED))[:3] == ['created', 'in_progress', 'output_item.added']


def test_id_and_model_are_those_of_the_stream_unless_the_caller_sets_them() -> None:
    """A response without a caller's id has the id of the run; one without anything has defaults."""
    assert [openai_response([START])[name] for name in ('id', 'model')] == ['resp_run-1', 'clerk']
    assert [openai_response([TextEvent(text='x')])[name] for name in ('id', 'model')] == ['resp', 'agent']


def test_structured_output_is_the_text_of_the_answer() -> None:
    """The output of a run that no text event contained is a message of its own."""
    told = stream([START, TextEvent(text='I think.'), LOOKED, EndEvent(output='{"a":1}')])
    assert [item.content[0].text for item in told[-1].response.output] == ['I think.\n\n', '{"a":1}']


def test_void_text_is_marked_in_a_stream_and_missing_from_a_whole_response() -> None:
    """A stream cannot retract text, so it says that the text is void; a whole response has none of it."""
    retried = RetriedEvent(attempt=2, attempts=3, reason='x', delay_seconds=0, void_text='Half')
    below = RetriedEvent(attempt=2, attempts=3, reason='x', delay_seconds=0, void_text='Ha', path=['scribe'])
    quiet = RetriedEvent(attempt=2, attempts=3, reason='x', delay_seconds=0)
    events = [START, TextEvent(text='A'), TextEvent(text='BHa'), USAGE, TextEvent(text='lf'), retried, below, quiet]
    events += [TextEvent(text='C'), EndEvent()]
    assert (
        stream(events)[-1].response.output_text == 'ABHalf\n\n[Discard the text above: the answer starts again.]\n\nC'
    )
    assert whole(events).output_text == 'ABC'


def test_the_text_of_an_encoder_is_the_text_of_the_answer() -> None:
    """The text is the one that the client received, but for white space."""
    encoder = ResponsesEncoder()
    for event in [START, TextEvent(text='A'), LOOKED, TextEvent(text='B')]:
        encoder.encode(event)
    assert encoder.text == 'A\n\nB'


def test_fields_of_the_request_are_repeated() -> None:
    """Fields that the caller passes replace the defaults."""
    done = whole([START, EndEvent()], fields={'instructions': 'Be brief.', 'metadata': {'a': 'b'}})
    assert (done.instructions, done.metadata) == ('Be brief.', {'a': 'b'})


texts = st.builds(TextEvent, text=st.text(min_size=1, max_size=5), path=st.sampled_from([[], ['scribe']]))
thoughts = st.builds(ThinkingEvent, text=st.text(max_size=5), signature=st.none() | st.just('s'))
voids = st.builds(
    RetriedEvent, attempt=st.just(2), attempts=st.just(3), reason=st.just('x'), delay_seconds=st.just(0.0),
    void_text=st.sampled_from(['', 'x']),
)  # fmt: skip
ends: st.SearchStrategy[list[StreamEvent]] = st.sampled_from(
    [PAUSED, [EndEvent()], [EndEvent(output='{}')], [EndEvent(finish_reason='length')], [EndEvent(status='failed')], []]
)


@given(st.lists(texts | thoughts | voids | st.just(LOOKED) | st.just(USAGE), max_size=12), ends)
def test_every_stream_follows_the_documented_grammar(pieces: list[StreamEvent], end: list[StreamEvent]) -> None:
    """Items follow one another, each with its parts and deltas in order; the last event has exactly the items done."""
    told = stream([START, *pieces, *end], thinking=True)
    assert types(told)[:2] == ['created', 'in_progress']
    done: list[dict[str, Any]] = []
    open: Any = None
    text = ''
    for each in told[2:-1]:
        match each.type.removeprefix('response.'):
            case 'output_item.added':
                assert open is None
                assert each.output_index == len(done)
                open, text = each.item, ''
            case 'output_item.done':
                assert (each.output_index, each.item.id, each.item.type) == (len(done), open.id, open.type)
                done.append(each.item.model_dump())
                open = None
            case 'output_text.delta' | 'reasoning_summary_text.delta':
                assert (each.item_id, each.output_index) == (open.id, len(done))
                text += each.delta
            case 'output_text.done' | 'reasoning_summary_text.done':
                assert (each.item_id, each.text) == (open.id, text)
            case _:
                assert each.item_id == open.id
    if end:
        assert [item.model_dump() for item in told[-1].response.output] == done
    else:
        assert told[-1].type == 'error'
