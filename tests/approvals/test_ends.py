"""Gated calls in the same response as a final output."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelRequest, ToolReturnPart

from pydantic_deep.approvals import Approvals, pending_approvals
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def wipe() -> str:
    ran.append('wipe')
    return 'wiped'


class Answer(BaseModel):
    text: str


def agent(*steps: Any, end_strategy: Literal['early', 'graceful', 'exhaustive']) -> Agent[None, Any]:
    return Agent(
        ScriptedModel(*steps),
        output_type=[Answer, DeferredToolRequests],
        tools=[wipe],
        capabilities=[Approvals(interrupt_on={'wipe': True})],
        end_strategy=end_strategy,
    )


ANSWERING = call('final_result', text='hi')


@pytest.mark.parametrize('steps', [[call('wipe'), ANSWERING], [ANSWERING, call('wipe')]])
@pytest.mark.parametrize('end_strategy', ['early', 'graceful', 'exhaustive'])
async def test_every_call_has_a_result_when_the_run_ends_with_an_answer(steps: Any, end_strategy: Any) -> None:
    result = await agent(steps, end_strategy=end_strategy).run('go')
    requests = [each for each in result.all_messages() if isinstance(each, ModelRequest)]
    returns = [part for each in requests for part in each.parts if isinstance(part, ToolReturnPart)]
    assert sorted(part.tool_name for part in returns) == ['final_result', 'wipe']
    assert (result.output, ran) == (Answer(text='hi'), [])


@pytest.mark.parametrize('end_strategy', ['early', 'graceful', 'exhaustive'])
async def test_invalid_output_leaves_the_call_pending(end_strategy: Any) -> None:
    result = await agent([call('wipe'), call('final_result', text=None)], end_strategy=end_strategy).run('go')
    assert [each.tool for each in pending_approvals(result.output)] == ['wipe']
    assert ran == []


@pytest.mark.parametrize('end_strategy', ['early', 'graceful', 'exhaustive'])
async def test_gated_call_does_not_run_next_to_a_streamed_output(end_strategy: Any) -> None:
    async with agent([call('wipe'), ANSWERING], end_strategy=end_strategy).run_stream('go') as stream:
        assert await stream.get_output() == Answer(text='hi')
    assert ran == []
