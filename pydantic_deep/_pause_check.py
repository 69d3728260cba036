"""Refuses runs that cannot pause, for capabilities that depend on a person's decision."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError

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
