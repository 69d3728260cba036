"""What is pending, as a list, and what answers are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import CallDeferred, DeferredToolRequests, FunctionToolset, RunContext, Tool, ToolDefinition
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep._messages.deferred_metadata import KEY, CallRequest, DelegationRequest, StillPending, dump
from pydantic_deep.approvals import (
    ApprovalError,
    Approve,
    Deny,
    Edit,
    InvalidDecisionError,
    MalformedApprovalError,
    NothingPendingError,
    Respond,
    UnansweredApprovalError,
    UnknownApprovalError,
    answer_approvals,
    pending_approvals,
)
from pydantic_deep.approvals._listing import MAX_DEPTH
from pydantic_deep.errors import DeepAgentError

pytestmark = pytest.mark.anyio

DeskType = Callable[..., Any]


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


NESTED = nested(3_000)


def part(id: str, tool: str = 'wipe', **args: object) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=id)


def waiting(*ids: str) -> DeferredToolRequests:
    metadata = {id: dump(CallRequest(decisions=('approve', 'edit', 'deny', 'respond'))) for id in ids}
    return DeferredToolRequests(approvals=[part(id, x='a') for id in ids], metadata=metadata)


def delegated(id: str, requests: DeferredToolRequests, *, subagent: str = 'child') -> DeferredToolRequests:
    request = DelegationRequest(subagent=subagent, conversation_id='c', messages=[], requests=requests)
    return DeferredToolRequests(approvals=[part(id, 'task')], metadata={id: dump(request)})


class TestListing:
    @pytest.mark.parametrize('output', ['done', None, 3, {'approvals': []}, DeferredToolRequests()])
    def test_other_outputs_have_no_pending_approvals(self, output: object) -> None:
        assert pending_approvals(output) == []

    def test_ids_are_paths_and_no_id_passes_for_a_path(self) -> None:
        assert [each.id for each in pending_approvals(delegated('t', waiting('a/b', 'a%2Fb')))] == [
            't/a%2Fb',
            't/a%252Fb',
        ]

    def test_the_path_names_the_subagents(self) -> None:
        (only,) = pending_approvals(delegated('t', delegated('m', waiting('l'), subagent='leaf'), subagent='mid'))
        assert (only.id, only.path, only.tool_call_id) == ('t/m/l', ('mid', 'leaf'), 'l')

    def test_two_calls_with_one_id_are_an_error(self) -> None:
        with pytest.raises(MalformedApprovalError, match="Two pending calls have the id 'a'"):
            pending_approvals(DeferredToolRequests(approvals=[part('a')], calls=[part('a')]))

    def test_delegations_as_deep_as_json_can_be_are_read(self) -> None:
        requests = waiting('a')
        for _ in range(MAX_DEPTH):
            requests = delegated('t', requests)
        assert len(pending_approvals(requests)) == 1

    def test_deeper_ones_are_an_error(self) -> None:
        requests = waiting('a')
        for _ in range(MAX_DEPTH + 1):
            requests = delegated('t', requests)
        with pytest.raises(MalformedApprovalError, match=f'more than {MAX_DEPTH} delegations deep'):
            pending_approvals(requests)

    def test_thousands_of_forged_levels_are_an_error_and_no_crash(self) -> None:
        metadata: dict[str, Any] = dump(CallRequest())
        for _ in range(5_000):
            approval = {'tool_name': 'task', 'args': '{}', 'tool_call_id': 't'}
            requests: dict[str, Any] = {'approvals': [approval], 'metadata': {'t': metadata}}
            delegation: dict[str, Any] = {
                'kind': 'delegation',
                'subagent': 's',
                'conversation_id': 'c',
                'messages': None,
                'requests': requests,
            }
            metadata = {KEY: delegation}
        forged = DeferredToolRequests(approvals=[part('t', 'task')], metadata={'t': metadata})
        with pytest.raises(MalformedApprovalError, match='deep'):
            pending_approvals(forged)
        with pytest.raises(MalformedApprovalError, match='deep'):
            answer_approvals(forged, {})

    @pytest.mark.parametrize(
        'forged',
        [
            'text',
            3,
            [],
            {},
            {'kind': 'approved', 'request': {}},
            {'kind': 'call', 'decisions': ['run']},
            {'kind': 'call', 'preview': {'kind': 'diff', 'files': {'/a': 3}}},
            {'kind': 'delegation'},
            {'kind': 'delegation', 'subagent': 's', 'conversation_id': 'c', 'messages': NESTED, 'requests': {}},
        ],
    )
    def test_forged_metadata_is_an_error(self, forged: object) -> None:
        requests = DeferredToolRequests(approvals=[part('a')], metadata={'a': {KEY: forged}})
        with pytest.raises(MalformedApprovalError, match=re.escape("The pending call 'a' of 'wipe' cannot be read")):
            pending_approvals(requests)
        with pytest.raises(MalformedApprovalError):
            answer_approvals(requests, {'a': Approve()})


class TestRefusals:
    @pytest.mark.parametrize('output', ['done', None, DeferredToolRequests()])
    def test_answers_for_nothing(self, output: object) -> None:
        with pytest.raises(NothingPendingError, match=f'Nothing is pending in this {type(output).__name__}'):
            answer_approvals(output, {})

    def test_an_id_that_does_not_wait(self) -> None:
        with pytest.raises(UnknownApprovalError) as caught:
            answer_approvals(waiting('a', 'b'), {'c': Approve()})
        assert str(caught.value) == "No pending call has the id 'c'. Pending: 'a', 'b'."
        assert caught.value.id == 'c'

    def test_an_id_of_a_delegation_is_none_of_a_call(self) -> None:
        with pytest.raises(UnknownApprovalError, match="Pending: 't/a'"):
            answer_approvals(delegated('t', waiting('a')), {'t': Approve()})

    def test_only_so_many_ids_are_named(self) -> None:
        with pytest.raises(UnknownApprovalError, match=r"'9' and 2 more\.$"):
            answer_approvals(waiting(*map(str, range(12))), {'x': Approve()})

    @pytest.mark.parametrize('decision', [True, 'approve', None, Approve, {'args': {}}])
    def test_what_is_no_decision(self, decision: Any) -> None:
        with pytest.raises(InvalidDecisionError, match='which is not a decision') as caught:
            answer_approvals(waiting('a'), {'a': decision})
        assert caught.value.id == 'a'

    @pytest.mark.parametrize('decision', [Approve(), Edit({}), Respond('x')])
    def test_what_the_rule_does_not_allow(self, decision: Any) -> None:
        requests = DeferredToolRequests(approvals=[part('a')], metadata={'a': dump(CallRequest(decisions=('deny',)))})
        with pytest.raises(InvalidDecisionError, match='It takes: deny'):
            answer_approvals(requests, {'a': decision})

    @pytest.mark.parametrize(
        'decision',
        [
            Edit({'x': object()}),  # type: ignore[dict-item]
            Edit({'x': float('nan')}),
            Edit({'x': '\ud800'}),
            Edit({3: 'x'}),  # type: ignore[dict-item]
            Edit('text'),  # type: ignore[arg-type]
            Edit({'x': NESTED}),
            Respond(nested(250)),
            Edit({'x': (1, 2)}),  # type: ignore[dict-item]
            Respond(float('inf')),
            Respond(b'bytes'),  # type: ignore[arg-type]
            Deny(None),  # type: ignore[arg-type]
            Deny('\ud800'),
        ],
    )
    def test_what_is_no_json(self, decision: Any) -> None:
        with pytest.raises(InvalidDecisionError, match="The answer to 'a' is not valid JSON"):
            answer_approvals(waiting('a'), {'a': decision})

    @pytest.mark.parametrize(
        'error',
        [
            NothingPendingError,
            UnknownApprovalError,
            InvalidDecisionError,
            UnansweredApprovalError,
            MalformedApprovalError,
        ],
    )
    def test_all_of_them_can_be_caught_as_one(self, error: type[Exception]) -> None:
        assert issubclass(error, ApprovalError)
        assert issubclass(error, DeepAgentError)
        assert issubclass(error, ValueError)


class TestAgentsWithoutApprovals:
    async def test_all_calls_must_be_answered(self, desk: DeskType) -> None:
        toolset = FunctionToolset([Tool(lambda x: x, name='wipe', requires_approval=True, takes_ctx=False)])
        seen = await desk([part('a', x=1), part('b', x=2)], toolset=toolset, approvals=False).start()
        assert [each.decisions for each in seen.pending] == [('approve', 'edit', 'deny')] * 2
        with pytest.raises(UnansweredApprovalError, match=r"'b'\. Answer all of them, or add `Approvals`") as caught:
            await seen.answer(Approve())
        assert caught.value.ids == ('b',)
        with pytest.raises(InvalidDecisionError, match='It takes: approve, edit, deny'):
            await seen.answer(Respond('x'))
        await seen.answer(Edit({'x': 3}), Approve())
        assert seen.results == {'a': ('success', 3), 'b': ('success', 2)}

    def test_a_delegation_without_answers_stays_pending(self) -> None:
        inner = DeferredToolRequests(approvals=[part('a'), part('b')])
        requests = delegated('t', inner)
        results = answer_approvals(requests, {})
        assert results.metadata == {'t': dump(StillPending(request=requests.metadata['t']))}
        with pytest.raises(UnansweredApprovalError, match="'t/b'"):
            answer_approvals(requests, {'t/a': Approve()})


class TestExternalTools:
    @staticmethod
    def external() -> ExternalToolset[Any]:
        return ExternalToolset([ToolDefinition(name='remote', parameters_json_schema={'type': 'object'})])

    async def test_they_are_listed_and_answered(self, desk: DeskType) -> None:
        calls = [part('a', 'remote', q=1), part('b', 'remote', q=2)]
        seen = await desk(calls, toolset=self.external(), interrupt_on={'remote': True}).start()
        assert [(each.id, each.arguments, each.decisions) for each in seen.pending] == [
            ('a', {'q': 1}, ('deny', 'respond')),
            ('b', {'q': 2}, ('deny', 'respond')),
        ]
        await seen.answer(Respond({'kind': 'tool-denied'}), Deny('the server is gone'))
        assert seen.results == {'a': ('success', {'kind': 'tool-denied'}), 'b': ('failed', 'the server is gone')}

    async def test_they_cannot_wait_on(self, desk: DeskType) -> None:
        seen = await desk([part('a', 'remote'), part('b', 'remote')], toolset=self.external()).start()
        with pytest.raises(UnansweredApprovalError, match=r"'b'.*external tools always need an answer"):
            await seen.answer(Respond('x'))

    async def test_a_tool_that_defers_by_itself_is_one_of_them(self, desk: DeskType) -> None:
        def later(ctx: RunContext[Any]) -> str:
            raise CallDeferred

        seen = await desk(part('a', 'later'), tools=[later]).start()
        assert (await seen.answer(Respond('now'))).results == {'a': ('success', 'now')}


class TestForgedAnswers:
    @pytest.mark.parametrize('forged', ['x', {'kind': 'call'}, {'kind': 'edited'}])
    async def test_an_answer_that_cannot_be_read_runs_nothing(self, desk: DeskType, forged: object) -> None:
        ran: list[str] = []

        def wipe(x: str) -> str:
            ran.append(x)
            return 'wiped'

        seen = await desk(part('a', x='b'), tools=[wipe], interrupt_on={'wipe': True}).start()
        results = answer_approvals(seen.output, {'a': Approve()})
        results.metadata['a'] = {KEY: forged}
        with pytest.raises(MalformedApprovalError, match="The answer to call 'a' cannot be read"):
            await seen.resume(results)
        assert ran == []
