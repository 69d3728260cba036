"""Questions of servers to the user: they pause the run, and the answer continues the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from pydantic_ai.agent import Agent, AgentRunResult

from pydantic_deep import (
    ApprovalInbox,
    Approve,
    DeepAgentDeps,
    Deny,
    Respond,
    VersionedAgent,
    answer_approvals,
    create_deep_agent,
    open_store,
    pending_approvals,
    render_approval,
)
from pydantic_deep.approvals import Decision, InvalidDecisionError, PendingApproval
from pydantic_deep.mcp import McpServers
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, Step, call

from .conftest import MakeServer

pytestmark = pytest.mark.anyio

Calls = Callable[[], Sequence[str]]

BOOKED = [{'action': 'accept', 'content': {'count': 2}}, {'action': 'accept'}]


class Dialogue:
    """Runs of one agent in one conversation."""

    def __init__(self, servers: McpServers, *steps: Step, **options: Any) -> None:
        self.model = ScriptedModel(*steps)
        self.agent: Agent[DeepAgentDeps, Any] = create_deep_agent(
            self.model, capabilities=[servers], interrupt_on={}, **options
        )
        self.result: AgentRunResult[Any] | None = None

    async def go(self) -> list[PendingApproval]:
        """Run, and return the pending calls."""
        self.result = await self.agent.run('go', deps=DeepAgentDeps())
        return pending_approvals(self.result.output)

    async def answer(self, decisions: Mapping[str, Decision]) -> list[PendingApproval]:
        """Run with decisions, and return the pending calls."""
        assert self.result is not None
        self.result = await self.agent.run(
            conversation=self.result.conversation,
            deferred_tool_results=answer_approvals(self.result.output, decisions),
            deps=DeepAgentDeps(),
        )
        return pending_approvals(self.result.output)

    @property
    def results(self) -> list[Any]:
        """The results that the model has seen."""
        return [part.content for part in self.model.requests[-1].tool_returns]


def shop(make_server: MakeServer, **options: Any) -> McpServers:
    return McpServers(servers={'shop': make_server()}, allow=['shop_book'], **options)


async def test_question_pauses_the_run_and_the_answer_continues_the_call(
    make_server: MakeServer, calls: Calls, starts: Callable[[], int]
) -> None:
    """A question of a server is a pending question; the answer goes to the server, whose result the model gets."""
    dialogue = Dialogue(shop(make_server), call('shop_ask'), 'done')
    (pending,) = await dialogue.go()
    assert render_approval(pending) == (
        "Tool: shop_ask\nPreview (question):\n  | The MCP server 'shop' asks:\n  | Who?\nField name: optional"
    )
    assert pending.decisions == ('deny', 'respond')
    assert await dialogue.answer({pending.id: Respond('Ada')}) == []
    assert dialogue.results == [[{'action': 'accept', 'content': {'name': 'Ada'}}]]
    assert (list(calls()), starts()) == (['ask', 'ask ended'], 1)


async def test_declined_question_is_reported_to_the_server(make_server: MakeServer, calls: Calls) -> None:
    """`Deny` declines the question, and the server decides how its call ends."""
    dialogue = Dialogue(shop(make_server), call('shop_ask'), 'done')
    (pending,) = await dialogue.go()
    await dialogue.answer({pending.id: Deny()})
    assert dialogue.results == [[{'action': 'decline'}]]
    assert list(calls()) == ['ask', 'ask ended']


async def test_two_questions_in_one_call_follow_each_other(make_server: MakeServer, calls: Calls) -> None:
    """Each question of a call pauses the run again. A question with an address shows it as a link."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    (first,) = await dialogue.go()
    (second,) = await dialogue.answer({first.id: Respond({'count': 2})})
    assert second.preview is not None
    assert (second.preview.link, second.preview.choices) == ('https://pay.example/1', ('Continue',))
    assert 'Link: https://pay.example/1' in render_approval(second)
    await dialogue.answer({second.id: Respond('Continue')})
    assert dialogue.results == [BOOKED]
    assert list(calls()) == ['book', 'book ended']


