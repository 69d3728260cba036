"""What people pass who have no type checker: refused where it is passed, with what to pass instead."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError

from pydantic_deep import create_deep_agent
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


@pytest.mark.parametrize('given', [['write_file'], 'write_file', True])
def test_names_without_what_holds_for_them_are_refused(given: Any) -> None:
    with pytest.raises(UserError) as refused:
        create_deep_agent(ScriptedModel(), interrupt_on=given)
    assert str(refused.value) == (
        f"`interrupt_on` is {given!r}. Pass a mapping of tool names: `{{'write_file': True}}`."
    )
