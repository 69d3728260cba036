"""What a run requires to pause: an output type that allows it, and approvals."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from pydantic_ai import DeferredToolRequests, RunContext
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.exceptions import UserError
from pydantic_ai.output import OutputSpec

from .extensions import SupportsApprovalGate, find_capabilities


def check_can_pause(ctx: RunContext[object], name: str) -> None:
    """Raise if a run has no approvals.

    Args:
        ctx: The run.
        name: The name of the capability that needs them.

    Raises:
        UserError: The run has no approvals.
    """
    if not find_capabilities(ctx, SupportsApprovalGate):
        raise UserError(
            f'`{name}` requires approvals, and this agent cannot pause. Pass `interrupt_on={{}}` to '
            '`create_deep_agent`, or add `Approvals()` and the output type `DeferredToolRequests`.'
        )


def with_pause(output_type: OutputSpec[Any]) -> OutputSpec[Any] | None:
    """Return an output type that also allows a pause; `None` if the given one already does.

    Markers such as `NativeOutput` cannot contain the pause, so it is added next to them.
    """
    if _allows_pause(output_type):
        return None
    return cast('OutputSpec[Any]', [output_type, DeferredToolRequests])


def _allows_pause(output_type: object) -> bool:
    if isinstance(output_type, Sequence):
        return any(_allows_pause(item) for item in cast('Sequence[object]', output_type))
    if get_origin(output_type) in (Union, UnionType):
        return DeferredToolRequests in get_args(output_type)
    return output_type is DeferredToolRequests


def has_output_validators(agent: AbstractAgent[Any, Any]) -> bool:
    """Return whether an agent has output validators: pydantic-ai then rejects another output type for a run."""
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    return bool(getattr(agent, '_output_validators', ()))  # pydantic-ai does not expose them
