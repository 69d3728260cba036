"""Entries of logs: an event is encoded once, with the groups of readers that receive it."""

from __future__ import annotations

import json

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
    text_of_entry,
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


@pytest.mark.parametrize('text', ['a', 'two\nlines "quoted"', 'é 🌍', ',"path":[]}', 'a lone \ud83d'])
def test_text_of_an_entry_is_json_that_was_not_parsed(text: str) -> None:
    entry = encode_entry(TextEvent(text=text))
    assert json.loads(text_of_entry(entry) or b'') == text
    assert decode_entry(entry) == TextEvent(text=text)


@pytest.mark.parametrize('event', [TextEvent(text='of a subagent', path=['a']), ThinkingEvent(text='Hm'), EVENTS[0]])
def test_entry_without_a_text_of_the_agent_itself_has_none(event: StreamEvent) -> None:
    assert text_of_entry(encode_entry(event)) is None


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
