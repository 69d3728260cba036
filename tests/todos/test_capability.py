"""The todos capability, on any agent and in a deep agent."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, ModelRequestContext, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import Todo, Todos
from pydantic_deep.todos import render_todos
from pydantic_deep.todos._history import last_written

pytestmark = pytest.mark.anyio


@dataclass
class Tasks:
    """Third-party deps with todos."""

    todos: list[Todo] = field(default_factory=list[Todo])


def write(*todos: tuple[str, str]) -> ToolCallPart:
    return ToolCallPart('write_todos', {'todos': [{'content': c, 'status': s} for c, s in todos]})


def play(*steps: ToolCallPart | str, seen: list[AgentInfo] | None = None) -> FunctionModel:
    """A model that plays its steps. A text ends the run."""
    left = list(steps)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        step = left.pop(0)
        return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])

    return FunctionModel(respond)


def notices(messages: list[ModelMessage]) -> list[str]:
    return [p.content for m in messages for p in m.parts if isinstance(p, SystemPromptPart)]


def returned(messages: list[ModelMessage]) -> list[tuple[str, object]]:
    return [(p.outcome, p.content) for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]


async def test_todos_are_stored_in_deps_that_have_them() -> None:
    deps = Tasks()
    agent = Agent(
        play(write(('read', 'completed'), ('write', 'in_progress')), 'ok'), deps_type=Tasks, capabilities=[Todos()]
    )
    result = await agent.run('plan', deps=deps)
    assert deps.todos == [Todo(content='read', status='completed'), Todo(content='write', status='in_progress')]
    assert returned(result.all_messages()) == [('success', '2 todos, 1 completed')]


async def test_todos_are_restored_from_the_history_without_such_deps() -> None:
    lists: list[str] = []

    @dataclass
    class Watch(Todos):
        async def before_model_request(
            self, ctx: RunContext[object], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            lists.append(render_todos(self._list.todos))
            return await super().before_model_request(ctx, request_context)

    agent = Agent(capabilities=[Watch()])
    first = await agent.run('plan', model=play(write(('read', 'pending')), write(('write', 'pending')), 'ok'))
    second = await agent.run('go on', model=play('ok'), message_history=first.all_messages())
    assert lists == ['', '[ ] read', '[ ] write', '[ ] write']
    assert notices(second.all_messages()) == []


async def test_failed_call_is_not_the_last_written_list() -> None:
    bad = ToolCallPart('write_todos', {'todos': [{'content': 'x', 'status': 'someday'}]})
    result = await Agent(capabilities=[Todos()]).run('plan', model=play(write(('read', 'pending')), bad, 'ok'))
    assert [o for o, _ in returned(result.all_messages())] == ['success', 'retried']
    assert last_written(result.all_messages()) == [Todo(content='read')]


async def test_runs_of_one_agent_do_not_share_todos() -> None:
    agent = Agent(capabilities=[Todos()])
    await agent.run('plan', model=play(write(('mine', 'pending')), 'ok'))
    seen: list[AgentInfo] = []
    await agent.run('plan', model=play('ok', seen=seen))
    assert 'mine' not in (seen[0].instructions or '')


async def test_todos_written_by_the_model_are_not_repeated() -> None:
    seen: list[AgentInfo] = []
    model = play(write(('a', 'pending')), write(('a', 'completed')), 'ok', seen=seen)
    result = await Agent(model, deps_type=Tasks, capabilities=[Todos()]).run('plan', deps=Tasks())
    assert len({info.instructions for info in seen}) == 1
    assert notices(result.all_messages()) == []


async def test_external_changes_are_appended_once_and_preserve_the_prefix() -> None:
    seen: list[AgentInfo] = []
    deps = Tasks(todos=[Todo(content='given')])
    agent = Agent(deps_type=Tasks, capabilities=[Todos()])

    @agent.tool
    def clear(ctx: RunContext[Tasks]) -> str:
        ctx.deps.todos.clear()
        return 'cleared'

    steps = (write(('mine', 'pending')), ToolCallPart('clear', {}), 'ok')
    first = await agent.run('plan', deps=deps, model=play(*steps, seen=seen))
    second = await agent.run('on', deps=deps, model=play('ok', seen=seen), message_history=first.all_messages())
    deps.todos.append(Todo(content='new', status='in_progress'))
    third = await agent.run('on', deps=deps, model=play('ok', seen=seen), message_history=second.all_messages())
    assert notices(third.all_messages()) == ['Todos:\n[ ] given', 'Todos:\nnone', 'Todos:\n[>] new']
    assert len({info.instructions for info in seen}) == 1


async def test_model_facing_text_and_schema() -> None:
    seen: list[AgentInfo] = []
    await Agent(play('ok', seen=seen), capabilities=[Todos()]).run('hi')
    assert seen[0].instructions == snapshot(
        'For work of three or more steps, plan with write_todos; keep one todo in_progress and update as you go.'
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


def test_todos_render_with_one_mark_each() -> None:
    todos = [Todo(content='a'), Todo(content='b', status='in_progress'), Todo(content='c', status='completed')]
    assert render_todos(todos) == '[ ] a\n[>] b\n[x] c'
