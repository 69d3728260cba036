"""What `task` is, and what a child has and has not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps, Todo, Todos, create_deep_agent
from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep.subagents import InvalidSubagentError, Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call, deps_for_test

pytestmark = pytest.mark.anyio

Make = Callable[..., Agent[Any, Any]]


def worker(*steps: Answer, **options: Any) -> Subagent:
    return Subagent('worker', 'Works.', model=ScriptedModel(*steps), **options)


async def test_the_model_is_shown_one_tool_and_a_line_on_each_subagent() -> None:
    model = ScriptedModel('done')
    parent = Agent(model, capabilities=[Subagents([Subagent('worker', 'Works\n  hard.')])])
    await parent.run('go', deps=DeepAgentDeps())
    assert model.requests[0].instructions == (
        'Subagents for `task`:\n- general-purpose: a fresh copy of you, with your tools\n- worker: Works hard.'
    )
    [tool] = model.requests[0].tools
    assert (tool.name, tool.metadata) == ('task', {'effect': 'external', DELEGATES: True})
    assert list(tool.parameters_json_schema['properties']) == ['subagent', 'description']


async def test_the_room_is_not_there_without_subagents() -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Subagents(general_purpose=False)]).run('go', deps=DeepAgentDeps())
    assert (model.requests[0].instructions, model.requests[0].tool_names) == (None, [])


async def test_the_room_is_not_there_with_a_depth_of_0() -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Subagents()]).run('go', deps=DeepAgentDeps(max_depth=0))
    [request] = model.requests
    assert (request.instructions, request.tool_names) == (None, [])


async def test_an_unknown_subagent_is_a_retry_that_lists_the_others(parent: Make) -> None:
    agent = parent(call('task', subagent='wroker', description='x'), 'done', subagents=[worker()])
    result = await agent.run('go', deps=DeepAgentDeps())
    [returned] = returns(result.all_messages())
    assert returned.outcome == 'retried'
    assert returned.content == "There is no subagent 'wroker'. Subagents: general-purpose, worker."


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def test_a_child_starts_with_nothing_but_its_task_and_gives_nothing_but_its_answer(ask: Any) -> None:
    model = ScriptedModel('answer')
    returned = await ask(Subagent('worker', 'Works.', model=model, instructions='Be good.'))
    [request] = model.requests
    assert request.instructions == 'Be good.'
    [message] = request.messages
    assert [part.content for part in message.parts if isinstance(part, UserPromptPart)] == ['work']
    assert returned.content == 'answer'


async def test_a_result_says_where_the_childs_conversation_is_and_what_it_used(ask: Any) -> None:
    seen: list[str | None] = []

    def look(ctx: RunContext[object]) -> str:
        seen.append(ctx.conversation_id)
        return 'ok'

    returned = await ask(worker(call('look'), 'answer', tools=[look]))
    metadata = returned.metadata
    assert (metadata['sub_agent_thread_id'], metadata['subagent'], metadata['path']) == (seen[0], 'worker', ['worker'])
    usage = metadata['usage']
    assert (usage['requests'], usage['input_tokens'], usage['tool_calls']) == (2, 200, 1)


async def test_a_child_has_its_own_todos_and_subagents_and_the_same_files(ask: Any) -> None:
    seen: list[DeepAgentDeps] = []

    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        seen.append(ctx.deps)
        return 'ok'

    deps = DeepAgentDeps(todos=[Todo(content='mine')], metadata={'user': 1})
    await ask(worker(call('look'), call('write_todos', todos=[]), 'x', tools=[look], capabilities=[Todos()]), deps=deps)
    [child] = seen
    assert child is not deps
    assert (child.todos, child.subagents, child.max_depth) == ([], {}, 0)
    assert (child.backend, child.uploads, child.metadata) == (deps.backend, deps.uploads, deps.metadata)
    assert deps.todos == [Todo(content='mine')]


async def test_general_purpose_is_the_agent_itself_with_a_fresh_history() -> None:
    class Report(BaseModel):
        text: str

    model = ScriptedModel(
        call('task', subagent='general-purpose', description='look'),
        call('look'),
        'the answer',
        call('final_result', text='done'),
    )
    parent = Agent(
        model, output_type=Report, instructions='You are one.', deps_type=DeepAgentDeps, capabilities=[Subagents()]
    )

    @parent.tool
    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        return f'{ctx.agent is parent} {ctx.deps.max_depth}'

    result = await parent.run('go', deps=DeepAgentDeps())
    assert result.output == Report(text='done')
    _, asked, after, last = model.requests
    assert (asked.instructions, asked.tool_names) == ('You are one.', ['look'])
    assert [part.content for part in after.tool_returns] == ['True 0']
    assert [part.content for part in last.tool_returns] == ['the answer']


async def test_a_declared_subagent_replaces_the_general_one() -> None:
    model = ScriptedModel('mine')
    parent_model = ScriptedModel(call('task', subagent='general-purpose', description='x'), 'done')
    room = Subagents([Subagent('general-purpose', 'Mine.', model=model)])
    await Agent(parent_model, capabilities=[room]).run('go', deps=DeepAgentDeps())
    assert parent_model.requests[0].instructions == 'Subagents for `task`:\n- general-purpose: Mine.'
    assert [part.content for part in parent_model.requests[-1].tool_returns] == ['mine']


async def test_calls_of_one_response_run_at_the_same_time(parent: Make) -> None:
    entered = [anyio.Event(), anyio.Event()]

    async def meet(i: int) -> str:
        entered[i].set()
        with anyio.fail_after(60):
            await entered[1 - i].wait()
        return 'met'

    def play(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        if isinstance(messages[-1].parts[0], ToolReturnPart):
            return 'done'
        return call('meet', i=int(str(getattr(messages[0].parts[0], 'content', ''))))

    child = Subagent('worker', 'Works.', model=ScriptedModel(then=play), tools=[meet])
    calls = [call('task', subagent='worker', description=str(i)) for i in range(2)]
    agent = parent(calls, 'done', subagents=[child])
    result = await agent.run('go', deps=DeepAgentDeps())
    assert [part.content for part in returns(result.all_messages())] == ['done', 'done']


# The agents of subagents: built on first use, and found again.


def counting(built: list[str]) -> Callable[[Subagent], Agent[Any, Any]]:
    def build(subagent: Subagent) -> Agent[Any, Any]:
        built.append(f'{subagent.name}: {subagent.instructions}')
        return Agent(subagent.model, name=subagent.name)

    return build


async def test_a_subagent_is_built_on_first_use_and_once_for_its_deps(ask: Any) -> None:
    built: list[str] = []
    room = Subagents([worker('a', 'b'), Subagent('other', 'x')], build=counting(built))
    deps = deps_for_test()
    assert built == []
    await ask(*room.subagents, room=room, deps=deps)
    await ask(*room.subagents, room=room, deps=deps)
    assert built == ['worker: None']
    assert list(deps.subagents) == ['worker']


async def test_two_first_uses_at_the_same_time_build_once() -> None:
    built: list[str] = []
    child = Subagent('worker', 'Works.', model=ScriptedModel(then=lambda m, i: 'x'))
    model = ScriptedModel([call('task', subagent='worker', description=str(i)) for i in range(5)], 'done')
    room = Subagents([child], build=counting(built))
    await Agent(model, capabilities=[room]).run('go', deps=DeepAgentDeps())
    assert built == ['worker: None']


async def test_a_changed_description_is_rebuilt(ask: Any) -> None:
    built: list[str] = []
    deps, build = DeepAgentDeps(), counting(built)
    for instructions in ('one', 'two', 'two'):
        child = Subagent('worker', 'Works.', model='test', instructions=instructions)
        await ask(child, room=Subagents([child], build=build), deps=deps)
    assert built == ['worker: one', 'worker: two']


async def test_an_agent_that_the_user_supplies_wins(ask: Any) -> None:
    mine = Agent(ScriptedModel('mine', 'mine'))
    assert (await ask(worker('x'), deps=DeepAgentDeps(subagents={'worker': mine}))).content == 'mine'
    ready = Subagent('worker', 'Works.', agent=Agent(ScriptedModel('ready')))
    assert (await ask(ready, deps=DeepAgentDeps(subagents={'worker': mine}))).content == 'mine'


async def test_a_supplied_general_purpose_agent_wins() -> None:
    mine = Agent(ScriptedModel('mine'))
    model = ScriptedModel(call('task', subagent='general-purpose', description='x'), 'done')
    await Agent(model, capabilities=[Subagents()]).run('go', deps=DeepAgentDeps(subagents={'general-purpose': mine}))
    assert [part.content for part in model.requests[-1].tool_returns] == ['mine']


async def test_something_else_in_the_place_of_an_agent_is_a_failed_result(
    ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    returned = await ask(worker('x'), deps=DeepAgentDeps(subagents={'worker': 'openai:gpt'}))
    assert returned.outcome == 'failed'
    assert "`deps.subagents['worker']` is str, which is not an agent" in returned.content


async def test_a_builder_that_raises_is_a_failed_result(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    def build(subagent: Subagent) -> Agent[Any, Any]:
        raise LookupError('no such skill')

    child = worker('x')
    returned = await ask(child, room=Subagents([child], build=build))
    assert (returned.outcome, returned.content) == (
        'failed',
        "The subagent 'worker' cannot be built: LookupError: no such skill",
    )
    assert caplog.messages == ["Subagent 'worker' cannot be built"]


async def test_several_rooms_of_one_agent_are_one(ask: Any) -> None:
    model = ScriptedModel('done')
    rooms = [Subagents([worker()]), Subagents([Subagent('other', 'Does more.')], general_purpose=False)]
    await Agent(model, capabilities=rooms).run('go', deps=DeepAgentDeps())
    assert model.requests[0].instructions == 'Subagents for `task`:\n- worker: Works.\n- other: Does more.'


async def test_a_capability_that_will_not_be_inherited_is_a_failed_result(caplog: pytest.LogCaptureFixture) -> None:
    class Unwilling(AbstractCapability[Any]):
        def for_subagent(self) -> AbstractCapability[Any]:
            raise LookupError('no')

    model = ScriptedModel(call('task', subagent='worker', description='x'), 'done')
    await Agent(model, capabilities=[Subagents([worker('x')]), Unwilling()]).run('go', deps=DeepAgentDeps())
    [returned] = model.requests[-1].tool_returns
    assert (returned.outcome, returned.content) == (
        'failed',
        "The subagent 'worker' cannot be built: LookupError: no",
    )


# Any agent, any deps.


@dataclass
class Theirs:
    name: str


async def test_third_party_deps_are_passed_unchanged_and_agents_cached_per_run() -> None:
    seen: list[object] = []
    built: list[str] = []

    def build(subagent: Subagent) -> Agent[Any, Any]:
        built.append(subagent.name)
        child = Agent(ScriptedModel(then=lambda m, i: 'x' if len(m) > 1 else call('look')), deps_type=Theirs)

        @child.tool
        def look(ctx: RunContext[Theirs]) -> str:
            seen.append(ctx.deps)
            return ctx.deps.name

        return child

    task = call('task', subagent='worker', description='x')
    model = ScriptedModel(task, task, 'done', task, 'done')
    parent = Agent(model, deps_type=Theirs, capabilities=[Subagents([Subagent('worker', 'Works.')], build=build)])
    deps = Theirs('me')
    await parent.run('go', deps=deps)
    assert (seen, built) == ([deps, deps], ['worker'])
    await parent.run('go', deps=deps)
    assert built == ['worker', 'worker']


async def test_a_wrapped_agent_is_an_agent(ask: Any) -> None:
    wrapped = WrapperAgent(Agent(ScriptedModel('wrapped')))
    assert (await ask(Subagent('worker', 'x', agent=wrapped))).content == 'wrapped'


async def test_without_any_deps_a_child_has_the_subagents_that_it_declares(ask: Any) -> None:
    inner = Subagent('inner', 'x', model='test')
    model = ScriptedModel('answer')
    parent_model = ScriptedModel(call('task', subagent='worker', description='x'), 'done')
    room = Subagents([Subagent('worker', 'x', model=model, subagents=[inner])])
    await Agent(parent_model, capabilities=[room]).run('go')
    assert model.requests[0].tool_names == ['task']
    assert parent_model.requests[-1].tool_returns[0].content == 'answer'


# Depth.


def nested(*names: str, leaf: ScriptedModel, **options: Any) -> Subagent:
    """Return a chain of subagents, each of which hands everything on to the next."""
    name, *rest = names
    if not rest:
        return Subagent(name, 'x', model=leaf)
    model = ScriptedModel(then=lambda m, i: 'no task' if not i.function_tools else hand_on(m, rest[0]))
    return Subagent(name, 'x', model=model, subagents=[nested(*rest, leaf=leaf)], **options)


def hand_on(messages: list[ModelMessage], name: str) -> Answer:
    found = returns(messages)
    return str(found[-1].content) if found else call('task', subagent=name, description='on')


async def test_declared_subagents_can_be_reached(ask: Any) -> None:
    """Depth comes from what is declared: under default deps every declared subagent can be called, at any level.

    A limit of its own that leaves room for them changes nothing, and what declares no subagents has no `task`.
    """
    for options in ({}, {'max_depth': 3}, {'max_depth': 9}):
        leaf = ScriptedModel(then=lambda m, i: f'leaf {sorted(tool.name for tool in i.function_tools)}')
        assert (await ask(nested('a', 'b', 'c', 'd', leaf=leaf, **options))).content == 'leaf []'


async def test_declared_subagents_of_deep_and_of_ready_agents_can_be_reached() -> None:
    """The same holds for agents that the factory builds, and for ready ones; the agent itself gets no `task`."""
    leaf = Subagent('leaf', 'x', model=ScriptedModel('leaf', 'leaf'))

    def mid(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        return hand_on(messages, 'leaf')

    ready = Subagent('ready', 'x', agent=create_deep_agent(ScriptedModel(then=mid), subagents=[leaf]))
    built = Subagent('mid', 'x', model=ScriptedModel(then=mid), max_depth=2, subagents=[leaf])
    general = ScriptedModel(
        [call('task', subagent=name, description='go') for name in ('mid', 'ready', 'general-purpose')],
        then=lambda m, i: 'general' if 'task' not in [tool.name for tool in i.function_tools] else 'done',
    )
    await create_deep_agent(general, subagents=[built, ready]).run('go', deps=DeepAgentDeps())
    returned = next(each.tool_returns for each in general.requests if len(each.tool_returns) == 3)
    assert [part.content for part in returned] == ['leaf', 'leaf', 'general']


@pytest.mark.parametrize(('deps', 'options'), [(DeepAgentDeps(max_depth=1), {}), (DeepAgentDeps(), {'max_depth': 0})])
async def test_a_limit_that_cuts_declared_subagents_off_says_so(
    ask: Any, caplog: pytest.LogCaptureFixture, deps: DeepAgentDeps, options: dict[str, int]
) -> None:
    """A limit on the depth that leaves no level for declared subagents is not silent: the log names both."""
    leaf = ScriptedModel('leaf')
    room = Subagents([nested('a', 'b', leaf=leaf, **options)])
    returned = await ask(nested('a', 'b', leaf=leaf, **options), deps=deps, room=room)
    assert (returned.content, len(leaf.requests)) == ('no task', 0)
    [said] = [record.message for record in caplog.records if 'max_depth' in record.message]
    assert said.startswith("The subagent 'a' cannot call the subagents that it declares ('b'): `max_depth` of the deps")


def test_more_levels_than_can_run_are_refused_where_they_are_declared() -> None:
    """The number of levels that can be declared has a limit, and the error says it."""
    leaf = ScriptedModel('leaf')
    assert nested(*map(str, range(16)), leaf=leaf).name == '0'
    with pytest.raises(InvalidSubagentError, match='more than 16 levels of subagents are declared'):
        nested(*map(str, range(17)), leaf=leaf)
    below = nested(*map(str, range(16)), leaf=leaf)
    with pytest.raises(InvalidSubagentError, match='more than 16 levels'):
        Subagent('ready', 'x', agent=Agent(leaf, capabilities=[Subagents([below])]))


async def test_the_deepest_tree_that_can_be_declared_runs(ask: Any) -> None:
    """All sixteen levels are reached."""
    assert (await ask(nested(*map(str, range(16)), leaf=ScriptedModel('leaf')))).content == 'leaf'


async def test_levels_that_are_built_without_end_meet_the_same_limit() -> None:
    """A builder that gives every agent a subagent is stopped at the limit, with its chain."""
    deepest: list[str] = []

    def then(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        found = returns(messages)
        if not found:
            return call('task', subagent='a', description='on')
        deepest.append(str(found[-1].content))
        return 'done'

    again = Subagent('a', 'x')

    def build(subagent: Subagent) -> Agent[Any, Any]:
        return Agent(ScriptedModel(then=then), capabilities=[Subagents([again], build=build)])

    await Agent(ScriptedModel(then=then), capabilities=[Subagents([again], build=build)]).run(
        'go', deps=DeepAgentDeps()
    )
    chain = ' > '.join(['a'] * 17)
    assert deepest[0] == f'At most 16 levels of subagents run, so {chain} cannot. Do it yourself.'
    assert len(deepest) == 17


@pytest.mark.parametrize('deps', [DeepAgentDeps(max_depth=3), DeepAgentDeps(max_depth=9)])
async def test_a_depth_of_3_gives_three_levels(ask: Any, deps: DeepAgentDeps) -> None:
    places: list[Any] = []

    def place(ctx: RunContext[DeepAgentDeps]) -> str:
        places.append((ctx.metadata, ctx.deps.max_depth))
        return 'ok'

    inner = Subagent('c', 'x', model=ScriptedModel(call('place'), 'leaf'), tools=[place])
    middle = Subagent(
        'b', 'x', model=ScriptedModel(call('task', subagent='c', description='x'), 'b'), subagents=[inner]
    )
    outer = Subagent(
        'a', 'x', model=ScriptedModel(call('task', subagent='b', description='x'), 'a'), subagents=[middle]
    )
    returned = await ask(outer, deps=deps)
    assert deps.max_depth is not None
    left = deps.max_depth - 3
    assert returned.content == 'a'
    assert places == [({'pydantic_deep': {'path': ['a', 'b', 'c'], 'max_depth': left}}, left)]
    assert returned.metadata['usage']['requests'] == 6


async def test_a_subagent_may_allow_fewer_levels_than_its_parent_leaves(ask: Any) -> None:
    leaf = ScriptedModel('leaf', 'leaf')
    assert (await ask(nested('a', 'b', leaf=leaf, max_depth=0), deps=DeepAgentDeps(max_depth=9))).content == 'no task'
    assert (await ask(nested('a', 'b', leaf=leaf, max_depth=7), deps=DeepAgentDeps(max_depth=2))).content == 'leaf'


async def test_levels_are_counted_in_the_metadata_where_deps_do_not_know_of_them() -> None:
    leaf = ScriptedModel('leaf')
    model = ScriptedModel(call('task', subagent='a', description='x'), 'done')
    parent = Agent(model, deps_type=Theirs, capabilities=[Subagents([nested('a', 'b', 'c', leaf=leaf)])])
    metadata: dict[str, Any] = {'mine': 1, 'pydantic_deep': {'path': [], 'max_depth': 3}}
    await parent.run('go', deps=Theirs('me'), metadata=metadata)
    assert model.requests[-1].tool_returns[0].content == 'leaf'


async def test_metadata_of_somebody_else_under_our_key_is_the_top(ask: Any) -> None:
    returned = await ask(worker('x'), metadata={'pydantic_deep': 'theirs'})
    assert returned.metadata['path'] == ['worker']


async def test_a_call_in_a_history_that_went_deeper_is_refused_with_its_chain() -> None:
    child = worker()
    history: list[ModelMessage] = [ModelResponse([call('task', subagent='worker', description='x')])]
    model = ScriptedModel('done')
    parent = Agent(model, capabilities=[Subagents([child])])
    metadata: dict[str, Any] = {'pydantic_deep': {'path': ['a', 'b'], 'max_depth': 0}}
    await parent.run(message_history=history, deps=DeepAgentDeps(max_depth=0), metadata=metadata)
    [returned] = model.requests[0].tool_returns
    assert returned.outcome == 'failed'
    assert str(returned.content).startswith(
        'No more levels of subagents are allowed here, so a > b > worker cannot run.'
    )
    assert model.requests[0].tool_names == []
