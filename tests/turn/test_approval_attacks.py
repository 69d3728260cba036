"""Reused, misplaced and ungated answers; misleading names, patterns and siblings."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic_ai import Agent, ApprovalRequired, ConversationTypeAdapter, DeferredToolRequests, FunctionToolset
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.toolsets import DynamicToolset

from pydantic_deep import (
    ApprovalRule,
    Approve,
    DeepAgentDeps,
    Deny,
    Edit,
    Respond,
    Skill,
    Subagent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.testing import Answer, ScriptedModel

pytestmark = pytest.mark.anyio

Steps = list[ToolCallPart]

GO = [ToolCallPart('task', {'subagent': 'kid', 'description': 'go'}, tool_call_id='t')]


def call(tool: str, id: str, **args: object) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=id)


def play(*steps: Steps) -> ScriptedModel:
    """Answer by the number of responses so far, in any process."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        done = sum(isinstance(message, ModelResponse) for message in messages)
        return list(steps[done]) if done < len(steps) else 'done'

    return ScriptedModel(then=answer)


def reload(conversation: Any) -> Any:
    return ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))


def outcomes(result: Any) -> list[tuple[str, str]]:
    parts = [part for message in result.all_messages() for part in message.parts]
    return [(part.outcome, part.model_response_str()) for part in parts if isinstance(part, ToolReturnPart)]


class Wiper:
    def __init__(self) -> None:
        self.ran: list[str] = []

    def wipe(self, x: str) -> str:
        self.ran.append(x)
        return f'wiped {x}'

    def wipe_all(self) -> str:
        self.ran.append('all')
        return 'wiped'

    def execute(self, command: str) -> str:
        self.ran.append(command)
        return 'ok'


@pytest.fixture
def wiper() -> Wiper:
    return Wiper()


def parent(wiper: Wiper, *args: str) -> Agent[DeepAgentDeps, str | DeferredToolRequests]:
    calls = [call('wipe', f'c{number}', x=x) for number, x in enumerate(args)]
    kid = Subagent('kid', 'Wipes.', model=play(calls), tools=[wiper.wipe])
    return create_deep_agent(play(GO), tools=[wiper.wipe], subagents=[kid], interrupt_on={'wipe': True})


async def resume(agent: Agent[Any, Any], conversation: Any, results: Any, deps: DeepAgentDeps | None = None) -> Any:
    return await agent.run(
        conversation=reload(conversation), deferred_tool_results=results, deps=deps or DeepAgentDeps()
    )


async def test_partial_answers_of_a_subagent_are_used_once(wiper: Wiper) -> None:
    first = await parent(wiper, 'a', 'b').run('go', deps=DeepAgentDeps())
    results = answer_approvals(first.output, {'t/c0': Approve()})
    second = await resume(parent(wiper, 'a', 'b'), first.conversation, results)
    assert wiper.ran == ['a']
    with pytest.raises(UserError, match=r"the subagent 'kid' \(call 't'\) were already used"):
        await resume(parent(wiper, 'a', 'b'), second.conversation, results)
    assert wiper.ran == ['a']
    rest = answer_approvals(second.output, {'t/c1': Approve()})
    third = await resume(parent(wiper, 'a', 'b'), second.conversation, rest)
    assert (third.output, wiper.ran) == ('done', ['a', 'b'])
    assert third.usage.details == {}


async def test_answers_of_another_conversation_are_refused(wiper: Wiper) -> None:
    ann = await parent(wiper, 'ann').run('go', deps=DeepAgentDeps())
    bob = await parent(wiper, 'bob').run('go', deps=DeepAgentDeps())
    results = answer_approvals(ann.output, {'t/c0': Approve()})
    with pytest.raises(UserError, match='belong to another conversation'):
        await resume(parent(wiper, 'bob'), bob.conversation, results)
    assert wiper.ran == []


async def test_fork_of_a_conversation_accepts_its_answers(wiper: Wiper) -> None:
    first = await parent(wiper, 'a').run('go', deps=DeepAgentDeps())
    forked = await parent(wiper, 'a').run(
        message_history=first.all_messages(),
        conversation_id='new',
        deferred_tool_results=answer_approvals(first.output, {'t/c0': Approve()}),
        deps=DeepAgentDeps(),
    )
    assert (forked.output, wiper.ran) == ('done', ['a'])


async def test_answers_for_a_missing_subagent_raise(wiper: Wiper) -> None:
    first = await parent(wiper, 'a').run('go', deps=DeepAgentDeps())
    results = answer_approvals(first.output, {'t/c0': Approve()})
    without = create_deep_agent(play(GO), interrupt_on={})
    with pytest.raises(UserError, match="are for the subagent 'kid', and this agent has general-purpose"):
        await resume(without, first.conversation, results)


