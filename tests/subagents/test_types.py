from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent

from pydantic_deep import create_deep_agent
from pydantic_deep.subagents import InvalidSubagentError, Subagent, Subagents
from pydantic_deep.testing import ScriptedModel


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


WORKER = Subagent('worker', 'Works.')


@pytest.mark.parametrize(
    ('given', 'said'),
    [
        (['a'], "`subagents` contains 'a'. Pass `Subagent(name, description)`."),
        ([{'name': 'a'}], "`subagents` contains {'name': 'a'}. Pass `Subagent(name, description)`."),
        (['x' * 300], f"`subagents` contains '{'x' * 199}…. Pass `Subagent(name, description)`."),
        ('worker', "`subagents` is 'worker'. Pass a list: `[Subagent(name, description)]`."),
        (None, '`subagents` is None. Pass a list: `[Subagent(name, description)]`.'),
    ],
)
def test_invalid_list_of_subagents_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TypeError) as refused:
        create_deep_agent(ScriptedModel(), subagents=given)
    assert str(refused.value) == said


def test_single_subagent_instead_of_a_list_is_refused() -> None:
    given: Any = WORKER
    with pytest.raises(TypeError, match=r"`subagents` is Subagent\(name='worker'"):
        create_deep_agent(ScriptedModel(), subagents=given)


@pytest.mark.parametrize(
    ('field', 'given', 'said'),
    [
        ('subagents', ['a'], "`subagents` contains 'a'"),
        ('usage_limits', 5, '`usage_limits` is 5. Use `UsageLimits('),
        ('timeout_seconds', 'x', "`timeout_seconds` is 'x'. Use more than 0."),
        ('max_depth', 'x', "`max_depth` is 'x'. Use 0 or more."),
        ('max_depth', 0.5, '`max_depth` is 0.5. Use 0 or more.'),
    ],
)
def test_subagent_field_of_another_type_is_refused(field: str, given: Any, said: str) -> None:
    fields: dict[str, Any] = {field: given}
    with pytest.raises(InvalidSubagentError) as refused:
        Subagent('worker', 'Works.', **fields)
    assert said in str(refused.value)
