"""Running one turn: it takes a prompt, emits events, and moves the conversation to a new version. Nothing here prints.

A turn is one run of the agent, plus one after each pause for approvals. Its runs share their usage and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeAlias

import anyio
from pydantic_ai import AgentRunResultEvent, AgentStreamEvent, CancellationToken, RunCancelled
from pydantic_ai.messages import UserContent
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.loaded_skills import typed_prompt
from pydantic_deep.approvals import Decision
from pydantic_deep.budgets import BudgetExceededError
from pydantic_deep.cli.approvals._policy import CallAnswer, Decider, NotPendingError, answer_event, check_unanswered
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.plan_mode import with_plan_mode
from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.store import ApprovalAnsweredError
from pydantic_deep.streaming import (
    EXPECTED_ERRORS,
    Approval,
    ApprovalRequiredEvent,
    BudgetEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    RunEvents,
    RunStatus,
    StartEvent,
    StreamEvent,
    ToolResultEvent,
    TurnWorkspace,
    approval_of,
    capability_event,
    suspended_event,
)
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.versions import ApprovalInbox, TurnStream
from pydantic_deep.views import prompt_text

from ._cancellation_requests import cancelled_on_request
from ._conversation import Conversation, Version
from ._failures import (
    describe_exceeded_budget,
    describe_failure,
    describe_interrupted_prompt,
    describe_last_answer,
    describe_suspension,
    exit_code_of_turn,
)
from ._runtime import Output

Prompt: TypeAlias = str | Sequence[UserContent]
"""A text, or texts and images."""

EventSink: TypeAlias = Callable[[StreamEvent], None]
"""Called with each event as it occurs."""


@dataclass(frozen=True, kw_only=True)
class TurnObserver:
    """Receives the events of a turn, and decides its pending calls."""

    show: EventSink
    """Receives every event, from `start` to `end`."""
    decide: Decider
    """Returns decisions about pending calls."""


@dataclass(frozen=True, kw_only=True)
class TurnReport:
    """The outcome of a turn."""

    end: EndEvent
    """The last event of the turn."""
    error: ErrorEvent | None
    """The error event of the turn, if there is one."""
    has_answered: bool
    """Whether pending calls were answered and may have run."""
    has_next_command: bool
    """Whether the last events already name the command to continue with, as after a pause."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return exit_code_of_turn(self.end, self.error)


async def run_turn(
    conversation: Conversation,
    task: Prompt,
    *,
    branch: str | None = None,
    plan: bool | None = None,
    stop: CancellationToken,
    observer: TurnObserver,
) -> TurnReport:
    """Run the agent on a task until it answers, pauses for approvals, fails or is cancelled.

    Args:
        conversation: The conversation to continue. Its tip is the version of this turn afterwards.
        task: The prompt.
        branch: The name of a new branch for this turn.
        plan: Whether to switch plan mode on or off. `None` leaves it as it is.
        stop: Cancels the turn.
        observer: Receives events and decides pending calls.
    """
    return await _TurnRunner(conversation, observer, stop).run(task, branch=branch, plan=plan)


async def resume_turn(
    conversation: Conversation, task: str, *, stop: CancellationToken, observer: TurnObserver
) -> TurnReport:
    """Resume a turn with pending approvals. Calls without an answer are passed to the observer first.

    Args:
        conversation: A conversation with pending approvals at its `tip`.
        task: The prompt of the turn.
        stop: Cancels the turn.
        observer: Receives events and decides pending calls.
    """
    return await _TurnRunner(conversation, observer, stop).run(task, paused=conversation.tip)


