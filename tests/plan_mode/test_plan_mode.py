"""`PlanMode`: nothing changes before a person accepts the plan, in any process, subagent, branch or summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    SystemPromptPart,
    TextContent,
    ToolReturnPart,
    UserContent,
)

from pydantic_deep import (
    Approve,
    AskUser,
    DeepAgentDeps,
    Deny,
    Edit,
    Respond,
    StateBackend,
    Subagent,
    VersionedAgent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.approvals import ApprovalRule, Decision
from pydantic_deep.plan_mode import PlanMode, accepted_plan, with_plan_mode
from pydantic_deep.plan_mode._history import ON
from pydantic_deep.store import open_store
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

PLAN = '1. Write /a.txt.'
PROPOSE = call('propose_plan', plan=PLAN)
WRITE = call('write_file', path='/a.txt', content='a')
REFUSED = 'Plan mode is on: this call may change something and did not run. Only read until the plan is accepted.'


def make_agent(model: ScriptedModel, *capabilities: Any, **options: Any) -> Agent[DeepAgentDeps, Any]:
    options = {'interrupt_on': {}, **options}
    return create_deep_agent(model, capabilities=capabilities or [PlanMode()], **options)


def results(messages: list[ModelMessage]) -> list[tuple[str, object]]:
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [(part.tool_name, part.content) for part in parts]


def notices(messages: list[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
    return [part.content for part in parts if part.content.startswith('Plan mode:')]


async def run(agent: Agent[DeepAgentDeps, Any], *decisions: Decision, prompt: Any = 'go') -> Any:
    """Run a turn, answer each pause with the next decision, and return the last result."""
    deps = DeepAgentDeps(backend=StateBackend())
    result = await agent.run(prompt, deps=deps)
    for decision in decisions:
        answers = {pending.id: decision for pending in pending_approvals(result.output)}
        answered = answer_approvals(result.output, answers)
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answered, deps=deps)
    return result


async def test_empty_plan_is_refused_and_nobody_is_asked() -> None:
    """A person cannot decide on a plan without text."""
    agent = make_agent(ScriptedModel(call('propose_plan', plan=' \n'), PROPOSE))
    result = await agent.run('Write.', deps=DeepAgentDeps())
    [pending] = pending_approvals(result.output)
    assert pending.arguments == {'plan': PLAN}
    assert results(result.all_messages()) == [('propose_plan', 'A plan needs text. Nobody was asked.')]


async def test_agent_only_reads_until_its_plan_is_accepted() -> None:
    """A write is refused without asking anybody, the plan pauses the run, and the same write runs after it is accepted."""
    model = ScriptedModel([WRITE, call('ls')], PROPOSE, WRITE, 'Done.')
    paused = await run(make_agent(model, interrupt_on={'write_file': False}))
    [pending] = pending_approvals(paused.output)
    assert (pending.tool, pending.arguments) == ('propose_plan', {'plan': PLAN})
    assert results(paused.all_messages())[0] == ('write_file', REFUSED)
    done = await run(make_agent(ScriptedModel([WRITE, call('ls')], PROPOSE, WRITE, 'Done.')), Approve())
    assert done.output == 'Done.'
    assert [name for name, content in results(done.all_messages()) if content != REFUSED] == [
        'ls',
        'propose_plan',
        'write_file',
    ]
    assert accepted_plan(done.all_messages()) == PLAN


async def test_write_that_needs_approval_is_refused_before_anybody_is_asked() -> None:
    """A rule that asks for writes does not ask in plan mode."""
    model = ScriptedModel(WRITE, PROPOSE)
    paused = await run(make_agent(model, interrupt_on={'write_file': True}))
    assert [pending.tool for pending in pending_approvals(paused.output)] == ['propose_plan']


@pytest.mark.parametrize('decision', [Deny.because('Smaller.'), Respond('Smaller.')])
async def test_rejected_plan_keeps_the_mode_on(decision: Decision) -> None:
    """A denial and an answer in words are not an acceptance: the next write is refused too."""
    done = await run(make_agent(ScriptedModel(PROPOSE, WRITE, 'Done.')), decision)
    (_, feedback), (_, write) = results(done.all_messages())
    assert 'Smaller.' in str(feedback)
    assert (write, accepted_plan(done.all_messages())) == (REFUSED, None)


async def test_plan_is_accepted_with_the_edits_of_the_person() -> None:
    """A person can change the plan, and the changed plan is the accepted one."""
    model = ScriptedModel(PROPOSE, WRITE, 'Done.')
    done = await run(make_agent(model), Edit({'plan': '1. Write /b.txt.'}))
    assert accepted_plan(done.all_messages()) == '1. Write /b.txt.'
    prompts = [part.content for part in model.requests[1].messages[-1].parts if part.part_kind == 'user-prompt']
    assert 'Write /b.txt' in str(prompts)
    assert results(done.all_messages())[1][1] != REFUSED


async def test_tools_without_a_declared_effect_are_refused() -> None:
    """Only a declared effect `read` is trusted to change nothing."""
    calls: list[str] = []

    def look() -> str:
        calls.append('look')
        return 'seen'

    done = await run(make_agent(ScriptedModel(call('look'), 'Done.'), PlanMode(), tools=[look]))
    assert (results(done.all_messages()), calls) == ([('look', REFUSED)], [])


async def test_todos_and_questions_are_allowed() -> None:
    """The model may note its todos and ask the user while it plans."""
    todos = call('write_todos', todos=[{'content': 'Look', 'status': 'pending'}])
    ask = call('ask_user', question='Which?')
    done = await run(make_agent(ScriptedModel(todos, ask, 'Done.'), PlanMode(), AskUser()), Respond('This.'))
    (_, saved), (_, answer) = results(done.all_messages())
    assert (str(saved).startswith('Saved.'), answer) == (True, 'This.')


async def test_no_rule_and_no_grant_allows_a_change() -> None:
    """Plan mode is stricter than rules that let calls run."""
    agent = make_agent(
        ScriptedModel(WRITE, 'Done.'), PlanMode(), interrupt_on={'write_file': ApprovalRule(allow=('/**',))}
    )
    assert results((await run(agent)).all_messages()) == [('write_file', REFUSED)]


async def test_approved_call_does_not_run_after_the_mode_was_switched_on() -> None:
    """An approval from before plan mode does not let a call run during it."""
    deps = DeepAgentDeps(backend=StateBackend())
    model = ScriptedModel(WRITE, 'Done.')
    paused = await make_agent(model, PlanMode(starts_on=False), interrupt_on={'write_file': True}).run('go', deps=deps)
    first, *rest = paused.all_messages()
    assert isinstance(first, ModelRequest)
    history = [replace(first, parts=[SystemPromptPart(f'Plan mode:\n{ON}'), *first.parts]), *rest]
    answers = answer_approvals(paused.output, {pending.id: Approve() for pending in pending_approvals(paused.output)})
    done = await make_agent(model, PlanMode(), interrupt_on={'write_file': True}).run(
        message_history=history, deferred_tool_results=answers, deps=deps
    )
    assert results(done.all_messages()) == [('write_file', REFUSED)]


async def test_subagents_only_read_too_and_propose_nothing() -> None:
    """A subagent is bound by the mode of its parent, and does not have the tool for plans."""
    child = ScriptedModel(WRITE, 'Looked.')
    subagent = Subagent(name='scout', description='Looks', model=child)
    task = call('task', subagent='scout', description='Look')
    await run(make_agent(ScriptedModel(task, 'Done.'), PlanMode(), subagents=[subagent]))
    assert results(child.requests[1].messages) == [('write_file', REFUSED)]
    assert 'propose_plan' not in child.requests[0].tool_names


async def test_subagents_change_files_after_the_plan_was_accepted() -> None:
    """Acceptance applies to the subagents of the turn."""
    child = ScriptedModel(WRITE, 'Written.')
    subagent = Subagent(name='scout', description='Writes', model=child)
    task = call('task', subagent='scout', description='Write')
    await run(make_agent(ScriptedModel(PROPOSE, task, 'Done.'), PlanMode(), subagents=[subagent]), Approve())
    assert results(child.requests[1].messages)[0][1] != REFUSED


async def test_general_purpose_subagent_has_the_mode_of_its_parent_only() -> None:
    """It is the agent itself, but proposes nothing, and is not in plan mode after its parent's plan was accepted."""
    task = call('task', description='Write')
    model = ScriptedModel(task, WRITE, 'Looked.', PROPOSE, task, WRITE, 'Written.', 'Done.')
    await run(make_agent(model, PlanMode()), Approve())
    first, second = model.requests[2], model.requests[6]
    assert 'propose_plan' not in first.tool_names
    assert notices(first.messages) == []
    assert results(first.messages) == [('write_file', REFUSED)]
    assert results(second.messages)[0][1] != REFUSED


