from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.usage import UsageLimits

from pydantic_deep.subagents import Subagent
from pydantic_deep.subagents._digest import digest_of
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.todos import Todos


def tool() -> str:
    return 'done'


def build(subagent: Subagent) -> Agent[Any, Any]:
    return Agent(name=subagent.name)


BASE = Subagent(
    'worker', 'Works.', tools=[tool], usage_limits=UsageLimits(request_limit=3), interrupt_on={'tool': True}
)


def test_equal_subagents_have_equal_digests() -> None:
    again = replace(BASE, tools=(tool,), usage_limits=UsageLimits(request_limit=3))
    assert digest_of(again, build).value == digest_of(BASE, build).value


@pytest.mark.parametrize(
    'change',
    [
        {'name': 'other'},
        {'description': 'Other.'},
        {'instructions': 'x'},
        {'instructions': ['x', 'y']},
        {'model': 'test'},
        {'model': ScriptedModel()},
        {'tools': [lambda: 'x']},
        {'tools': [tool, tool]},
        {'toolsets': [FunctionToolset()]},
        {'capabilities': [Todos()]},
        {'skills': ['a']},
        {'subagents': [Subagent('x', 'y')]},
        {'output_type': int},
        {'interrupt_on': {'tool': False}},
        {'max_depth': 2},
        {'usage_limits': UsageLimits(request_limit=3, cost_limit=Decimal(1))},
        {'timeout_seconds': 1.5},
        {'isolation': 'fork'},
    ],
)
def test_any_change_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest_of(replace(BASE, **change), build).value != digest_of(BASE, build).value


def test_builder_and_nested_subagents_change_the_digest() -> None:
    def other(subagent: Subagent) -> Agent[Any, Any]:
        return build(subagent)

    outer = replace(BASE, subagents=[replace(BASE, name='inner')])
    changed = replace(BASE, subagents=[replace(BASE, name='inner', instructions='x')])
    assert digest_of(BASE, other).value != digest_of(BASE, build).value
    assert digest_of(outer, build).value != digest_of(changed, build).value


def test_digest_holds_references_to_objects_compared_by_identity() -> None:
    assert digest_of(replace(BASE, output_type=int), build).live == (tool, int, build)
