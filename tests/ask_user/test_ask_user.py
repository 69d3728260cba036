"""`AskUser`: the model asks, the run pauses, a person answers in any process, and the answer is the tool's result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError

from pydantic_deep import (
    ApprovalInbox,
    DeepAgentDeps,
    Deny,
    Respond,
    Subagent,
    VersionedAgent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.approvals import (
    Approve,
    Edit,
    InvalidDecisionError,
    PendingApproval,
    render_approval,
    view_approval,
)
from pydantic_deep.ask_user import AskUser
from pydantic_deep.extensions import Preview
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

ASK = call('ask_user', question='Which database?', choices=['SQLite', 'PostgreSQL'])


def agent_for(*steps: object, **options: object) -> Agent[DeepAgentDeps, str | DeferredToolRequests]:
    return create_deep_agent(ScriptedModel(*steps), interrupt_on={}, capabilities=[AskUser()], **options)  # type: ignore[call-overload,arg-type]


async def pending_question(agent: Agent[DeepAgentDeps, str | DeferredToolRequests]) -> PendingApproval:
    [pending] = pending_approvals((await agent.run('go', deps=DeepAgentDeps())).output)
    return pending


async def test_answer_of_the_user_is_the_result_of_the_call() -> None:
    """A question ends the run as a pending call; the answer is what the model receives."""
    agent = agent_for(ASK, 'Done.')
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    assert (pending.tool, pending.decisions) == ('ask_user', ('deny', 'respond'))
    results = answer_approvals(paused.output, {pending.id: Respond('PostgreSQL', digest=pending.digest)})
    result = await agent.run(deps=DeepAgentDeps(), message_history=paused.all_messages(), deferred_tool_results=results)
    assert result.output == 'Done.'
    [answer] = [part for part in result.new_messages()[0].parts if part.part_kind == 'tool-return']
    assert answer.content == 'PostgreSQL'


async def test_declined_question_has_the_reason_as_its_result() -> None:
    """A question may be declined, and the model receives the reason."""
    agent = agent_for(ASK, 'Done.')
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    results = answer_approvals(paused.output, {pending.id: Deny.because('ask my colleague')})
    result = await agent.run(deps=DeepAgentDeps(), message_history=paused.all_messages(), deferred_tool_results=results)
    assert 'ask my colleague' in str(result.new_messages()[0])


@pytest.mark.parametrize('decision', [Approve(), Edit({'question': 'Another?'})])
async def test_question_cannot_be_approved_or_edited(decision: Approve | Edit) -> None:
    """A question has nothing to run, so approving and editing are refused with the decisions that it takes."""
    agent = agent_for(ASK, 'Done.')
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    with pytest.raises(InvalidDecisionError, match='It takes: deny, respond'):
        answer_approvals(paused.output, {pending.id: decision})


async def test_question_and_choices_are_shown_once() -> None:
    """Interfaces show the question and its numbered choices, and do not repeat them as arguments."""
    pending = await pending_question(agent_for(ASK, 'Done.'))
    assert [argument.in_preview for argument in pending.view.arguments] == [True, True]
    assert render_approval(pending) == snapshot("""\
Tool: ask_user
Argument question: Which database?
Argument choices (JSON): ["SQLite", "PostgreSQL"]
Preview (question):
  | Which database?
