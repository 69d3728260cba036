"""One turn: a task goes in, events come out, and what the conversation is afterwards. Nothing here prints.

A turn is one run of the agent, and one more after each pause for approvals: their usage and their limits are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from pydantic_ai import (
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
)
from pydantic_ai.usage import RunUsage

from pydantic_deep.approvals import Decision
from pydantic_deep.budgets import BudgetExceededError
from pydantic_deep.cli._events import (
    Approval,
    ApprovalEvent,
    BudgetEvent,
    Event,
    FileChange,
    FileEvent,
    ResultEvent,
    RetriedEvent,
    StartEvent,
    TextEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
    UsageEvent,
)
from pydantic_deep.cli.approvals._policy import (
    CallAnswer,
    Decider,
    NotPendingError,
    answer_event,
    approval_from_pending,
    check_unanswered,
)
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.filesystem import exit_code_of
from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.store import ApprovalAnsweredError
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.versions import ApprovalInbox, TurnStream

from ._capability_events import capability_event
from ._conversation import Conversation, Version
from ._failures import (
    EXPECTED_ERRORS,
    describe_exceeded_budget,
    describe_failure,
    describe_interrupted_prompt,
    describe_last_answer,
    describe_pause,
    describe_suspension,
)
from ._runtime import Output

EventSink: TypeAlias = Callable[[Event], None]
"""Receives each event as it happens."""


@dataclass(frozen=True, kw_only=True)
class TurnObserver:
    """Receives the events of a turn, and decides its pending calls."""

    show: EventSink
    """Receives every event, from `start` to `result`."""
    decide: Decider
    """Decides the pending calls."""


@dataclass(frozen=True, kw_only=True)
class TurnReport:
    """The outcome of a turn."""

    result: ResultEvent
    """The last event."""
    has_answered: bool
    """Whether pending calls were answered, so that they may have run."""
    has_next_command: bool
    """Whether the last event names the command that continues, after a pause or an answer from elsewhere."""


async def run_turn(
    conversation: Conversation, task: str, *, branch: str | None = None, stop: CancellationToken, observer: TurnObserver
) -> TurnReport:
    """Let the agent work on a task until it answers, waits for approvals, fails or is stopped.

    Args:
        conversation: The agent and its directory, and what was said before. It goes on from this turn afterwards.
        task: What the person wants.
        branch: The name of a branch that begins with this turn.
        stop: Cancel it to stop the turn.
        observer: Who looks on and decides.
    """
    return await _TurnRunner(conversation, observer, stop).run(task, branch=branch)


async def resume_turn(
    conversation: Conversation, task: str, *, stop: CancellationToken, observer: TurnObserver
) -> TurnReport:
    """Go on with a turn that waits for approvals: what has no answer yet is asked first.

    Args:
        conversation: One whose `tip` waits.
        task: What the person had wanted.
        stop: Cancel it to stop the turn.
        observer: Who looks on and decides.
    """
    return await _TurnRunner(conversation, observer, stop).run(task, waiting=conversation.tip)


class _TurnRunner:
    """The state of one turn."""

    def __init__(self, conversation: Conversation, observer: TurnObserver, stop: CancellationToken) -> None:
        runtime = conversation.runtime
        self._conversation = conversation
        self._runtime = runtime
        runtime.retries.on_retry = self._handle_retry
        self._observer = observer
        self._show = observer.show
        self._stop = stop
        self._base: Version | None = None
        self._version: Version | None = None
        self._stream: TurnStream[DeepAgentDeps, Output] | None = None
        self._is_in_directory = conversation.is_in_directory
        self._used_before = RunUsage()
        self._usage = Usage()
        self._started = runtime.clock()
        self._todos = list(runtime.deps.todos)
        self._announced: set[str] = set()
        self._output: str | None = None
        self._answer_text = ''
        self._last_answer: BudgetEvent | None = None
        self._pending: list[Approval] = []
        self._answered: set[str] = set()
        self._is_suspended = False

    async def run(self, task: str, *, branch: str | None = None, waiting: Version | None = None) -> TurnReport:
        runtime = self._runtime
        runtime.backend.start_turn()
        self._show(StartEvent(task=task, directory=runtime.directory, model=runtime.model))
        error: Exception | None = None
        try:
            await self._work(task, branch, waiting)
        except EXPECTED_ERRORS as caught:
            error = caught
        except Exception as caught:
            # A defect: readers of the events get their last one, then the traceback comes.
            await self._finish(caught)
            raise
        result = await self._finish(error)
        has_next_command = bool(self._pending) or isinstance(error, NotPendingError)
        return TurnReport(result=result, has_answered=bool(self._answered), has_next_command=has_next_command)

    async def _work(self, task: str, branch: str | None, version: Version | None) -> None:
        """Run the agent until it answers, or until nobody answers it."""
        conversation = self._conversation
        if version is None:
            self._base = await conversation.prepare_turn()
            self._used_before = self._base.usage
            self._runtime.budget.start_turn(self._used_before)
            version = await self._run(
                self._base.advance_stream(
                    task,
                    deps=self._runtime.deps,
                    branch=branch,
                    cancellation_token=self._stop,
                )
            )
        else:
            self._base = version
            self._used_before = await conversation.usage_before(version)
            self._usage = self._turn_usage(version.usage)
            self._runtime.budget.start_turn(self._used_before)
        while version.state == 'awaiting_approval':
            self._version = version
            self._runtime.budget.remaining(version.usage)  # before anybody is asked what could not go on
            answers = await self._decide_pending(version)
            if answers is None:
                return
            by = self._runtime.person if any(each.by == 'person' for each in answers.values()) else 'option'
            version = await self._resume(version, {id: each.decision for id, each in answers.items()}, by)
        self._output = version.output if isinstance(version.output, str) else None

    async def _resume(self, version: Version, decisions: Mapping[str, Decision], by: str) -> Version:
        """Go on with a version; where somebody else has answered a call meanwhile, that answer counts."""
        while True:
            stream = version.resume_stream(decisions, by=by, deps=self._runtime.deps, cancellation_token=self._stop)
            try:
                return await self._run(stream)
            except ApprovalAnsweredError:
                taken = await self._answered_elsewhere(version, decisions)
                if not taken:
                    raise
                decisions = {id: decision for id, decision in decisions.items() if id not in taken}

    async def _answered_elsewhere(self, version: Version, decisions: Mapping[str, Decision]) -> set[str]:
        """Report what somebody else has answered of calls that are decided here, and return their ids.

        Raises:
            NotPendingError: A run has gone on with it.
        """
        store = self._conversation.store
        approvals = await store.approvals(status=None, version_id=version.id, limit=10_000)
        await check_unanswered(store, version.id, approvals)
        items = [await ApprovalInbox(store).get(each.id) for each in approvals if each.pending_id in decisions]
        found = {item.pending_id: (item.decision, item.decided_by) for item in items if item.decision is not None}
        for id, (decision, by) in found.items():
            self._show(answer_event(id, CallAnswer(decision=decision, by='person'), faster=by or 'somebody'))
        return set(found)

    async def _run(self, stream: TurnStream[DeepAgentDeps, Output]) -> Version:
        """Run the agent once, and return the version then."""
        self._stream = stream
        try:
            async with stream:
                async for event in stream.events():
                    await self._handle_event(event)
        finally:
            self._is_suspended = stream.is_suspended
            with anyio.CancelScope(shield=True):
                await self._record_progress(stream)
        return stream.version

    async def _record_progress(self, stream: TurnStream[DeepAgentDeps, Output]) -> None:
        """Take the version, the todos and the usage as far as they got."""
        self._emit_usage()
        if stream.deps is not None:
            self._runtime.deps.todos = list(stream.deps.todos)
        if stream.version_id is not None:
            self._is_in_directory = stream.backend in (None, self._runtime.backend)
            self._version = await self._conversation.advance_to(
                stream.version_id, is_in_directory=self._is_in_directory
            )
        self._stream = None

    async def _decide_pending(self, version: Version) -> dict[str, CallAnswer] | None:
        """Have the calls answered that wait and have no answer yet; `None` if they are to wait on."""
        open_ids = {each.pending_id for each in await self._conversation.store.approvals(version_id=version.id)}
        pending = [call for call in version.pending if call.id in open_ids]
        self._pending = [approval_from_pending(call) for call in pending]
        for approval in self._pending:
            self._show(ApprovalEvent(approval=approval, has_changed=approval.id in self._answered))
        answers: Mapping[str, CallAnswer] | None = await self._observer.decide(pending) if pending else {}
        if answers is None:
            return None
        if self._stop.cancelled:
            raise RunCancelled('The turn was stopped before what was answered could run.')
        for id, answer in answers.items():
            self._show(answer_event(id, answer))
        self._pending = []
        self._answered |= {call.id for call in version.pending}
        return dict(answers)

    async def _finish(self, error: Exception | None) -> ResultEvent:
        await self._emit_files()
        runtime, version = self._runtime, self._version if self._conversation.is_persistent else None
        status, sentence = 'done', None
        if error is not None:
            status, sentence = describe_failure(error)
            if self._is_suspended:
                status, sentence = 'suspended', describe_suspension(error)
            elif isinstance(error, BudgetExceededError):
                use = runtime.budget.to_turn_usage(error.measure, error.limit, error.used)
                sentence = describe_exceeded_budget(
                    use, is_persistent=version is not None, waiting=self._pending_version()
                )
            elif status == 'interrupted' and self._pending and version is not None:
                sentence = describe_interrupted_prompt(short_id(version.id))
        elif self._pending:
            status, sentence = 'paused', describe_pause(len(self._pending), self._shown_version())
        elif self._last_answer is not None and self._version is not None:
            use = runtime.budget.usage(self._last_answer.measure, self._version.usage)
            status, sentence = 'limit', describe_last_answer(use, is_persistent=version is not None)
        result = ResultEvent(
            status=status,
            output=self._output,
            error=sentence,
            usage=self._usage,
            files=await self._files(),
            has_all_files=runtime.backend.has_all_changes,
            todos=list(runtime.deps.todos),
            seconds=round(runtime.clock() - self._started, 3),
            pending=self._pending if status == 'paused' else [],
            version=None if version is None else version.id,
            store=None if version is None else self._conversation.store.url,
            is_in_directory=self._is_in_directory,
            has_files=version is None or version.tree is not None,
        )
        self._show(result)
        return result

    async def _files(self) -> list[FileChange]:
        if self._is_in_directory or self._base is None or self._version is None:
            return await self._runtime.backend.turn_changes()
        return await self._conversation.changes(self._base, self._version)

    def _pending_version(self) -> str | None:
        is_waiting = self._version is not None and self._version.state == 'awaiting_approval'
        return self._shown_version() if is_waiting else None

    def _shown_version(self) -> str:
        return '' if self._version is None else short_id(self._version.id)

    async def _handle_event(self, event: AgentStreamEvent | AgentRunResultEvent[Output]) -> None:
        """Turn an event of the run into events of the turn. Kinds that are not known here are no news to a person."""
        match event:
            case PartStartEvent(index=index, part=part):
                if index == 0:
                    self._answer_text = ''
                self._emit_text(part.content if isinstance(part, TextPart) else '')
            case PartDeltaEvent(delta=delta):
                self._emit_text(delta.content_delta if isinstance(delta, TextPartDelta) else '')
            case SubagentEvent():
                task = _escape_id_part(event.tool_call_id or '')
                await self._handle_call_event(event.event, id_prefix=f'{task}/', path=event.path)
            case FunctionToolCallEvent() | FunctionToolResultEvent():
                await self._handle_call_event(event)
            case AgentRunResultEvent():
                pass  # the version has it
            case _:
                self._handle_capability_event(event, ())

    def _emit_text(self, text: str) -> None:
        if text:
            self._answer_text += text
            self._show(TextEvent(text=text))

    def _handle_retry(self, event: ModelRetriedEvent, path: Sequence[str]) -> None:
        """Report a retry before the wait; one that takes words back has to come after them, and the stream has it there."""
        if not event.is_void:
            self._emit_capability_event(event, path)

    def _handle_capability_event(self, event: AgentStreamEvent, path: Sequence[str]) -> None:
        """Report what a room of the agent or of a subagent tells, but for retries that are reported already."""
        if not isinstance(event, ModelRetriedEvent) or event.is_void:
            self._emit_capability_event(event, path)

    def _emit_capability_event(self, event: AgentStreamEvent, path: Sequence[str]) -> None:
        emitted = capability_event(
            event, self._runtime.budget, answer_text='' if path else self._answer_text, path=path
        )
        if emitted is None:
            return
        if isinstance(emitted, RetriedEvent) and emitted.void_text:
            self._answer_text = ''
        if isinstance(emitted, BudgetEvent) and emitted.kind == 'last_answer' and not path:
            self._last_answer = emitted
        self._show(emitted)

    async def _handle_call_event(
        self, event: AgentStreamEvent, *, id_prefix: str = '', path: Sequence[str] = ()
    ) -> None:
        """Report a tool call or its result, and what it changed; what else is news. What a subagent says is for its parent."""
        match event:
            case FunctionToolCallEvent(part=part):
                self._emit_usage()
                id = f'{id_prefix}{_escape_id_part(part.tool_call_id)}'
                if id not in self._announced:  # a call that waited is announced again when it runs
                    self._announced.add(id)
                    args = part.args_as_dict()
                    self._show(ToolCallEvent(id=id, tool=part.tool_name, path=list(path), args=args))
            case FunctionToolResultEvent(part=part):
                self._show(
                    ToolResultEvent(
                        id=f'{id_prefix}{_escape_id_part(part.tool_call_id)}',
                        tool=part.tool_name,
                        path=list(path),
                        outcome=part.outcome,
                        text=part.model_response_str(wrap_if_error=False),
                        exit_code=exit_code_of(part),
                    )
                )
                self._emit_todos()
                await self._emit_files()
                self._emit_usage()
            case _:
                self._handle_capability_event(event, path)

    async def _emit_files(self) -> None:
        for change in await self._runtime.backend.take_changes():
            self._show(FileEvent(file=change))

    def _emit_todos(self) -> None:
        deps = None if self._stream is None else self._stream.deps
        if deps is not None and list(deps.todos) != self._todos:
            self._todos = list(deps.todos)
            self._show(TodosEvent(todos=self._todos))

    def _emit_usage(self) -> None:
        run = None if self._stream is None else self._stream.usage
        usage = self._usage if run is None else self._turn_usage(run)
        if usage != self._usage:
            self._usage = usage
            self._show(UsageEvent(usage=usage))

    def _turn_usage(self, run: RunUsage) -> Usage:
        """Return what the turn has used when its conversation has used so much."""
        before = self._used_before
        return Usage(
            requests=run.requests - before.requests,
            tool_calls=run.tool_calls - before.tool_calls,
            input_tokens=run.input_tokens - before.input_tokens,
            output_tokens=run.output_tokens - before.output_tokens,
        )


def _escape_id_part(tool_call_id: str) -> str:
    """Return an id as it stands in that of a `PendingApproval`, where slashes part the ids on the way."""
    return tool_call_id.replace('%', '%25').replace('/', '%2F')
