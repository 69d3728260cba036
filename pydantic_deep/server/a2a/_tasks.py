"""`AgentTask`: a run, and the runs that resume its turn, as one task of A2A."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from a2a.helpers import new_data_part, new_text_part
from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

from pydantic_deep.dispatch import load_attempts
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import Access, AuthorizedRun
from pydantic_deep.server.http._errors import not_found
from pydantic_deep.server.schemas._approvals import pending_call
from pydantic_deep.server.schemas._runs import build_run
from pydantic_deep.store import VersionNotFoundError
from pydantic_deep.views import Run, RunState

from ._messages import HOW_TO_ANSWER

OUTPUT: Final = 'output'
"""The id of the artifact with the output."""

_ALL = 10_000
"""An upper bound for the number of approvals of a version."""

_STATES: Mapping[RunState, TaskState] = {
    'queued': TaskState.TASK_STATE_SUBMITTED,
    'running': TaskState.TASK_STATE_WORKING,
    'awaiting_approval': TaskState.TASK_STATE_INPUT_REQUIRED,
    'suspended': TaskState.TASK_STATE_INPUT_REQUIRED,
    'complete': TaskState.TASK_STATE_COMPLETED,
    'interrupted': TaskState.TASK_STATE_CANCELED,
    'failed': TaskState.TASK_STATE_FAILED,
}


@dataclass(frozen=True, kw_only=True)
class AgentTask:
    """A task. Its state is that of its newest run."""

    id: str
    """The id of its first run."""
    own: AuthorizedRun
    """Its newest run."""
    run: Run
    """The newest run as a view."""

    @property
    def is_active(self) -> bool:
        """Whether the task works, now or as soon as a worker is free."""
        return self.run.state in ('queued', 'running')

    @property
    def changed_at(self) -> datetime:
        """When the task got its state."""
        return self.run.ended_at or self.run.started_at

    @property
    def state(self) -> TaskState:
        """The state in the terms of A2A."""
        return _STATES[self.run.state]


async def load_task(access: Access, agent: str, id: str, *, run_id: str | None = None) -> AgentTask:
    """Return a task of the caller, with its newest run.

    Args:
        access: The access of the caller.
        agent: The agent of the task.
        id: The id of the task.
        run_id: A run of the task, which is known not to be older than the newest one that the store knows.

    Raises:
        ServerError: The caller owns no run with that id, or it is of another agent.
    """
    own = await access.run(run_id or id)
    run = await build_run(access.state, own)
    if run.agent != agent:
        raise not_found()
    while (next_id := await _resumed_by(access.state, run)) is not None:
        own = await access.run(next_id)
        run = await build_run(access.state, own)
    return AgentTask(id=id, own=own, run=run)


async def find_first_run(state: ServerState, run_id: str) -> str:
    """Return the id of the task that a run belongs to: the first run of its turn, and of that the first attempt."""
    first_id, next_id = run_id, run_id
    while next_id is not None and (attempts := await load_attempts(state.store, next_id)):
        first_id = attempts[0].id
        next_id = await _paused_run(state, attempts[0].base_id)
    return first_id


async def _paused_run(state: ServerState, version_id: str | None) -> str | None:
    """Return the run that paused with a version; `None` if the version is another one, or was deleted."""
    with suppress(VersionNotFoundError):
        version = None if version_id is None else await state.store.version(version_id)
        return version.run_id if version is not None and version.kind == 'pause' else None
    return None


async def _resumed_by(state: ServerState, run: Run) -> str | None:
    """Return the run that resumes a paused one."""
    if run.state != 'awaiting_approval' or run.version_id is None:
        return None
    active = state.runs.run_from(run.version_id)
    if active is not None:
        return active.id
    queued = await state.store.queue.list(conversation_id=run.conversation_id) if state.hands_over else []
    started = [record.run_id for record in queued if record.base_id == run.version_id]
    if started:  # at another server, for the workers
        return started[0]
    approvals = await state.store.approvals(status=None, version_id=run.version_id, limit=_ALL)
    return next((approval.resumed_by for approval in approvals if approval.resumed_by is not None), None)


def to_proto(task: AgentTask) -> Task:
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


def status_of(task: AgentTask) -> TaskStatus:
    """Return the status of a task. It has a message if the task needs something, or has failed."""
    parts = _parts(task.run)
    message = agent_message(task, parts, id=task.run.version_id or task.run.id) if parts else None
    return TaskStatus(state=task.state, message=message, timestamp=task.changed_at)


def agent_message(task: AgentTask, parts: list[Part], *, id: str) -> Message:
    """Return a message of the agent."""
    return Message(
        message_id=id, role=Role.ROLE_AGENT, task_id=task.id, context_id=task.run.conversation_id, parts=parts
    )


def _parts(run: Run) -> list[Part]:
    """Return what a task says in its state: the calls to decide on, or the reason why it has ended."""
    if run.state == 'suspended':
        text = (
            f'The run {run.id} has no end, because its process crashed. Resume it with `POST /api/runs/{run.id}/resume`'
        )
        return [new_text_part(f'{text}, or cancel this task.')]
    if run.state != 'awaiting_approval':
        return [] if run.error is None else [new_text_part(run.error.message)]
    pending = [pending_call(approval) for approval in run.approvals if approval.status == 'pending']
    if not pending:
        return [
            new_text_part('The calls were decided elsewhere. Resume the task with the data `{"decision": "resume"}`.')
        ]
    text = '\n\n'.join(['The agent needs a decision.', *(call.call for call in pending), HOW_TO_ANSWER])
    return [new_text_part(text), *(new_data_part(call.model_dump(mode='json')) for call in pending)]
