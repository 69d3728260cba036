"""What the tests of this room share: runs through an agent with `DeepAgentDeps`, and a process that knows only JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, Conversation, ConversationTypeAdapter
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

Ask = Callable[..., Awaitable[ToolReturnPart]]


@pytest.fixture
def ask() -> Ask:
    """Let a parent call `task` once, and return what it got."""

    async def run(
        *subagents: Subagent, deps: Any = None, room: Subagents | None = None, **options: Any
    ) -> ToolReturnPart:
        model = ScriptedModel(call('task', subagent=subagents[0].name, description='work'), 'done')
        parent = Agent[Any, Any](model, capabilities=[room or Subagents(subagents)])
        await parent.run('go', deps=DeepAgentDeps() if deps is None else deps, **options)
        return model.requests[-1].tool_returns[-1]

    return run


@pytest.fixture
def parent() -> Callable[..., Agent[Any, Any]]:
    """Make a parent that plays a script."""

    def make(*steps: Answer, subagents: list[Subagent] | None = None, **options: Any) -> Agent[Any, Any]:
        capabilities = [Subagents(subagents or []), *options.pop('capabilities', ())]
        return Agent[Any, Any](ScriptedModel(*steps), capabilities=capabilities, **options)

    return make


@pytest.fixture
def reload() -> Callable[[Conversation], Conversation]:
    """Carry a conversation over to another process."""

    def through_json(conversation: Conversation) -> Conversation:
        return ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(conversation))

    return through_json
