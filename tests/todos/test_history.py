"""Todos restored from a history that starts with a summary."""

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import SummaryMetadata
from pydantic_deep.todos import Todo
from pydantic_deep.todos._history import carried_over, last_known, last_written


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
