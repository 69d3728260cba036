"""The later calls that a person can approve together with one."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep.approvals import Preview, view_approval
from pydantic_deep.views import Repeat, repeat_of

WRITE = {'path': '/a.txt', 'content': 'a'}


def repeat(tool: str, args: dict[str, Any], preview: Preview | None = None) -> Repeat | None:
    return repeat_of(tool, args, view_approval(id='1', path=[], tool=tool, arguments=args, preview=preview))


def test_calls_of_the_same_tool_repeat_each_other() -> None:
    """A person who approves writes approves them for all paths, and no other tool."""
    first = repeat('write_file', WRITE)
    assert first is not None
    assert first.kind == 'tool'
    assert repeat('write_file', {'path': '/b.txt', 'content': ''}) == first
    assert repeat('edit_file', WRITE) != first


def test_each_plan_needs_its_own_decision() -> None:
    """Whoever accepts a plan has not read the next one."""
    assert repeat('propose_plan', {'plan': 'Write it.'}) is None


def test_command_is_repeated_only_by_the_same_command() -> None:
    """Commands of the same tool do anything, so only the same one is covered, with any timeout."""
    first = repeat('execute', {'command': 'make test', 'timeout_seconds': 5}, Preview(kind='command', text='make test'))
    assert first is not None
    assert first.kind == 'command'
    assert repeat('execute', {'command': 'make test'}) == first
    assert repeat('execute', {'command': 'make clean'}) != first
    assert repeat('execute', {'command': 'make test', 'directory': '/b'}) != first


def test_preview_that_shows_more_than_the_arguments_limits_it_to_the_same_call() -> None:
    """A skill that is loaded grants commands, which the preview shows: another skill needs its own approval."""
    first = repeat('load_skill', {'name': 'pdf'}, Preview(kind='call', text='git *'))
    assert first is not None
    assert first.kind == 'call'
    assert repeat('load_skill', {'name': 'pdf'}, Preview(kind='call', text='git *')) == first
    assert repeat('load_skill', {'name': 'pdf'}, Preview(kind='call', text='rm *')) != first
    assert repeat('load_skill', {'name': 'xlsx'}, Preview(kind='call', text='git *')) != first
    assert repeat('send', {}, Preview(kind='call', text='')) == repeat('send', {})


@pytest.mark.parametrize(
    'preview',
    [Preview(kind='question', text='Which?'), Preview(kind='call', text='', notice='This call may already have run.')],
)
def test_questions_and_calls_with_a_notice_need_their_own_decision(preview: Preview) -> None:
    """What a notice says, such as that a protected file changes, is for a person to read each time."""
    assert repeat('write_file', WRITE, preview) is None
