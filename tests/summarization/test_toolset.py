"""The tool `search_history`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ConversationTypeAdapter

from pydantic_deep.testing import ScriptedModel, call

from .conftest import summarization

pytestmark = pytest.mark.anyio


async def test_replaced_messages_are_found_in_another_process(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    steps = [*(call('work', n=n) for n in range(12)), 'done']
    result = await agent_of(ScriptedModel(*steps), summarization(), text='The lease has number 7-B.').run('go')
    stored = ConversationTypeAdapter.dump_json(result.conversation)
    model = ScriptedModel(call('search_history', query='lease number'), 'It is 7-B.')
    again = await agent_of(model, summarization()).run(
        'Which?', conversation=ConversationTypeAdapter.validate_json(stored)
    )
    assert again.output == 'It is 7-B.'
    assert '7-B' in str(model.requests[1].tool_returns[-1].content)
