"""Todos restored from a history, also from one that starts with a summary."""

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import RunUsage

from pydantic_deep import Todo, Todos
from pydantic_deep._messages.summary_metadata import SummaryMetadata
from pydantic_deep.todos._history import carried_over, last_known, last_written

from .conftest import play, returned, write

pytestmark = pytest.mark.anyio


def test_todos_emptied_after_a_summary_stay_empty() -> None:
    carried = carried_over([Todo(content='Look', status='pending')])
    state = SummaryMetadata(
        reason='tokens', is_plain=False, goal='', carried={'todos': carried.state}, usage=RunUsage(), messages=None
    )
    history: list[ModelMessage] = [ModelRequest(parts=[state.part('x')])]
    assert last_written(history) == [Todo(content='Look', status='pending')]
    emptied = ToolCallPart('write_todos', {'todos': []}, 'c')
    history += [ModelResponse(parts=[emptied]), ModelRequest(parts=[ToolReturnPart('write_todos', 'ok', 'c')])]
    assert last_written(history) == []
    assert last_known(history) == ''


async def test_failed_call_is_not_the_last_written_list() -> None:
    bad = ToolCallPart('write_todos', {'todos': [{'content': 'x', 'status': 'someday'}]})
    result = await Agent(capabilities=[Todos()]).run('plan', model=play(write(('read', 'pending')), bad, 'ok'))
    assert [o for o, _ in returned(result.all_messages())] == ['success', 'retried']
    assert last_written(result.all_messages()) == [Todo(content='read')]
