"""Properties of budgets, over random trees of concurrent subagents, random usages and random budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, capture_run_messages
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep import DeepAgentDeps
from pydantic_deep.budgets import Budget, BudgetExceededError, Budgets, BudgetWarningEvent, LastAnswerEvent, Measure
from pydantic_deep.budgets._stamp import read_before
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import ScriptedModel, call

UNLIMITED = Budget(tokens=10**9)


@dataclass(frozen=True, kw_only=True)
class Node:
    """An agent of the tree."""

    steps: Sequence[tuple[int, Sequence[int]]]
    """Per response: the tokens it uses, and the children it calls. Each child is called at most once."""
    budget: Budget
    obeys: bool
    """Whether its model answers when asked to. Otherwise it calls tools as long as it can."""
    children: Sequence[Node]


@dataclass(kw_only=True)
class Ledger:
    """Actual usage of one agent and its descendants, with the violations found."""

    budget: Budget
    begun: int = 0
    tokens: int = 0
    asking: int = 0
    most_asking: int = 0
    largest: int = 0
    crossed: set[str] = field(default_factory=set[str])
    violations: list[str] = field(default_factory=list[str])

    @property
    def used(self) -> Mapping[Measure, Decimal]:
        return {'requests': Decimal(self.begun), 'tokens': Decimal(self.tokens), 'cost': Decimal(self.tokens) / 1_000}

    def begin(self) -> None:
        for measure, limit in self.budget.limits.items():
            if self.used[measure] >= limit:  # raised here, it would be a failed result of a subagent
                self.violations.append(f'a request began with {self.used[measure]} of {limit} {measure} used')
        self.begun += 1
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)

    def end(self, tokens: int) -> None:
        self.asking -= 1
        self.tokens += tokens
        self.largest = max(self.largest, tokens)

    def note_crossed(self) -> None:
        self.crossed |= {
            name for name, limit in self.budget.limits.items() if self.used[name] >= Decimal('0.8') * limit
        }

    def check_overshoot(self) -> None:
        """Check the overshoot: none for requests, one response per concurrent request for the other measures."""
        for measure, limit in self.budget.limits.items():
            slack = {'requests': Decimal(0), 'tokens': Decimal(self.most_asking * self.largest)}
            slack['cost'] = slack['tokens'] / 1_000
            assert self.used[measure] <= limit + slack[measure]


def _agent(node: Node, above: Sequence[Ledger], ledgers: list[Ledger]) -> Agent[Any, Any]:
    own = Ledger(budget=node.budget)
    ledgers.append(own)
    counted = [own, *above]
    uncalled = set(range(len(node.children)))
    steps = iter(node.steps)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        for each in counted:
            each.begin()
        own.note_crossed()
        tokens, wanted = next(steps, (10, None))
        await anyio.lowlevel.checkpoint()
        for each in counted:
            each.end(tokens)
        usage = RequestUsage(input_tokens=tokens, cost=Decimal(tokens) / 1_000)
        if wanted is None or (node.obeys and (info.model_settings or {}).get('tool_choice') == 'none'):
            return ModelResponse(parts=[TextPart('done')], usage=usage)
        called = uncalled & set(wanted)
        uncalled.difference_update(called)
        tasks = [call('task', subagent=f'child-{index}', description='work') for index in sorted(called)]
        return ModelResponse(parts=[*tasks, call('work')], usage=usage)

    subagents = [
        Subagent(f'child-{index}', 'Works.', agent=_agent(child, counted, ledgers))
        for index, child in enumerate(node.children)
    ]
    budgets = Budgets(run=node.budget, conversation=UNLIMITED)
    agent = Agent[Any, Any](ScriptedModel(then=answer), capabilities=[Subagents(subagents), budgets])

    @agent.tool_plain(name='work')
    async def _() -> str:
        await anyio.lowlevel.checkpoint()
        return 'done'

    return agent


_budgets = st.one_of(
    st.builds(Budget, requests=st.integers(1, 12)),
    st.builds(Budget, tokens=st.integers(1, 600)),
    st.builds(Budget, cost=st.integers(1, 600).map(lambda tokens: Decimal(tokens) / 1_000)),
    st.builds(Budget, tokens=st.integers(1, 600), requests=st.integers(1, 12)),
    st.just(UNLIMITED),
)
_steps = st.lists(st.tuples(st.integers(1, 90), st.lists(st.integers(0, 2), max_size=3)), max_size=7)


def _nodes(depth: int) -> st.SearchStrategy[Node]:
    children = st.lists(_nodes(depth - 1), max_size=3) if depth else st.just([])
    return st.builds(Node, steps=_steps, budget=_budgets, obeys=st.booleans(), children=children)


@pytest.mark.slow
@given(_nodes(2))
@settings(max_examples=60)
def test_no_request_exceeds_a_budget_and_all_usage_is_counted(node: Node) -> None:
    ledgers: list[Ledger] = []
    events: list[Any] = []
    agent = _agent(node, [], ledgers)
    root = ledgers[0]

    async def watch(ctx: object, stream: Any) -> None:
        events.extend([event async for event in stream])

    async def run() -> BudgetExceededError | None:
        with capture_run_messages() as messages:
            try:
                await agent.run('go', deps=DeepAgentDeps(max_depth=2), event_stream_handler=watch)
            except BudgetExceededError as error:
                return error
        used = read_before(messages).used
        assert used == {**root.used, 'seconds': used['seconds']}
        return None

    error = anyio.run(run)
    for ledger in ledgers:
        assert ledger.violations == []
        ledger.check_overshoot()
    if error is not None:
        assert not error.is_inherited
        assert error.used == root.used[error.measure] >= error.limit
    own = [event for event in events if isinstance(event, (BudgetWarningEvent, LastAnswerEvent))]
    warned = Counter(event.measure for event in own if isinstance(event, BudgetWarningEvent))
    assert warned == Counter(root.crossed)
    assert sum(isinstance(event, LastAnswerEvent) for event in own) <= 1