async def test_model_is_informed_once_before_the_prompt() -> None:
    """The notice comes before the first prompt, and the tools stay the same, so that no prefix changes."""
    model = ScriptedModel(PROPOSE, 'Done.', 'More.')
    agent = make_agent(model)
    done = await run(agent, Approve())
    again = await agent.run('more', deps=DeepAgentDeps(), message_history=done.all_messages())
    assert notices(again.all_messages()) == snapshot(
        [
            """\
Plan mode:
on. Change nothing. Find out what the task needs, then call propose_plan.\
"""
        ]
    )
    assert len({tuple(request.tool_names) for request in model.requests}) == 1


async def test_plan_that_nobody_asked_for_fails_at_once() -> None:
    """Outside of plan mode, a plan does not pause the run."""
    done = await run(make_agent(ScriptedModel(PROPOSE, 'Done.'), PlanMode(starts_on=False)))
    assert results(done.all_messages()) == [('propose_plan', 'Plan mode is off. Carry out the task.')]
    assert notices(done.all_messages()) == []


async def test_prompt_switches_the_mode() -> None:
    """A prompt switches the mode on and off; prompts that do neither leave it as it is."""
    agent = make_agent(ScriptedModel('1', WRITE, '2', WRITE, '3', WRITE, '4'), PlanMode(starts_on=False))
    deps, history = DeepAgentDeps(backend=StateBackend()), list[ModelMessage]()
    outcomes: list[bool] = []
    for prompt in ('a', with_plan_mode('b'), ['c'], with_plan_mode('d', is_on=False)):
        result = await agent.run(prompt, deps=deps, message_history=history)
        history = result.all_messages()
        outcomes += [content == REFUSED for _, content in results(result.new_messages())]
    assert outcomes == [True, True, False]


