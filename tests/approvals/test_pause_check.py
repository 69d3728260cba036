"""Output types that allow a pause, and agents whose output type cannot be replaced."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.agent import WrapperAgent

from pydantic_deep._pause_check import has_output_validators, with_pause


@pytest.mark.parametrize(
    'allows',
    [DeferredToolRequests, [str, DeferredToolRequests], [str, [DeferredToolRequests]], str | DeferredToolRequests],
)
def test_output_type_that_allows_a_pause_is_unchanged(allows: Any) -> None:
    assert with_pause(allows) is None


def test_pause_is_added_to_other_output_types() -> None:
    assert with_pause([int, str]) == [[int, str], DeferredToolRequests]


def test_output_validators_are_found_in_wrapped_agents() -> None:
    agent = Agent('test')
    assert not has_output_validators(WrapperAgent(agent))
    agent.output_validator(str.upper)
    assert has_output_validators(WrapperAgent(agent))
