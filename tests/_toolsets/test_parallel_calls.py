"""Detection of parallel calls in the last response."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent, RunContext

from pydantic_deep._toolsets.parallel_calls import has_parallel_calls
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


async def test_only_calls_of_the_last_response_count() -> None:
    seen: list[bool] = []

    def look(ctx: RunContext[object]) -> str:
        seen.append(has_parallel_calls(ctx))
        return 'ok'

    model = ScriptedModel(call('look'), [call('look'), call('look')], ['and one more', call('look')], 'done')
    await Agent(model, deps_type=object, tools=[look]).run('go')
    assert seen == [False, True, True, False]
