"""The capability on an agent: its instructions, and several of its kind."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep import DeepAgentDeps
from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import ScriptedModel, call

from .conftest import worker

pytestmark = pytest.mark.anyio


async def test_model_sees_one_tool_and_a_line_for_each_subagent() -> None:
    model = ScriptedModel('done')
    parent = Agent(model, capabilities=[Subagents([Subagent('worker', 'Works\n  hard.')])])
    await parent.run('go', deps=DeepAgentDeps())
    assert model.requests[0].instructions == (
        'Subagents for `task`:\n- general-purpose: a fresh copy of you, with your tools\n- worker: Works hard.'
    )
    [tool] = model.requests[0].tools
    assert (tool.name, tool.metadata) == ('task', {'effect': 'external', DELEGATES: True})
    assert tool.parameters_json_schema['required'] == ['description', 'subagent']


async def test_model_sees_no_choice_if_there_is_only_the_general_purpose_subagent() -> None:
    model = ScriptedModel(
        call('task', description='Work.'), 'worked', call('task', description='x', subagent='y'), 'ok'
    )
    await Agent(model, capabilities=[Subagents()]).run('go', deps=DeepAgentDeps())
    [tool] = model.requests[0].tools
    assert list(tool.parameters_json_schema['properties']) == ['description']
    assert model.requests[0].instructions == 'Do the work yourself. Only large parts are for `task`.'
    worked, refused = model.requests[-1].tool_returns
    assert worked.content == 'worked'
    assert refused.content == "There is no subagent 'y'. Subagents: general-purpose."


async def test_several_subagents_capabilities_are_combined(ask: Any) -> None:
    model = ScriptedModel('done')
    capabilities = [Subagents([worker()]), Subagents([Subagent('other', 'Does more.')], general_purpose=False)]
    await Agent(model, capabilities=capabilities).run('go', deps=DeepAgentDeps())
    assert model.requests[0].instructions == 'Subagents for `task`:\n- worker: Works.\n- other: Does more.'


async def test_capability_that_cannot_be_inherited_fails_the_call(caplog: pytest.LogCaptureFixture) -> None:
    class Unwilling(AbstractCapability[Any]):
        def for_subagent(self) -> AbstractCapability[Any]:
            raise LookupError('no')

    model = ScriptedModel(call('task', subagent='worker', description='x'), 'done')
    await Agent(model, capabilities=[Subagents([worker('x')]), Unwilling()]).run('go', deps=DeepAgentDeps())
    [returned] = model.requests[-1].tool_returns
    assert (returned.outcome, returned.content) == (
        'failed',
        "The subagent 'worker' cannot be built: LookupError: no",
    )
