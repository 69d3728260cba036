"""Recovery answers requests from the recording, without the model."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic_ai.messages import UserPromptPart
from pydantic_ai.usage import UsageLimits

from pydantic_deep import Approve, StateBackend
from pydantic_deep.testing import Answer
from tests.versions.recovery.crashes import World, begins, ends, nth, plan, returns, tool_call

pytestmark = pytest.mark.anyio


async def test_crash_before_the_first_response_preserves_the_prompt(url: str) -> None:
    world = World(url, plan({'go': ['end']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    assert world.asked == []
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert [part.content for part in (await version.messages())[0].parts if isinstance(part, UserPromptPart)] == [
            'go'
        ]
        assert [each.kind for each in await version.lineage()] == ['root', 'turn']
        assert await agent.recover() == []


async def test_completed_calls_of_a_subagent_are_replayed_without_new_requests(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('send', key='a'), tool_call('send', key='b'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=nth(ends('send'), 2)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
    assert world.ran == ['send a', 'send b']
    assert world.asked == ['go 0', 'do 0', 'do 1', 'do 2', 'go 1']


async def test_nan_and_infinity_survive_recovery(url: str) -> None:
    world = World(url, plan({'go': [tool_call('measure'), 'end']}))
    async with world.process(dies_after=ends('measure')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert returns(await version.messages()) == ['[nan, -inf]']


async def test_recovered_turn_after_approvals_replays(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=ends('send')) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    async with world.process() as agent:
        (version,) = await agent.recover()
        replay = await version.replay()
        assert (replay.difference, replay.requests, replay.output) == (None, 1, 'end')
    assert world.ran == ['send a']


async def test_recovered_run_has_its_original_limits(url: str) -> None:
    world = World(url, plan({'go': [tool_call('look', key='a'), tool_call('look', key='b'), 'end']}))
    steps = nth(lambda commit: bool(commit.versions), 2)
    async with world.process(dies_after=steps) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go', usage_limits=UsageLimits(request_limit=2, cost_limit=Decimal('0.5')))
    async with world.process() as agent:
        assert await agent.recover() == []
        (run,) = await agent.store.runs(conversation_id=root.conversation_id, states=['failed'])
        assert 'request_limit of 2' in str(run.error)
