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
    Answer,
    Decide,
    NotWaitingError,
    approval_of,
    describe_answer,
    refuse_answered,
)
from pydantic_deep.cli.history._exit_code import exit_code_of
from pydantic_deep.cli.history._revisions import shown_id
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.store import ApprovalAnsweredError
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.versions import ApprovalInbox, TurnStream

from ._capability_events import news_of
from ._conversation import Conversation, Version
from ._failures import (
    FORESEEN,
    describe_failure,
    describe_last_answer,
    describe_pause,
    describe_stopped_question,
    describe_suspension,
    describe_used_up,
)
from ._runtime import Output

Show: TypeAlias = Callable[[Event], None]
"""Takes each event as it happens."""


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Who looks on while a turn runs, and decides."""

    show: Show
    """Is handed every event, the first `start`, the last `result`."""
    decide: Decide
    """Answers the calls that wait."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A turn that ended."""

    result: ResultEvent
    """The last event."""
    has_answered: bool
    """Whether calls that waited were answered, so that they may have run."""
    says_how: bool
    """Whether the last event says how to go on with a version that waits, or waited until somebody else answered it."""


async def run_turn(
    conversation: Conversation, task: str, *, branch: str | None = None, stop: CancellationToken, watcher: Watcher
) -> Turn:
    """Let the agent work on a task until it answers, waits for approvals, fails or is stopped.

    Args:
        conversation: The agent and its directory, and what was said before. It goes on from this turn afterwards.
        task: What the person wants.
        branch: The name of a branch that begins with this turn.
        stop: Cancel it to stop the turn.
        watcher: Who looks on and decides.
    """
    return await _Running(conversation, watcher, stop).run(task, branch=branch)


async def resume_turn(conversation: Conversation, task: str, *, stop: CancellationToken, watcher: Watcher) -> Turn:
    """Go on with a turn that waits for approvals: what has no answer yet is asked first.

    Args:
        conversation: One whose `tip` waits.
        task: What the person had wanted.
        stop: Cancel it to stop the turn.
        watcher: Who looks on and decides.
    """
    return await _Running(conversation, watcher, stop).run(task, waiting=conversation.tip)


