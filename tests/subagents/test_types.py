from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent

from pydantic_deep.subagents import InvalidSubagentError, Subagent, Subagents


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ({'name': 'two words'}, 'its name is not 1 to 64'),
        ({'name': ''}, 'its name is not 1 to 64'),
        ({'name': 'a' * 65}, 'its name is not 1 to 64'),
        ({'name': 'a\n'}, 'its name is not 1 to 64'),
        ({'name': 7}, 'its name is not 1 to 64'),
        ({'model': ''}, "`model` is ''"),
        ({'model': ' '}, "`model` is ' '"),
        ({'timeout_seconds': math.nan}, '`timeout_seconds` is nan'),
        ({'description': '  '}, 'it has no description'),
        ({'description': None}, 'it has no description'),
        ({'isolation': 'none'}, "`isolation` is 'none'"),
        ({'timeout_seconds': 0}, '`timeout_seconds` is 0'),
        ({'timeout_seconds': float('nan')}, '`timeout_seconds` is nan'),
        ({'max_depth': -1}, '`max_depth` is -1'),
        ({'agent': 'openai:gpt'}, '`agent` is str'),
        ({'agent': Agent(), 'instructions': 'x', 'tools': [len]}, 'a ready `agent` and `instructions`, `tools`'),
        ({'agent': Agent(), 'output_type': int}, 'a ready `agent` and `output_type`'),
        ({'agent': Agent(), 'subagents': [Subagent('x', 'y')]}, 'a ready `agent` and `subagents`'),
        ({'agent': Agent(), 'interrupt_on': {'x': True}}, 'a ready `agent` and `interrupt_on`'),
    ],
)
def test_invalid_subagent_is_refused(fields: dict[str, Any], message: str) -> None:
    worker: dict[str, Any] = {'name': 'worker', 'description': 'Works.', **fields}
    with pytest.raises(InvalidSubagentError) as refused:
        Subagent(**worker)
    assert message in str(refused.value)
    assert refused.value.name == worker['name']


def test_ready_agent_can_be_any_agent_and_have_limits() -> None:
    agent = WrapperAgent(Agent())
    assert Subagent('worker', 'Works.', agent=agent, max_depth=0, timeout_seconds=1, tools=[]).agent is agent


def test_subagents_with_equal_names_are_refused() -> None:
    with pytest.raises(InvalidSubagentError, match='another one has the same name'):
        Subagents([Subagent('worker', 'a'), Subagent('worker', 'b')])


def test_fields_ignored_by_plain_agents_are_refused_at_any_depth() -> None:
    inner = Subagent('inner', 'x', skills=['s'], interrupt_on={'t': True})
    with pytest.raises(InvalidSubagentError, match=r"'inner' .*`skills` and `interrupt_on` would be ignored"):
        Subagents([Subagent('outer', 'x', subagents=[inner])])
    Subagents([inner], build=lambda subagent: Agent(name=subagent.name))


def test_non_subagent_is_refused_by_the_capability() -> None:
    given: Any = ['a']
    with pytest.raises(TypeError, match="`subagents` contains 'a'"):
        Subagents(given)
