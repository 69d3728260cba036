"""Invalid answers to pending approvals are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import CallDeferred, DeferredToolRequests, FunctionToolset, RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from pydantic_deep._messages.deferred_metadata import KEY, CallRequest, StillPending, dump
from pydantic_deep.approvals import (
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
    check_decisions,
)

from .conftest import NESTED, delegated, nested, part, waiting

pytestmark = pytest.mark.anyio

DeskType = Callable[..., Any]


class TestRefusals:
    @pytest.mark.parametrize('output', ['done', None, DeferredToolRequests()])
    def test_answers_for_an_output_without_pending_calls_are_refused(self, output: object) -> None:
        with pytest.raises(NothingPendingError, match=f'Nothing is pending in this {type(output).__name__}'):
            answer_approvals(output, {})

    def test_unknown_id_is_refused(self) -> None:
        with pytest.raises(UnknownApprovalError) as caught:
            answer_approvals(waiting('a', 'b'), {'c': Approve()})
        assert str(caught.value) == "No pending call has the id 'c'. Pending: 'a', 'b'."
        assert caught.value.id == 'c'

    def test_id_of_a_delegation_is_refused(self) -> None:
        with pytest.raises(UnknownApprovalError, match="Pending: 't/a'"):
            answer_approvals(delegated('t', waiting('a')), {'t': Approve()})

    def test_error_lists_a_limited_number_of_ids(self) -> None:
        with pytest.raises(UnknownApprovalError, match=r"'9' and 2 more\.$"):
            answer_approvals(waiting(*map(str, range(12))), {'x': Approve()})

    @pytest.mark.parametrize('decision', [True, 'approve', None, Approve, {'args': {}}])
    def test_value_that_is_not_a_decision_is_refused(self, decision: Any) -> None:
        with pytest.raises(InvalidDecisionError, match='which is not a decision') as caught:
            answer_approvals(waiting('a'), {'a': decision})
        assert caught.value.id == 'a'

    @pytest.mark.parametrize('decision', [Approve(), Edit({}), Respond('x')])
    def test_decision_not_allowed_by_the_rule_is_refused(self, decision: Any) -> None:
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
    def test_decision_that_is_not_valid_json_is_refused(self, decision: Any) -> None:
        with pytest.raises(InvalidDecisionError, match="The answer to 'a' is not valid JSON"):
            answer_approvals(waiting('a'), {'a': decision})


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

    def test_delegation_without_answers_stays_pending(self) -> None:
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

    async def test_external_calls_are_listed_and_answered(self, desk: DeskType) -> None:
        calls = [part('a', 'remote', q=1), part('b', 'remote', q=2)]
        seen = await desk(calls, toolset=self.external(), interrupt_on={'remote': True}).start()
        assert [(each.id, each.arguments, each.decisions) for each in seen.pending] == [
            ('a', {'q': 1}, ('deny', 'respond')),
            ('b', {'q': 2}, ('deny', 'respond')),
        ]
        await seen.answer(Respond({'kind': 'tool-denied'}), Deny('the server is gone'))
        assert seen.results == {'a': ('success', {'kind': 'tool-denied'}), 'b': ('failed', 'the server is gone')}

    async def test_external_calls_cannot_stay_pending(self, desk: DeskType) -> None:
        seen = await desk([part('a', 'remote'), part('b', 'remote')], toolset=self.external()).start()
        with pytest.raises(UnansweredApprovalError, match=r"'b'.*external tools always need an answer"):
            await seen.answer(Respond('x'))

    async def test_decisions_are_checked_one_by_one(self, desk: DeskType) -> None:
        seen = await desk([part('a', 'remote'), part('b', 'remote')], toolset=self.external()).start()
        assert check_decisions(seen.output, {'a': Respond('x')}) is seen.output
        with pytest.raises(InvalidDecisionError, match='It takes: deny, respond'):
            check_decisions(seen.output, {'a': Approve()})

    async def test_tool_that_defers_itself_is_external(self, desk: DeskType) -> None:
        def later(ctx: RunContext[Any]) -> str:
            raise CallDeferred

        seen = await desk(part('a', 'later'), tools=[later]).start()
        assert (await seen.answer(Respond('now'))).results == {'a': ('success', 'now')}


class TestForgedAnswers:
    @pytest.mark.parametrize('forged', ['x', {'kind': 'call'}, {'kind': 'edited'}])
    async def test_unreadable_answer_runs_nothing(self, desk: DeskType, forged: object) -> None:
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
