"""The room of todos, alone on any agent and in a deep one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import (
    InstructionDeltaPart,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import Todo, Todos
from pydantic_deep.todos import render_todos

pytestmark = pytest.mark.anyio


@dataclass
class Tasks:
    """Deps of somebody else that happen to hold todos."""

    todos: list[Todo] = field(default_factory=list[Todo])


def write(*todos: tuple[str, str]) -> ToolCallPart:
    return ToolCallPart('write_todos', {'todos': [{'content': c, 'status': s} for c, s in todos]})


def play(*steps: ToolCallPart | str, seen: list[AgentInfo] | None = None) -> FunctionModel:
    """A model that plays its steps; a text ends the run."""
    left = list(steps)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        step = left.pop(0)
        return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])

    return FunctionModel(respond)


def returned(messages: list[ModelMessage]) -> list[tuple[str, object]]:
    return [(p.outcome, p.content) for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]


async def test_the_list_lives_in_deps_that_have_one() -> None:
    deps = Tasks()
    agent = Agent(
        play(write(('read', 'completed'), ('write', 'in_progress')), 'ok'), deps_type=Tasks, capabilities=[Todos()]
    )
    result = await agent.run('plan', deps=deps)
    assert deps.todos == [Todo(content='read', status='completed'), Todo(content='write', status='in_progress')]
    assert returned(result.all_messages()) == [('success', '2 todos, 1 completed')]


async def test_without_such_deps_the_list_comes_back_from_the_history() -> None:
    agent = Agent(capabilities=[Todos()])
    first = await agent.run('plan', model=play(write(('read', 'pending')), write(('write', 'pending')), 'ok'))
    seen: list[AgentInfo] = []
    await agent.run('go on', model=play('ok', seen=seen), message_history=first.all_messages())
    assert '[ ] write' in (seen[0].instructions or '') + str(first.all_messages())
    again = await agent.run(
        'and now?', model=play(write(('done', 'completed')), 'ok'), message_history=first.all_messages()
    )
    deltas = [p for m in again.new_messages() for p in m.parts if isinstance(p, InstructionDeltaPart)]
    assert len(deltas) == 1


async def test_a_call_that_failed_is_not_what_was_written_last() -> None:
    agent = Agent(capabilities=[Todos()])
    bad = ToolCallPart('write_todos', {'todos': [{'content': 'x', 'status': 'someday'}]})
    first = await agent.run('plan', model=play(write(('read', 'pending')), bad, 'ok'))
    second = await agent.run('more', model=play(write(('read', 'pending')), 'ok'), message_history=first.all_messages())
    assert [o for o, _ in returned(first.all_messages())] == ['success', 'retried']
    assert not [p for m in second.new_messages() for p in m.parts if isinstance(p, InstructionDeltaPart)]


async def test_two_runs_of_one_agent_do_not_share_a_list() -> None:
    agent = Agent(capabilities=[Todos()])
    await agent.run('plan', model=play(write(('mine', 'pending')), 'ok'))
    seen: list[AgentInfo] = []
    await agent.run('plan', model=play('ok', seen=seen))
    assert 'mine' not in (seen[0].instructions or '')


async def test_a_change_is_appended_and_the_prefix_stays() -> None:
    seen: list[AgentInfo] = []
    deps = Tasks()
    agent = Agent(
        play(write(('a', 'pending')), write(('a', 'completed')), 'ok', seen=seen),
        deps_type=Tasks,
        capabilities=[Todos()],
    )
    result = await agent.run('plan', deps=deps)
    assert len({info.instructions for info in seen}) == 1
    deltas = [p.content for m in result.all_messages() for p in m.parts if isinstance(p, InstructionDeltaPart)]
    assert len(deltas) == 2


async def test_what_the_model_reads() -> None:
    seen: list[AgentInfo] = []
    await Agent(play('ok', seen=seen), capabilities=[Todos()]).run('hi')
    assert seen[0].instructions == snapshot(
        """\
For work of three or more steps, plan with write_todos; keep one todo in_progress and update as you go.

<context id="toolset:todos:list">
Todos:
none
</context>
A later <context> element with the same id replaces the earlier one and stays in effect until replaced again.\
"""
    )
    assert [(t.name, t.description, t.parameters_json_schema, t.metadata) for t in seen[0].function_tools] == snapshot(
        [
            (
                'write_todos',
                'Replace the todo list. Send the whole list each time.',
                {
                    '$defs': {
                        'Item': {
                            'properties': {
                                'content': {'type': 'string'},
                                'status': {
                                    'enum': ['pending', 'in_progress', 'completed'],
                                    'type': 'string',
                                },
                            },
                            'required': ['content', 'status'],
                            'title': 'Item',
                            'type': 'object',
                        }
                    },
                    'additionalProperties': False,
                    'properties': {'todos': {'items': {'$ref': '#/$defs/Item'}, 'type': 'array'}},
                    'required': ['todos'],
                    'type': 'object',
                },
                {'effect': 'write'},
            )
        ]
    )


def test_todos_render_with_a_mark_each() -> None:
    todos = [Todo(content='a'), Todo(content='b', status='in_progress'), Todo(content='c', status='completed')]
    assert render_todos(todos) == '[ ] a\n[>] b\n[x] c'
