"""Results of pydantic-ai itself, not made by `answer_approvals`: no decision in them goes past a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart, ToolReturn

from pydantic_deep._messages.deferred_metadata import (
    DELEGATES,
    CallRequest,
    DelegationAnswers,
    DelegationRequest,
    Edited,
    Responded,
    dump,
)
from pydantic_deep.approvals import (
    ApprovalRule,
    Approvals,
    Approve,
    Deny,
    Edit,
    InvalidDecisionError,
    Respond,
    answer_approvals,
    pending_approvals,
)
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

DeskType = Callable[..., Any]
ran: list[object] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def wipe(x: object) -> str:
    ran.append(x)
    return 'wiped'


def wiping(x: object) -> ToolCallPart:
    return ToolCallPart('wipe', {'x': x}, tool_call_id='c')


def is_no_list(args: Mapping[str, Any]) -> bool:
    return args['command'] != 'ls'


def never(args: Mapping[str, Any]) -> bool:
    return False


def rule(*decisions: Any, **more: Any) -> dict[str, ApprovalRule]:
    return {'wipe': ApprovalRule(decisions=decisions, **more)}


@pytest.mark.parametrize(('before', 'after'), [('a', 'b'), (1, True), (1, 1.0), ([1], [1.0]), ({'k': 0}, {'k': False})])
async def test_raw_override_arguments_are_an_edit(desk: DeskType, before: object, after: object) -> None:
    """`ToolApproved(override_args=…)` is an edit: where the rule takes none, the call runs with no other arguments.

    Arguments are compared as JSON, so that `1`, `1.0` and `true` are different.
    """
    seen = await desk(wiping(before), tools=[wipe], interrupt_on=rule('approve', 'deny')).start()
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': after})}))
    assert (ran, [dict(each.arguments) for each in seen.pending]) == ([], [{'x': before}])
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': before})}))
    assert ran == [before]


async def test_raw_override_arguments_run_where_the_rule_takes_edits(desk: DeskType) -> None:
    """A rule that takes edits takes raw ones too."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('edit')).start()
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': 'b'})}))
    assert ran == ['b']


@pytest.mark.parametrize('more', [{'allow': ['ls']}, {'when': is_no_list}])
async def test_an_edit_to_what_would_run_unasked_is_still_an_edit(desk: DeskType, more: dict[str, Any]) -> None:
    """The decisions are those of the call that waits, also where the edited one would not have asked."""

    def execute(command: str) -> str:
        ran.append(command)
        return 'ok'

    gates = {'execute': ApprovalRule(decisions=('approve', 'deny'), **more)}
    call = ToolCallPart('execute', {'command': 'rm x'}, tool_call_id='c')
    seen = await desk(call, tools=[execute], interrupt_on=gates).start()
    edited = ToolApproved(override_args={'command': 'ls'})
    await seen.resume(DeferredToolResults(approvals={'c': edited}))
    assert (seen.ids, ran) == (['c'], [])
    forged = Edited(request=dump(CallRequest()), args={'command': 'ls'})
    await seen.resume(DeferredToolResults(approvals={'c': edited}, metadata={'c': dump(forged)}))
    assert (seen.ids, ran) == (['c'], [])


async def test_a_raw_approval_where_the_rule_takes_none_asks_again(desk: DeskType) -> None:
    """A tool that asks by itself is approved only if the rule lets a person approve it."""

    def wipe(ctx: RunContext[Any], x: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        ran.append(x)
        return 'wiped'

    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('deny', when=never)).start()
    await seen.resume(DeferredToolResults(approvals={'c': True}))
    assert ([each.decisions for each in seen.pending], ran) == ([('deny',)], [])


@pytest.mark.parametrize('decisions', [('approve',), ('approve', 'edit')])
@pytest.mark.parametrize(
    ('given', 'kind'),
    [
        ({'approvals': {'c': False}}, 'deny'),
        ({'approvals': {'c': ToolDenied('no')}}, 'deny'),
        ({'calls': {'c': ToolFailed('no')}}, 'deny'),
        ({'calls': {'c': 'made up'}}, 'respond'),
        ({'calls': {'c': ToolReturn('made up')}}, 'respond'),
        ({'calls': {'c': ModelRetry('again')}}, 'respond'),
    ],
)
async def test_a_raw_result_that_the_rule_does_not_take_is_refused_before_anything_runs(
    desk: DeskType, given: dict[str, Any], kind: str, decisions: Any
) -> None:
    """A denial or a result in the place of a gated call is refused where the rule does not offer it."""
    calls = [wiping('a'), ToolCallPart('wipe', {'x': 'b'}, tool_call_id='d')]
    seen = await desk(calls, tools=[wipe], interrupt_on=rule(*decisions)).start()
    results = DeferredToolResults(**given)
    results.approvals['d'] = True
    with pytest.raises(InvalidDecisionError, match=f'does not accept the decision {kind!r}, and has not run'):
        await seen.resume(results)
    assert ran == []


async def test_a_raw_result_that_the_rule_takes_is_the_result(desk: DeskType) -> None:
    """A result in the place of a call is what the model is told, where the rule offers to respond."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('respond')).start()
    await seen.resume(DeferredToolResults(calls={'c': 'made up'}))
    assert (seen.results, ran) == ({'c': ('success', 'made up')}, [])


async def test_a_response_by_forged_metadata_asks_again(desk: DeskType) -> None:
    """An approval whose metadata carry a response is one, and asks again where the rule takes none."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('approve')).start()
    forged = dump(Responded(content='made up'))
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved()}, metadata={'c': forged}))
    assert (seen.ids, ran) == (['c'], [])


