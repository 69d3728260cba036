"""Budgets of a conversation: earlier usage is read from the messages alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent, Conversation, ConversationTypeAdapter, ModelMessagesTypeAdapter, RunContext
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep import DeepAgentDeps, VersionedAgent, create_deep_agent, open_store
from pydantic_deep._messages.summary_metadata import SummaryMetadata, usage_of
from pydantic_deep.approvals import Approve, answer_approvals, pending_approvals
from pydantic_deep.budgets import Budget, BudgetExceededError, Budgets, BudgetUnknownEvent
from pydantic_deep.budgets._capability import LAST_ANSWER
from pydantic_deep.budgets._stamp import KEY, Stamp, read_before, stamped
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, FakeClock, ScriptedModel, call

pytestmark = pytest.mark.anyio

Make = Callable[..., ScriptedModel]
AgentOf = Callable[..., Agent[Any, Any]]
Notices = Callable[[Sequence[ModelMessage]], list[str]]


def _reload(conversation: Conversation) -> Conversation:
    return ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))


def _response(tokens: int, **options: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart('…')], usage=RequestUsage(input_tokens=tokens, **options))


def _summary(replaced: list[ModelMessage], **carried: Any) -> CompactionPart:
    usage = usage_of(replaced)
    return SummaryMetadata(reason='', is_plain=True, goal='', carried=carried, usage=usage, messages=None).part('…')


async def test_usage_of_earlier_turns_survives_json(working: Make, agent_of: AgentOf) -> None:
    agent = agent_of(working('one', 'two'), Budgets(conversation=Budget(requests=3)))
    first = await agent.run('go')
    second = await agent.run('on', conversation=_reload(first.conversation))
    third = await agent.run('on', message_history=second.all_messages())
    with pytest.raises(BudgetExceededError) as raised:
        await agent.run('on', message_history=third.all_messages())
    assert (raised.value.scope, raised.value.measure, raised.value.used) == ('conversation', 'requests', 3)


async def test_conversation_without_a_budget_is_counted_from_its_responses(working: Make, agent_of: AgentOf) -> None:
    free = await agent_of(working('one')).run('go')
    model = working()
    agent = agent_of(model, Budgets(conversation=Budget(tokens=350)))
    result = await agent.run('on', message_history=free.all_messages())
    assert result.output == 'what is done'
    assert len(model.requests) == 2


async def test_each_branch_has_its_own_usage(working: Make, agent_of: AgentOf) -> None:
    agent = agent_of(working('one', 'two', 'three'), Budgets(conversation=Budget(tokens=10_000)))
    root = (await agent.run('go')).all_messages()
    for _ in range(2):
        branch = (await agent.run('on', message_history=root)).all_messages()
        assert read_before(branch).used['tokens'] == 200


async def test_conversation_records_elapsed_seconds(agent_of: AgentOf, clock: FakeClock) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        clock.advance(10)
        return 'done'

    model = ScriptedModel(then=answer)
    agent = agent_of(model, Budgets(conversation=Budget(seconds=25)), work=lambda: None)
    agent = agent_of(model, Budgets(conversation=Budget(seconds=25), clock=clock.monotonic))
    messages: list[ModelMessage] = []
    for _ in range(3):
        messages = (await agent.run('go', message_history=messages)).all_messages()
        clock.advance(3_600)  # time between turns does not count
    assert read_before(messages).used['seconds'] == 30
    with pytest.raises(BudgetExceededError):
        await agent.run('go', message_history=messages)


async def test_the_model_is_warned_once_in_a_conversation(working: Make, agent_of: AgentOf, notices: Notices) -> None:
    agent = agent_of(working('one', 'two', 'three'), Budgets(conversation=Budget(tokens=1_000), warn_at=0.1))
    messages: list[ModelMessage] = []
    for _ in range(3):
        messages = (await agent.run('go', message_history=messages)).all_messages()
    assert notices(messages) == ['Budget used: 100 of 1,000 tokens. Finish soon.']


async def test_raised_limit_is_warned_about_again(working: Make, agent_of: AgentOf, notices: Notices) -> None:
    messages: list[ModelMessage] = []
    for limit in (1_000, 1_000, 2_000):
        agent = agent_of(working('done'), Budgets(conversation=Budget(tokens=limit), warn_at=0.05))
        messages = (await agent.run('go', message_history=messages)).all_messages()
    assert notices(messages) == [
        'Budget used: 100 of 1,000 tokens. Finish soon.',
        'Budget used: 200 of 2,000 tokens. Finish soon.',
    ]


async def test_usage_of_subagents_counts_in_the_next_turn(working: Make, agent_of: AgentOf) -> None:
    child = agent_of(working(call('work'), 'done'))
    failing = agent_of(ScriptedModel(call('work'), RuntimeError('down')))
    declared = [Subagent('worker', 'Works.', agent=child), Subagent('failing', 'Fails.', agent=failing)]
    steps = [call('task', subagent=each.name, description='go') for each in declared]
    agent = agent_of(working(*steps, 'done'), Subagents(declared), Budgets(conversation=Budget(tokens=10_000)))
    result = await agent.run('go')
    before = read_before(result.all_messages())
    assert before.used['tokens'] == result.usage.total_tokens == 610
    # The request to the failing model had started.
    assert before.used['requests'] == result.usage.requests + 1


async def test_requests_outside_the_capability_count_in_the_next_turn() -> None:
    other = Agent(ScriptedModel(then=lambda messages, info: 'a fact'))
    model = ScriptedModel(call('look_up'), call('look_up'), 'done')
    agent = Agent[Any, Any](model, capabilities=[Budgets(conversation=Budget(tokens=10_000))])

    @agent.tool
    async def look_up(ctx: RunContext[Any]) -> str:
        return (await other.run('look', usage=ctx.usage)).output

    result = await agent.run('go')
    used = read_before(result.all_messages()).used
    assert (used['requests'], used['tokens']) == (5, 550)


async def test_resumed_child_includes_its_earlier_usage(working: Make) -> None:
    child = working(call('work'), call('ask'), 'answered')

    def work() -> str:
        return 'done'

    def ask() -> str:
        return 'asked'

    worker = Subagent('worker', 'Works.', model=child, tools=[work, ask], interrupt_on={'ask': True})
    task = call('task', subagent='worker', description='go')
    agent = create_deep_agent(
        working(task, 'done'),
        subagents=[worker],
        interrupt_on={},
        capabilities=[Budgets(conversation=Budget(tokens=10_000), run=Budget(tokens=10_000))],
    )
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    results = answer_approvals(paused.output, {pending.id: Approve()})
    conversation = _reload(paused.conversation)
    ended = await agent.run(conversation=conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert ended.output == 'done'
    # Five requests in all: two by the parent, three by the child, two of them before it was suspended.
    assert read_before(ended.all_messages()).used['tokens'] == 500
    assert ended.usage.total_tokens == 500


async def test_a_run_resumed_after_an_approval_is_a_new_run(working: Make) -> None:
    def ask() -> str:
        return 'asked'

    model = working(call('ask'), call('ask'), 'done')
    agent = create_deep_agent(
        model,
        tools=[ask],
        interrupt_on={'ask': True},
        capabilities=[Budgets(run=Budget(requests=2), conversation=Budget(requests=10))],
    )
    result = await agent.run('go', deps=DeepAgentDeps())
    for _ in range(2):
        [pending] = pending_approvals(result.output)
        results = answer_approvals(result.output, {pending.id: Approve()})
        result = await agent.run(conversation=result.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert result.output == 'done'
    assert read_before(result.all_messages()).used['requests'] == 3


async def test_conversation_budget_of_a_child_is_stamped_on_its_messages(working: Make, agent_of: AgentOf) -> None:
    child = agent_of(working(call('work'), 'done'), Budgets(conversation=Budget(tokens=10_000)))
    seen: list[ModelMessage] = []

    def keep(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        seen[:] = messages
        return call('work') if len(messages) < 3 else 'done'

    child = agent_of(ScriptedModel(then=keep), Budgets(conversation=Budget(tokens=10_000)))
    parent = ScriptedModel(call('task', subagent='worker', description='go'), 'done')
    await agent_of(parent, Subagents([Subagent('worker', 'Works.', agent=child)])).run('go')
    assert read_before(seen).used['tokens'] == 110


async def test_version_stopped_by_a_budget_resumes_with_a_larger_one(notices: Notices) -> None:
    def agent(requests: int, *steps: Answer) -> Any:
        budgets = Budgets(conversation=Budget(requests=requests))
        return create_deep_agent(ScriptedModel(*steps), name='worker', capabilities=[budgets])

    todo = call('write_todos', todos=[])
    async with open_store('memory:') as store:
        small = VersionedAgent(agent(2, todo, todo), store)
        v0 = await small.create()
        with pytest.raises(BudgetExceededError):
            await v0.advance('go')
        [stopped] = await v0.children()
        assert stopped.state == 'failed'
        large = VersionedAgent(agent(4, 'done'), store)
        version = await (await large.load(stopped.id)).advance('go on')
        assert version.output == 'done'
        messages = await version.messages()
    assert read_before(messages).used['requests'] == 3
    assert notices(messages)[-1] == LAST_ANSWER


async def test_unknown_price_of_earlier_turns_is_reported(working: Make, agent_of: AgentOf, watch: Any) -> None:
    history = [ModelRequest(parts=[UserPromptPart('go')]), _response(5, cost=Decimal('0.5')), _response(7)]
    priced = working('done', usage=RequestUsage(input_tokens=1, cost=Decimal('0.01')))
    agent = agent_of(priced, Budgets(conversation=Budget(cost=5)))
    result = await agent.run('on', message_history=history, event_stream_handler=watch)
    assert watch.events == [BudgetUnknownEvent(measure='cost', model_name='', capability_id='budgets')]
    assert read_before(result.all_messages()).used['cost'] == Decimal('0.51')


def test_usage_is_the_last_stamp_plus_later_responses() -> None:
    history = [
        _response(5),
        stamped(
            _response(7, cost=Decimal(1)),
            Stamp(used={'tokens': Decimal(100), 'seconds': Decimal('1.5')}, warned={}),
        ),
        ModelRequest(parts=[UserPromptPart('on')]),
        _response(11),
    ]
    again = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
    before = read_before(again)
    assert before.used == {'tokens': 111, 'requests': 1, 'cost': 0, 'seconds': Decimal('1.5')}
    assert before.unstamped == [again[-1]]


def test_stamp_preserves_other_metadata() -> None:
    response = stamped(ModelResponse(parts=[], metadata={'mine': 1}), Stamp(used={}, warned={'tokens': Decimal(5)}))
    assert response.metadata == {'mine': 1, KEY: {'used': {}, 'warned': {'tokens': '5'}}}
    assert read_before([response]).warned == {'tokens': 5}


def test_invalid_stamp_is_ignored() -> None:
    odd = _response(7)
    odd.metadata = {KEY: {'used': {'tokens': 'many'}}}
    assert read_before([_response(5), odd]).used['tokens'] == 12


def test_summary_carries_the_usage_of_replaced_messages() -> None:
    summary = _summary([_response(5), _response(7)])
    before = read_before([ModelRequest(parts=[summary]), _response(11)])
    assert (before.used['tokens'], before.used['requests']) == (23, 3)


def test_summary_carries_the_stamps_of_replaced_messages() -> None:
    stamp = Stamp(used={'tokens': Decimal(500), 'seconds': Decimal(9)}, warned={'tokens': Decimal(600)})
    summary = _summary([_response(5), _response(7)], budgets=stamp.model_dump(mode='json'))
    before = read_before([ModelRequest(parts=[summary, UserPromptPart('on')]), _response(11)])
    assert (before.used['tokens'], before.used['seconds'], before.warned) == (511, 9, {'tokens': 600})


async def test_usage_is_carried_over_to_a_summary(working: Make, agent_of: AgentOf, watch: Any) -> None:
    agent = agent_of(working(call('work'), 'done'), Budgets(conversation=Budget(tokens=1_000)))
    result = await agent.run('go', event_stream_handler=watch)
    carried = watch.budgets.carry_over(watch.ctx, result.all_messages())
    assert carried.text == ''
    assert Stamp.model_validate(carried.state).used['tokens'] == 200


async def test_run_budget_carries_nothing_over_to_a_summary(working: Make, agent_of: AgentOf, watch: Any) -> None:
    await agent_of(working('done'), Budgets(run=Budget(tokens=1_000))).run('go', event_stream_handler=watch)
    assert watch.budgets.carry_over(watch.ctx, []).state is None


def test_subagent_results_after_the_last_stamp_count_their_usage() -> None:
    calls = [ToolCallPart('task', {}, tool_call_id=each) for each in 'abc']
    metadata: list[Any] = [
        {'sub_agent_thread_id': '1', 'usage': {'requests': 2, 'input_tokens': 30, 'cost': '0.5'}},
        {'sub_agent_thread_id': '2', 'usage': 'much'},
        {'usage': {'requests': 9}},
    ]
    history = [
        stamped(ModelResponse(parts=calls), Stamp(used={'tokens': Decimal(100)}, warned={})),
        ModelRequest(
            parts=[
                ToolReturnPart('task', 'done', tool_call_id=each.tool_call_id, metadata=told)
                for each, told in zip(calls, metadata, strict=True)
            ]
        ),
    ]
    used = read_before(history).used
    assert (used['tokens'], used['requests'], used['cost']) == (130, 2, Decimal('0.5'))
