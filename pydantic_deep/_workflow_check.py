"""Refuses runs inside durable workflows of pydantic-ai, which would break the promises of our capabilities."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError


def check_not_in_workflow(ctx: RunContext[object]) -> None:
    """Raise if the run is in a workflow of `TemporalDurability`, `DBOSDurability` or `PrefectDurability`.

    Such a workflow repeats unfinished calls without asking, and does not record files, todos, budgets or summaries.

    Raises:
        UserError: The run is in a workflow.
    """
    if ctx.in_durable_context:
        raise UserError(
            'This run is inside a durable workflow, which would repeat unfinished tool calls without approval and '
            'does not record the files and todos of the run. Start the run outside of the workflow, with a '
            '`VersionedAgent`, and have `pydantic_deep.dispatch` deliver it to workers: with '
            "`open_dispatcher('temporal://host:port/namespace')` on Temporal, or `open_dispatcher('postgresql://…')` "
            'instead of DBOS or Prefect.'
        )
