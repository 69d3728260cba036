"""The workflow of `TemporalDispatcher`. It runs in Temporal's sandbox, so it must be deterministic.

A change of the commands that it issues needs `workflow.patched`, because workflows of older releases may be running.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError

ACTIVITY: Final = 'execute-run'
"""The name of the activity that executes a run."""

_MAX_DURATION: Final = timedelta(days=30)
"""Maximum duration of a run. Crashed workers are detected by heartbeats, but Temporal requires a limit."""

_RETRIES: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=5))


@dataclass
class SubmittedRun:
    """A run that was submitted. Fields are only added, with a default: workflows of older releases may be running."""

    run_id: str
    task_queue: str
    priority: int
    heartbeat_seconds: float


@workflow.defn(name='pydantic-deep-conversation')
class ConversationWorkflow:
    """Executes the runs of a conversation one at a time, by priority, and ends when none is left."""

    def __init__(self) -> None:
        self._waiting: dict[str, SubmittedRun] = {}
        self._current: tuple[str, workflow.ActivityHandle[None]] | None = None

    @workflow.run
    async def run(self, waiting: list[SubmittedRun]) -> None:
        """Execute runs until none is left.

        Args:
            waiting: The runs that were waiting when the history of the workflow became too long.
        """
        for run in waiting:
            self.submit(run)
        while self._waiting:
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new([*self._waiting.values()])
            run = max(self._waiting.values(), key=lambda run: run.priority)  # the first of those with the highest
            del self._waiting[run.run_id]
            handle: workflow.ActivityHandle[None] = workflow.start_activity(
                ACTIVITY,
                run.run_id,
                result_type=type(None),
                task_queue=run.task_queue,
                start_to_close_timeout=_MAX_DURATION,
                heartbeat_timeout=timedelta(seconds=run.heartbeat_seconds),
                retry_policy=_RETRIES,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                priority=Priority(priority_key=min(max(3 - run.priority, 1), 5)),
            )
            self._current = run.run_id, handle
            with suppress(ActivityError):  # it was cancelled before it was delivered: the store knows the run
                await handle
            self._current = None

    @workflow.signal
    def submit(self, run: SubmittedRun) -> None:
        """Add a run, unless it is waiting or executed."""
        if self._current is None or self._current[0] != run.run_id:
            self._waiting.setdefault(run.run_id, run)

    @workflow.signal
    def cancel(self, run_id: str) -> None:
        """Remove a run. The activity ignores the cancellation if it has started."""
        self._waiting.pop(run_id, None)
        if self._current is not None and self._current[0] == run_id:
            self._current[1].cancel()
