"""One turn: a task goes in, events come out, and what the conversation is afterwards. Nothing here prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    AgentStreamEvent,
    CancellationToken,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    RunCancelled,
    TextPart,
    TextPartDelta,
    UserError,
)
from pydantic_ai.agent import AgentRunEvents
from pydantic_ai.messages import ModelMessage, repair_messages
from pydantic_ai.usage import RunUsage

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.todos import Todo

from ._events import (
    Event,
    FileEvent,
    ResultEvent,
    StartEvent,
    TextEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
    UsageEvent,
)
from ._failures import FORESEEN, describe_failure
from ._watched import WatchedBackend

Show = Callable[[Event], None]
"""Takes each event as it happens."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """An agent in a directory: what a turn needs besides its task."""

    agent: Agent[DeepAgentDeps, str]
    backend: WatchedBackend
    deps: DeepAgentDeps
    """Its backend is `backend`."""
    directory: str
    """The directory, as the person wrote it."""
    model: str
    """The name of the model, as the person wrote it."""
    clock: Callable[[], float]
    """Seconds that never go back."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn that ended."""

    result: ResultEvent
    """The last event."""
    messages: list[ModelMessage]
    """The conversation: the history of the next turn, whatever way this one ended."""


async def run_turn(
    worker: Worker, task: str, *, history: Sequence[ModelMessage] = (), stop: CancellationToken, show: Show
) -> Turn:
    """Let the agent work on a task until it answers, fails or is stopped.

    Args:
        worker: The agent and its directory.
        task: What the person wants.
        history: The conversation before.
        stop: Cancel it to stop the turn.
        show: Is handed every event, the first `start`, the last `result`.
    """
    return await _Running(worker, show).run(task, list(history), stop)


class _Running:
    """The state of one turn."""

    def __init__(self, worker: Worker, show: Show) -> None:
        self._worker = worker
        self._show = show
        self._started = worker.clock()
        self._todos = list(worker.deps.todos)
        self._usage = Usage()
        self._output: str | None = None
        self._messages: list[ModelMessage] = []

    async def run(self, task: str, history: list[ModelMessage], stop: CancellationToken) -> Turn:
        worker = self._worker
        self._messages = history
        self._show(StartEvent(task=task, directory=worker.directory, model=worker.model))
        error: Exception | None = None
        try:
            async with worker.agent.run_stream_events(
                task,
                message_history=history,
                deps=worker.deps,
                usage_limits=worker.deps.usage_limits,
                cancellation_token=stop,
            ) as events:
                try:
                    async for event in events:
                        await self._take(event, events)
                finally:
                    self._settle(events)
        except RunCancelled as caught:
            self._messages = caught.all_messages() or self._messages
            error = caught
        except FORESEEN as caught:
            error = caught
        except Exception as caught:
            # A defect: readers of the events get their last one, then the traceback comes.
            await self._end(caught)
            raise
        result = await self._end(error)
        return Turn(result=result, messages=repair_messages(self._messages))

    def _settle(self, events: AgentRunEvents[str]) -> None:
        """Take the conversation and the usage as far as they got."""
        try:
            self._messages = events.all_messages()
            self._report_usage(events.usage)
        except UserError:
            pass  # the run was over before its first event, and there is nothing to take

    async def _end(self, error: Exception | None) -> ResultEvent:
        await self._report_files()
        status, sentence = ('done', None) if error is None else describe_failure(error)
        worker = self._worker
        result = ResultEvent(
            status=status,
            output=self._output,
            error=sentence,
            usage=self._usage,
            files=await worker.backend.all_changes(),
            todos=list(worker.deps.todos),
            seconds=round(worker.clock() - self._started, 3),
        )
        self._show(result)
        return result

    async def _take(self, event: AgentStreamEvent | AgentRunResultEvent[str], events: AgentRunEvents[str]) -> None:
        """Turn an event of the run into events of the turn. Kinds that are not known here are no news to a person."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                if text:
                    self._show(TextEvent(text=text))
            case FunctionToolCallEvent(part=part):
                self._report_usage(events.usage)
                self._show(ToolCallEvent(id=part.tool_call_id, tool=part.tool_name, args=part.args_as_dict()))
            case FunctionToolResultEvent(part=part):
                text = part.model_response_str(wrap_if_error=False)
                self._show(ToolResultEvent(id=part.tool_call_id, tool=part.tool_name, outcome=part.outcome, text=text))
                self._report_todos(self._worker.deps.todos)
                await self._report_files()
                self._report_usage(events.usage)
            case AgentRunResultEvent(result=result):
                self._output = result.output
                self._report_usage(result.usage)
            case _:
                pass

    async def _report_files(self) -> None:
        for change in await self._worker.backend.take_changes():
            self._show(FileEvent(file=change))

    def _report_todos(self, todos: Sequence[Todo]) -> None:
        if list(todos) != self._todos:
            self._todos = list(todos)
            self._show(TodosEvent(todos=self._todos))

    def _report_usage(self, run: RunUsage) -> None:
        usage = Usage(
            requests=run.requests,
            tool_calls=run.tool_calls,
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
        )
        if usage != self._usage:
            self._usage = usage
            self._show(UsageEvent(usage=usage))
