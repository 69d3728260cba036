"""Properties for any agents, gates and answers: gated calls do not run unapproved, and each call runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import cycle
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ToolCallPart

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond

pytestmark = pytest.mark.anyio

Tree: TypeAlias = 'list[bool | Tree]'
"""The calls of an agent: gated, free, or a subagent."""

CALLS: st.SearchStrategy[Tree] = st.lists(
    st.recursive(st.booleans(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6),
    min_size=1,
    max_size=4,
)
DECISIONS = st.sampled_from([None, None, Approve(), Edit({'x': 'edited'}), Deny('no'), Respond('said')])


class Forest:
    """The agents of a tree, of which only the root has rules."""

    def __init__(self, desk: Callable[..., Any], tasks: Callable[..., Any], tree: Tree) -> None:
        self.ran: list[str] = []
        self.answered: dict[str, Decision] = {}
        self.gated: list[str] = []
        self.free: list[str] = []
        self.agents: list[Any] = []
        self._desk, self._tasks = desk, tasks
        self.top = self._agent(tree, at='', interrupt_on={'gated': True})

    def _agent(self, tree: Tree, *, at: str, interrupt_on: dict[str, bool]) -> Any:
        children: dict[str, Any] = {}
        calls: list[ToolCallPart] = []
        for index, each in enumerate(tree):
            id = f'c{index}'
            if isinstance(each, list):
                children[id] = self._agent(each, at=f'{at}{id}/', interrupt_on={}).agent
                calls.append(ToolCallPart('task', {'subagent': id, 'description': 'go'}, tool_call_id=id))
            else:
                (self.gated if each else self.free).append(f'{at}{id}')
                calls.append(ToolCallPart('gated' if each else 'free', {'x': f'{at}{id}'}, tool_call_id=id))
        tools = [self._free_tool(), self._gated_tool()]
        agent = self._desk(calls, tools=tools, toolset=self._tasks(children), interrupt_on=interrupt_on)
        self.agents.append(agent)
        return agent

    def _free_tool(self) -> Callable[[str], str]:
        def free(x: str) -> str:
            self.ran.append(x)
            return 'ran'

        return free

    def _gated_tool(self) -> Callable[[str], str]:
        def gated(x: str) -> str:
            assert isinstance(self.answered.get(x), Approve) or x == 'edited'
            self.ran.append(x)
            return 'ran'

        return gated


@pytest.mark.slow
@given(tree=CALLS, decisions=st.lists(DECISIONS, min_size=1, max_size=12), rounds=st.integers(0, 3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_answers_in_any_order_run_each_call_of_a_tree_once(
    desk: Callable[..., Any],
    tasks: Callable[..., Any],
    tree: Tree,
    decisions: list[Decision | None],
    rounds: int,
) -> None:
    forest = Forest(desk, tasks, tree)
    top = await forest.top.start()
    assert sorted(top.ids) == sorted(forest.gated)
    following = cycle(decisions)
    for turn in range(rounds + 1):
        if not top.ids:
            break
        waiting = set(top.ids)
        now = {id: Approve() if turn == rounds else next(following) for id in top.ids}
        given_now = {id: decision for id, decision in now.items() if decision is not None}
        forest.answered |= given_now
        await top.decide(given_now)
        assert set(top.ids) == waiting - given_now.keys()

    assert top.output == 'done'
    approved = [id for id, decision in forest.answered.items() if isinstance(decision, Approve)]
    edits = ['edited' for decision in forest.answered.values() if isinstance(decision, Edit)]
    assert Counter(forest.ran) == Counter([*forest.free, *approved, *edits])
    assert {each.requests for each in forest.agents} == {2}


OUTCOMES = {Approve: ('success', 'ran'), Edit: ('success', 'ran'), Deny: ('denied', 'no'), Respond: ('success', 'said')}


@pytest.mark.slow
@given(
    gates=st.lists(st.booleans(), min_size=1, max_size=5),
    rounds=st.lists(st.lists(DECISIONS, min_size=5, max_size=5), max_size=3),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_partial_answers_in_any_order_run_each_call_once(
    desk: Callable[..., Any], gates: list[bool], rounds: list[list[Decision | None]]
) -> None:
    ran: list[str] = []
    answered: dict[str, Decision] = {}

    def free(x: str) -> str:
        ran.append(x)
        return 'ran'

    def gated(x: str) -> str:
        ran.append(x)
        assert isinstance(answered.get(x), Approve) or x == 'edited'
        return 'ran'

    calls = [
        ToolCallPart('gated' if gate else 'free', {'x': f'c{index}'}, tool_call_id=f'c{index}')
        for index, gate in enumerate(gates)
    ]
    seen = await desk(calls, tools=[free, gated], interrupt_on={'gated': True}).start()
    expected = [call.tool_call_id for call in calls if call.tool_name == 'gated']
    for decisions in [*rounds, [Approve()] * 5]:
        assert seen.ids == expected
        assert seen.requests == (1 if expected else 2)
        if not expected:
            break
        now = {id: decision for id, decision in zip(expected, decisions, strict=False) if decision is not None}
        answered |= now
        await seen.decide(now)
        expected = [id for id in expected if id not in now]

    assert seen.output == 'done'
    free_ids = [call.tool_call_id for call in calls if call.tool_name == 'free']
    approved = [id for id, decision in answered.items() if isinstance(decision, Approve)]
    edits = ['edited' for decision in answered.values() if isinstance(decision, Edit)]
    assert Counter(ran) == Counter([*free_ids, *approved, *edits])
    assert seen.results == {
        **dict.fromkeys(free_ids, ('success', 'ran')),
        **{id: OUTCOMES[type(decision)] for id, decision in answered.items()},
    }
