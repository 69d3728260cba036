"""What people pass who have no type checker: refused where it is passed, with what to pass instead."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

from pydantic_deep.approvals import pending_approvals
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def test_a_result_and_a_conversation_are_not_taken_for_an_output() -> None:
    result = await Agent(ScriptedModel('done')).run('go')
    with pytest.raises(TypeError, match=r'`output` is AgentRunResult\. Pass its `\.output`\.'):
        pending_approvals(result)
    with pytest.raises(TypeError, match=r'`output` is Conversation\. Pass its `\.deferred_tool_requests`\.'):
        pending_approvals(result.conversation)
    assert pending_approvals(result.output) == []
    assert pending_approvals(result.conversation.deferred_tool_requests) == []
