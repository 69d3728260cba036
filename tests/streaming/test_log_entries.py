"""Entries of logs: an event is encoded once, with the groups of readers that receive it."""

from __future__ import annotations

import pytest

from pydantic_deep.streaming import (
    EndEvent,
    EntryEncoder,
    EventGroup,
    FrameReader,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    decode_entry,
    encode_entry,
    event_frame,
    frame_of,
    is_selected,
)

EVENTS: list[StreamEvent] = [
    StartEvent(id='r', model='analyst'),
    TextEvent(text='two\nlines, and \x1e\x00'),
    ThinkingEvent(text='Hm'),
    ToolCallEvent(id='c', name='ls', args='{"path":"/"}', index=0),
    ToolResultEvent(id='c', name='ls', outcome='success', content='/a.txt'),
    EndEvent(status='complete', output='Done.'),
]


@pytest.mark.parametrize('event', EVENTS, ids=lambda event: event.type)
def test_entry_is_the_frame_of_its_event(event: StreamEvent) -> None:
    entry = encode_entry(event)
    assert decode_entry(entry) == event
    assert FrameReader().feed(frame_of(entry, ~EventGroup(0))) == [event_frame(event)]


@pytest.mark.parametrize(
    ('groups', 'selected'),
    [
        (EventGroup(0), ['start', 'text', 'end']),
        (EventGroup.tool_results, ['start', 'text', 'tool_result', 'end']),
        (EventGroup.function_calls | EventGroup.thinking, ['start', 'text', 'thinking', 'tool_call', 'end']),
    ],
)
def test_readers_receive_the_groups_that_they_requested(groups: EventGroup, selected: list[str]) -> None:
    assert [event.type for event in EVENTS if is_selected(encode_entry(event), groups)] == selected


def test_encoder_puts_a_notice_before_each_batch_of_calls() -> None:
    encoder = EntryEncoder()
    encoded = [[decode_entry(entry).type for entry in encoder.encode(event)] for event in EVENTS]
    assert encoded == [
        ['start'],
        ['text'],
        ['thinking'],
        ['notice', 'tool_call'],
        ['tool_result'],
        ['end'],
    ]
