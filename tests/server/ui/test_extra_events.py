"""Events that the protocols of user interfaces lack: files, todos and approvals."""

from __future__ import annotations

import pytest
from ag_ui.core import EventType

from tests.server.conftest import Client
from tests.server.ui.conftest import asked, interrupts_of, of_type, resumed, run, text_of

pytestmark = pytest.mark.anyio


async def test_tool_calls_files_and_todos_are_emitted(ada: Client):
    events = await run(ada, asked('write Hello'))
    planned = await run(ada, asked('plan Rest'))

    [start] = of_type(events, EventType.TOOL_CALL_START)
    [result] = of_type(events, EventType.TOOL_CALL_RESULT)
    [custom] = of_type(events, EventType.CUSTOM)
    [snapshot] = of_type(planned, EventType.STATE_SNAPSHOT)
    assert (start.tool_call_name, result.tool_call_id) == ('write_file', start.tool_call_id)
    assert (custom.name, custom.value) == (
        'pydantic-deep.file',
        {'path': '/a.txt', 'change': 'created', 'added_lines': 1, 'removed_lines': 0},
    )
    assert [(each['content'], each['status']) for each in snapshot.snapshot['todos']] == [('Rest', 'in_progress')]


async def test_pending_call_is_an_interrupt_with_its_view(ada: Client):
    """C24: approvals are always visible, and the stream ends with them."""
    [interrupt] = interrupts_of(await run(ada, asked('write Hello'), 'careful'))

    assert interrupt.reason == 'tool_call'
    assert interrupt.id == interrupt.tool_call_id
    assert interrupt.metadata['args'] == {'path': '/a.txt', 'content': 'Hello'}
    [hunk] = interrupt.metadata['view']['preview']['diff']['hunks']
    assert [line['text'] for line in hunk['lines']] == [['Hello']]
    taken = ['approved', 'content', 'digest', 'editedArgs', 'reason']
    assert sorted(interrupt.response_schema['properties']) == taken


async def test_subagent_call_is_an_interrupt(ada: Client):
    [interrupt] = interrupts_of(await run(ada, asked('delegate write Hello'), 'careful'))
    events = await run(ada, resumed(interrupt.id, payload={'approved': True}), 'careful')

    assert interrupt.metadata['path'] == ['scribe']
    assert interrupt.tool_call_id is None
    assert 'Created /a.txt' in text_of(events)
