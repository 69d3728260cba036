"""Answers that do not belong to pending calls: nothing runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelMessagesTypeAdapter, UserError
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    StateBackend,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep._messages.deferred_metadata import (
    DelegationAnswers,
    DelegationRequest,
    StillPending,
    dump,
    parse_request,
)
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import OUT, PausedWorld, pause_of, returns, task, wipe

pytestmark = pytest.mark.anyio


async def test_an_unanswered_delegation_stays_pending_and_does_not_run() -> None:
    parent, world, first = await pause_of()
    results = first.output.build_results(
        approvals={'t': True}, metadata={'t': dump(StillPending(request=first.output.metadata['t']))}
    )
    asked = len(world.asked)
    second = await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert second.output == first.output
    assert (len(world.asked), world.ran) == (asked, [])


async def test_bare_approval_of_a_delegation_is_refused_before_anything_runs() -> None:
    parent, world, first = await pause_of()
    results = first.output.build_results(approve_all=True)
    with pytest.raises(
        UserError, match="The call 't' of 'task' is approved, but the pending calls of its subagent are not"
    ):
        await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert (world.ran, world.asked) == ([], ['top 0', 'flat 0'])


async def test_bare_approval_within_the_run_fails_the_delegation() -> None:
    world = PausedWorld()
    child = Subagent('flat', 'x', model=world.model('flat', wipe('a', 'a')), tools=world.tools())

    async def approve(ctx: Any, requests: DeferredToolRequests) -> Any:
        return requests.build_results(approve_all=True)

    capabilities: list[Any] = [Subagents([child]), HandleDeferredToolCalls(approve)]
    parent = Agent[Any, Any](world.model('top', task('flat', 't')), output_type=OUT, capabilities=capabilities)
    result = await parent.run('go', deps=DeepAgentDeps())
    assert (world.ran, world.asked) == ([], ['top 0', 'flat 0', 'top 1'])
    [delegated] = returns(result.all_messages())
    assert delegated.outcome == 'failed'
    assert str(delegated.content).startswith("The subagent 'flat' needs answers, and a plain approval has none")


async def go_on(change: Callable[[dict[str, Any]], None]) -> tuple[str, PausedWorld]:
    """Return the output of the parent after a change of the stored state of its child."""
    parent, world, first = await pause_of()
    request = parse_request(first.output.metadata['t'])
    assert isinstance(request, DelegationRequest)
    answers = DelegationAnswers(request=request, results=request.requests.build_results(approve_all=True))
    carried = json.loads(json.dumps(dump(answers)))
    change(carried['pydantic_deep'])
    results = first.output.build_results(approvals={'t': True}, metadata={'t': carried})
    second = await parent.run(conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    assert [part.outcome for part in returns(second.all_messages())] == ['failed']
    return second.output, world


def with_request(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda value: value['request'].update(changes)


def of_no_kind(value: dict[str, Any]) -> None:
    value['kind'] = 'unheard of'


def others(value: dict[str, Any]) -> None:
    message = ModelResponse([TextPart('hi')], conversation_id='another')
    value['request']['messages'] = ModelMessagesTypeAdapter.dump_python([message], mode='json')


def answered(value: dict[str, Any]) -> None:
    message = ModelResponse([TextPart('hi')], conversation_id=value['request']['conversation_id'])
    value['request']['messages'] = ModelMessagesTypeAdapter.dump_python([message], mode='json')


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        (of_no_kind, 'The subagent cannot resume: The metadata of a pending call has an unknown format'),
        (with_request(messages=[{'kind': 'nonsense'}]), 'its stored state is damaged'),
        (with_request(messages=None), 'its stored state is damaged'),
        (with_request(state={'usage': 'much'}), 'its stored state is damaged'),
        (with_request(state={'usage': {'requests': -1}}), 'its stored state is damaged'),
        (with_request(state={'usage': {'details': {'x': -1}}}), 'its stored state is damaged'),
        (with_request(state={'usage': {'audio_seconds': 'NaN'}}), 'its stored state is damaged'),
        (with_request(messages=[]), 'its stored state belongs to another conversation'),
        (with_request(subagent='general-purpose'), "the answers are for 'general-purpose'"),
        (others, 'its stored state belongs to another conversation'),
        (answered, 'Tool call results were provided, but the message history does not contain any unprocessed'),
    ],
)
async def test_invalid_answers_fail_the_call(
    change: Callable[[dict[str, Any]], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    told, world = await go_on(change)
    assert said in told
    assert world.ran == []


async def test_calls_at_two_depths_can_be_answered_one_by_one() -> None:
    """A subagent resumes after any number of partial answers, also if its own calls got results before."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        prompt = next(str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))
        if any(isinstance(message, ModelResponse) for message in messages):
            return f'{prompt} done'
        match prompt:
            case 'go':
                return call('task', subagent='upper', description='upper')
            case 'upper':
                task = call('task', subagent='lower', description='lower')
                return [call('write_file', path=f'/{name}', content='') for name in 'ab'] + [task]
            case _:
                return [call('write_file', path=f'/{name}', content='') for name in 'cd']

    upper = Subagent('upper', 'x', subagents=[Subagent('lower', 'x')])
    agent = create_deep_agent(ScriptedModel(then=answer), subagents=[upper], interrupt_on={'write_file': True})
    files = StateBackend()
    deps = DeepAgentDeps(backend=files)
    result = await agent.run('go', deps=deps)
    while not isinstance(result.output, str):
        first, *_ = pending_approvals(result.output)
        answers = answer_approvals(result.output, {first.id: Approve()})
        result = await agent.run(conversation=result.conversation, deferred_tool_results=answers, deps=deps)
    assert [part.content for part in returns(result.all_messages())] == ['upper done']
    assert (await files.glob('*')).paths == ('/a', '/b', '/c', '/d')
