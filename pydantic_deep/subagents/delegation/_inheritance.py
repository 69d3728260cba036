"""What the run of a subagent has from its parent: capabilities, and settings of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from pydantic_deep.extensions import SupportsInheritance

_OF_ONE_REQUEST = frozenset({'tool_choice'})
"""Settings that speak of the parent's own tools, and mean nothing to a child."""


def inherited_capabilities(
    found: Sequence[SupportsInheritance], agent: AbstractAgent[Any, Any]
) -> list[AbstractCapability[Any]]:
    """Return the capabilities that a run of `agent` gets from its parent, but for those that it has itself: the very
    same objects.
    """
    own: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(own.append)
    known = [capability.for_subagent() for capability in own if isinstance(capability, SupportsInheritance)]
    passed = [capability.for_subagent() for capability in found]
    return [capability for capability in passed if not any(capability is other for other in known)]


def settings_below(parent: Mapping[str, Any], *, is_same_model: bool) -> Callable[[RunContext[Any]], ModelSettings]:
    """Return settings for a run that has those of the parent wherever it has none of its own.

    Args:
        parent: What the parent's requests have.
        is_same_model: Whether the run has its model from the parent: what is set in that model is then no choice of
            the child, and the parent's own choice holds.
    """

    def settings(ctx: RunContext[Any]) -> ModelSettings:
        own: dict[str, Any] = {**(ctx.model_settings or {})}
        if is_same_model:
            for name, value in (cast('Model[Any]', ctx.model).settings or {}).items():
                if own.get(name) == value:
                    del own[name]
        return cast('ModelSettings', {**parent, **own})

    return settings


def passed_settings(settings: ModelSettings | None) -> dict[str, Any]:
    """Return what a child gets of the settings of its parent."""
    return {name: value for name, value in (settings or {}).items() if name not in _OF_ONE_REQUEST}
