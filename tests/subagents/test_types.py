from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent

from pydantic_deep.subagents import InvalidSubagentError, Subagent, Subagents


@pytest.mark.parametrize(
    ('fields', 'said'),
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
def test_a_description_that_cannot_work_is_refused(fields: dict[str, Any], said: str) -> None:
    worker: dict[str, Any] = {'name': 'worker', 'description': 'Works.', **fields}
    with pytest.raises(InvalidSubagentError) as refused:
        Subagent(**worker)
    assert said in str(refused.value)
    assert refused.value.name == worker['name']


def test_a_ready_agent_may_be_any_agent_and_may_have_limits() -> None:
    agent = WrapperAgent(Agent())
    assert Subagent('worker', 'Works.', agent=agent, max_depth=0, timeout_seconds=1, tools=[]).agent is agent


def test_two_subagents_cannot_have_one_name() -> None:
    with pytest.raises(InvalidSubagentError, match='another one has the same name'):
        Subagents([Subagent('worker', 'a'), Subagent('worker', 'b')])


def test_what_a_plain_agent_would_not_read_is_refused_at_any_depth() -> None:
    inner = Subagent('inner', 'x', skills=['s'], interrupt_on={'t': True})
    with pytest.raises(InvalidSubagentError, match=r"'inner' .*`skills` and `interrupt_on` would be ignored"):
        Subagents([Subagent('outer', 'x', subagents=[inner])])
    Subagents([inner], build=lambda subagent: Agent(name=subagent.name))


def test_what_is_no_subagent_is_refused_by_the_room() -> None:
    given: Any = ['a']
    with pytest.raises(TypeError, match="`subagents` contains 'a'"):
        Subagents(given)