async def test_wrong_answer_is_refused_and_the_question_stays(make_server: MakeServer) -> None:
    """An answer that does not fit the form of the server is refused with a sentence, and nothing is lost."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    (pending,) = await dialogue.go()
    with pytest.raises(InvalidDecisionError, match=r"The field 'count' does not accept '9': Input should be less than"):
        await dialogue.answer({pending.id: Respond('9')})
    (second,) = await dialogue.answer({pending.id: Respond('2')})
    await dialogue.answer({second.id: Respond('Continue')})
    assert dialogue.results == [BOOKED]


@pytest.mark.parametrize('answer', ['No', 'cancel', '', False, {'agree': False}])
async def test_question_without_fields_is_agreed_to_only_by_its_choice(make_server: MakeServer, answer: Any) -> None:
    """A question that only asks for consent has no other answer than that one: a person who writes `No` does not agree, and
    the question stays pending."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    (first,) = await dialogue.go()
    (second,) = await dialogue.answer({first.id: Respond('2')})
    with pytest.raises(InvalidDecisionError, match=r"is not valid\. Answer 'Continue' to agree, or decline\."):
        await dialogue.answer({second.id: Respond(answer)})
    await dialogue.answer({second.id: Respond(' continue')})
    assert dialogue.results == [BOOKED]


async def test_wrong_answer_that_was_not_checked_is_asked_again(make_server: MakeServer) -> None:
    """An answer that bypasses `answer_approvals` does not reach the server either, and the call is not lost."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    (pending,) = await dialogue.go()
    assert dialogue.result is not None
    results = answer_approvals(dialogue.result.output, {pending.id: Respond('2')})
    results.metadata[pending.id]['pydantic_deep']['content'] = '9'
    dialogue.result = await dialogue.agent.run(
        conversation=dialogue.result.conversation, deferred_tool_results=results, deps=DeepAgentDeps()
    )
    assert pending_approvals(dialogue.result.output) == [pending]
    (second,) = await dialogue.answer({pending.id: Respond('2')})
    await dialogue.answer({second.id: Respond('Continue')})
    assert dialogue.results == [BOOKED]


async def test_call_is_held_until_the_last_agent_ends(make_server: MakeServer) -> None:
    """Agents may share servers. The end of one of them keeps the calls of the others."""
    servers = shop(make_server)
    dialogue, other = Dialogue(servers, call('shop_ask'), 'done'), Dialogue(servers)
    async with dialogue.agent:
        async with other.agent:
            (pending,) = await dialogue.go()
        await dialogue.answer({pending.id: Respond('Ada')})
    assert dialogue.results == [[{'action': 'accept', 'content': {'name': 'Ada'}}]]


async def test_unanswered_question_stays_pending(make_server: MakeServer, calls: Calls) -> None:
    """A run that answers another call leaves the question as it was, and the server waits."""
    dialogue = Dialogue(shop(make_server), [call('shop_ask'), call('shop_order', item='tea')], 'done')
    ask, order = await dialogue.go()
    (still,) = await dialogue.answer({order.id: Approve()})
    assert still.id == ask.id
    await dialogue.answer({still.id: Respond('Ada')})
    assert dialogue.results == [[{'action': 'accept', 'content': {'name': 'Ada'}}], 'order: tea']
    assert list(calls()) == ['ask', 'order tea', 'ask ended']


async def test_parallel_calls_end_while_one_asks(make_server: MakeServer) -> None:
    """Of several calls, the one that asks is paused, and the results of the others are used."""
    dialogue = Dialogue(
        shop(make_server), [call('shop_add', a=1, b=2), call('shop_ask'), call('shop_add', a=3, b=4)], 'done'
    )
    (pending,) = await dialogue.go()
    assert pending.tool == 'shop_ask'
    await dialogue.answer({pending.id: Respond('Ada')})
    assert sorted(map(str, dialogue.results)) == ['3', '7', "[{'action': 'accept', 'content': {'name': 'Ada'}}]"]


async def test_other_runs_use_a_server_that_waits_for_an_answer(make_server: MakeServer) -> None:
    """A call that waits does not block other calls of its server, and questions of other runs are their own."""
    servers = shop(make_server)
    first, second = (Dialogue(servers, call('shop_ask'), 'done') for _ in range(2))
    (of_first,) = await first.go()
    (of_second,) = await second.go()
    await second.answer({of_second.id: Respond('Bob')})
    await first.answer({of_first.id: Respond('Ada')})
    assert first.results == [[{'action': 'accept', 'content': {'name': 'Ada'}}]]
    assert second.results == [[{'action': 'accept', 'content': {'name': 'Bob'}}]]


async def test_question_belongs_to_its_own_run_after_a_server_was_started_again(make_server: MakeServer) -> None:
    """The call that starts a stopped server again gets only its own questions, not those of other people's runs."""
    servers = shop(make_server)
    first = Dialogue(servers, call('shop_stop'), call('shop_ask'), 'done')
    second = Dialogue(servers, call('shop_ask'), 'done')
    (of_first,) = await first.go()
    (of_second,) = await second.go()
    assert await second.answer({of_second.id: Respond('Bob')}) == []
    assert await first.answer({of_first.id: Respond('Ada')}) == []
    assert second.results == [[{'action': 'accept', 'content': {'name': 'Bob'}}]]
    assert first.results[-1] == [{'action': 'accept', 'content': {'name': 'Ada'}}]


