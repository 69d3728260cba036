"""Invalid arguments from untyped callers are refused immediately, with a suggestion."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError

from pydantic_deep import create_deep_agent
from pydantic_deep.approvals import pending_approvals
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def test_result_and_conversation_are_refused_as_an_output() -> None:
    result = await Agent(ScriptedModel('done')).run('go')
    with pytest.raises(TypeError, match=r'`output` is AgentRunResult\. Pass its `\.output`\.'):
        pending_approvals(result)
    with pytest.raises(TypeError, match=r'`output` is Conversation\. Pass its `\.deferred_tool_requests`\.'):
        pending_approvals(result.conversation)
    assert pending_approvals(result.output) == []
    assert pending_approvals(result.conversation.deferred_tool_requests) == []


@pytest.mark.parametrize('given', [['write_file'], 'write_file', True])
def test_interrupt_on_must_be_a_mapping(given: Any) -> None:
    with pytest.raises(UserError) as refused:
        create_deep_agent(ScriptedModel(), interrupt_on=given)
    assert str(refused.value) == (
        f"`interrupt_on` is {given!r}. Pass a mapping of tool names: `{{'write_file': True}}`."
    )
