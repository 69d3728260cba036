"""One turn: a task goes in, events come out, and what the conversation is afterwards. Nothing here prints.

A turn is one run of the agent, and one more after each pause for approvals: their usage and their limits are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    AgentStreamEvent,
    CancellationToken,
    Conversation,
    DeferredToolRequests,
    DeferredToolResults,
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

from pydantic_deep.approvals import answer_approvals, pending_approvals
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.skills import Skills
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.todos import Todo

from ._approvals import Decide, approval_of, describe_answer
from ._events import (
    Approval,
    ApprovalEvent,
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
from ._failures import FORESEEN, describe_failure, describe_pause
from ._watched import WatchedBackend

Output: TypeAlias = str | DeferredToolRequests
"""What a run ends with: an answer, or calls that wait."""

Show: TypeAlias = Callable[[Event], None]
"""Takes each event as it happens."""

Keep: TypeAlias = Callable[[Conversation], str]
"""Keeps a conversation that waits, and returns the file to resume it from; raises `OSError`."""


def keep_nowhere(conversation: Conversation) -> str:
    """Refuse: there is no place for a turn that waits."""
    raise OSError('there is no place for it')


@dataclass(frozen=True, kw_only=True)
class Worker:
    """An agent in a directory: what a turn needs besides its task."""

    agent: Agent[DeepAgentDeps, Output]
    backend: WatchedBackend
    deps: DeepAgentDeps
    """Its backend is `backend`."""
    skills: Skills
    """The skills that the agent has."""
    directory: str
    """The directory, as the person wrote it."""
    model: str
    """The name of the model, as the person wrote it."""
    clock: Callable[[], float]
    """Seconds that never go back."""


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Who looks on while a turn runs, and decides."""

    show: Show
    """Is handed every event, the first `start`, the last `result`."""
    decide: Decide
    """Answers the calls that wait."""
    keep: Keep = keep_nowhere
    """Keeps the conversation where nobody answers now."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn that ended."""

    result: ResultEvent
    """The last event."""
    messages: list[ModelMessage]
    """The conversation: the history of the next turn, whatever way this one ended."""


async def run_turn(
    worker: Worker, task: str, *, history: Sequence[ModelMessage] = (), stop: CancellationToken, watcher: Watcher
) -> Turn:
    """Let the agent work on a task until it answers, waits for approvals, fails or is stopped.

    Args:
        worker: The agent and its directory.
        task: What the person wants.
        history: The conversation before.
        stop: Cancel it to stop the turn.
        watcher: Who looks on and decides.
    """
    return await _Running(worker, watcher, stop, messages=list(history), usage=RunUsage()).run(task)


async def resume_turn(
    worker: Worker, task: str, *, conversation: Conversation, stop: CancellationToken, watcher: Watcher
) -> Turn:
    """Go on with a turn that waits for approvals: they are answered first.

    Args:
        worker: The agent and its directory.
        task: What the person had wanted.
        conversation: The conversation as it was kept.
        stop: Cancel it to stop the turn.
        watcher: Who looks on and decides.
    """
    running = _Running(worker, watcher, stop, messages=conversation.messages, usage=conversation.usage)
    return await running.run(task, conversation)


