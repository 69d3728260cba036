"""A child with pending approvals pauses its parent, and resumes in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    Conversation,
    ConversationTypeAdapter,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolDenied,
)
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep import DeepAgentDeps, Todo, Todos
from pydantic_deep._messages.deferred_metadata import DelegationAnswers, DelegationRequest, dump, parse_request
from pydantic_deep.approvals import Approvals, Approve, Deny, answer_approvals, pending_approvals
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import OUT, PausedWorld, look, pause_of, returns, task, wipe

pytestmark = pytest.mark.anyio

Ids = tuple[str, ...]
Flatten = Callable[[DeferredToolRequests], dict[Ids, str]]
Answering = Callable[[DeferredToolRequests, Mapping[Ids, bool | ToolDenied]], DeferredToolResults]
Reload = Callable[[Conversation], Conversation]


def pending(conversation: Conversation) -> DeferredToolRequests:
    assert conversation.deferred_tool_requests is not None
    return conversation.deferred_tool_requests


def tree(world: PausedWorld) -> Agent[Any, Any]:
    """Return a parent with two pausing branches, one of them three levels deep, and calls without approval."""
    leaf = Subagent(
        'leaf',
        'x',
        model=world.model('leaf', [wipe('leaf1', 'l1'), look('leaf', 'l2')], wipe('leaf2', 'l3')),
        tools=world.tools(),
    )
    deep = Subagent(
        'deep',
        'x',
        model=world.model('deep', [task('leaf', 'm1'), wipe('deep', 'm2'), look('deep', 'm3')]),
        tools=world.tools(),
        subagents=[leaf],
    )
    flat = Subagent(
        'flat', 'x', model=world.model('flat', [wipe('flat', 'f1'), wipe('flat2', 'f2')]), tools=world.tools()
    )
    return Agent(
        world.model('top', [task('deep', 't1'), task('flat', 't2'), look('top', 't3')]),
        output_type=OUT,
        tools=world.tools(),
        capabilities=[Subagents([deep, flat])],
    )


async def test_nested_approvals_are_answered_in_parts_through_json(
    flatten: Flatten, answer: Answering, reload: Reload
) -> None:
    world = PausedWorld()
    result = await tree(world).run('go', deps=DeepAgentDeps(max_depth=3))
    assert flatten(result.output) == {
        ('t1', 'm1', 'l1'): 'wipe{"x":"leaf1"}',
        ('t1', 'm2'): 'wipe{"x":"deep"}',
        ('t2', 'f1'): 'wipe{"x":"flat"}',
        ('t2', 'f2'): 'wipe{"x":"flat2"}',
    }
    assert sorted(world.ran) == ['look deep', 'look leaf', 'look top']

    plan: list[dict[Ids, bool | ToolDenied]] = [
        {},
        {('t1', 'm1', 'l1'): True, ('t2', 'f2'): ToolDenied('not that')},
        {('t1', 'm1', 'l3'): True, ('t1', 'm2'): True, ('t2', 'f1'): True},
    ]
    done = [
        [],
        ['wipe leaf1'],
        ['wipe deep', 'wipe flat', 'wipe leaf2'],
    ]
    for answers, expected in zip(plan, done, strict=True):
        world.ran.clear()
        conversation = reload(result.conversation)
        results = answer(pending(conversation), answers)
        result = await tree(world).run(
            conversation=conversation, deferred_tool_results=results, deps=DeepAgentDeps(max_depth=3)
        )
        assert sorted(world.ran) == expected
    assert sorted(result.output.split(' | ')) == [
        'not that',
        'saw deep',
        'saw leaf',
        'saw top',
        'wiped deep',
        'wiped flat',
        'wiped leaf1',
        'wiped leaf2',
    ]
    assert sorted(world.asked) == sorted(set(world.asked)), 'no model was asked the same twice'
    assert result.usage.requests == len(world.asked)


async def test_held_calls_of_a_child_do_not_run(answer: Answering) -> None:
    world = PausedWorld()
    child = Subagent('flat', 'x', model=world.model('flat', [wipe('a', 'a'), wipe('b', 'b')]), tools=world.tools())
    parent = Agent(world.model('top', task('flat', 't')), output_type=OUT, capabilities=[Subagents([child])])
    first = await parent.run('go', deps=DeepAgentDeps())
    second = await parent.run(
        conversation=first.conversation,
        deferred_tool_results=answer(first.output, {('t', 'a'): True}),
        deps=DeepAgentDeps(),
    )
    assert world.ran == ['wipe a']
    assert isinstance(second.output, DeferredToolRequests)
    third = await parent.run(
        conversation=second.conversation,
        deferred_tool_results=answer(second.output, {('t', 'b'): True}),
        deps=DeepAgentDeps(),
    )
    assert (world.ran, third.output) == (['wipe a', 'wipe b'], 'wiped a | wiped b')


async def test_subagents_and_approvals_capabilities_work_together(reload: Reload) -> None:
    world = PausedWorld()
    child = Subagent('flat', 'x', model=world.model('flat', [wipe('a', 'a'), look('b', 'b')]), tools=world.tools())

    def make() -> Agent[Any, Any]:
        capabilities: list[Any] = [Subagents([child]), Approvals(interrupt_on={'look': True, 'task': True})]
        return Agent(world.model('top', task('flat', 't')), output_type=OUT, capabilities=capabilities)

    result = await make().run('go', deps=DeepAgentDeps())
    shown = list[str]()
    for decision in ({'task': Approve()}, {'wipe': Deny('no')}, {'look': Approve()}):
        conversation = reload(result.conversation)
        waiting = pending_approvals(pending(conversation))
        shown += ['/'.join((*each.path, each.tool)) for each in waiting]
        decisions = {each.id: decision[each.tool] for each in waiting if each.tool in decision}
        answers = answer_approvals(pending(conversation), decisions)
        result = await make().run(conversation=conversation, deferred_tool_results=answers, deps=DeepAgentDeps())
    assert sorted(shown) == ['flat/look', 'flat/look', 'flat/wipe', 'task']
    assert world.ran == ['look b']
    assert result.output == 'no | saw b'


async def test_external_tool_call_of_a_child_is_deferred_and_answered() -> None:
    def remote() -> str:
        raise CallDeferred(metadata={'queue': 'q'})

    world = PausedWorld()
    child = Subagent('far', 'x', model=world.model('far', ToolCallPart('remote', {}, 'r')), tools=[remote])
    parent = Agent(world.model('top', task('far', 't')), output_type=OUT, capabilities=[Subagents([child])])
    first = await parent.run('go', deps=DeepAgentDeps())
    request = parse_request(first.output.metadata['t'])
    assert isinstance(request, DelegationRequest)
    assert ([each.tool_name for each in request.requests.calls], request.requests.metadata) == (
        ['remote'],
        {'r': {'queue': 'q'}},
    )
    answers = DelegationAnswers(request=request, results=request.requests.build_results(calls={'r': 'far away'}))
    results = first.output.build_results(approvals={'t': True}, metadata={'t': dump(answers)})
    second = await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert second.output == 'far away'


async def test_gated_task_call_starts_when_it_is_approved() -> None:
    world = PausedWorld()
    child = Subagent('flat', 'x', model=world.model('flat', 'fine'))
    capabilities: list[Any] = [Subagents([child]), Approvals(interrupt_on={'task': True})]
    parent = Agent(world.model('top', task('flat', 't')), output_type=OUT, capabilities=capabilities)
    first = await parent.run('go', deps=DeepAgentDeps())
    assert world.asked == ['top 0']
    [waiting] = pending_approvals(first.output)
    results = answer_approvals(first.output, {waiting.id: Approve()})
    await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert world.asked == ['top 0', 'flat 0', 'top 1']


async def test_a_bare_approval_of_a_gated_task_call_starts_it() -> None:
    world = PausedWorld()
    child = Subagent('flat', 'x', model=world.model('flat', 'fine'))
    capabilities: list[Any] = [Subagents([child]), Approvals(interrupt_on={'task': True})]
    parent = Agent(world.model('top', task('flat', 't')), output_type=OUT, capabilities=capabilities)
    first = await parent.run('go', deps=DeepAgentDeps())
    assert isinstance(first.output, DeferredToolRequests)
    results = first.output.build_results(approve_all=True)
    await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert world.asked == ['top 0', 'flat 0', 'top 1']


# State stored with a pause, besides the history.


async def test_a_child_resumes_in_its_conversation_with_its_todos(answer: Answering, reload: Reload) -> None:
    seen = list[Any]()

    def note(ctx: RunContext[DeepAgentDeps]) -> str:
        seen.append((ctx.conversation_id, list(ctx.deps.todos)))
        return 'ok'

    plan = call('write_todos', todos=[{'content': 'wipe', 'status': 'in_progress'}])
    steps = [plan, call('note'), wipe('a', 'a'), call('note')]
    parent, _, first = await pause_of(steps=steps, tools=[note], capabilities=[Todos()])
    conversation = reload(first.conversation)
    results = answer(pending(conversation), {('t', 'a'): True})
    second = await parent.run(conversation=conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert seen[0] == seen[1]
    assert seen[0][1] == [Todo(content='wipe', status='in_progress')]
    [delegated] = returns(second.all_messages())
    assert delegated.metadata['sub_agent_thread_id'] == seen[0][0]
    assert delegated.metadata['usage']['requests'] == 5


async def test_remaining_budget_survives_the_pause(answer: Answering, reload: Reload) -> None:
    steps = [look('1', '1'), wipe('a', 'a'), look('2', '2'), look('3', '3')]
    parent, world, first = await pause_of(steps=steps, usage_limits=UsageLimits(request_limit=3))
    conversation = reload(first.conversation)
    results = answer(pending(conversation), {('t', 'a'): True})
    second = await parent.run(conversation=conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert world.asked == ['top 0', 'flat 0', 'flat 1', 'flat 2', 'top 1']
    assert second.output.startswith("The subagent 'flat' exceeded its budget: ")
    assert '- wipe({"x":"a"}): success' in second.output


async def test_model_settings_survive_the_pause_without_secrets_and_unserializable_values(
    answer: Answering, reload: Reload
) -> None:
    seen = list[ModelSettings | None]()

    def play(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        seen.append(info.model_settings)
        return wipe('a', 'a') if len(messages) == 1 else 'done'

    world = PausedWorld()
    child = Subagent('flat', 'x', model=ScriptedModel(then=play), tools=world.tools())
    parent = Agent[Any, Any](world.model('top', task('flat', 't')), output_type=OUT, capabilities=[Subagents([child])])
    settings = ModelSettings(
        temperature=0.5, timeout=httpx.Timeout(5), extra_headers={'Authorization': 'secret'}, extra_body={'a': 1}
    )
    first = await parent.run('go', deps=DeepAgentDeps(), model_settings=settings)
    assert b'secret' not in ConversationTypeAdapter.dump_json(first.conversation)
    conversation = reload(first.conversation)
    results = answer(pending(conversation), {('t', 'a'): True})
    await parent.run(conversation=conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert seen == [settings, ModelSettings(temperature=0.5)]


async def test_child_with_third_party_deps_pauses_and_resumes(answer: Answering, reload: Reload) -> None:
    world = PausedWorld()
    child = Subagent('flat', 'x', model=world.model('flat', wipe('a', 'a')), tools=world.tools())
    parent = Agent[Any, Any](world.model('top', task('flat', 't')), output_type=OUT, capabilities=[Subagents([child])])
    first = await parent.run('go', deps='mine')
    conversation = reload(first.conversation)
    results = answer(pending(conversation), {('t', 'a'): True})
    second = await parent.run(conversation=conversation, deferred_tool_results=results, deps='mine')
    assert (second.output, world.ran) == ('wiped a', ['wipe a'])


async def test_child_with_structured_output_pauses_and_resumes(answer: Answering) -> None:
    class Report(BaseModel):
        text: str

    world = PausedWorld()
    script = ScriptedModel(wipe('a', 'a'), call('final_result', text='done'))
    child = Subagent('flat', 'x', model=script, output_type=Report, tools=world.tools())
    parent = Agent[Any, Any](
        ScriptedModel(task('flat', 't'), 'done'), output_type=OUT, capabilities=[Subagents([child])]
    )
    first = await parent.run('go', deps=DeepAgentDeps())
    results = answer(first.output, {('t', 'a'): True})
    second = await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    [part] = returns(second.all_messages())
    assert part.content == Report(text='done')


async def test_unserializable_pause_fails_the_call(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    def strange() -> str:
        raise ApprovalRequired(metadata={'handle': object()})

    child = Subagent('flat', 'x', model=ScriptedModel(call('strange')), tools=[strange])
    returned = await ask(child)
    assert returned.outcome == 'failed'
    assert "The subagent 'flat' failed: PydanticSerializationError: " in returned.content


# Agents with output validators.


def validated(world: PausedWorld, *steps: Answer, output_type: Any) -> Agent[Any, Any]:
    agent = Agent[Any, Any](ScriptedModel(*steps), output_type=output_type, tools=world.tools())

    @agent.output_validator
    def check(output: object) -> object:
        return output

    return agent


async def test_agent_with_output_validators_runs_unchanged(ask: Any) -> None:
    returned = await ask(Subagent('flat', 'x', agent=validated(PausedWorld(), 'fine', output_type=str)))
    assert returned.content == 'fine'


async def test_agent_with_output_validators_that_cannot_pause_fails(ask: Any) -> None:
    world = PausedWorld()
    agent = validated(world, wipe('a', 'a'), output_type=str)
    returned = await ask(Subagent('flat', 'x', agent=agent))
    assert returned.outcome == 'failed'
    assert returned.content.startswith(
        "The subagent 'flat' has a call that needs approval, but cannot pause: it has output validators"
    )
    assert world.ran == []


async def test_agent_with_output_validators_pauses_by_its_own_output_type(answer: Answering) -> None:
    world = PausedWorld()
    agent = validated(world, wipe('a', 'a'), 'done', output_type=OUT)
    parent = Agent[Any, Any](
        world.model('top', task('flat', 't')),
        output_type=OUT,
        capabilities=[Subagents([Subagent('flat', 'x', agent=agent)])],
    )
    first = await parent.run('go', deps=DeepAgentDeps())
    results = answer(first.output, {('t', 'a'): True})
    second = await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert (second.output, world.ran) == ('done', ['wipe a'])
