"""Loop detection in turns of several runs: after approvals, after a crash, and in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelRetry, ToolDenied
from pydantic_ai.exceptions import ToolFailed

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent, open_store
from pydantic_deep.loops._repetitions import NEXT_NOTICE, NOTICE
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.versions.recovery.crashes import World, ends, nth, plan, tool_call
from tests.versions.recovery.test_recovery import keeps

from .conftest import looking, returns

pytestmark = pytest.mark.anyio

LOOK = call('look')


@pytest.mark.parametrize(
    ('answer', 'results'),
    [(True, ['nothing new', 'nothing new', NOTICE, NEXT_NOTICE]), (ToolDenied('Do not look.'), ['Do not look.'] * 4)],
)
async def test_resumed_runs_continue_to_count(answer: bool | ToolDenied, results: list[str]) -> None:
    """Each call pauses the run, until a person approves or denies it."""
    model = ScriptedModel(LOOK, LOOK, LOOK, LOOK, 'stuck')
    agent = create_deep_agent(model, toolsets=[looking()], interrupt_on={'look': True})
    result = await agent.run('go', deps=DeepAgentDeps())
    while isinstance(result.output, DeferredToolRequests):
        (pending,) = result.output.approvals
        result = await agent.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={pending.tool_call_id: answer}),
            deps=DeepAgentDeps(),
        )
    assert result.output == 'stuck'
    assert returns(result.all_messages()) == results
    assert (model.requests[-1].settings or {}).get('tool_choice') == 'none'


@pytest.mark.parametrize('result', ['nothing new', ToolFailed('No such file.'), ModelRetry('No such file.')])
async def test_replay_of_a_loop_is_exact(result: object) -> None:
    async with open_store('memory:') as store:
        model = ScriptedModel(LOOK, LOOK, LOOK, LOOK, 'stuck')
        agent = VersionedAgent(create_deep_agent(model, toolsets=[looking(result)]), store)
        turn = await (await agent.create()).advance('go')
        replay = await turn.replay()
        assert returns(await turn.messages())[2:] == [NOTICE, NEXT_NOTICE]
    assert (replay.requests, replay.difference, replay.output) == (5, None, 'stuck')


@pytest.mark.parametrize('third', [nth(ends('look'), 3), nth(keeps, 3), nth(keeps, 4)])
async def test_recovery_after_a_crash_continues_to_count(tmp_path: Path, third: Any) -> None:
    """The recovered run has the same results as one without a crash."""
    url = f'memory:{tmp_path.name}'
    steps: list[Any] = [tool_call('look', id=f'look {number}', key='a') for number in range(4)]
    async with open_store(url):
        world = World(url, plan({'go': [*steps, 'stuck']}))
        async with world.process(dies_after=third) as agent:
            await (await agent.create(backend=StateBackend())).advance('go')
        async with world.process() as agent:
            (version,) = await agent.recover()
            assert version.output == 'stuck'
            assert returns(await version.messages()) == ['seen a', 'seen a', NOTICE, NEXT_NOTICE]
            assert (await version.replay()).difference is None