class _Running:
    """The state of one turn."""

    def __init__(
        self,
        worker: Worker,
        watcher: Watcher,
        stop: CancellationToken,
        *,
        messages: list[ModelMessage],
        usage: RunUsage,
    ) -> None:
        self._worker = worker
        self._watcher = watcher
        self._show = watcher.show
        self._stop = stop
        self._messages = messages
        self._run_usage = usage
        self._usage = _sums(usage)
        self._started = worker.clock()
        self._todos = list(worker.deps.todos)
        self._announced: set[str] = set()
        self._output: str | None = None
        self._pending: list[Approval] = []
        self._paused_file: str | None = None

    async def run(self, task: str, conversation: Conversation | None = None) -> Turn:
        worker = self._worker
        self._show(StartEvent(task=task, directory=worker.directory, model=worker.model))
        error: Exception | None = None
        try:
            await self._work(task, conversation)
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

    async def _work(self, task: str, conversation: Conversation | None) -> None:
        """Run the agent until it answers, or until nobody answers it."""
        if conversation is None:
            conversation = await self._stream(task, None)
        while conversation.deferred_tool_requests is not None:
            results = await self._answer(conversation.deferred_tool_requests)
            if results is None:
                self._paused_file = self._keep(conversation)
                return
            conversation = await self._stream(None, results)

    async def _stream(self, prompt: str | None, results: DeferredToolResults | None) -> Conversation:
        """Run the agent once, and return the conversation then."""
        worker = self._worker
        async with worker.agent.run_stream_events(
            prompt,
            message_history=self._messages,
            deferred_tool_results=results,
            deps=worker.deps,
            usage=self._run_usage,
            usage_limits=worker.deps.usage_limits,
            cancellation_token=self._stop,
        ) as events:
            try:
                async for event in events:
                    await self._take(event)
            finally:
                self._settle(events)
        result = events.result
        assert result is not None  # noqa: S101 - else the events had ended by an exception
        if isinstance(result.output, str):
            self._output = result.output
        return result.conversation

    def _keep(self, conversation: Conversation) -> str:
        try:
            return self._watcher.keep(conversation)
        except OSError as error:
            raise DeepAgentError(
                f'The turn cannot be kept to be resumed: {error}. Nothing that waits has run.'
            ) from error

    async def _answer(self, waiting: DeferredToolRequests) -> DeferredToolResults | None:
        """Have the calls answered that wait; `None` if they are to wait on."""
        pending = pending_approvals(waiting)
        self._pending = [approval_of(call) for call in pending]
        for approval in self._pending:
            self._show(ApprovalEvent(approval=approval))
        answers = await self._watcher.decide(pending)
        if answers is None:
            return None
        if self._stop.cancelled:
            raise RunCancelled('The turn was stopped before what was answered could run.')
        for id, answer in answers.items():
            self._show(describe_answer(id, answer))
        self._pending = []
        return answer_approvals(waiting, {id: answer.decision for id, answer in answers.items()})

    def _settle(self, events: AgentRunEvents[Output]) -> None:
        """Take the conversation and the usage as far as they got."""
        try:
            self._messages = events.all_messages()
            self._report_usage()
        except UserError:
            pass  # the run was over before its first event, and there is nothing to take

    async def _end(self, error: Exception | None) -> ResultEvent:
        await self._report_files()
        worker = self._worker
        if error is not None:
            status, sentence = describe_failure(error)
        elif self._pending:
            status, sentence = 'paused', describe_pause(len(self._pending), self._paused_file)
        else:
            status, sentence = 'done', None
        result = ResultEvent(
            status=status,
            output=self._output,
            error=sentence,
            usage=self._usage,
            files=await worker.backend.all_changes(),
            has_all_files=worker.backend.has_seen_all,
            todos=list(worker.deps.todos),
            seconds=round(worker.clock() - self._started, 3),
            pending=self._pending if status == 'paused' else [],
            paused_file=self._paused_file,
        )
        self._show(result)
        return result

    async def _take(self, event: AgentStreamEvent | AgentRunResultEvent[Output]) -> None:
        """Turn an event of the run into events of the turn. Kinds that are not known here are no news to a person."""
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                if text:
                    self._show(TextEvent(text=text))
            case SubagentEvent():
                task = _part_of_id(event.tool_call_id or '')
                await self._take_call(event.event, within=f'{task}/', path=event.path)
            case FunctionToolCallEvent() | FunctionToolResultEvent():
                await self._take_call(event)
            case _:
                pass

    async def _take_call(self, event: AgentStreamEvent, *, within: str = '', path: Sequence[str] = ()) -> None:
        """Report a tool call or its result, and what it changed. What a subagent says is for its parent alone."""
        match event:
            case FunctionToolCallEvent(part=part):
                self._report_usage()
                id = f'{within}{_part_of_id(part.tool_call_id)}'
                if id not in self._announced:  # a call that waited is announced again when it runs
                    self._announced.add(id)
                    args = part.args_as_dict()
                    self._show(ToolCallEvent(id=id, tool=part.tool_name, path=list(path), args=args))
            case FunctionToolResultEvent(part=part):
                self._show(
                    ToolResultEvent(
                        id=f'{within}{_part_of_id(part.tool_call_id)}',
                        tool=part.tool_name,
                        path=list(path),
                        outcome=part.outcome,
                        text=part.model_response_str(wrap_if_error=False),
                    )
                )
                self._report_todos(self._worker.deps.todos)
                await self._report_files()
                self._report_usage()
            case _:
                pass

    async def _report_files(self) -> None:
        for change in await self._worker.backend.take_changes():
            self._show(FileEvent(file=change))

    def _report_todos(self, todos: Sequence[Todo]) -> None:
        if list(todos) != self._todos:
            self._todos = list(todos)
            self._show(TodosEvent(todos=self._todos))

    def _report_usage(self) -> None:
        usage = _sums(self._run_usage)
        if usage != self._usage:
            self._usage = usage
            self._show(UsageEvent(usage=usage))


def _part_of_id(tool_call_id: str) -> str:
    """Return an id as it stands in that of a `PendingApproval`, where slashes part the ids on the way."""
    return tool_call_id.replace('%', '%25').replace('/', '%2F')


def _sums(run: RunUsage) -> Usage:
    return Usage(
        requests=run.requests,
        tool_calls=run.tool_calls,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
    )