Choice 1: SQLite
Choice 2: PostgreSQL\
""")


def test_hidden_characters_of_choices_are_escaped_and_counted() -> None:
    """A choice cannot hide what it says: invisible characters and newlines are escaped and counted."""
    preview = Preview(kind='question', text='Go?', choices=('yes\u202e', 'no\nyes'))
    view = view_approval(id='c', path=(), tool='ask_user', arguments={'question': 'Go?'}, preview=preview)
    assert view.preview is not None
    assert [''.join(choice) for choice in view.preview.choices] == ['yes\\u202e', 'no\\nyes']
    assert view.escapes == 2


def test_digest_covers_the_choices() -> None:
    """A decision on a question belongs to the choices that were shown."""
    digests = {
        view_approval(
            id='c',
            path=(),
            tool='ask_user',
            arguments={},
            preview=Preview(kind='question', text='Go?', choices=choices),
        ).digest
        for choices in ((), ('yes',), ('no',))
    }
    assert len(digests) == 3


def test_digests_of_other_calls_are_those_of_earlier_releases() -> None:
    """An update does not invalidate the digests of calls that people are looking at."""
    previews = (Preview(kind='command', text='ls'), None)
    assert [
        view_approval(id='c', path=(), tool='execute', arguments={'command': 'ls'}, preview=preview).digest
        for preview in previews
    ] == [
        'a222170da7c9dbc64f7be841e05658be3adf2fd04ff59c090a99ba9bc6d41711',
        'ed5c4465ed111b0d784d58b2642115057149d6b7e22cba1e54d4f2800c043275',
    ]


@pytest.mark.parametrize('arguments', [{'question': ' '}, {'question': 'Go?', 'choices': ['']}])
async def test_question_without_text_is_refused_and_nobody_is_asked(arguments: dict[str, object]) -> None:
    """A question or choice without text fails at once, with what to change."""
    model = ScriptedModel(call('ask_user', **arguments), 'Done.')
    agent = create_deep_agent(model, interrupt_on={}, capabilities=[AskUser()])
    result = await agent.run('go', deps=DeepAgentDeps())
    assert result.output == 'Done.'
    assert 'A question and its choices need text.' in str(model.requests[1].messages)


@dataclass
class GrantAll(AbstractCapability[object]):
    """Lets every call run without a person, as the grant of a skill does."""

    def is_preapproved(self, *, call: object, tool_def: object, args: object) -> bool:
        return True


async def test_grant_cannot_answer_a_question() -> None:
    """If a capability lets the call run without a person, the model learns that nobody was asked."""
    model = ScriptedModel(ASK, 'Done.')
    agent = create_deep_agent(model, interrupt_on={}, capabilities=[AskUser(), GrantAll()])
    await agent.run('go', deps=DeepAgentDeps())
    assert 'The user was not asked.' in str(model.requests[1].messages)


async def test_agent_that_cannot_pause_is_refused() -> None:
    """An agent without approvals cannot ask: its run ends before the first request with what to pass."""
    agent = Agent(ScriptedModel('Done.'), capabilities=[AskUser()])
    with pytest.raises(UserError, match=r'`AskUser` requires approvals.*Pass `interrupt_on=\{\}`'):
        await agent.run('go')


async def test_question_of_a_subagent_reaches_the_user_of_the_parent() -> None:
    """A subagent that has the capability asks through its parent, and continues with the answer."""
    child = ScriptedModel(ASK, 'It is PostgreSQL.')
    subagent = Subagent(name='dba', description='Databases', model=child, capabilities=[AskUser()])
    agent = create_deep_agent(
        ScriptedModel(call('task', subagent='dba', description='Choose'), 'Done.'),
        interrupt_on={},
        subagents=[subagent],
    )
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    assert (pending.path, pending.decisions) == (('dba',), ('deny', 'respond'))
    results = answer_approvals(paused.output, {pending.id: Respond('PostgreSQL')})
    result = await agent.run(deps=DeepAgentDeps(), message_history=paused.all_messages(), deferred_tool_results=results)
    assert result.output == 'Done.'
    assert 'PostgreSQL' in str(child.requests[1].messages[-1])


async def test_question_is_stored_and_answered_in_another_process(tmp_path: Path) -> None:
    """A question is in the version; the inbox answers it after a restart, and the turn replays exactly."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        paused = await (await VersionedAgent(agent_for(ASK), store).create()).advance('go')
        assert paused.state == 'awaiting_approval'
    async with open_store(url) as store:
        agent = VersionedAgent(agent_for('Done.'), store)
        [item] = await ApprovalInbox(store).list()
        assert (item.tool, item.view.preview and item.view.preview.kind) == ('ask_user', 'question')
        await ApprovalInbox(store).answer(item.id, Respond('PostgreSQL', digest=item.digest), by='me')
        version = await (await agent.load(paused.id)).resume()
        assert version.output == 'Done.'
        assert (await version.replay()).difference is None


async def test_question_costs_one_short_tool_and_no_instructions() -> None:
    """The capability adds one tool, and this text, to each request."""
    model = ScriptedModel('Done.')
    agent = create_deep_agent(
        model,
        interrupt_on={},
        capabilities=[AskUser()],
        include_todo=False,
        include_filesystem=False,
        include_subagents=False,
        summarization=False,
    )
    await agent.run('go', deps=DeepAgentDeps())
    [tool] = model.requests[0].tools
    assert (model.requests[0].instructions, tool.description, tool.parameters_json_schema) == snapshot(
        (
            None,
            'Ask the user. Offer choices if there are few answers.',
            {
                'properties': {
                    'question': {'type': 'string'},
                    'choices': {'items': {'type': 'string'}, 'type': 'array'},
                },
                'required': ['question'],
                'type': 'object',
            },
        )
    )


async def test_calls_of_other_tools_keep_their_previews() -> None:
    """The capability describes its own tool only."""

    def pay(amount: int) -> None: ...

    model = ScriptedModel(call('pay', amount=3))
    agent = create_deep_agent(model, interrupt_on={'pay': True}, tools=[pay], capabilities=[AskUser()])
    [pending] = pending_approvals((await agent.run('go', deps=DeepAgentDeps())).output)
    assert (pending.preview, pending.decisions) == (None, ('approve', 'edit', 'deny', 'respond'))