@pytest.mark.parametrize(
    ('prompt', 'texts'),
    [
        ('Go', ['Go']),
        ([BinaryContent(b'x', media_type='image/png'), 'Go', 'now'], ['Go', 'now']),
        ([TextContent('Go', metadata={'mine': 1})], ['Go']),
    ],
)
def test_switching_prompt_has_the_same_texts(prompt: Any, texts: list[str]) -> None:
    """The switch is in the metadata of a text, so the model receives the same prompt."""
    switched = with_plan_mode(prompt)
    assert [
        item.content if isinstance(item, TextContent) else item
        for item in switched
        if not isinstance(item, BinaryContent)
    ] == texts
    [metadata] = [item.metadata for item in switched if isinstance(item, TextContent)]
    assert metadata['pydantic_deep_plan_mode'] is True
    assert metadata.get('mine') == (1 if isinstance(prompt[0], TextContent) else None)


def test_prompt_without_text_cannot_switch() -> None:
    """A prompt of media alone is refused with what to add."""
    prompt: list[UserContent] = [BinaryContent(b'x', media_type='image/png')]
    with pytest.raises(ValueError, match='has no text'):
        with_plan_mode(prompt)


async def test_agent_that_cannot_pause_is_refused() -> None:
    """Without approvals nobody could accept a plan, so the run ends before the first request."""
    agent = Agent(ScriptedModel('Done.'), capabilities=[PlanMode()])
    with pytest.raises(UserError, match='`PlanMode` requires approvals'):
        await agent.run('go')


