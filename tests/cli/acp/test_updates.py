"""Events and calls without a counterpart in a scripted turn."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import VideoUrl
from pydantic_ai.messages import ModelRequest, UserPromptPart

from pydantic_deep.cli.acp._updates import Places, UpdateTranslator, fenced
from pydantic_deep.streaming import (
    RetriedEvent,
    StreamEvent,
    SummarizedEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
)

PLACES = Places(directory='/home/ada/poems', working_dir='/workspace')


def updates(event: StreamEvent) -> list[Any]:
    return list(UpdateTranslator(places=PLACES).updates(event))


@pytest.mark.parametrize(
    ('path', 'local'),
    [
        ('a.py', '/home/ada/poems/a.py'),
        ('/workspace/b/a.py', '/home/ada/poems/b/a.py'),
        ('/skills/1/SKILL.md', None),
        ('../secret', None),
    ],
)
def test_paths_of_the_agent_are_paths_of_this_computer(path: str, local: str | None) -> None:
    """A path inside of the directory is translated, and no path leads out of it."""
    assert PLACES.local(path) == local


def test_a_void_text_is_marked_in_the_answer() -> None:
    """The line about a retry is part of the answer if text of the failed attempt is there, and else a thought."""
    retry = RetriedEvent(attempt=2, attempts=3, reason='lost', delay_seconds=0, void_text='Half')
    [marked] = updates(retry)
    assert marked.session_update == 'agent_message_chunk'
    assert marked.content.text == '\n\nattempt 2 of 3: lost; the unfinished answer above is void\n\n'


def test_a_summary_is_a_thought() -> None:
    """A summarized conversation is reported beside the answer."""
    event = SummarizedEvent(reason='tokens', replaced_messages=2, tokens_before=9, tokens_after=3, is_plain=False)
    [thought] = updates(event)
    assert thought.content.text == '\n\nsummarized 2 messages: 9 → 3 tokens\n\n'


@pytest.mark.parametrize(
    'event',
    [
        TextEvent(text='inner', path=['reader']),
        ThinkingEvent(text='inner', path=['reader']),
        ThinkingEvent(text='', signature='s'),
        ToolResultEvent(id='1', name='write_todos', outcome='success', content=''),
    ],
)
def test_events_without_an_update(event: StreamEvent) -> None:
    """Texts of subagents, empty thoughts and results that the plan shows are not sent."""
    assert updates(event) == []


@pytest.mark.parametrize(
    'args',
    ['{"path": "a", "content": 1}', '{"content": "x"}', '{"path": "/skills/a", "content": "x"}', 'no JSON'],
)
def test_a_call_with_wrong_arguments_has_no_diff(args: str) -> None:
    """A call of which no change can be read has a title, and no diff."""
    [start] = updates(ToolCallEvent(id='1', name='write_file', args=args))
    assert start.content is None
    assert start.title.startswith('write_file')


def test_a_failed_command_is_a_failed_call() -> None:
    """A command that ends with another exit code than 0 is shown as failed."""
    [update] = updates(ToolResultEvent(id='1', name='execute', outcome='success', content='no', exit_code=1))
    assert update.status == 'failed'


def test_text_cannot_end_its_block() -> None:
    """The fence is longer than any in the text, and invisible characters are escaped."""
    assert fenced('a\n```\nb\x1b') == '````\na\n```\nb\\x1b\n````'


def test_media_that_the_protocol_lacks_are_left_out_of_a_loaded_prompt() -> None:
    """A prompt with the address of a video is loaded with its text."""
    prompt = UserPromptPart(content=['Watch.', VideoUrl('https://example.com/a.mp4')])
    history: list[Any] = list(UpdateTranslator(places=PLACES).history([ModelRequest(parts=[prompt])], []))
    assert [update.content.text for update in history] == ['Watch.']