async def test_answers_of_a_rule_that_has_become_stricter_are_not_taken(desk: DeskType) -> None:
    """What a rule takes is decided when a run acts on the answer: another process may have a stricter one."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('approve', 'respond')).start()
    results = answer_approvals(seen.output, {'c': Respond('made up')})
    seen._interrupt_on = rule('approve')
    await seen.resume(results)
    assert ([each.decisions for each in seen.pending], ran) == ([('approve',)], [])


@pytest.mark.parametrize('decisions', [('approve',), ('edit',)])
async def test_a_rule_on_the_delegating_tool_holds_for_its_arguments(desk: DeskType, decisions: Any) -> None:
    """Answers for a subagent carry no other arguments of the delegating call, unless its rule takes edits."""

    def task(ctx: RunContext[Any], x: str) -> str:
        ran.append(x)
        return 'ok'

    from pydantic_ai import FunctionToolset

    toolset = FunctionToolset[Any]()
    toolset.add_function(task, metadata={DELEGATES: True})
    below = DeferredToolRequests(approvals=[wiping('b')], metadata={'c': dump(CallRequest())})
    request = DelegationRequest(subagent='kid', conversation_id='k', messages=[], requests=below)
    answers = dump(DelegationAnswers(request=request, results=DeferredToolResults(approvals={'c': True})))
    call = ToolCallPart('task', {'x': 'a'}, tool_call_id='t')
    seen = await desk(call, toolset=toolset, interrupt_on={'task': ApprovalRule(decisions=decisions)}).start()
    approved = ToolApproved(override_args={'x': 'b'})
    await seen.resume(DeferredToolResults(approvals={'t': approved}, metadata={'t': answers}))
    assert (seen.ids, ran) == ((['t'], []) if decisions == ('approve',) else ([], ['b']))


async def test_a_deferred_call_handler_cannot_edit_against_the_rule() -> None:
    """A capability that answers within the run is bound by the rule too."""

    class Edits(AbstractCapability[Any]):
        async def handle_deferred_tool_calls(
            self, ctx: RunContext[Any], *, requests: DeferredToolRequests
        ) -> DeferredToolResults:
            return DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': 'b'})})

    agent = Agent(
        ScriptedModel(wiping('a'), 'done'),
        tools=[wipe],
        output_type=[str, DeferredToolRequests],
        capabilities=[Edits(), Approvals(interrupt_on=rule('approve', 'deny'))],
    )
    result = await agent.run('go')
    assert ([each.id for each in pending_approvals(result.output)], ran) == (['c'], [])


@pytest.mark.parametrize('decisions', [('approve',), ('approve', 'edit', 'respond')])
@pytest.mark.parametrize('is_alone', [True, False])
@pytest.mark.parametrize('denial', [False, ToolDenied('no')])
async def test_a_deferred_call_handler_cannot_deny_against_the_rule(
    decisions: Any, is_alone: bool, denial: Any
) -> None:
    """A raw denial within the run is checked as one between runs is, also where another call waits on."""

    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(approvals={'c': denial})

    calls = [wiping('a'), *([] if is_alone else [ToolCallPart('wipe', {'x': 'b'}, tool_call_id='d')])]
    agent = Agent(
        ScriptedModel(calls, 'done'),
        tools=[wipe],
        output_type=[str, DeferredToolRequests],
        capabilities=[HandleDeferredToolCalls(handle), Approvals(interrupt_on=rule(*decisions))],
    )
    with pytest.raises(
        InvalidDecisionError, match="The call 'c' of 'wipe' does not accept the decision 'deny', and has not run"
    ):
        await agent.run('go')
    assert ran == []


async def test_a_handler_in_the_run_can_deny_what_a_person_can(desk: DeskType) -> None:
    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approvals={'c': False, 'd': True})

    seen = await desk(
        [wiping('a'), ToolCallPart('wipe', {'x': 'b'}, tool_call_id='d')],
        tools=[wipe],
        interrupt_on=rule('approve', 'deny'),
        capabilities=lambda: [HandleDeferredToolCalls(handle)],
    ).start()
    assert (ran, seen.results['c'][0], seen.results['d']) == (['b'], 'denied', ('success', 'wiped'))


async def test_answers_for_tools_that_are_not_there_or_not_gated_are_left_to_pydantic_ai(desk: DeskType) -> None:
    """Results of calls that no rule gates are taken as they are."""

    def asks(ctx: RunContext[Any]) -> str:
        raise ApprovalRequired

    seen = await desk(ToolCallPart('asks', {}, tool_call_id='c'), tools=[asks], interrupt_on={}).start()
    await seen.answer(Deny('no'))
    assert seen.results == {'c': ('denied', 'no')}
    again = await desk(ToolCallPart('asks', {}, tool_call_id='c'), tools=[asks], interrupt_on={}).start()
    again._tools = []
    await again.resume(DeferredToolResults(calls={'c': 'made up'}))
    assert again.results == {'c': ('success', 'made up')}


async def test_an_edit_that_another_rule_does_not_allow_asks_again(desk: DeskType) -> None:
    """The edited call is decided by the rules on it too: one that takes no edit asks again."""

    def is_b(args: Mapping[str, Any]) -> bool:
        return args['x'] == 'b'

    parent = rule('deny', when=is_b)
    seen = await desk(
        wiping('a'),
        tools=[wipe],
        interrupt_on=rule('edit'),
        capabilities=lambda: [Approvals(interrupt_on=parent).for_subagent()],
    ).start()
    await seen.answer(Edit({'x': 'b'}))
    assert ([each.decisions for each in seen.pending], ran) == ([('deny',)], [])


async def test_what_was_edited_before_can_be_approved(desk: DeskType) -> None:
    """Only the decisions of the call count: an approval of the model's own arguments is no edit."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('approve')).start()
    await seen.answer(Approve())
    assert ran == ['a']
