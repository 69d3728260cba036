"""A call runs only as it was shown: the same tool, arguments and files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests, FunctionToolset, RunContext, Tool, ToolApproved, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import SkipToolValidation, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolResults

from pydantic_deep._messages.deferred_metadata import KEY, CallRequest, DelegationRequest, dump
from pydantic_deep.approvals import ApprovalRule, Approve, Deny, Edit, Preview, answer_approvals

pytestmark = pytest.mark.anyio

DeskType = Callable[..., Any]
Make = Callable[..., Any]

ran: list[object] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def wipe(x: str) -> str:
    ran.append(x)
    return f'wiped {x}'


def save(path: str, content: str = '') -> str:
    ran.append(content or path)
    return 'saved'


def wiping(x: object = 'a', id: str = 'c1') -> ToolCallPart:
    return ToolCallPart('wipe', {'x': x}, tool_call_id=id)


SAVING = ToolCallPart('save', {'path': '/a', 'content': 'new'}, tool_call_id='c')
GATED = {'wipe': True}


async def test_failing_preview_is_logged_and_the_next_one_is_used(
    desk: DeskType, fake_previews: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(AbstractCapability[Any]):
        async def preview(self, ctx: object, *, call: object, tool_def: object, args: object) -> Preview:
            raise OSError('disk')

    def save(path: str) -> str:
        return 'saved'

    with caplog.at_level(logging.WARNING, 'pydantic_deep'):
        seen = await desk(
            ToolCallPart('save', {'path': '/a'}, tool_call_id='c'),
            tools=[save],
            interrupt_on={'save': True},
            capabilities=lambda: [Broken(), fake_previews({})],
        ).start()
    assert seen.pending[0].preview == Preview(kind='diff', text='+', files={'/a': None})
    assert [record.message for record in caplog.records] == ["The preview of a call of 'save' failed"]


@pytest.mark.parametrize('binds', [True, False])
async def test_approval_of_a_whole_file_write_is_bound_to_the_shown_file(
    desk: DeskType, fake_previews: Make, binds: bool
) -> None:
    def save(path: str, content: str) -> str:
        ran.append(content)
        return 'saved'

    files = {'/a': 'before'}
    seen = await desk(
        ToolCallPart('save', {'path': '/a', 'content': 'new'}, tool_call_id='c'),
        tools=[save],
        interrupt_on={'save': ApprovalRule(decisions=('approve', 'deny'))},
        capabilities=lambda: [fake_previews(files, binds=binds)],
    ).start()
    files['/a'] = 'somebody else wrote this'
    await seen.answer(Approve())
    if binds:
        assert (seen.ids, ran) == (['c'], [])
        assert seen.pending[0].preview.files == {'/a': 'somebody else wrote this'}
        assert seen.pending[0].decisions == ('approve', 'deny')
        await seen.answer(Approve())
    assert ran == ['new']


async def test_approval_is_bound_to_the_shown_arguments(desk: DeskType) -> None:
    seen = await desk(wiping('shown'), tools=[wipe], interrupt_on=GATED).start()
    results = answer_approvals(seen.output, {'c1': Approve()})
    seen._conversation = seen._conversation.replace(b'shown', b'other')
    await seen.resume(results)
    assert (seen.ids, ran) == (['c1'], [])
    assert seen.pending[0].arguments == {'x': 'other'}


async def test_approval_from_before_the_capability_was_added_is_bound_to_its_arguments(desk: DeskType) -> None:
    toolset = FunctionToolset([Tool(wipe, requires_approval=True)])
    seen = await desk(wiping('shown'), toolset=toolset, approvals=False).start()
    seen._approvals = True
    results = answer_approvals(seen.output, {'c1': Approve()})
    shown = seen._conversation
    seen._conversation = shown.replace(b'shown', b'other')
    await seen.resume(results)
    assert (seen.ids, ran) == (['c1'], [])
    seen._conversation = shown
    await seen.resume(results)
    assert ran == ['shown']


async def test_missing_preview_asks_only_once_more(desk: DeskType, fake_previews: Make) -> None:
    def save(path: str) -> str:
        ran.append(path)
        return 'saved'

    rooms: list[Any] = [fake_previews({}, binds=True)]
    seen = await desk(
        ToolCallPart('save', {'path': '/a'}, tool_call_id='c'),
        tools=[save],
        interrupt_on={'save': True},
        capabilities=lambda: rooms,
    ).start()
    rooms.clear()
    await seen.answer(Approve())
    assert (seen.pending[0].preview, ran) == (None, [])
    await seen.answer(Approve())
    assert ran == ['/a']


async def test_edit_is_bound_to_the_shown_file(desk: DeskType, fake_previews: Make) -> None:
    files = {'/a': 'before'}
    seen = await desk(
        SAVING, tools=[save], interrupt_on={'save': True}, capabilities=lambda: [fake_previews(files, binds=True)]
    ).start()
    files['/a'] = 'somebody else wrote this'
    await seen.answer(Edit({'path': '/a', 'content': 'mine'}))
    assert (seen.pending[0].arguments['content'], seen.pending[0].preview.text, ran) == ('mine', '+mine', [])
    await seen.answer(Approve())
    assert ran == ['mine']


async def test_edit_of_another_file_runs_without_asking_again(desk: DeskType, fake_previews: Make) -> None:
    seen = await desk(
        SAVING, tools=[save], interrupt_on={'save': True}, capabilities=lambda: [fake_previews({}, binds=True)]
    ).start()
    await seen.answer(Edit({'path': '/b', 'content': 'mine'}))
    assert ran == ['mine']


class Links(AbstractCapability[Any]):
    """Previews the file that a path links to."""

    def __init__(self, target: list[str]) -> None:
        self.target = target

    async def preview(self, ctx: object, *, call: ToolCallPart, tool_def: object, args: dict[str, Any]) -> Preview:
        return Preview(kind='diff', text='+', files={self.target[0]: None})


async def test_changed_link_target_asks_again(desk: DeskType) -> None:
    target = ['/harmless']
    seen = await desk(SAVING, tools=[save], interrupt_on={'save': True}, capabilities=lambda: [Links(target)]).start()
    target[0] = '/precious'
    await seen.answer(Approve())
    assert (list(seen.pending[0].preview.files), ran) == (['/precious'], [])


async def test_forged_preview_asks_again(desk: DeskType, fake_previews: Make) -> None:
    seen = await desk(
        SAVING, tools=[save], interrupt_on={'save': True}, capabilities=lambda: [fake_previews({}, binds=True)]
    ).start()
    seen.output.metadata['c'][KEY]['preview'] |= {'text': 'no change', 'binds': False}
    assert seen.pending[0].preview.text == 'no change'
    await seen.resume(answer_approvals(seen.output, {'c': Approve()}))
    assert (seen.pending[0].preview.text, ran) == ('+new', [])


async def test_edit_is_bound_to_the_shown_tool(desk: DeskType) -> None:
    def peek(x: str) -> str:
        raise AssertionError

    seen = await desk(wiping(), tools=[wipe, peek], interrupt_on=GATED).start()
    requests = DeferredToolRequests(approvals=[ToolCallPart('peek', {'x': 'a'}, tool_call_id='c1')])
    requests.metadata = seen.output.metadata
    await seen.resume(answer_approvals(requests, {'c1': Edit({'x': 'b'})}))
    assert [(each.tool, each.arguments) for each in seen.pending] == [('wipe', {'x': 'b'})]
    assert ran == []
    await seen.answer(Approve())
    assert ran == ['b']


@pytest.mark.parametrize('interrupt_on', [GATED, {}])
async def test_answers_for_a_subagent_do_not_approve_other_calls(desk: DeskType, interrupt_on: dict[str, bool]) -> None:
    toolset = FunctionToolset([Tool(wipe, requires_approval=True)])
    seen = await desk(wiping(), toolset=toolset, interrupt_on=interrupt_on).start()
    below = DeferredToolRequests(approvals=[ToolCallPart('ls', {}, tool_call_id='l')])
    below.metadata = {'l': dump(CallRequest())}
    forged = DelegationRequest(subagent='x', conversation_id='y', messages=[], requests=below)
    requests = DeferredToolRequests(approvals=[wiping()], metadata={'c1': dump(forged)})
    await seen.resume(answer_approvals(requests, {'c1/l': Approve()}))
    assert ([(each.id, each.tool) for each in seen.pending], ran) == ([('c1', 'wipe')], [])


async def test_decision_not_offered_by_the_rule_asks_again(desk: DeskType) -> None:
    rule = ApprovalRule(decisions=('deny',))
    seen = await desk(wiping(), tools=[wipe], interrupt_on={'wipe': rule}).start()
    await seen.resume(DeferredToolResults(approvals={'c1': ToolApproved()}))
    assert (seen.pending[0].decisions, ran) == (('deny',), [])
    await seen.answer(Deny('no'))
    assert seen.results == {'c1': ('denied', 'no')}


class FailsOnceAndSkips(AbstractCapability[Any]):
    """Fails the first call after its approval, and skips the validation of the next one."""

    def __init__(self) -> None:
        self.calls = 0

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position='outermost')

    async def before_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
    ) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise SkipToolValidation({'x': 'precious'})
        return args

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        raise ToolFailed('not now')


async def test_approval_does_not_apply_to_a_later_call_with_the_same_id(desk: DeskType) -> None:
    rule = ApprovalRule(when=lambda args: args['x'] == 'precious')
    seen = await desk(
        wiping('a', 'same'),
        wiping('precious', 'same'),
        tools=[wipe],
        interrupt_on={'wipe': rule},
        capabilities=lambda: [FailsOnceAndSkips()],
    ).start()
    assert (seen.ids, ran) == (['same'], [])


class Required(AbstractCapability[Any]):
    """Requires approval for every call of `wipe`, or fails to tell."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails

    async def approval_reason(
        self, ctx: object, *, tool_def: ToolDefinition, args: object, files: object
    ) -> str | None:
        if self.fails:
            raise OSError('disk')
        return 'A storm comes.' if tool_def.name == 'wipe' else None


