"""What holds for any calls, gates and answers: nothing gated runs unapproved, and everything runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ToolCallPart

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond

pytestmark = pytest.mark.anyio

DECISIONS = st.sampled_from([None, None, Approve(), Edit({'x': 'edited'}), Deny('no'), Respond('said')])
OUTCOMES = {Approve: ('success', 'ran'), Edit: ('success', 'ran'), Deny: ('denied', 'no'), Respond: ('success', 'said')}


@given(
    gates=st.lists(st.booleans(), min_size=1, max_size=5),
    rounds=st.lists(st.lists(DECISIONS, min_size=5, max_size=5), max_size=3),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
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
