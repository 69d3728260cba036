"""Approvals in subagents: one flat list, answered in parts, passed on as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import ApprovalRequired, FunctionToolset, RunContext
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._messages.deferred_metadata import KEY
from pydantic_deep.approvals import ApprovalRule, Approve, Deny, Edit, Respond, answer_approvals

pytestmark = pytest.mark.anyio

DeskType = Callable[..., Any]
Tasks = Callable[..., FunctionToolset[Any]]

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def wipe(x: str) -> str:
    ran.append(x)
    return f'wiped {x}'


def look(x: str) -> str:
    ran.append(f'saw {x}')
    return 'seen'


def wiping(x: str, id: str) -> ToolCallPart:
    return ToolCallPart('wipe', {'x': x}, tool_call_id=id)


def looking(x: str, id: str) -> ToolCallPart:
    return ToolCallPart('look', {'x': x}, tool_call_id=id)


def delegating(subagent: str, id: str) -> ToolCallPart:
    return ToolCallPart('task', {'subagent': subagent, 'description': 'go'}, tool_call_id=id)


class Family:
    """Three levels with two leaves, gated and ungated calls at each level; only the root has rules."""

    def __init__(self, desk: DeskType, tasks: Tasks, *, approvals: bool = True) -> None:
        tools = [wipe, look]
        self.left = desk(
            [wiping('left 1', 'l1'), looking('left', 'l2')], wiping('left 2', 'l3'), tools=tools, approvals=approvals
        )
        self.right = desk([wiping('right', 'l1')], tools=tools, approvals=approvals)
        self.mid = desk(
            [delegating('left', 'm1'), delegating('right', 'm2'), wiping('mid', 'm3'), looking('mid', 'm4')],
            tools=tools,
            toolset=tasks({'left': self.left.agent, 'right': self.right.agent}),
            approvals=approvals,
        )
        self.top = desk(
            [delegating('mid', 't1'), wiping('top', 't2'), looking('top', 't3')],
            tools=tools,
            toolset=tasks({'mid': self.mid.agent}),
            interrupt_on={'wipe': True},
        )

    @property
    def requests(self) -> list[int]:
        return [each.requests for each in (self.top, self.mid, self.left, self.right)]


@pytest.mark.parametrize('approvals', [True, False])
async def test_three_levels_are_answered_in_parts_and_every_call_runs_once(
    desk: DeskType, tasks: Tasks, approvals: bool
) -> None:
    family = Family(desk, tasks, approvals=approvals)
    top = await family.top.start()
    assert [(each.id, each.path, each.tool, each.arguments) for each in top.pending] == [
        ('t1/m1/l1', ('mid', 'left'), 'wipe', {'x': 'left 1'}),
        ('t1/m2/l1', ('mid', 'right'), 'wipe', {'x': 'right'}),
        ('t1/m3', ('mid',), 'wipe', {'x': 'mid'}),
        ('t2', (), 'wipe', {'x': 'top'}),
    ]
    assert sorted(ran) == ['saw left', 'saw mid', 'saw top']
    assert family.requests == [1, 1, 1, 1]

    await top.decide({'t1/m1/l1': Approve(), 't2': Deny('not the top')})
    assert top.ids == ['t1/m1/l3', 't1/m2/l1', 't1/m3']
    assert ran[3:] == ['left 1']
    assert family.requests == [1, 1, 2, 1]

    await top.decide({'t1/m3': Edit({'x': 'mid, but less'})})
    assert top.ids == ['t1/m1/l3', 't1/m2/l1']
    assert ran[4:] == ['mid, but less']
    assert family.requests == [1, 1, 2, 1]

    await top.decide({'t1/m1/l3': Respond('done by hand'), 't1/m2/l1': Approve()})
    assert top.output == 'done'
    assert ran[5:] == ['right']
    assert family.requests == [2, 2, 3, 2]
    assert top.results == {'t1': ('success', 'done'), 't2': ('denied', 'not the top'), 't3': ('success', 'seen')}


async def test_unanswered_subagent_is_not_run(desk: DeskType, tasks: Tasks) -> None:
    family = Family(desk, tasks)
    top = await family.top.start()
    before = top.output.metadata['t1']
    await top.decide({'t2': Approve()})
    assert top.output.metadata['t1'] == before
    assert [each.built for each in (family.top, family.mid, family.left, family.right)] == [2, 1, 1, 1]
    await top.decide({'t1/m2/l1': Approve()})
    assert [each.built for each in (family.top, family.mid, family.left, family.right)] == [3, 2, 1, 2]


async def test_gated_delegation_asks_first_for_itself_then_for_its_calls(desk: DeskType, tasks: Tasks) -> None:
    child = desk(wiping('a', 'c'), tools=[wipe])
    top = desk(
        delegating('child', 't'),
        tools=[wipe],
        toolset=tasks({'child': child.agent}),
        interrupt_on={'task': True, 'wipe': True},
    )
    await top.start()
    assert ([each.tool for each in top.pending], child.requests) == (['task'], 0)
    await top.answer(Approve())
    assert ([each.id for each in top.pending], child.requests) == (['t/c'], 1)
    await top.answer(Approve())
    assert (top.output, ran, child.requests) == ('done', ['a'], 2)


async def test_edited_and_suspended_delegation_reports_its_actual_arguments(desk: DeskType, tasks: Tasks) -> None:
    child = desk(wiping('a', 'c'), tools=[wipe])
    top = desk(
        delegating('nobody', 't'),
        toolset=tasks({'child': child.agent}),
        tools=[wipe],
        interrupt_on={'task': True, 'wipe': True},
    )
    await top.start()
    await top.answer(Edit({'subagent': 'child', 'description': 'go'}))
    assert top.pending[0].path == ('child',)
    await top.answer(None)
    await top.answer(Approve())
    assert (ran, top.results['t']) == (['a'], ('success', 'done'))
    assert top.told == [
        'A person changed the arguments of the call t of task to: {"subagent": "child", "description": "go"}'
    ]


async def test_child_can_gate_more_than_its_parent_but_not_less(desk: DeskType, tasks: Tasks) -> None:
    child = desk(
        [wiping('a', 'c1'), looking('b', 'c2')], tools=[wipe, look], interrupt_on={'wipe': False, 'look': True}
    )
    top = desk(
        delegating('child', 't'),
        tools=[wipe, look],
        toolset=tasks({'child': child.agent}),
        interrupt_on={'wipe': ApprovalRule(decisions=('approve', 'deny')), 'look': False},
    )
    await top.start()
    assert [(each.id, each.decisions) for each in top.pending] == [
        ('t/c1', ('approve', 'deny')),
        ('t/c2', ('approve', 'edit', 'deny', 'respond')),
    ]
    await top.answer(Approve(), Deny())
    assert (ran, top.output) == (['a'], 'done')


async def test_pending_subagent_with_forged_requests_does_not_run(desk: DeskType, tasks: Tasks) -> None:
    family = Family(desk, tasks)
    top = await family.top.start()
    results = answer_approvals(top.output, {'t1/m3': Approve()})
    results.metadata['t1'][KEY]['request']['requests'] = {'approvals': 'forged'}
    with pytest.raises(ValueError, match='cannot be read'):
        await top.resume(results)
    assert 'mid' not in ran


async def test_tool_with_its_own_approval_metadata_works_in_a_subagent(desk: DeskType, tasks: Tasks) -> None:
    def guarded(ctx: RunContext[Any], x: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={'why': x})
        ran.append(x)
        return 'ok'

    child = desk(
        [ToolCallPart('guarded', {'x': x}, tool_call_id=x) for x in ('a', 'b')], tools=[guarded], approvals=False
    )
    top = await desk(delegating('child', 't'), toolset=tasks({'child': child.agent})).start()
    assert top.ids == ['t/a', 't/b']
    await top.answer(None, Approve())
    assert (top.ids, ran) == (['t/a'], ['b'])
    await top.answer(Approve())
    assert (ran, top.output) == (['b', 'a'], 'done')
