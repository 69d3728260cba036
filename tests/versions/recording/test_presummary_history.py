"""Histories before they were rewritten stay readable."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext

from pydantic_deep.testing import call
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def words(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]


class Forgetful(AbstractCapability[object]):
    """Replaces a long history by a summary, durably."""

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        if len(ctx.messages) > 4:
            summary = ModelRequest(parts=[UserPromptPart('summary of it all')])
            ctx.messages[:] = [summary, ctx.messages[-1]]
            request_context.messages = list(ctx.messages)
        return request_context


async def test_rewritten_history_leaves_the_old_one_readable(make_plain: MakeAgent, store: SpyStore):
    agent = make_plain('one', 'two', 'three', 'four', 'five', capabilities=[Forgetful()])
    first = await (await agent.create()).advance('a')
    second = await first.advance('b')
    third = await second.advance('c')

    assert words(await second.messages()) == ['a', 'one', 'b', 'two']
    assert words(await third.messages()) == ['summary of it all', 'c', 'three']
    other = make_plain(capabilities=[Forgetful()])
    assert words(await (await other.load(second.id)).messages()) == ['a', 'one', 'b', 'two']
    assert words(await (await other.load(third.id)).messages()) == ['summary of it all', 'c', 'three']
    main, anew = await store.branches(first.conversation_id)
    assert (anew.rewrites_id, anew.rewrites_seq) == (main.id, 4)
    assert (second.branch, third.branch) == ('main', anew.name)
    fourth = await third.advance('d')
    assert words(await fourth.messages()) == ['summary of it all', 'c', 'three', 'd', 'four']
    assert [v.id for v in await fourth.lineage()][1:] == [first.id, second.id, third.id, fourth.id]
    alternative = await second.advance('e')
    assert words(await alternative.messages())[0] == 'summary of it all'


async def test_history_rewritten_within_a_turn_preserves_each_step(make_plain: MakeAgent):
    def look() -> str:
        return 'ok'

    agent = make_plain(call('look'), call('look'), 'done', tools=[look], capabilities=[Forgetful()])
    turn = await (await agent.create()).advance('go')

    steps = await turn.steps()
    assert [step.message_count for step in steps] == [2, 4]
    assert words(await steps[1].messages()) == ['go']
    assert words(await turn.messages()) == ['summary of it all', 'done']
