"""The end of a recorded run: a complete turn, a pause with its approvals, or its state after an error."""

from __future__ import annotations

from typing import Any, Literal

from pydantic_ai import AgentRunResult, DeferredToolRequests, RunCancelled
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json

from pydantic_deep.store import ApprovalRecord, now
from pydantic_deep.versions.pauses._pause import approvals_of
from pydantic_deep.versions.pauses._pause_histories import store_pause

from ._recorded_run import RecordedRun
from ._recovery_script import RecoveryScript


def has_ended_before(recording: RecordedRun, script: RecoveryScript, output: object) -> bool:
    """Return whether a crashed run has stored the same end, so that all responses come from its recording."""
    base = recording.start.base
    if script.position != len(script.responses) or recording.tip is not base:
        return False
    state = 'awaiting_approval' if isinstance(output, DeferredToolRequests) else 'complete'
    return (
        base.kind != 'step'
        and base.state == state
        and base.run_id in {attempt.id for attempt in recording.start.crashed.attempts}
    )


async def end_run(
    recording: RecordedRun, result: AgentRunResult[Any], usage: RunUsage, *, is_subagent: bool, expires_at: int | None
) -> None:
    """Commit the end of a run. Pending approvals of a subagent are part of the pause of the top-level run.

    `usage` is that of the conversation. From the time `expires_at` on, pending approvals count as denied.
    """
    messages, output = result.all_messages(), result.output
    if not isinstance(output, DeferredToolRequests):
        text = to_json(output, fallback=repr).decode()  # for values that JSON cannot represent
        await recording.end(messages, usage, kind='turn', state='complete', output=text)
        return
    approvals, supersedes = list[ApprovalRecord](), dict[str, str]()
    if not is_subagent:
        approvals, supersedes = await approvals_of(
            recording.store,
            recording.start.base,
            output,
            pause_id=recording.start.pause_id,
            created_at=now(),
            expires_at=expires_at,
        )
    await recording.end(
        messages,
        usage,
        kind='pause',
        state='awaiting_approval',
        pending=await store_pause(recording.store, output),
        approvals=approvals,
        supersedes=supersedes,
    )


def state_after(error: BaseException) -> Literal['interrupted', 'failed']:
    """Return the state of a run that ended with an error."""
    return 'interrupted' if isinstance(error, RunCancelled) or not isinstance(error, Exception) else 'failed'


def suspension_note(run_id: str, version_id: str) -> str:
    """Return the note for the error that suspends a run."""
    return (
        f'The run {run_id} is suspended after the version {version_id}: `VersionedAgent.recover` resumes it, and '
        '`VersionedAgent.cancel` ends it.'
    )
