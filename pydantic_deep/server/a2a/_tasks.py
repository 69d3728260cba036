"""A run, and the runs that resume its turn, in the terms of A2A."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from a2a.helpers import new_data_part, new_text_part
from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

from pydantic_deep.server._turn_task import TurnTask
from pydantic_deep.server.schemas._approvals import pending_call
from pydantic_deep.views import Run, RunState

from ._messages import HOW_TO_ANSWER

OUTPUT: Final = 'output'
"""The id of the artifact with the output."""

STATES: Mapping[RunState, TaskState] = {
    'queued': TaskState.TASK_STATE_SUBMITTED,
    'running': TaskState.TASK_STATE_WORKING,
    'awaiting_approval': TaskState.TASK_STATE_INPUT_REQUIRED,
    'suspended': TaskState.TASK_STATE_INPUT_REQUIRED,
    'complete': TaskState.TASK_STATE_COMPLETED,
    'interrupted': TaskState.TASK_STATE_CANCELED,
    'failed': TaskState.TASK_STATE_FAILED,
}
"""The states in the terms of A2A."""


def to_proto(task: TurnTask) -> Task:
    """Return a task in the terms of A2A."""
    run = task.run
    return Task(
        id=task.id,
        context_id=run.conversation_id,
        status=status_of(task),
        artifacts=[] if run.output is None else [output_artifact(run.output)],
        metadata={'run': run.id, 'version': run.version_id},
    )


def output_artifact(text: str) -> Artifact:
    """Return the artifact with an output, or with a piece of it."""
    return Artifact(artifact_id=OUTPUT, name=OUTPUT, parts=[new_text_part(text)])


def status_of(task: TurnTask) -> TaskStatus:
    """Return the status of a task. It has a message if the task needs something, or has failed."""
    parts = _parts(task.run)
    message = agent_message(task, parts, id=task.run.version_id or task.run.id) if parts else None
    return TaskStatus(state=STATES[task.run.state], message=message, timestamp=task.changed_at)


def agent_message(task: TurnTask, parts: list[Part], *, id: str) -> Message:
    """Return a message of the agent."""
    return Message(
        message_id=id, role=Role.ROLE_AGENT, task_id=task.id, context_id=task.run.conversation_id, parts=parts
    )


def _parts(run: Run) -> list[Part]:
    """Return what a task says in its state: the calls to decide on, or the reason why it has ended."""
    if run.state == 'suspended':
        reason = 'its process crashed' + ', and the conversation has moved on' * run.has_moved_on
        text = f'The run {run.id} has no end, because {reason}.'
        return [new_text_part(f'{text} Resume the task with the data `{{"decision": "resume"}}`, or cancel it.')]
    if run.state != 'awaiting_approval':
        reason = run.problem if run.error is None else run.error.message
        return [] if reason is None else [new_text_part(reason)]
    pending = [pending_call(approval) for approval in run.approvals if approval.status == 'pending']
    if not pending:
        return [
            new_text_part('The calls were decided elsewhere. Resume the task with the data `{"decision": "resume"}`.')
        ]
    text = '\n\n'.join(['The agent needs a decision.', *(call.call for call in pending), HOW_TO_ANSWER])
    return [new_text_part(text), *(new_data_part(call.model_dump(mode='json')) for call in pending)]