class _Running:
    """The state of one turn."""

    def __init__(self, conversation: Conversation, watcher: Watcher, stop: CancellationToken) -> None:
        worker = conversation.worker
        self._conversation = conversation
        self._worker = worker
        worker.retries.tell = self._take_retry
        self._watcher = watcher
        self._show = watcher.show
        self._stop = stop
        self._base: Version | None = None
        self._version: Version | None = None
        self._stream: TurnStream[DeepAgentDeps, Output] | None = None
        self._is_in_directory = conversation.is_in_directory
        self._used_before = RunUsage()
        self._usage = Usage()
        self._started = worker.clock()
        self._todos = list(worker.deps.todos)
        self._announced: set[str] = set()
        self._output: str | None = None
        self._said = ''
        self._last_answer: BudgetEvent | None = None
        self._pending: list[Approval] = []
        self._answered: set[str] = set()
        self._is_suspended = False

    async def run(self, task: str, *, branch: str | None = None, waiting: Version | None = None) -> Turn:
        worker = self._worker
        worker.backend.begin_turn()
        self._show(StartEvent(task=task, directory=worker.directory, model=worker.model))
        error: Exception | None = None
        try:
            await self._work(task, branch, waiting)
        except FORESEEN as caught:
            error = caught
        except Exception as caught:
            # A defect: readers of the events get their last one, then the traceback comes.
            await self._end(caught)
            raise
        result = await self._end(error)
        says_how = bool(self._pending) or isinstance(error, NotWaitingError)
        return Turn(result=result, has_answered=bool(self._answered), says_how=says_how)

    async def _work(self, task: str, branch: str | None, version: Version | None) -> None:
        """Run the agent until it answers, or until nobody answers it."""
        conversation = self._conversation
        if version is None:
            self._base = await conversation.begin()
            self._used_before = self._base.usage
            self._worker.budget.begin(self._used_before)
            version = await self._run(
                self._base.advance_stream(
                    task,
                    deps=self._worker.deps,
                    branch=branch,
                    cancellation_token=self._stop,
                )
            )
        else:
            self._base = version
            self._used_before = await conversation.used_before(version)
            self._usage = self._sums(version.usage)
            self._worker.budget.begin(self._used_before)
        while version.state == 'awaiting_approval':
            self._version = version
            self._worker.budget.left(version.usage)  # before anybody is asked what could not go on
            answers = await self._answer(version)
            if answers is None:
                return
            by = self._worker.person if any(each.by == 'person' for each in answers.values()) else 'option'
            version = await self._resume(version, {id: each.decision for id, each in answers.items()}, by)
        self._output = version.output if isinstance(version.output, str) else None

    async def _resume(self, version: Version, decisions: Mapping[str, Decision], by: str) -> Version:
        """Go on with a version; where somebody else has answered a call meanwhile, that answer counts."""
        while True:
            stream = version.resume_stream(decisions, by=by, deps=self._worker.deps, cancellation_token=self._stop)
            try:
                return await self._run(stream)
            except ApprovalAnsweredError:
                taken = await self._taken(version, decisions)
                if not taken:
                    raise
                decisions = {id: decision for id, decision in decisions.items() if id not in taken}

    async def _taken(self, version: Version, decisions: Mapping[str, Decision]) -> set[str]:
        """Report what somebody else has answered of calls that are decided here, and return their ids.

        Raises:
            NotWaitingError: A run has gone on with it.
        """
        store = self._conversation.store
        approvals = await store.approvals(status=None, version_id=version.id, limit=10_000)
        await refuse_answered(store, version.id, approvals)
        items = [await ApprovalInbox(store).get(each.id) for each in approvals if each.pending_id in decisions]
        found = {item.pending_id: (item.decision, item.decided_by) for item in items if item.decision is not None}
        for id, (decision, by) in found.items():
            self._show(describe_answer(id, Answer(decision=decision, by='person'), faster=by or 'somebody'))
        return set(found)

    async def _run(self, stream: TurnStream[DeepAgentDeps, Output]) -> Version:
        """Run the agent once, and return the version then."""
        self._stream = stream
        try:
            async with stream:
                async for event in stream.events():
                    await self._take(event)
        finally:
            self._is_suspended = stream.is_suspended
            with anyio.CancelScope(shield=True):
                await self._settle(stream)
        return stream.version

    async def _settle(self, stream: TurnStream[DeepAgentDeps, Output]) -> None:
        """Take the version, the todos and the usage as far as they got."""
        self._report_usage()
        if stream.deps is not None:
            self._worker.deps.todos = list(stream.deps.todos)
        if stream.version_id is not None:
            self._is_in_directory = stream.backend in (None, self._worker.backend)
            self._version = await self._conversation.settle(stream.version_id, is_in_directory=self._is_in_directory)
        self._stream = None

    async def _answer(self, version: Version) -> dict[str, Answer] | None:
        """Have the calls answered that wait and have no answer yet; `None` if they are to wait on."""
        open_ids = {each.pending_id for each in await self._conversation.store.approvals(version_id=version.id)}
        pending = [call for call in version.pending if call.id in open_ids]
        self._pending = [approval_of(call) for call in pending]
        for approval in self._pending:
            self._show(ApprovalEvent(approval=approval, has_changed=approval.id in self._answered))
        answers: Mapping[str, Answer] | None = await self._watcher.decide(pending) if pending else {}
        if answers is None:
            return None
        if self._stop.cancelled:
            raise RunCancelled('The turn was stopped before what was answered could run.')
        for id, answer in answers.items():
            self._show(describe_answer(id, answer))
        self._pending = []
        self._answered |= {call.id for call in version.pending}
        return dict(answers)

    async def _end(self, error: Exception | None) -> ResultEvent:
        await self._report_files()
        worker, version = self._worker, self._version if self._conversation.is_kept else None
        status, sentence = 'done', None
        if error is not None:
            status, sentence = describe_failure(error)
            if self._is_suspended:
                status, sentence = 'suspended', describe_suspension(error)
            elif isinstance(error, BudgetExceededError):
                use = worker.budget.whole(error.measure, error.limit, error.used)
                sentence = describe_used_up(use, is_kept=version is not None, waiting=self._waiting_version())
            elif status == 'interrupted' and self._pending and version is not None:
                sentence = describe_stopped_question(shown_id(version.id))
        elif self._pending:
            status, sentence = 'paused', describe_pause(len(self._pending), self._shown_version())
        elif self._last_answer is not None and self._version is not None:
            use = worker.budget.use(self._last_answer.measure, self._version.usage)
            status, sentence = 'limit', describe_last_answer(use, is_kept=version is not None)
        result = ResultEvent(
            status=status,
            output=self._output,
            error=sentence,
            usage=self._usage,
            files=await self._files(),
            has_all_files=worker.backend.has_seen_all,
            todos=list(worker.deps.todos),
            seconds=round(worker.clock() - self._started, 3),
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
            return await self._worker.backend.turn_changes()
        return await self._conversation.changes(self._base, self._version)

    def _waiting_version(self) -> str | None:
        is_waiting = self._version is not None and self._version.state == 'awaiting_approval'
        return self._shown_version() if is_waiting else None

    def _shown_version(self) -> str:
        return '' if self._version is None else shown_id(self._version.id)

    async def _take(self, event: AgentStreamEvent | AgentRunResultEvent[Output]) -> None:
        """Turn an event of the run into events of the turn. Kinds that are not known here are no news to a person."""
        match event:
            case PartStartEvent(index=index, part=part):
                if index == 0:
                    self._said = ''
                self._say(part.content if isinstance(part, TextPart) else '')
            case PartDeltaEvent(delta=delta):
                self._say(delta.content_delta if isinstance(delta, TextPartDelta) else '')
            case SubagentEvent():
                task = _part_of_id(event.tool_call_id or '')
                await self._take_call(event.event, within=f'{task}/', path=event.path)
            case FunctionToolCallEvent() | FunctionToolResultEvent():
                await self._take_call(event)
            case AgentRunResultEvent():
                pass  # the version has it
            case _:
                self._take_news(event, ())

    def _say(self, text: str) -> None:
        if text:
            self._said += text
            self._show(TextEvent(text=text))

    def _take_retry(self, event: ModelRetriedEvent, path: Sequence[str]) -> None:
        """Report a retry before the wait; one that takes words back has to come after them, and the stream has it there."""
        if not event.is_void:
            self._report_news(event, path)

    def _take_news(self, event: AgentStreamEvent, path: Sequence[str]) -> None:
        """Report what a room of the agent or of a subagent tells, but for retries that are reported already."""
        if not isinstance(event, ModelRetriedEvent) or event.is_void:
            self._report_news(event, path)

    def _report_news(self, event: AgentStreamEvent, path: Sequence[str]) -> None:
        news = news_of(event, self._worker.budget, said='' if path else self._said, path=path)
        if news is None:
            return
        if isinstance(news, RetriedEvent) and news.void_text:
            self._said = ''
        if isinstance(news, BudgetEvent) and news.kind == 'last_answer' and not path:
            self._last_answer = news
        self._show(news)

    async def _take_call(self, event: AgentStreamEvent, *, within: str = '', path: Sequence[str] = ()) -> None:
        """Report a tool call or its result, and what it changed; what else is news. What a subagent says is for its parent."""
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
                        exit_code=exit_code_of(part),
                    )
                )
                self._report_todos()
                await self._report_files()
                self._report_usage()
            case _:
                self._take_news(event, path)

    async def _report_files(self) -> None:
        for change in await self._worker.backend.take_changes():
            self._show(FileEvent(file=change))

    def _report_todos(self) -> None:
        deps = None if self._stream is None else self._stream.deps
        if deps is not None and list(deps.todos) != self._todos:
            self._todos = list(deps.todos)
            self._show(TodosEvent(todos=self._todos))

    def _report_usage(self) -> None:
        run = None if self._stream is None else self._stream.usage
        usage = self._usage if run is None else self._sums(run)
        if usage != self._usage:
            self._usage = usage
            self._show(UsageEvent(usage=usage))

    def _sums(self, run: RunUsage) -> Usage:
        """Return what the turn has used when its conversation has used so much."""
        before = self._used_before
        return Usage(
            requests=run.requests - before.requests,
            tool_calls=run.tool_calls - before.tool_calls,
            input_tokens=run.input_tokens - before.input_tokens,
            output_tokens=run.output_tokens - before.output_tokens,
        )


def _part_of_id(tool_call_id: str) -> str:
    """Return an id as it stands in that of a `PendingApproval`, where slashes part the ids on the way."""
    return tool_call_id.replace('%', '%25').replace('/', '%2F')