async def test_plan_is_part_of_the_version(tmp_path: Path) -> None:
    """The pending plan is stored, accepted in another process, part of the version, and replayed exactly."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        root = await VersionedAgent(make_agent(ScriptedModel(WRITE, PROPOSE)), store).create()
        paused = await root.advance('go')
        assert (paused.state, accepted_plan(await paused.messages())) == ('awaiting_approval', None)
    async with open_store(url) as store:
        agent = VersionedAgent(make_agent(ScriptedModel(WRITE, 'Done.')), store)
        loaded = await agent.load(paused.id)
        done = await loaded.resume({pending.id: Approve() for pending in loaded.pending})
        assert (done.output, accepted_plan(await done.messages())) == ('Done.', PLAN)
        assert await (await done.files()).read_bytes('/a.txt') == b'a'
        assert (await done.replay()).difference is None


@pytest.mark.parametrize(('decision', 'refused', 'plan'), [(Approve(), False, PLAN), (Deny(), True, None)])
async def test_mode_and_plan_survive_a_summary(decision: Decision, refused: bool, plan: str | None) -> None:
    """A summary that replaces the dialogue retains the mode, and the accepted plan word by word."""
    agent = make_agent(
        ScriptedModel(PROPOSE, 'a', WRITE, 'b', WRITE, 'c'),
        PlanMode(),
        Summarization(
            trigger=Messages(4), keep=Messages(1), summarizer=ScriptedModel(then=lambda messages, info: 'Summary.')
        ),
    )
    first = await run(agent, decision)
    deps = DeepAgentDeps(backend=StateBackend())
    second = await agent.run('more', deps=deps, message_history=first.all_messages())
    third = await agent.run('again', deps=deps, message_history=second.all_messages())
    assert 'Summary.' in str(third.all_messages()[0])
    written = [content for result in (second, third) for _, content in results(result.new_messages())]
    assert [content == REFUSED for content in written] == [refused, refused]
    assert accepted_plan(third.all_messages()) == plan
    summary = next(part for part in third.all_messages()[0].parts if isinstance(part, CompactionPart))
    assert (f'Accepted plan:\n{PLAN}' in str(summary.content)) is (plan is not None)
    assert ('Plan mode:\non.' in str(summary.content)) is refused


async def test_summary_of_a_conversation_without_plans_is_unchanged() -> None:
    """A conversation that was never in plan mode has nothing about it in its summary."""
    agent = make_agent(
        ScriptedModel('a', 'b', 'c'),
        PlanMode(starts_on=False),
        Summarization(
            trigger=Messages(4), keep=Messages(1), summarizer=ScriptedModel(then=lambda messages, info: 'Summary.')
        ),
    )
    history: list[ModelMessage] = []
    for prompt in 'xyz':
        history = (await agent.run(prompt, deps=DeepAgentDeps(), message_history=history)).all_messages()
    assert 'Summary.' in str(history[0])
    assert 'Plan mode' not in str(history)


async def test_cost_is_one_short_tool() -> None:
    """Plan mode costs one tool in each request, and a notice when the mode changes."""
    model = ScriptedModel('Done.')
    await run(
        make_agent(
            model,
            PlanMode(),
            include_todo=False,
            include_filesystem=False,
            include_subagents=False,
            summarization=False,
        )
    )
    [tool] = model.requests[0].tools
    assert (model.requests[0].instructions, tool.description, tool.parameters_json_schema) == snapshot(
        (
            None,
            'In plan mode: propose the plan, in Markdown, to the user.',
            {
                'properties': {'plan': {'type': 'string'}},
                'required': ['plan'],
                'type': 'object',
            },
        )
    )
