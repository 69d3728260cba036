"""Tool failures as reported to the model, for every kind of exception."""

from __future__ import annotations

import logging

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessagesTypeAdapter

from pydantic_deep import ToolFailures
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError('no')


async def told(error: Exception) -> str:
    """Return the tool result in the model's request when a tool raises this error."""
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


async def test_unprintable_message_does_not_end_the_run() -> None:
    assert await told(Unprintable()) == 'Unprintable: its message cannot be shown'


async def test_exception_without_a_message_is_shown_by_name() -> None:
    assert await told(NotImplementedError()) == 'NotImplementedError'


async def test_exception_group_lists_its_exceptions() -> None:
    group = ExceptionGroup('both broke', [ValueError('one'), ExceptionGroup('inner', [KeyError('two')])])
    assert await told(group) == "ExceptionGroup: both broke (2 sub-exceptions)\n- ValueError: one\n- KeyError: 'two'"


async def test_large_exception_group_lists_the_first_ones() -> None:
    group = ExceptionGroup('all broke', [ValueError(str(i)) for i in range(100)])
    assert (await told(group)).splitlines()[-2:] == ['- ValueError: 4', '- and 95 more']


async def test_long_message_shows_its_head_and_tail() -> None:
    text = await told(ValueError('a' * 3_000_000 + 'b' * 1_000))
    assert text.startswith('ValueError: aaa')
    assert text.endswith(' characters left out] …' + 'b' * 1_000)
    assert len(text) < 4_100


async def test_lone_surrogate_in_a_message_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, 'pydantic_deep')  # the log record would contain the surrogate
    assert await told(ValueError('bad\udcff.txt')) == 'ValueError: bad\\udcff.txt'


@pytest.mark.parametrize('is_async', [False, True])
async def test_exception_in_a_validator_is_a_failed_result(is_async: bool) -> None:
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
async def test_verdict_of_a_validator_is_the_outcome(verdict: Exception | None, outcome: str) -> None:
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


async def test_exception_in_a_validator_propagates_on_request() -> None:
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


class Row:
    pass


def circular() -> list[object]:
    rows: list[object] = []
    rows.append(rows)
    return rows


@pytest.mark.parametrize(
    ('result', 'reason'),
    [
        ([Row()], "PydanticSerializationError: Unable to serialize unknown type: <class 'tests.test_failures.Row'>"),
        (ToolReturn({'row': Row()}), 'PydanticSerializationError: Unable to serialize unknown type'),
        (circular(), 'RecursionError'),
    ],
)
async def test_result_that_cannot_be_sent_does_not_end_the_run(result: object, reason: str) -> None:
    model = ScriptedModel(call('query'), 'done')
    agent = Agent(model, deps_type=object, capabilities=[ToolFailures()])

    @agent.tool_plain
    def query() -> object:
        return result

    assert (await agent.run('go')).output == 'done'
    (seen,) = model.requests[-1].tool_returns
    assert seen.outcome == 'failed'
    assert str(seen.content).startswith(f'The call ran, but its result cannot be shown. {reason}')


@pytest.mark.parametrize(
    ('result', 'sent'),
    [
        ({'name': 'bad\udcff.txt'}, {'name': 'bad\\udcff.txt'}),
        (ToolReturn(['\ud83d\ude00'], metadata=1), ['\U0001f600']),
        ('\ud83d\ude00', '\U0001f600'),
        ({'größe': [1, None]}, {'größe': [1, None]}),
    ],
)
async def test_halves_of_surrogate_pairs_in_a_result_are_repaired(result: object, sent: object) -> None:
    model = ScriptedModel(call('query'), 'done')
    agent = Agent(model, deps_type=object, capabilities=[ToolFailures()])

    @agent.tool_plain
    def query() -> object:
        return result

    messages = (await agent.run('go')).all_messages()
    assert ModelMessagesTypeAdapter.dump_json(messages)
    (seen,) = model.requests[-1].tool_returns
    assert (seen.outcome, seen.content) == ('success', sent)


async def test_what_an_iterator_yields_is_the_result() -> None:
    """It is read once, however often the result is sent. What it raises is a failure of the tool."""
    model = ScriptedModel([call('count'), call('fail')], 'done', 'done')
    agent = Agent(model, deps_type=object, capabilities=[ToolFailures()])

    @agent.tool_plain
    def count() -> object:
        return {'numbers': iter([1, 2])}

    @agent.tool_plain
    def fail() -> object:
        yield 1
        raise ValueError('There is no other.')

    first = await agent.run('go')
    await agent.run('go on', message_history=first.all_messages())
    for request in model.requests[1:]:
        counted, failed = request.tool_returns
        assert (counted.outcome, counted.content) == ('success', {'numbers': [1, 2]})
        assert (failed.outcome, failed.content) == ('failed', 'ValueError: There is no other.')
