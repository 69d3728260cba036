"""What the model is told of a tool that raises, whatever it raises."""

from __future__ import annotations

import logging

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessagesTypeAdapter

from pydantic_deep import ToolFailures
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError('no')


async def told(error: Exception) -> str:
    """Return what the model is told when a tool raises this."""
    model = ScriptedModel(call('risky'), 'done')
    agent = Agent(model, deps_type=object, capabilities=[ToolFailures()])

    @agent.tool_plain
    def risky() -> str:
        raise error

    result = await agent.run('go')
    assert result.output == 'done'
    assert ModelMessagesTypeAdapter.dump_json(result.all_messages()[1:])
    (seen,) = model.requests[-1].tool_returns
    assert seen.outcome == 'failed'
    return str(seen.content)


async def test_a_message_that_cannot_be_made_ends_no_run() -> None:
    assert await told(Unprintable()) == 'Unprintable: its message cannot be shown'


async def test_without_a_message_the_name_says_it() -> None:
    assert await told(NotImplementedError()) == 'NotImplementedError'


async def test_a_group_shows_what_is_in_it() -> None:
    group = ExceptionGroup('both broke', [ValueError('one'), ExceptionGroup('inner', [KeyError('two')])])
    assert await told(group) == "ExceptionGroup: both broke (2 sub-exceptions)\n- ValueError: one\n- KeyError: 'two'"


async def test_a_large_group_shows_the_first() -> None:
    group = ExceptionGroup('all broke', [ValueError(str(i)) for i in range(100)])
    assert (await told(group)).splitlines()[-2:] == ['- ValueError: 4', '- and 95 more']


async def test_a_long_message_shows_its_head_and_tail() -> None:
    text = await told(ValueError('a' * 3_000_000 + 'b' * 1_000))
    assert text.startswith('ValueError: aaa')
    assert text.endswith(' characters left out] …' + 'b' * 1_000)
    assert len(text) < 4_100


async def test_half_a_character_is_shown_and_breaks_no_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, 'pydantic_deep')  # what the log would show cannot be sent between processes
    assert await told(ValueError('bad\udcff.txt')) == 'ValueError: bad\\udcff.txt'


@pytest.mark.parametrize('is_async', [False, True])
async def test_a_validator_that_breaks_is_a_failed_result(is_async: bool) -> None:
    def fail(ctx: RunContext[object], number: int) -> None:
        raise LookupError(f'no {number}')

    async def fail_later(ctx: RunContext[object], number: int) -> None:
        fail(ctx, number)

    def double(number: int) -> int:
        raise AssertionError('it must not run')

    model = ScriptedModel(call('double', number=2), 'done')
    tool = Tool(double, args_validator=fail_later if is_async else fail)
    await Agent(model, deps_type=object, tools=[tool], capabilities=[ToolFailures()]).run('go')
    assert [(p.outcome, p.content) for p in model.requests[-1].tool_returns] == [('failed', 'LookupError: no 2')]


@pytest.mark.parametrize(
    ('verdict', 'outcome'),
    [(None, 'success'), (ModelRetry('try 3'), 'retried'), (ToolFailed('never'), 'failed')],
)
async def test_a_validator_that_judges_is_heard(verdict: Exception | None, outcome: str) -> None:
    def judge(ctx: RunContext[object], number: int) -> None:
        if verdict is not None:
            raise verdict

    def double(number: int) -> int:
        return 2 * number

    model = ScriptedModel(call('double', number=2), 'done')
    tool = Tool(double, args_validator=judge)
    await Agent(model, deps_type=object, tools=[tool], capabilities=[ToolFailures()]).run('go')
    (seen,) = model.requests[-1].tool_returns
    assert (seen.outcome, str(seen.content)) == (outcome, '4' if verdict is None else str(verdict))


async def test_a_validator_that_breaks_propagates_on_request() -> None:
    def fail(ctx: RunContext[object]) -> None:
        raise ZeroDivisionError

    def look() -> str:
        raise AssertionError('it must not run')

    agent = Agent(
        ScriptedModel(call('look')),
        deps_type=object,
        tools=[Tool(look, args_validator=fail)],
        capabilities=[ToolFailures(propagate=(ZeroDivisionError,))],
    )
    with pytest.raises(ZeroDivisionError):
        await agent.run('go')
