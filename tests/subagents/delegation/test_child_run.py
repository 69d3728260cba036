"""Failures of a child: a failed result with a report of its work, and the parent run continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelAPIError, RunCancelled, RunTimedOut
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


def ping() -> str:
    return 'pong'


def broken() -> str:
    raise LookupError('no such thing')


def worker(*steps: Any, **options: Any) -> Subagent:
    return Subagent('worker', 'Works.', model=ScriptedModel(*steps), tools=[ping, broken, wait], **options)


async def wait() -> str:
    await anyio.sleep_forever()
    raise AssertionError


def said(returned: ToolReturnPart) -> list[str]:
    assert returned.outcome == 'failed'
    return str(returned.content).split('\n')


async def test_exception_in_a_tool_is_reported(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert said(await ask(worker(['hm', call('ping')], call('broken')))) == [
        "The subagent 'worker' failed: LookupError: no such thing",
        'Its tool calls:',
        '- ping({}): success',
        '- broken({}): no result',
        'Its last words: hm',
    ]
    assert caplog.messages == ["Subagent 'worker' failed with LookupError"]


async def test_exception_in_the_model_is_reported(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = said(await ask(worker(ModelAPIError('house', 'down'))))
    assert told == ["The subagent 'worker' failed: ModelAPIError: down", 'It had done nothing.']


async def test_invalid_model_is_reported(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = said(await ask(Subagent('worker', 'x', agent=Agent('no-such-provider:model', defer_model_check=True))))
    assert told[0].startswith("The subagent 'worker' failed: ")
    assert 'no-such-provider' in told[0]


async def test_output_that_is_never_valid_is_reported(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(ScriptedModel('a', 'b'))

    @agent.output_validator
    def refuse(output: str) -> str:
        raise ModelRetry('no')

    told = said(await ask(Subagent('worker', 'x', agent=agent)))
    assert told[0].startswith("The subagent 'worker' failed: UnexpectedModelBehavior: ")
    assert told[-1] == 'Its last words: b'


async def test_child_that_times_out_is_reported(ask: Any, let_time_pass: Callable[[float], None]) -> None:
    async def dawdle() -> str:
        let_time_pass(600)
        return await wait()

    script = ScriptedModel(call('ping'), call('dawdle'))
    told = said(await ask(Subagent('worker', 'Works.', model=script, tools=[ping, dawdle], timeout_seconds=600)))
    assert told[:3] == ["The subagent 'worker' ran out of time.", 'Its tool calls:', '- ping({}): success']


async def test_child_that_cancels_itself_is_reported(ask: Any) -> None:
    def stop(ctx: RunContext[object]) -> str:
        ctx.cancel()
        return 'stopped'

    agent = Agent(ScriptedModel(call('stop')), tools=[stop])
    told = said(await ask(Subagent('worker', 'x', agent=agent)))
    assert told[0].startswith("The subagent 'worker' was cancelled: ")


async def test_the_run_continues_after_a_child_fails(
    parent: Callable[..., Agent[Any, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [call('task', subagent=name, description='x') for name in ('worker', 'other')]
    other = Subagent('other', 'x', model=ScriptedModel('fine'))
    agent = parent(tasks, 'done', subagents=[worker(call('broken')), other])
    result = await agent.run('go', deps=DeepAgentDeps())
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in parts] == ['failed', 'success']
    assert result.output == 'done'


async def test_cancelling_a_parent_cancels_its_child() -> None:
    entered, left = anyio.Event(), anyio.Event()

    async def hang() -> str:
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.set()
        raise AssertionError

    child = Subagent('worker', 'x', model=ScriptedModel(call('hang')), tools=[hang])
    parent = Agent(ScriptedModel(call('task', subagent='worker', description='x')), capabilities=[Subagents([child])])
    run = asyncio.create_task(parent.run('go', deps=DeepAgentDeps()))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert left.is_set()


async def test_parent_cancels_itself_while_a_child_runs() -> None:
    entered = anyio.Event()

    async def hang() -> str:
        entered.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def stop(ctx: RunContext[object]) -> str:
        await entered.wait()
        ctx.cancel()
        return 'stopped'

    child = Subagent('worker', 'x', model=ScriptedModel(call('hang')), tools=[hang])
    calls: list[Any] = [call('task', subagent='worker', description='x'), call('stop')]
    parent = Agent(ScriptedModel(calls), capabilities=[Subagents([child])], tools=[stop])
    with pytest.raises(RunCancelled):
        await parent.run('go', deps=DeepAgentDeps())


async def test_parent_that_times_out_ends(ask: Any) -> None:
    with pytest.raises(RunTimedOut):
        await ask(worker(call('wait')), timeout=0.05)


async def test_unknown_subagent_fails_after_its_retries(ask: Any) -> None:
    model = ScriptedModel(*[call('task', subagent='nobody', description='x')] * 2, 'done')
    await Agent(model, capabilities=[Subagents()]).run('go', deps=DeepAgentDeps())
    assert [part.outcome for part in model.requests[-1].tool_returns] == ['retried', 'failed']
