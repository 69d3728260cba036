"""The approval property: in any tree of agents, gates and answers, no gated call runs without approval.

Hypothesis draws a tree; a model that depends only on its messages plays it, answered in any order and grouping, through
JSON and rebuilt agents. Every tool records its arguments, and every model the results that it received.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_ai import (
    Agent,
    AgentRunResult,
    ApprovalRequired,
    Conversation,
    ConversationTypeAdapter,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
)
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, WrapToolExecuteHandler
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import UsageLimits

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    Deny,
    Edit,
    PendingApproval,
    Respond,
    Subagent,
    Subagents,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio

Gate: TypeAlias = Literal['free', 'from_above', 'from_here', 'required', 'asking', 'all_at_once']
Kind: TypeAlias = Literal['declared', 'plain', 'deep']
Decision: TypeAlias = Approve | Edit | Deny | Respond

GATES: tuple[Gate, ...] = ('free', 'from_above', 'from_here', 'required', 'asking', 'all_at_once')
KINDS: tuple[Kind, ...] = ('declared', 'plain', 'deep')
OUT: list[Any] = [str, DeferredToolRequests]
RESULTS = TypeAdapter(DeferredToolResults)
LIMITS = UsageLimits(request_limit=None)


@dataclass(frozen=True)
class Work:
    """A call of a tool, by its gate."""

    gate: Gate


@dataclass(frozen=True)
class Node:
    """An agent and its calls for each request of its model."""

    kind: Kind
    steps: tuple[tuple[Work | Node, ...], ...]


@st.composite
def trees(draw: st.DrawFn) -> Node:
    """Draw a root with up to three levels, three children per node, and a bounded number of calls."""
    left = [draw(st.integers(1, 12), label='calls')]

    def node(kind: Kind, depth: int) -> Node:
        # A plain pydantic-ai agent has no factory to build declared subagents.
        below: tuple[Kind, ...] = ('plain', 'deep') if kind == 'plain' else KINDS
        steps: list[tuple[Work | Node, ...]] = []
        for _ in range(draw(st.integers(1, 2))):
            step: list[Work | Node] = []
            for _ in range(draw(st.integers(1, 3))):
                if left[0] > 0:
                    left[0] -= 1
                    if depth and draw(st.booleans()):
                        step.append(node(draw(st.sampled_from(below)), depth - 1))
                    else:
                        step.append(Work(draw(st.sampled_from(GATES))))
            if step:
                steps.append(tuple(step))
        return Node(kind, tuple(steps))

    return node('deep', 3)


@dataclass
class Office:
    """Plays a tree and records the calls that ran and the results that the models received."""

    root: Node
    extra: tuple[AbstractCapability[Any], ...] = ()
    node_by_path: dict[str, Node] = field(default_factory=dict[str, Node])
    gate_by_name: dict[str, Gate] = field(default_factory=dict[str, Gate])
    gated: set[str] = field(default_factory=set[str])
    ran: list[str] = field(default_factory=list[str])
    asked: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    told: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def __post_init__(self) -> None:
        self._survey(self.root, 'r', gated_here=False)

    def _survey(self, node: Node, path: str, *, gated_here: bool) -> None:
        self.node_by_path[path] = node
        gated_here = gated_here or (path != 'r' and node.kind != 'plain')
        for s, step in enumerate(node.steps):
            for c, each in enumerate(step):
                name = f'{path}.{s}{c}'
                if isinstance(each, Node):
                    self._survey(each, name, gated_here=gated_here)
                else:
                    self.gate_by_name[name] = each.gate
                    if each.gate != 'free' and (each.gate != 'from_here' or gated_here):
                        self.gated.add(name)

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> str | list[ToolCallPart]:
        """Return the next calls of the agent, as a function of the messages alone."""
        first = messages[0]
        assert isinstance(first, ModelRequest)
        path = next(str(part.content) for part in first.parts if isinstance(part, UserPromptPart))
        step = sum(isinstance(message, ModelResponse) for message in messages)
        self.asked.append((path, step))
        self._listen(path, messages)
        work = self.node_by_path[path].steps
        if step == len(work):
            return f'done {path}'
        return [self._call(each, f'{path}.{step}{c}', f's{step}c{c}') for c, each in enumerate(work[step])]

    def _listen(self, path: str, messages: list[ModelMessage]) -> None:
        for message in messages:
            for part in message.parts if isinstance(message, ModelRequest) else ():
                if isinstance(part, ToolReturnPart):
                    name = f'{path}.{part.tool_call_id[1]}{part.tool_call_id[3]}'
                    self.told[name] = (part.outcome, part.model_response_str())

    def _call(self, each: Work | Node, name: str, call_id: str) -> ToolCallPart:
        if isinstance(each, Node):
            return ToolCallPart('task', {'subagent': each.kind, 'description': name}, tool_call_id=call_id)
        return ToolCallPart(each.gate, {'name': name}, tool_call_id=call_id)

    def _run(self, name: str) -> str:
        self.ran.append(name)
        return f'ran {name}'

    def tools(self) -> list[Tool[Any]]:
        def free(name: str) -> str:
            return self._run(name)

        def asking(ctx: RunContext[Any], name: str) -> str:
            if not ctx.tool_call_approved:
                raise ApprovalRequired(metadata={'mine': name})
            return self._run(name)

        return [
            Tool(free, name='free'),
            Tool(free, name='from_above'),
            Tool(free, name='from_here'),
            Tool(free, name='required', requires_approval=True),
            Tool(asking, name='asking'),
            Tool(asking, name='all_at_once', requires_approval=True),
        ]

    def subagents(self, nodes: Sequence[Node]) -> list[Subagent]:
        """Build the subagents below these nodes, one for all children of a kind."""
        below: dict[Kind, list[Node]] = {}
        for each in (each for node in nodes for step in node.steps for each in step):
            if isinstance(each, Node):
                below.setdefault(each.kind, []).append(each)
        return [self._subagent(kind, children) for kind, children in below.items()]

    def _subagent(self, kind: Kind, nodes: Sequence[Node]) -> Subagent:
        if kind == 'plain':
            return Subagent('plain', 'Knows nothing of us.', agent=self._plain(nodes))
        if kind == 'deep':
            return Subagent('deep', 'Ready.', agent=self._deep(nodes, {'from_here': True}))
        return Subagent(
            'declared',
            'Described.',
            model=ScriptedModel(then=self.answer),
            tools=self.tools(),
            subagents=self.subagents(nodes),
            interrupt_on={'from_here': True},
        )

    def _plain(self, nodes: Sequence[Node]) -> Agent[Any, Any]:
        return Agent(
            ScriptedModel(then=self.answer),
            deps_type=DeepAgentDeps,
            tools=self.tools(),
            capabilities=[Subagents(self.subagents(nodes))],
        )

    def _deep(
        self, nodes: Sequence[Node], interrupt_on: dict[str, bool], *extra: AbstractCapability[Any]
    ) -> Agent[Any, Any]:
        return create_deep_agent(
            ScriptedModel(then=self.answer),
            tools=self.tools(),
            subagents=self.subagents(nodes),
            interrupt_on=interrupt_on,
            capabilities=extra,
            include_todo=False,
            include_filesystem=False,
        )

    def agent(self) -> Agent[Any, Any]:
        """Rebuild the whole tree."""
        return self._deep([self.root], {'from_above': True, 'all_at_once': True}, *self.extra)


async def play(
    office: Office,
    agent: Agent[Any, Any],
    deps: DeepAgentDeps,
    conversation: Conversation | None,
    results: DeferredToolResults | None,
    *,
    is_streamed: bool,
) -> AgentRunResult[Any]:
    prompt = 'r' if conversation is None else None
    if not is_streamed:
        return await agent.run(
            prompt, conversation=conversation, deferred_tool_results=results, deps=deps, usage_limits=LIMITS
        )
    found: AgentRunResult[Any] | None = None
    async with agent.run_stream_events(
        prompt, conversation=conversation, deferred_tool_results=results, deps=deps, usage_limits=LIMITS
    ) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                found = event.result
    assert found is not None
    return found


def decide(kind: str, pending: PendingApproval) -> Decision:
    name = pending.arguments['name']
    return {
        'approve': Approve(),
        'edit': Edit({'name': f'{name}!'}),
        'deny': Deny(f'no {name}'),
        'respond': Respond(f'instead of {name}'),
    }[kind]


async def hold_to_the_law(office: Office, data: st.DataObject) -> None:
    """Play the tree to its end and check the invariants after every run."""
    agent, deps = office.agent(), DeepAgentDeps(max_depth=3)
    decision_by_name: dict[str, Decision] = {}
    conversation, results = None, None
    for _ in range(len(office.gated) + 1):
        is_streamed = data.draw(st.booleans(), label='streamed')
        result = await play(office, agent, deps, conversation, results, is_streamed=is_streamed)
        check_what_ran(office, decision_by_name)
        if not isinstance(result.output, DeferredToolRequests):
            break
        conversation = result.conversation
        if data.draw(st.booleans(), label='another process'):
            conversation = ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))
            agent, deps = office.agent(), DeepAgentDeps(max_depth=3)
        waiting = pending_approvals(conversation.deferred_tool_requests)
        check_what_waits(office, waiting, decision_by_name)
        chosen = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique_by=lambda p: p.id), label='answered')
        decisions: dict[str, Decision] = {}
        for each in chosen:
            kind = data.draw(st.sampled_from(('approve', 'edit', 'deny', 'respond')), label=each.arguments['name'])
            decisions[each.id] = decision_by_name[each.arguments['name']] = decide(kind, each)
        results = answer_approvals(conversation.deferred_tool_requests, decisions)
        results = RESULTS.validate_json(RESULTS.dump_json(results))
    else:
        pytest.fail('The run does not end.')
    assert result.output == 'done r'
    assert decision_by_name.keys() == office.gated
    check_what_was_told(office, decision_by_name)
    assert max(Counter(office.asked).values()) == 1
    assert Counter(path for path, _ in office.asked) == {
        path: len(node.steps) + 1 for path, node in office.node_by_path.items()
    }
    assert result.usage.requests == len(office.asked)


def check_what_ran(office: Office, decision_by_name: dict[str, Decision]) -> None:
    """Assert that nothing ran twice, and that exactly the approved calls ran of the gated ones."""
    allowed = {name for name, each in decision_by_name.items() if isinstance(each, Approve)}
    allowed |= {str(each.args['name']) for each in decision_by_name.values() if isinstance(each, Edit)}
    assert max(Counter(office.ran).values(), default=1) == 1
    assert {name for name in office.ran if name in office.gated or name.endswith('!')} == allowed


def check_what_waits(office: Office, waiting: list[PendingApproval], decision_by_name: dict[str, Decision]) -> None:
    names = [each.arguments['name'] for each in waiting]
    assert len({each.id for each in waiting}) == len(waiting) == len(set(names)) > 0
    assert set(names) <= office.gated - decision_by_name.keys()
    for each in waiting:
        assert each.arguments.keys() == {'name'}
        assert each.tool == office.gate_by_name[each.arguments['name']]
        parts = each.arguments['name'].split('.')
        above = ['.'.join(parts[:n]) for n in range(2, len(parts))]
        assert each.path == tuple(office.node_by_path[path].kind for path in above)


def check_what_was_told(office: Office, decision_by_name: dict[str, Decision]) -> None:
    """Assert that the results each model received match the decisions."""
    for name in office.gate_by_name:
        decision = decision_by_name.get(name, Approve())
        outcome, text = office.told[name]
        match decision:
            case Approve():
                assert name in office.ran
                assert (outcome, text) == ('success', f'ran {name}')
            case Edit():
                assert outcome == 'success'
                assert f'ran {name}!' in text
            case Deny():
                assert outcome == 'denied'
                assert f'no {name}' in text
            case Respond():
                assert outcome == 'success'
                assert f'instead of {name}' in text


@pytest.mark.slow
@given(root=trees(), data=st.data())
@settings(max_examples=50)
async def test_no_gated_call_runs_unapproved_in_any_tree(root: Node, data: st.DataObject) -> None:
    await hold_to_the_law(Office(root), data)


class NoApprovals(AbstractCapability[Any]):
    """Replaces our capability and never asks."""

    id = 'approvals'


class Twice(AbstractCapability[Any]):
    """Runs every tool twice."""

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        await handler(args)
        return await handler(args)


def approve_all(_: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
    return requests.build_results(approve_all=True)


def deny_all(_: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
    return requests.build_results(approvals={each.tool_call_id: False for each in requests.approvals})


SMALL = Node('deep', ((Work('free'), Work('from_above'), Node('declared', ((Work('from_above'), Work('free')),))),))


@pytest.mark.parametrize(
    'broken',
    [
        NoApprovals(),
        HandleDeferredToolCalls[Any](handler=approve_all),
        HandleDeferredToolCalls[Any](handler=deny_all),
        Twice(),
    ],
    ids=['no approvals', 'all approved', 'all denied', 'all twice'],
)
@given(data=st.data())
@settings(max_examples=1)
async def test_broken_implementations_violate_the_property(
    broken: AbstractCapability[Any], data: st.DataObject
) -> None:
    with pytest.raises(AssertionError):
        await hold_to_the_law(Office(SMALL, extra=(broken,)), data)
