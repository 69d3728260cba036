"""The events of a task as updates of A2A, while it works."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from a2a.helpers import new_text_part
from a2a.types import Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent
from a2a.utils.errors import InternalError

from pydantic_deep.server._turn_task import TurnTask, load_task
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.compat._client_events import ClientEvent, followed_events, run_events
from pydantic_deep.store import new_id
from pydantic_deep.streaming import NoticeEvent, RetriedEvent, TextEvent

from ._tasks import agent_message, output_artifact, status_of

Update: TypeAlias = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
"""An element of a stream."""


async def follow_task(access: Access, agent: str, task: TurnTask, first: Task) -> AsyncGenerator[Update]:
    """Yield a task, its updates while it works, and its last status.

    Text is yielded as pieces of the artifact `output`. The text of a later response replaces that of an earlier one, so in
    the end the artifact is the output.

    Args:
        access: The access of the caller.
        agent: The agent of the task.
        task: The task.
        first: The first update: the task in the terms of A2A.

    Raises:
        InternalError: The server stops, and the task works on in another process.
    """
    yield first
    if not task.is_active:
        return
    answer = _StreamedAnswer(task)
    while task.is_active:
        answer.text = ''
        local = task.own.local
        events = followed_events(access.state, task.own) if local is None else run_events(access.state, local)
        async with aclosing(events):
            async for event in events:
                for update in answer.updates(event):
                    yield update
        task = await load_task(access, task.id, agent=agent, run_id=task.run.id)
        if task.is_active and access.state.runs.is_stopped:
            raise InternalError('This server is stopping. The task is not affected: subscribe to it again.')
    output = task.run.output
    if output is not None and output != answer.text:
        yield answer.piece(output, append=False)
    yield TaskStatusUpdateEvent(task_id=task.id, context_id=task.run.conversation_id, status=status_of(task))


@dataclass
class _StreamedAnswer:
    """The text of the current response that the client has received."""

    task: TurnTask
    text: str = ''

    def updates(self, event: ClientEvent) -> Iterator[Update]:
        """Yield the updates for an event."""
        match event:
            case bytes():
                yield from self._more(json.loads(event))
            case TextEvent(path=[]):
                yield from self._more(event.text)
            case NoticeEvent(text=text):
                self.text = ''
                message = agent_message(self.task, [new_text_part(text)], id=new_id())
                status = TaskStatus(state=TaskState.TASK_STATE_WORKING, message=message)
                yield TaskStatusUpdateEvent(
                    task_id=self.task.id, context_id=self.task.run.conversation_id, status=status
                )
            case RetriedEvent(path=[]):  # its text is void, and the next piece replaces it
                self.text = ''
            case _:
                pass

    def _more(self, text: str) -> Iterator[Update]:
        yield self.piece(text, append=bool(self.text))
        self.text += text

    def piece(self, text: str, *, append: bool) -> TaskArtifactUpdateEvent:
        """Return the update with a piece of the answer, or with a text that replaces it."""
        return TaskArtifactUpdateEvent(
            task_id=self.task.id,
            context_id=self.task.run.conversation_id,
            artifact=output_artifact(text),
            append=append,
        )
