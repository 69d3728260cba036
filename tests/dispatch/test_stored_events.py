"""A run is read with all of its attempts, and its messages with those that a summary replaced."""

from __future__ import annotations

import pytest

from pydantic_deep import StateBackend
from pydantic_deep.dispatch import load_attempts, load_run_messages
from pydantic_deep.store import new_id
from tests.dispatch.conftest import answers
from tests.versions.recovery.crashes import World, ends, nth, tool_call

pytestmark = pytest.mark.anyio


async def test_each_attempt_leads_to_all_attempts_of_its_run(url: str) -> None:
    world = World(url, answers(go=[tool_call('send', key='a'), tool_call('send', key='b'), 'End.']))
    async with world.process(dies_after=ends('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process(dies_after=nth(ends('send'), 1)) as agent:
        await agent.recover()
    async with world.process() as agent:
        (version,) = await agent.recover()
        first, second, third = attempts = await load_attempts(agent.store, version.run_id or '')
        for attempt in attempts:
            assert await load_attempts(agent.store, attempt.id) == attempts
        assert (second.attempt_of, third.attempt_of) == (first.id, second.id)
        assert [attempt.state for attempt in attempts] == ['interrupted', 'interrupted', 'complete']
        messages, since = await load_run_messages(agent, attempts)
        assert messages[since:] == (await version.messages())[-len(messages[since:]) :]
        assert (len(messages), since) == (6, 0)
        assert await load_attempts(agent.store, new_id()) == []
