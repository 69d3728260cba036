"""The todos capability, on any agent and in a deep agent."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, ModelRequestContext, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import Todo, Todos
from pydantic_deep.todos import render_todos

from .conftest import Tasks, notices, play, write

pytestmark = pytest.mark.anyio


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
        'Do work of one or two steps directly with the file tools. For more, plan with write_todos first.'
    )
    assert [(t.name, t.description, t.parameters_json_schema, t.metadata) for t in seen[0].function_tools] == snapshot(
        [
            (
                'write_todos',
                'Note a plan. This does no work. Send the whole list each time.',
                {
                    'properties': {
                        'todos': {
                            'items': {
                                'properties': {
                                    'content': {'type': 'string'},
                                    'status': {'enum': ['pending', 'in_progress', 'completed'], 'type': 'string'},
                                },
                                'required': ['content', 'status'],
                                'type': 'object',
                            },
                            'type': 'array',
                        }
                    },
                    'required': ['todos'],
                    'type': 'object',
                },
                {'effect': 'write', 'writes': 'deps', 'trusted': True},
            )
        ]
    )
