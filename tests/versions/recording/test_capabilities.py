"""A capability that records also adds `ToolFailures` if the agent has none."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.versions.conftest import SpyStore

pytestmark = pytest.mark.anyio


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


@pytest.mark.parametrize('is_wrapped', [False, True])
async def test_raising_tool_does_not_end_the_turn_of_a_plain_agent(store: SpyStore, is_wrapped: bool):
    """Under `VersionedAgent`, a raising tool of any agent gives a failed result to the model. The turn completes and
    replays without a difference."""
    plain = Agent(ScriptedModel([call('burn'), call('look')], 'I see'), tools=[look])

    @plain.tool_plain
    async def burn() -> str:
        """Burn."""
        raise KeyError('fire')

    agent = VersionedAgent(WrapperAgent(plain) if is_wrapped else plain, store)
    turn = await (await agent.create()).advance('go')

    assert (turn.state, turn.output) == ('complete', 'I see')
    assert [(part.outcome, part.content) for part in returns(await turn.messages())] == [
        ('failed', "KeyError: 'fire'"),
        ('success', 'seen'),
    ]
    replay = await turn.replay()
    assert (replay.difference, replay.output) == (None, 'I see')


async def look() -> str:
    """Look."""
    return 'seen'