@pytest.mark.parametrize('is_bare', [False, True])
@pytest.mark.parametrize('tool', ['wipe', 'wipe_all'])
@pytest.mark.parametrize('answers', [{}, {'c0': Respond('by hand')}])
async def test_unapproved_calls_do_not_run_after_the_gate_is_removed(
    wiper: Wiper, is_bare: bool, tool: str, answers: dict[str, Any]
) -> None:
    args = {'x': 'a'} if tool == 'wipe' else {}
    steps = [call(tool, 'c0', **args), call('wipe', 'c1', x='b')]
    tools = [wiper.wipe, wiper.wipe_all]
    gated = {'wipe': True, 'wipe_all': True}
    first = await create_deep_agent(play(steps), tools=tools, interrupt_on=gated).run('go', deps=DeepAgentDeps())
    results = answer_approvals(first.output, {'c1': Deny('no'), **answers})
    later: Agent[Any, Any] = Agent(play(steps), tools=tools, output_type=[str, DeferredToolRequests])
    await resume(later if is_bare else create_deep_agent(play(steps), tools=tools), first.conversation, results)
    assert wiper.ran == []


@pytest.mark.parametrize('way', ['core', 'forged', 'stricter'])
async def test_allowed_decisions_are_enforced_on_resume(wiper: Wiper, way: str) -> None:
    strict = {'wipe': ApprovalRule(decisions=('deny', 'respond'))}

    def agent(rules: Any) -> Agent[Any, Any]:
        return create_deep_agent(play([call('wipe', 'c0', x='a')]), tools=[wiper.wipe], interrupt_on=rules)

    first = await agent({'wipe': True} if way == 'stricter' else strict).run('go', deps=DeepAgentDeps())
    conversation = reload(first.conversation)
    requests = conversation.deferred_tool_requests
    if way == 'forged':
        requests.metadata['c0']['pydantic_deep']['decisions'] = ['approve']
    results = (
        requests.build_results(approve_all=True) if way == 'core' else answer_approvals(requests, {'c0': Approve()})
    )
    again = await resume(agent(strict), conversation, results)
    assert [pending.decisions for pending in pending_approvals(again.output)] == [('deny', 'respond')]
    assert wiper.ran == []


async def test_misspelt_tool_name_in_a_subagent_raises_before_the_first_request(wiper: Wiper) -> None:
    model = play()
    kid = Subagent('kid', 'Wipes.', model=play(), tools=[wiper.wipe], interrupt_on={'wpe': True})
    nested = Subagent('mid', 'Asks kid.', subagents=[kid])
    for subagent in (kid, nested):
        with pytest.raises(UserError, match=r"`interrupt_on` of the subagent 'kid' names 'wpe'.* wipe, write_file"):
            await create_deep_agent(model, subagents=[subagent], interrupt_on={}).run('go', deps=DeepAgentDeps())
    assert model.requests == []


@pytest.mark.parametrize('per_run_step', [False, True])
async def test_dynamic_tool_of_a_subagent_can_be_gated(wiper: Wiper, per_run_step: bool) -> None:
    made = DynamicToolset[object](lambda ctx: FunctionToolset([wiper.wipe]), id='server', per_run_step=per_run_step)
    kid = Subagent('kid', 'Wipes.', model=play([call('wipe', 'c0', x='a')]), toolsets=[made])
    agent = create_deep_agent(play(GO), subagents=[kid], interrupt_on={'wipe': True})
    result = await agent.run('go', deps=DeepAgentDeps())
    assert [pending.id for pending in pending_approvals(result.output)] == ['t/c0']


async def test_tool_of_a_later_step_can_be_gated(wiper: Wiper, caplog: pytest.LogCaptureFixture) -> None:
    made = DynamicToolset[DeepAgentDeps](lambda ctx: FunctionToolset([wiper.wipe]) if ctx.run_step > 1 else None)
    steps = play([call('ls', 'l', path='/')], [call('wipe', 'c0', x='a')])
    with caplog.at_level(logging.WARNING, logger='pydantic_deep'):
        result = await create_deep_agent(steps, toolsets=[made], interrupt_on={'wipe': True}).run(
            'go', deps=DeepAgentDeps()
        )
    assert [pending.id for pending in pending_approvals(result.output)] == ['c0']
    assert caplog.messages == ["`interrupt_on` names 'wipe'; no tool has this name yet"]


