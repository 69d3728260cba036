"""Pending calls as a list, and metadata that is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests

from pydantic_deep._messages.deferred_metadata import KEY, CallRequest, dump
from pydantic_deep.approvals import Approve, MalformedApprovalError, answer_approvals, pending_approvals
from pydantic_deep.approvals._listing import MAX_DEPTH
from pydantic_deep.testing import ScriptedModel

from .conftest import NESTED, delegated, part, waiting

pytestmark = pytest.mark.anyio


class TestListing:
    @pytest.mark.parametrize('output', ['done', None, 3, {'approvals': []}, DeferredToolRequests()])
    def test_other_outputs_have_no_pending_approvals(self, output: object) -> None:
        assert pending_approvals(output) == []

    def test_ids_are_escaped_paths(self) -> None:
        assert [each.id for each in pending_approvals(delegated('t', waiting('a/b', 'a%2Fb')))] == [
            't/a%2Fb',
            't/a%252Fb',
        ]

    def test_path_contains_the_subagent_names(self) -> None:
        (only,) = pending_approvals(delegated('t', delegated('m', waiting('l'), subagent='leaf'), subagent='mid'))
        assert (only.id, only.path, only.tool_call_id) == ('t/m/l', ('mid', 'leaf'), 'l')

    def test_duplicate_call_ids_are_an_error(self) -> None:
        with pytest.raises(MalformedApprovalError, match="Two pending calls have the id 'a'"):
            pending_approvals(DeferredToolRequests(approvals=[part('a')], calls=[part('a')]))

    def test_delegations_up_to_the_maximum_depth_are_read(self) -> None:
        requests = waiting('a')
        for _ in range(MAX_DEPTH):
            requests = delegated('t', requests)
        assert len(pending_approvals(requests)) == 1

    def test_deeper_delegations_are_an_error(self) -> None:
        requests = waiting('a')
        for _ in range(MAX_DEPTH + 1):
            requests = delegated('t', requests)
        with pytest.raises(MalformedApprovalError, match=f'more than {MAX_DEPTH} delegations deep'):
            pending_approvals(requests)

    def test_thousands_of_forged_levels_raise_without_crashing(self) -> None:
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


async def test_result_and_conversation_are_refused_as_an_output() -> None:
    result = await Agent(ScriptedModel('done')).run('go')
    with pytest.raises(TypeError, match=r'`output` is AgentRunResult\. Pass its `\.output`\.'):
        pending_approvals(result)
    with pytest.raises(TypeError, match=r'`output` is Conversation\. Pass its `\.deferred_tool_requests`\.'):
        pending_approvals(result.conversation)
    assert pending_approvals(result.output) == []
    assert pending_approvals(result.conversation.deferred_tool_requests) == []
