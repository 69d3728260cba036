"""Untrusted content of subagents and of their parents."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolResults, ToolApproved
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import NativeToolReturnPart

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    Shared,
    Subagent,
    UntrustedContent,
    answer_approvals,
    create_deep_agent,
)
from pydantic_deep.testing import ScriptedModel, Step, call

from .conftest import PAGE, READ, SEND, Outside, Shell, marks, notice_of, pending, run, tools_of

pytestmark = pytest.mark.anyio

TASK = call('task', subagent='helper', description='help')


def helper(outside: Outside, *steps: Step, **options: Any) -> Subagent:
    return Subagent('helper', 'Helps.', model=ScriptedModel(*steps), toolsets=[outside.tools], **options)


@pytest.mark.parametrize('isolation', ['shared', 'fork'])
async def test_answer_of_a_subagent_that_read_untrusted_content_is_untrusted(outside: Outside, isolation: Any) -> None:
    agent = outside.agent(TASK, SEND, subagents=[helper(outside, READ, 'a page', isolation=isolation)])
    result = await run(agent)
    assert (tools_of(result), outside.sent) == (['send'], [])
    assert marks(result.all_messages()) == [['fetch_page']]


async def test_answer_of_a_subagent_that_read_nothing_is_trusted(outside: Outside) -> None:
    result = await run(outside.agent(TASK, SEND, 'done', subagents=[helper(outside, call('clock'), 'noon')]))
    assert (result.output, outside.sent) == ('done', ['all files'])
    assert marks(result.all_messages())[0] is None


@pytest.mark.parametrize('isolation', ['shared', 'fork'])
async def test_subagent_of_a_parent_with_untrusted_content_asks(outside: Outside, isolation: Any) -> None:
    agent = outside.agent(READ, TASK, 'done', subagents=[helper(outside, SEND, 'sent', isolation=isolation)])
    first = await run(agent)
    assert [(approval.path, approval.tool) for approval in pending(first)] == [(('helper',), 'send')]
    assert notice_of(first).endswith(': fetch_page.')
    assert outside.sent == []
    answers = answer_approvals(first.output, {pending(first)[0].id: Approve()})
    result = await agent.run(
        message_history=first.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps(backend=Shell())
    )
    assert (result.output, outside.sent) == ('done', ['all files'])


async def test_delegation_itself_needs_no_approval(outside: Outside) -> None:
    result = await run(outside.agent(READ, TASK, 'done', subagents=[helper(outside, 'hello')]))
    assert result.output == 'done'


async def test_second_subagent_learns_of_the_first(outside: Outside) -> None:
    first, second = (
        helper(outside, READ, 'a page'),
        Subagent('second', 'Sends.', model=ScriptedModel(SEND, 'sent'), toolsets=[outside.tools]),
    )
    steps = [TASK, call('task', subagent='second', description='send')]
    result = await run(outside.agent(*steps, subagents=[first, second]))
    assert [(approval.path, approval.tool) for approval in pending(result)] == [(('second',), 'send')]


async def test_content_of_a_subagent_of_a_subagent_counts(outside: Outside) -> None:
    below = Subagent('below', 'Reads.', model=ScriptedModel(READ, 'a page'), toolsets=[outside.tools])
    above = helper(outside, call('task', subagent='below', description='read'), 'a page', subagents=[below])
    result = await run(outside.agent(TASK, SEND, subagents=[above]))
    assert (tools_of(result), outside.sent) == (['send'], [])


async def test_general_purpose_subagent_counts(outside: Outside) -> None:
    task = call('task', subagent='general-purpose', description='read')
    result = await run(outside.agent(task, READ, 'a page', SEND))
    assert (tools_of(result), marks(result.all_messages())) == (['send'], [['fetch_page']])


async def test_plain_agent_as_subagent_inherits_the_policy(outside: Outside) -> None:
    plain = Agent(ScriptedModel(READ, SEND), toolsets=[outside.tools])
    result = await run(outside.agent(TASK, subagents=[Subagent('helper', 'Helps.', agent=plain)]))
    assert [(approval.path, approval.tool) for approval in pending(result)] == [(('helper',), 'send')]


async def test_shared_capability_is_inherited_once(outside: Outside) -> None:
    model = ScriptedModel(READ, TASK)
    agent = create_deep_agent(
        model,
        toolsets=[outside.tools],
        capabilities=[Shared(UntrustedContent())],
        interrupt_on={},
        subagents=[helper(outside, SEND)],
    )
    assert notice_of(await run(agent)).endswith(': fetch_page.')


async def test_failed_subagent_is_untrusted(outside: Outside) -> None:
    """Its report contains its text."""
    agent = outside.agent(TASK, SEND, subagents=[helper(outside, READ, ToolFailed(PAGE))])
    result = await run(agent)
    assert (tools_of(result), marks(result.all_messages())) == (['send'], [['fetch_page']])
    agent = outside.agent(TASK, SEND, subagents=[helper(outside, ToolFailed('No.'))])
    assert tools_of(await run(agent)) == ['send']


async def test_native_tools_of_the_last_response_count(outside: Outside) -> None:
    found = NativeToolReturnPart(tool_name='web_search', content=PAGE, tool_call_id='n', provider_name='p')
    agent = outside.agent(TASK, SEND, subagents=[helper(outside, [found, 'an answer'])])
    assert tools_of(await run(agent)) == ['send']


async def test_resumed_subagent_reports_what_it_read_before(outside: Outside) -> None:
    """The second process knows it from the messages only."""
    first = await run(outside.agent(TASK, subagents=[helper(outside, READ, SEND)]))
    answers = answer_approvals(first.output, {pending(first)[0].id: Approve()})
    agent = outside.agent(SEND, subagents=[helper(outside, 'a page')])
    result = await agent.run(
        message_history=first.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps(backend=Shell())
    )
    assert (tools_of(result), outside.sent) == (['send'], ['all files'])
    assert [approval.path for approval in pending(result)] == [()]


async def test_parallel_delegations_do_not_wait_for_each_other(outside: Outside) -> None:
    second = Subagent('second', 'Sends.', model=ScriptedModel(SEND, 'sent'), toolsets=[outside.tools])
    tasks = [TASK, call('task', subagent='second', description='send')]
    result = await run(outside.agent(tasks, SEND, subagents=[helper(outside, READ, 'a page'), second]))
    assert (tools_of(result), outside.sent) == (['send'], ['all files'])


async def test_plain_results_for_a_subagent_do_not_run_its_calls(outside: Outside) -> None:
    agent = outside.agent(TASK, 'done', subagents=[helper(outside, READ, SEND)])
    first = await run(agent)
    raw = DeferredToolResults(approvals={first.output.approvals[0].tool_call_id: ToolApproved()})
    with pytest.raises(Exception, match='approv'):
        await agent.run(message_history=first.all_messages(), deferred_tool_results=raw, deps=DeepAgentDeps())
    assert outside.sent == []