@pytest.mark.parametrize(
    ('tool', 'args'),
    [
        ('ls', {'path': '/secret'}),
        ('grep', {'pattern': 'top', 'path': '/secret'}),
        ('grep', {'pattern': 'top'}),
        ('glob', {'pattern': '/secret/*'}),
    ],
)
async def test_search_tools_with_deny_patterns_ask(tool: str, args: dict[str, Any]) -> None:
    deps = DeepAgentDeps()
    await deps.backend.write_bytes('/secret/x', b'top\n')
    rule = ApprovalRule(when=lambda args: False, deny=['/secret/**'])
    result = await create_deep_agent(play([call(tool, 'c0', **args)]), interrupt_on={tool: rule}).run('go', deps=deps)
    assert [pending.tool for pending in pending_approvals(result.output)] == [tool]


async def test_patterns_that_do_not_apply_to_a_tool_ask(wiper: Wiper) -> None:
    rule = ApprovalRule(when=lambda args: False, deny=['/secret/**'], allow=['**'])
    model = play([call('wipe', 'c0', x='a')])
    result = await create_deep_agent(model, tools=[wiper.wipe], interrupt_on={'wipe': rule}).run(
        'go', deps=DeepAgentDeps()
    )
    assert [pending.tool for pending in pending_approvals(result.output)] == ['wipe']


async def test_skill_loaded_by_a_subagent_does_not_lift_gates_of_its_parent(wiper: Wiper) -> None:
    skill = Skill('tidy', 'Tidies.', body='Tidy.', allowed_tools=('execute(rm *)',))
    steps = play([call('load_skill', 'l', name='tidy')], [call('execute', 'c0', command='rm a')])
    kid = Subagent('kid', 'Wipes.', model=steps, tools=[wiper.execute], skills=[skill])
    agent = create_deep_agent(
        play(GO), tools=[wiper.execute], include_filesystem=False, subagents=[kid], interrupt_on={'execute': True}
    )
    result = await agent.run('go', deps=DeepAgentDeps())
    assert [pending.id for pending in pending_approvals(result.output)] == ['t/c0']


async def test_foreign_approval_metadata_fails_the_call_and_not_the_run() -> None:
    def ask(x: str) -> str:
        raise ApprovalRequired(metadata={'pydantic_deep': {'kind': 'nothing'}})

    agent = create_deep_agent(play([call('ask', 'c0', x='a')]), tools=[ask], interrupt_on={})
    result = await agent.run('go', deps=DeepAgentDeps())
    assert result.output == 'done'
    assert [outcome for outcome, _ in outcomes(result)] == ['failed']


@pytest.mark.parametrize('line', ['>x rm y', '2>/dev/null rm x', 'coproc rm x', 'function f { rm x; }; f', '2>&1 rm x'])
async def test_denied_command_is_found_behind_redirections_and_keywords(wiper: Wiper, line: str) -> None:
    def agent() -> Agent[Any, Any]:
        rules = {'execute': ApprovalRule(deny=['rm *'])}
        model = play([call('execute', 'c0', command=line)])
        return create_deep_agent(model, tools=[wiper.execute], include_filesystem=False, interrupt_on=rules)

    result = await agent().run('go', deps=DeepAgentDeps())
    assert (result.output, wiper.ran) == ('done', [])


async def test_shell_keyword_is_not_a_simple_command(wiper: Wiper) -> None:
    rules = {'execute': ApprovalRule(allow=['*'])}
    model = play([call('execute', 'c0', command='coproc rm x')])
    agent = create_deep_agent(model, tools=[wiper.execute], include_filesystem=False, interrupt_on=rules)
    result = await agent.run('go', deps=DeepAgentDeps())
    assert [pending.tool for pending in pending_approvals(result.output)] == ['execute']


@pytest.mark.parametrize('edits', [False, True])
async def test_call_is_asked_again_after_a_sibling_changed_its_file(edits: bool) -> None:
    deps = DeepAgentDeps()
    writes = [call('write_file', f'c{number}', path='/a', content=f'{number}\n') for number in (1, 2)]

    def agent() -> Agent[Any, Any]:
        return create_deep_agent(play(writes), interrupt_on={'write_file': True})

    first = await agent().run('go', deps=deps)
    second: Any = Edit({'path': '/a', 'content': 'two\n'}) if edits else Approve()
    results = answer_approvals(first.output, {'c1': Approve(), 'c2': second})
    again = await resume(agent(), first.conversation, results, deps)
    [waiting] = pending_approvals(again.output)
    assert waiting.preview is not None
    assert str(waiting.preview) == f'--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+{"two" if edits else "2"}'
    assert await deps.backend.read_bytes('/a') == b'1\n'