async def recover_turn(
    conversation: Conversation, run_id: str, *, stop: CancellationToken, observer: TurnObserver
) -> TurnReport:
    """Finish a turn whose process crashed. A call that may have run is passed to the observer, unless it only reads.

    Args:
        conversation: A conversation whose `tip` is the newest version of the run.
        run_id: The suspended run.
        stop: Cancels the turn.
        observer: Receives events and decides pending calls.
    """
    return await _TurnRunner(conversation, observer, stop).run('', paused=conversation.tip, suspended_id=run_id)


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
        self._translator = RunEvents(shows_errors=True)
        self._is_in_directory = conversation.is_in_directory
        self._started = runtime.clock()
        self._output: str | None = None
        self._last_answer: BudgetEvent | None = None
        self._pending: list[Approval] = []
        self._answered: set[str] = set()
        self._is_suspended = False

    async def run(
        self,
        task: Prompt,
        *,
        branch: str | None = None,
        plan: bool | None = None,
        paused: Version | None = None,
        suspended_id: str | None = None,
    ) -> TurnReport:
        runtime = self._runtime
        runtime.backend.start_turn()
        shown = typed_prompt(prompt_text(task))
        self._show(StartEvent(model=runtime.model, prompt=shown, directory=runtime.directory))
        error: Exception | None = None
        try:
            prompt = task if plan is None else with_plan_mode(task, is_on=plan)
            await self._work(prompt, shown, branch, paused, suspended_id)
        except EXPECTED_ERRORS as caught:
            error = caught
        except Exception as caught:
            # An unexpected error: emit the last events before the traceback.
            await self._finish(caught)
            raise
        end, error_event = await self._finish(error)
        has_next_command = bool(self._pending) or isinstance(error, NotPendingError)
        return TurnReport(
            end=end, error=error_event, has_answered=bool(self._answered), has_next_command=has_next_command
        )

    async def _work(
        self, task: Prompt, title: str, branch: str | None, version: Version | None, suspended_id: str | None
    ) -> None:
        """Run the agent until it answers or its pending calls stay undecided."""
        conversation = self._conversation
        if version is None:
            self._base = await conversation.prepare_turn(title)
            self._start_counting(self._base.usage)
            version = await self._run(
                self._base.advance_stream(
                    task,
                    deps=self._runtime.deps,
                    branch=branch,
                    cancellation_token=self._stop,
                )
            )
        else:
            self._base = self._version = version
            self._start_counting(await conversation.usage_before(version))
            if suspended_id is not None:
                version = await self._recover(suspended_id)
        while version.state == 'awaiting_approval':
            self._version = version
            self._runtime.budget.remaining(version.usage)  # no prompts if the budget does not allow another request
            answers = await self._decide_pending(version)
            if answers is None:
                return
            by = self._runtime.person if any(answer.by == 'person' for answer in answers.values()) else 'option'
            version = await self._resume(version, {id: answer.decision for id, answer in answers.items()}, by)
        self._output = version.output if isinstance(version.output, str) else version.record.output

    async def _recover(self, run_id: str) -> Version:
        """Run the rest of a suspended run, and return its version.

        Raises:
            NotPendingError: Another process has resumed or ended it.
        """
        stream = await self._conversation.versions.recover_stream(
            run_id, deps=self._runtime.deps, backend=self._runtime.backend, cancellation_token=self._stop
        )
        if stream is None:
            raise NotPendingError('Another process has finished the turn. Open the conversation again.')
        return await self._run(stream)

    def _start_counting(self, used_before: RunUsage) -> None:
        """Count the usage of the turn from a usage of the conversation."""
        self._runtime.budget.start_turn(used_before)
        self._translator = RunEvents(usage=self._used, usage_before=used_before, shows_errors=True)

    def _used(self) -> RunUsage | None:
        """Return the usage of the conversation so far."""
        used = None if self._stream is None else self._stream.usage
        return self._version.usage if used is None and self._version is not None else used

    async def _resume(self, version: Version, decisions: Mapping[str, Decision], by: str) -> Version:
        """Resume a version. If a call was answered elsewhere in the meantime, that answer is used."""
        while True:
            stream = version.resume_stream(decisions, by=by, deps=self._runtime.deps, cancellation_token=self._stop)
            try:
                return await self._run(stream)
            except ApprovalAnsweredError:
                answered = await self._answered_elsewhere(version, decisions)
                if not answered:
                    raise
                decisions = {id: decision for id, decision in decisions.items() if id not in answered}

    async def _answered_elsewhere(self, version: Version, decisions: Mapping[str, Decision]) -> set[str]:
        """Emit the answers that were given elsewhere to calls of these decisions, and return the ids of the calls.

        Raises:
            NotPendingError: Another run has resumed the version.
        """
        store = self._conversation.store
        approvals = await store.approvals(status=None, version_id=version.id, limit=10_000)
        await check_unanswered(store, version.id, approvals)
        items = [
            await ApprovalInbox(store).get(approval.id) for approval in approvals if approval.pending_id in decisions
        ]
        answers = {item.pending_id: (item.decision, item.decided_by) for item in items if item.decision is not None}
        for id, (decision, by) in answers.items():
            self._show(answer_event(id, CallAnswer(decision=decision, by='person'), answered_by=by or 'somebody'))
        return set(answers)

    async def _run(self, stream: TurnStream[DeepAgentDeps, Output]) -> Version:
        """Emit the events of one run, and return its version."""
        self._stream = stream
        store, is_persistent = self._conversation.store, self._conversation.is_persistent
        requests = cancelled_on_request(store, lambda: stream.run_id, self._stop) if is_persistent else nullcontext()
        try:
            async with requests, stream:
                async for event in stream.events():
                    await self._handle_event(event)
        finally:
            self._is_suspended = stream.is_suspended
            with anyio.CancelScope(shield=True):
                await self._record_progress(stream)
        return stream.version

    async def _record_progress(self, stream: TurnStream[DeepAgentDeps, Output]) -> None:
        """Take over the version and the todos of a run, even if it failed."""
        if stream.deps is not None:
            self._runtime.deps.todos = list(stream.deps.todos)
        if stream.version_id is not None:
            self._is_in_directory = stream.backend in (None, self._runtime.backend)
            self._version = await self._conversation.advance_to(
                stream.version_id, is_in_directory=self._is_in_directory
            )

    async def _decide_pending(self, version: Version) -> dict[str, CallAnswer] | None:
        """Have the observer decide the unanswered calls. Return `None` if they stay pending."""
        open_ids = {approval.pending_id for approval in await self._conversation.store.approvals(version_id=version.id)}
        pending = [call for call in version.pending if call.id in open_ids]
        # A question in the middle of a call is asked after the approval of the call, and not again.
        again = {call.id for call in pending if call.id in self._answered and 'approve' in call.decisions}
        self._pending = [replace(approval_of(call), has_changed=call.id in again) for call in pending]
        if self._pending:
            self._show(ApprovalRequiredEvent(approvals=self._pending))
        answers: Mapping[str, CallAnswer] | None = await self._observer.decide(pending) if pending else {}
        if answers is None:
            return None
        if self._stop.cancelled:
            raise RunCancelled('The turn was stopped before the answered calls could run.')
        for id, answer in answers.items():
            self._show(answer_event(id, answer))
        self._pending = []
        self._answered |= {call.id for call in version.pending}
        return dict(answers)

    async def _finish(self, error: Exception | None) -> tuple[EndEvent, ErrorEvent | None]:
        await self._emit_files()
        error_event = self._error_event(error)
        version = self._stored_version()
        *events, end = self._translator.end(version_id=None if version is None else version.id)
        assert isinstance(end, EndEvent)  # noqa: S101 - the translator ends with this event
        end = replace(
            end,
            finish_reason='error' if error is not None else 'tool_call' if self._pending else end.finish_reason,
            status=self._status(error),
            output=self._output,
            seconds=round(self._runtime.clock() - self._started, 3),
            files=await self._files(),
            todos=list(self._runtime.deps.todos),
            workspace=TurnWorkspace(
                store=None if version is None else self._conversation.store.url,
                is_in_directory=self._is_in_directory,
                has_files=version is None or version.tree is not None,
                has_all_changes=self._runtime.backend.has_all_changes,
            ),
        )
        for event in [*events, *([] if error_event is None else [error_event]), end]:
            self._show(event)
        return end, error_event

    def _status(self, error: Exception | None) -> RunStatus:
        if error is None:
            return 'awaiting_approval' if self._pending else 'complete'
        if self._is_suspended:
            return 'suspended'
        return 'interrupted' if isinstance(error, RunCancelled) else 'failed'

    def _error_event(self, error: Exception | None) -> ErrorEvent | None:
        """Return the event for an error, or for a budget that is used up by the answer."""
        version, budget = self._stored_version(), self._runtime.budget
        if error is None:
            if self._pending or self._last_answer is None or self._version is None:
                return None
            use = budget.usage('cost' if self._last_answer.measure == 'cost' else 'tokens', self._version.usage)
            message = describe_last_answer(use, is_persistent=version is not None)
            return ErrorEvent(kind='budget_exceeded', message=message, status=429)
        if self._is_suspended:
            return replace(suspended_event(), message=describe_suspension(error))
        event = describe_failure(error)
        if isinstance(error, BudgetExceededError):
            use = budget.to_turn_usage(error.measure, error.limit, error.used)
            message = describe_exceeded_budget(use, is_persistent=version is not None, pending=self._pending_version())
            return replace(event, message=message)
        if isinstance(error, RunCancelled) and self._pending and version is not None:
            return replace(event, message=describe_interrupted_prompt(short_id(version.id)))
        return event

    def _stored_version(self) -> Version | None:
        return self._version if self._conversation.is_persistent else None

    async def _files(self) -> list[FileEvent]:
        if self._is_in_directory or self._base is None or self._version is None:
            return await self._runtime.backend.turn_changes()
        return await self._conversation.changes(self._base, self._version)

    def _pending_version(self) -> str | None:
        version = self._version
        return short_id(version.id) if version is not None and version.state == 'awaiting_approval' else None

    async def _handle_event(self, event: AgentStreamEvent | AgentRunResultEvent[Output]) -> None:
        inner = event.event if isinstance(event, SubagentEvent) else event
        if isinstance(inner, ModelRetriedEvent) and not inner.is_void:
            return  # `_handle_retry` has emitted it
        for translated in self._translator.translate(event):
            match translated:
                case FileEvent() | ApprovalRequiredEvent():
                    pass  # `_emit_files` and `_decide_pending` emit these with more detail
                case ToolResultEvent():
                    self._show(translated)
                    await self._emit_files()
                case BudgetEvent():
                    self._show(self._runtime.budget.to_turn_event(translated))
                    if translated.kind == 'last_answer' and not translated.path:
                        self._last_answer = translated
                case _:
                    self._show(translated)

    def _handle_retry(self, event: ModelRetriedEvent, path: Sequence[str]) -> None:
        """Emit a retry before its delay. A retry that voids text comes with the stream instead, after the text."""
        if not event.is_void:
            self._show(capability_event(event, path=path))

    async def _emit_files(self) -> None:
        for change in await self._runtime.backend.take_changes():
            self._show(change)
