"""The capabilities and model settings that the run of a subagent inherits."""

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
"""Settings that refer to the parent's own tools, and do not apply to a child."""


def inherited_capabilities(
    inheritable: Sequence[SupportsInheritance], agent: AbstractAgent[Any, Any]
) -> list[AbstractCapability[Any]]:
    """Return the capabilities that a run of `agent` inherits from its parent, except those that it already has as the
    same objects.
    """
    own: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(own.append)
    known = [capability.for_subagent() for capability in own if isinstance(capability, SupportsInheritance)]
    passed = [capability.for_subagent() for capability in inheritable]
    return [capability for capability in passed if not any(capability is other for other in known)]


def settings_below(parent: Mapping[str, Any], *, is_same_model: bool) -> Callable[[RunContext[Any]], ModelSettings]:
    """Return settings for a run: those of the parent, overridden by its own.

    Args:
        parent: The settings of the parent's requests.
        is_same_model: Whether the run uses the parent's model. Settings of that model are then not settings of the
            child, and do not override those of the parent.
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
    """Return the settings that a child inherits."""
    return {name: value for name, value in (settings or {}).items() if name not in _OF_ONE_REQUEST}