async def test_parallel_questions_over_standard_streams_are_refused(make_server: MakeServer) -> None:
    """Two calls that ask at the same time are told apart by nothing, so nobody is asked, and the server knows why."""
    dialogue = Dialogue(shop(make_server), [call('shop_ask'), call('shop_book')], 'done')
    pending = await dialogue.go()
    assert len(pending) == 1  # the refused call has ended, so the other question belongs to the other call
    await dialogue.answer({pending[0].id: Deny()})
    assert 'Make these calls one after another.' in str(dialogue.results)


async def test_question_that_cannot_be_shown_is_an_error_of_the_server(make_server: MakeServer) -> None:
    """A form with nested values, which MCP does not allow, and an address that is none are refused with a sentence."""
    servers = McpServers(servers={'shop': make_server()}, allow=['shop_odd'])
    dialogue = Dialogue(servers, call('shop_odd'), 'done')
    assert await dialogue.go() == []
    (result,) = dialogue.results
    assert "The field 'at' has the type 'object'" in str(result)
    assert 'The address of a question starts with https:// or http://.' in str(result)


async def test_question_of_a_subagent_reaches_the_user(make_server: MakeServer) -> None:
    """A server that a subagent uses asks the user of the main agent."""
    child = Subagent(
        name='buyer',
        description='Buys.',
        model=ScriptedModel(call('shop_ask'), 'bought'),
        capabilities=[shop(make_server)],
    )
    model = ScriptedModel(call('task', description='Buy.', subagent='buyer'), 'done')
    agent = create_deep_agent(model, subagents=[child], interrupt_on={})
    result = await agent.run('go', deps=DeepAgentDeps())
    (pending,) = pending_approvals(result.output)
    assert (pending.path, pending.tool) == (('buyer',), 'shop_ask')
    result = await agent.run(
        conversation=result.conversation,
        deferred_tool_results=answer_approvals(result.output, {pending.id: Respond('Ada')}),
        deps=DeepAgentDeps(),
    )
    assert result.output == 'done'


# A call that is not held any more


async def test_call_that_only_reads_runs_again_with_the_recorded_answer(make_server: MakeServer, calls: Calls) -> None:
    """If the server of a question has ended, a call of a tool that only reads is made again, and asks nobody."""
    dialogue = Dialogue(shop(make_server), call('shop_ask'), 'done')
    async with dialogue.agent:
        (pending,) = await dialogue.go()
    assert await dialogue.answer({pending.id: Respond('Ada')}) == []
    assert dialogue.results == [[{'action': 'accept', 'content': {'name': 'Ada'}}]]
    assert calls().count('ask') == 2


