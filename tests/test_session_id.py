"""The session id of runs that start in a scope."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic_ai import Agent

from pydantic_deep import DeepAgentDeps, Subagent, create_deep_agent
from pydantic_deep.errors import ValidationError
from pydantic_deep.streaming import current_session_id, session_scope
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


async def test_tools_of_an_agent_and_of_its_subagents_see_the_session_id() -> None:
    seen: list[str | None] = []

    def look() -> str:
        seen.append(current_session_id())
        return 'ok'

    child = Subagent('child', 'Looks.', model=ScriptedModel(call('look'), 'ok'), tools=[look])
    model = ScriptedModel(call('look'), call('task', subagent='child', description='Look.'), 'done')
    agent = create_deep_agent(model, tools=[look], subagents=[child])
    with session_scope('chat-1'):
        await agent.run('go', deps=DeepAgentDeps())
    assert (seen, current_session_id()) == (['chat-1', 'chat-1'], None)


def test_inner_scope_replaces_the_session_id_and_none_keeps_it() -> None:
    with session_scope('outer'):
        with session_scope(None):
            assert current_session_id() == 'outer'
        with session_scope('inner'):
            assert current_session_id() == 'inner'
        assert current_session_id() == 'outer'
    assert current_session_id() is None


async def test_task_keeps_the_session_id_after_the_scope_has_ended() -> None:
    seen: list[str | None] = []
    is_over = anyio.Event()

    async def work() -> None:
        await is_over.wait()
        await Agent(ScriptedModel(call('look'), 'done'), tools=[look]).run('go')

    def look() -> str:
        seen.append(current_session_id())
        return 'ok'

    async with anyio.create_task_group() as group:
        with session_scope('chat-1'):
            group.start_soon(work)
        is_over.set()
    assert seen == ['chat-1']


@pytest.mark.parametrize('session_id', ['', ' ', 7, 'a\0b', '\ud800'])
def test_invalid_session_id_is_refused(session_id: Any) -> None:
    with pytest.raises(ValidationError) as refused, session_scope(session_id):
        raise AssertionError('the block must not run')
    assert refused.value.field == 'session_id'
