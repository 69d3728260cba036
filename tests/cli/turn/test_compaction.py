"""Summaries on request."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import CompactionPart, ModelMessage

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.cli.turn._compaction import compact
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def history(model: ScriptedModel, *prompts: str) -> list[ModelMessage]:
    """Return the messages of a dialogue with another agent."""
    agent, messages = create_deep_agent(model), list[ModelMessage]()
    for prompt in prompts:
        messages = (await agent.run(prompt, deps=DeepAgentDeps(), message_history=messages)).all_messages()
    return messages


async def test_the_beginning_is_replaced_by_a_summary() -> None:
    """The summary replaces complete messages; the rest of the history is unchanged, and no other request is sent."""
    messages = await history(ScriptedModel('a ' * 20_000, 'b ' * 10_000, 'Three.'), 'One', 'Two', 'Three')
    model = ScriptedModel('SUMMARY')
    compaction = await compact(create_deep_agent(model), DeepAgentDeps(), messages)
    assert compaction is not None
    assert (compaction.replaced, model.remaining) == (3, 0)
    first, *rest = compaction.messages
    assert [part.content for part in first.parts if isinstance(part, CompactionPart)] == [
        'The user asked first:\nOne\n\nSUMMARY'
    ]
    assert rest == messages[3:]
    assert compaction.tokens_before > 15_000 > compaction.tokens_after


async def test_an_agent_without_summarization_does_not_compact() -> None:
    """Without the capability `Summarization`, there is no summary and no request."""
    messages = await history(ScriptedModel('a ' * 20_000, 'Two.'), 'One', 'Two')
    model = ScriptedModel()
    assert await compact(create_deep_agent(model, summarization=False), DeepAgentDeps(), messages) is None
    assert model.requests == []