async def test_call_that_may_have_run_asks_before_it_runs_again(make_server: MakeServer, calls: Calls) -> None:
    """Any other call is not repeated unless a person approves it. The answers so far are used again."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    async with dialogue.agent:
        (pending,) = await dialogue.go()
    (again,) = await dialogue.answer({pending.id: Respond('2')})
    assert list(calls()) == ['book']
    assert again.decisions == ('approve', 'deny')
    assert again.preview is not None
    assert again.preview.notice == (
        'The server no longer waits for the answer to its question, and this call may have taken effect. Approve it to '
        'run it (again), with the answers that were given, or deny it.'
    )
    (second,) = await dialogue.answer({again.id: Approve()})
    assert second.preview is not None
    assert second.preview.link == 'https://pay.example/1'
    await dialogue.answer({second.id: Respond('Continue')})
    assert dialogue.results == [BOOKED]
    assert list(calls()) == ['book', 'book', 'book ended']


async def test_declined_question_of_a_lost_call_fails(make_server: MakeServer, calls: Calls) -> None:
    """If a person declines too late, there is nothing to decide: the model is informed that the call may have run."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    async with dialogue.agent:
        (pending,) = await dialogue.go()
    await dialogue.answer({pending.id: Deny()})
    assert dialogue.results == [
        'The server no longer waits for the answer to its question, and this call may have taken effect. The question '
        'was declined.'
    ]
    assert list(calls()) == ['book']


async def test_server_that_stops_while_it_asks_fails_the_call(make_server: MakeServer, calls: Calls) -> None:
    """If the process of the server ends while its question is open, the rule for calls that may have run applies."""
    servers = shop(make_server)
    dialogue, other = Dialogue(servers, call('shop_book'), 'done'), Dialogue(servers, call('shop_stop'), 'done')
    (pending,) = await dialogue.go()
    await other.go()
    (again,) = await dialogue.answer({pending.id: Respond('2')})
    assert again.decisions == ('approve', 'deny')
    await dialogue.answer({again.id: Deny()})
    assert list(calls()) == ['book', 'stop']


async def test_question_has_a_limit(make_server: MakeServer, calls: Calls) -> None:
    """After `question_seconds`, the server is informed that nobody answered, and its call ends."""
    dialogue = Dialogue(shop(make_server, question_seconds=0.001), call('shop_ask'), 'done')
    async with dialogue.agent:
        (pending,) = await dialogue.go()
        while 'ask ended' not in calls():  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.01)
    await dialogue.answer({pending.id: Deny()})
    assert dialogue.results == [
        'The server no longer waits for the answer to its question, and this call may have taken effect. The question '
        'was declined.'
    ]


def test_another_event_loop_does_not_continue_a_call(make_server: MakeServer, calls: Calls) -> None:
    """A call ends with its event loop, without a process that remains. Another loop decides as another process would."""
    dialogue = Dialogue(shop(make_server), call('shop_book'), 'done')
    (pending,) = asyncio.run(dialogue.go())
    (again,) = asyncio.run(dialogue.answer({pending.id: Respond('2')}))
    assert again.decisions == ('approve', 'deny')
    assert list(calls()) == ['book']


async def test_cancelled_run_stops_its_call(make_server: MakeServer, calls: Calls) -> None:
    """A run that is cancelled in a call that continued leaves neither the call nor the server."""
    servers = shop(make_server)
    dialogue = Dialogue(servers, call('shop_sleep'), 'done')
    task = asyncio.create_task(dialogue.go())
    while 'sleep' not in calls():  # noqa: ASYNC110 - the server is another process
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (status,) = await servers.status()
    assert status.error is None


# With a store


async def test_question_is_in_the_inbox_and_the_turn_replays(make_server: MakeServer, calls: Calls) -> None:
    """A version keeps the question; its inbox accepts only answers that fit, and the replay makes no calls."""
    model = ScriptedModel(call('shop_book'), 'done')
    agent = create_deep_agent(model, capabilities=[shop(make_server)], interrupt_on={})
    async with open_store('memory:') as store:
        paused = await (await VersionedAgent(agent, store).create()).advance('go')
        inbox = ApprovalInbox(store)
        (item,) = await inbox.list()
        with pytest.raises(InvalidDecisionError, match="The field 'count' does not accept 'many'"):
            await inbox.answer(item.id, Respond('many'))
        await inbox.answer(item.id, Respond({'count': 2}), by='ada')
        paused = await paused.resume()
        (second,) = paused.pending
        done = await paused.resume({second.id: Respond('Continue')})
        replay = await done.replay()
    assert (done.output, replay.difference) == ('done', None)
    assert list(calls()) == ['book', 'book ended']
