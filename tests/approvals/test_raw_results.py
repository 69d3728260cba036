"""Results built with pydantic-ai itself instead of `answer_approvals` cannot bypass a rule."""

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
async def test_raw_override_arguments_count_as_an_edit(desk: DeskType, before: object, after: object) -> None:
    """`ToolApproved(override_args=…)` is an edit. If the rule does not accept edits, the call does not run with other
    arguments.

    Arguments are compared as JSON, so `1`, `1.0` and `true` are different.
    """
    seen = await desk(wiping(before), tools=[wipe], interrupt_on=rule('approve', 'deny')).start()
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': after})}))
    assert (ran, [dict(each.arguments) for each in seen.pending]) == ([], [{'x': before}])
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': before})}))
    assert ran == [before]


async def test_raw_override_arguments_run_if_the_rule_accepts_edits(desk: DeskType) -> None:
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('edit')).start()
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved(override_args={'x': 'b'})}))
    assert ran == ['b']


@pytest.mark.parametrize('more', [{'allow': ['ls']}, {'when': is_no_list}])
async def test_edit_to_an_ungated_call_is_still_an_edit(desk: DeskType, more: dict[str, Any]) -> None:
    """The decisions of the pending call apply, even if the edited call would not require approval."""

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


async def test_raw_approval_asks_again_if_the_rule_does_not_accept_it(desk: DeskType) -> None:
    """A tool that raises `ApprovalRequired` can be approved only if the rule accepts approvals."""

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
async def test_raw_result_not_accepted_by_the_rule_is_refused_before_any_call(
    desk: DeskType, given: dict[str, Any], kind: str, decisions: Any
) -> None:
    """A denial of or a result for a gated call is refused if the rule does not offer it."""
    calls = [wiping('a'), ToolCallPart('wipe', {'x': 'b'}, tool_call_id='d')]
    seen = await desk(calls, tools=[wipe], interrupt_on=rule(*decisions)).start()
    results = DeferredToolResults(**given)
    results.approvals['d'] = True
    with pytest.raises(InvalidDecisionError, match=f'does not accept the decision {kind!r}, and has not run'):
        await seen.resume(results)
    assert ran == []


async def test_raw_result_accepted_by_the_rule_is_used(desk: DeskType) -> None:
    """If the rule offers to respond, the model gets the given result."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('respond')).start()
    await seen.resume(DeferredToolResults(calls={'c': 'made up'}))
    assert (seen.results, ran) == ({'c': ('success', 'made up')}, [])


async def test_response_in_forged_metadata_asks_again(desk: DeskType) -> None:
    """An approval whose metadata contain a response counts as a response, and asks again if the rule accepts none."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('approve')).start()
    forged = dump(Responded(content='made up'))
    await seen.resume(DeferredToolResults(approvals={'c': ToolApproved()}, metadata={'c': forged}))
    assert (seen.ids, ran) == (['c'], [])


async def test_answers_are_checked_with_the_current_rule(desk: DeskType) -> None:
    """Decisions are checked when a run acts on them, because another process may have a stricter rule."""
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('approve', 'respond')).start()
    results = answer_approvals(seen.output, {'c': Respond('made up')})
    seen._interrupt_on = rule('approve')
    await seen.resume(results)
    assert ([each.decisions for each in seen.pending], ran) == ([('approve',)], [])


@pytest.mark.parametrize('decisions', [('approve',), ('edit',)])
async def test_rule_of_the_delegating_tool_applies_to_its_arguments(desk: DeskType, decisions: Any) -> None:
    """Answers for a subagent cannot change the arguments of the delegating call, unless its rule accepts edits."""

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


async def test_deferred_call_handler_cannot_edit_against_the_rule() -> None:
    """The rule also applies to a capability that answers within the run."""

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
async def test_deferred_call_handler_cannot_deny_against_the_rule(decisions: Any, is_alone: bool, denial: Any) -> None:
    """A raw denial within the run is checked like one between runs, even if another call stays pending."""

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


async def test_handler_within_the_run_can_deny_if_the_rule_accepts_it(desk: DeskType) -> None:
    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approvals={'c': False, 'd': True})

    seen = await desk(
        [wiping('a'), ToolCallPart('wipe', {'x': 'b'}, tool_call_id='d')],
        tools=[wipe],
        interrupt_on=rule('approve', 'deny'),
        capabilities=lambda: [HandleDeferredToolCalls(handle)],
    ).start()
    assert (ran, seen.results['c'][0], seen.results['d']) == (['b'], 'denied', ('success', 'wiped'))


async def test_answers_for_ungated_or_missing_tools_are_left_to_pydantic_ai(desk: DeskType) -> None:
    """Results of calls without a rule are used unchanged."""

    def asks(ctx: RunContext[Any]) -> str:
        raise ApprovalRequired

    seen = await desk(ToolCallPart('asks', {}, tool_call_id='c'), tools=[asks], interrupt_on={}).start()
    await seen.answer(Deny('no'))
    assert seen.results == {'c': ('denied', 'no')}
    again = await desk(ToolCallPart('asks', {}, tool_call_id='c'), tools=[asks], interrupt_on={}).start()
    again._tools = []
    await again.resume(DeferredToolResults(calls={'c': 'made up'}))
    assert again.results == {'c': ('success', 'made up')}


async def test_edit_not_accepted_by_another_rule_asks_again(desk: DeskType) -> None:
    """The edited call is also checked by the other rules, and asks again if one of them does not accept edits."""

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


async def test_approval_of_unchanged_arguments_is_not_an_edit(desk: DeskType) -> None:
    seen = await desk(wiping('a'), tools=[wipe], interrupt_on=rule('approve')).start()
    await seen.answer(Approve())
    assert ran == ['a']