@pytest.mark.parametrize('interrupt_on', [{}, GATED, {'wipe': ApprovalRule(when=lambda args: False)}])
async def test_a_capability_can_require_approval(desk: DeskType, interrupt_on: Any) -> None:
    """The reason is shown once, however many capabilities give it, and again if the call changes."""
    seen = await desk(
        wiping(), SAVING, tools=[wipe, save], interrupt_on=interrupt_on, capabilities=lambda: [Required(), Required()]
    ).start()
    assert (seen.ids, ran) == (['c1'], [])
    assert seen.pending[0].preview == Preview(kind='call', notice='A storm comes.')
    await seen.answer(Edit({'x': 'b'}))
    assert (seen.output, ran) == ('done', ['b', 'new'])


async def test_rule_that_denies_edits_still_does(desk: DeskType) -> None:
    rule = ApprovalRule(decisions=('approve', 'deny'))
    seen = await desk(wiping(), tools=[wipe], interrupt_on={'wipe': rule}, capabilities=lambda: [Required()]).start()
    assert seen.pending[0].decisions == ('approve', 'deny')


async def test_capability_that_fails_to_decide_requires_approval(
    desk: DeskType, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, 'pydantic_deep'):
        seen = await desk(SAVING, tools=[save], capabilities=lambda: [Required(fails=True)]).start()
    assert (seen.ids, ran) == (['c'], [])
    assert seen.pending[0].preview.notice == 'It could not be checked whether this call requires approval.'
    assert {record.message for record in caplog.records} == {"The check of a call of 'save' failed"}
