"""`Recorder`: the capability that stores each step of a run as a version. It works with any pydantic-ai agent.

It is the outermost capability, so that it sees requests, calls and results as all other capabilities have changed them.
A subagent inherits a recorder of its own; the link to the call that started it is stored before its first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, cast

from opentelemetry import trace
from pydantic_ai import AgentRunResult, RunContext, ToolDefinition
from pydantic_ai.agent import CallToolsNode, ModelRequestNode
from pydantic_ai.capabilities import (
    AgentNode,
    CapabilityOrdering,
    NodeResult,
    RawToolArgs,
    ValidatedToolArgs,
    WrapModelRequestHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
    WrapToolValidateHandler,
)
from pydantic_ai.exceptions import SkipModelRequest
from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.usage import RunUsage
from pydantic_ai.workspaces import WorkspaceRef

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._messages.half_characters import repair
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep._workflow_check import check_not_in_workflow
from pydantic_deep.approvals import Approvals
from pydantic_deep.extensions import SupportsConversationUsage, SupportsDelegationUsage, find_capabilities
from pydantic_deep.store import (
    BranchExistsError,
    CallRecord,
    RunRecord,
    RunTakenOverError,
    Store,
    StoreError,
)
from pydantic_deep.versions._instructions_check import literal_instructions_in
from pydantic_deep.versions.recording._attempts import usage_of_call
from pydantic_deep.versions.recording._recovery_script import RecoveryScript
from pydantic_deep_backends.paths import display_path

from ._call_ledger import CALLER, Caller, CallLedger
from ._ledger import is_delegation
from ._presummary_history import earlier_messages
from ._recorded_run import FAILED, RecordedRun
from ._request_accounting import RequestAccounting
from ._run_creation import begin_run, find_begun_run
from ._run_end import end_run, has_ended_before, state_after, suspension_note

RECORDER_ID = 'recorder'
"""The `id` of the capability."""


@dataclass(kw_only=True)
class Recorder(BaseCapability[object]):
    """Commits each step of a run to a store.

    `VersionedAgent` adds one to each of its runs. Add one to your own agent or run to store its runs: each is then a
    new conversation, or continues that of its `conversation_id`.
    """

    id: str | None = RECORDER_ID
    """The id of the capability, so that one recorder replaces another."""
    store: Store
    """The store to commit to."""
    recording: RecordedRun | None = None
    """The recording, if it has begun; otherwise it begins with the run."""
    expires_at: int | None = None
    """The time from which pending approvals count as denied, in microseconds since 1970; `None` for never."""
    _parent: RecordedRun | None = field(default=None, repr=False)
    _caller: Caller | None = field(default=None, init=False, repr=False)
    """The tool call of the parent that the run belongs to."""
    _sibling_tasks: list[asyncio.Task[object]] = field(default_factory=list['asyncio.Task[object]'], repr=False)
    """The tasks of all runs with the same parent. The list belongs to the parent's recorder."""
    _child_tasks: list[asyncio.Task[object]] = field(
        default_factory=list['asyncio.Task[object]'], init=False, repr=False
    )
    """The tasks of running subagents."""
    _script: RecoveryScript = field(default_factory=RecoveryScript, init=False, repr=False)
    _delegated: SupportsDelegationUsage | None = field(default=None, init=False, repr=False)
    """Counts the usage of a subagent's run and its descendants; `None` for other runs."""
    _live: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False, repr=False)
    _usage: RunUsage = field(default_factory=RunUsage, init=False, repr=False)
    """The usage of the conversation, with all subagents."""
    _requests: RequestAccounting = field(init=False, repr=False)
    """The requests of `recording`."""
    _calls: CallLedger = field(init=False, repr=False)
    """The calls of `recording`."""

    def __post_init__(self) -> None:
        """Continue the recording if there is one."""
        if self.recording is not None:
            self._record(self.recording)

    def _record(self, recording: RecordedRun) -> None:
        self.recording = recording
        self._requests = RequestAccounting(recording=recording)
        self._calls = CallLedger(recording=recording, script=self._script)

    def get_ordering(self) -> CapabilityOrdering:
        """Be the outermost capability."""
        return CapabilityOrdering(position='outermost', wraps=(Approvals,))

    def get_workspace(self, ctx: RunContext[object], *, ref: WorkspaceRef | None) -> None:
        """Refuse a run inside a durable workflow: of all hooks, only this one precedes those of its capability."""
        check_not_in_workflow(ctx)

    async def for_run(self, ctx: RunContext[object]) -> Recorder:
        """Return the recorder of one run."""
        return self if self.recording is not None else replace(self)

    def for_subagent(self) -> Recorder:
        """Return the recorder for the run of a subagent."""
        return Recorder(store=self.store, _parent=self.recording, _sibling_tasks=self._child_tasks)

    async def guarded_changes(self, ctx: RunContext[object]) -> Sequence[str]:
        """Return the protected files that the turn has changed so far, including before pauses and crashes."""
        changes = () if self.recording is None else await self.recording.find_protected_changes()
        return [f'{display_path(change.path)} ({change.change})' for change in changes]

    def tracks_all_changes(self) -> bool:
        """Return whether the turn works on the files themselves and knows the states of protected files at its
        beginning.
        """
        start = None if self.recording is None else self.recording.start
        return start is not None and start.protected is not None and (start.files is None or start.claim is not None)

    async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Record the start and the end of the run. If the end cannot be stored, the run is suspended."""
        self._live, self._usage = ctx.messages, ctx.usage
        self._caller = None if self._parent is None else CALLER.get()
        if (
            self._caller is not None
            and (delegated := next(iter(find_capabilities(ctx, SupportsDelegationUsage)), None)) is not None
        ):
            self._delegated, self._usage = delegated, delegated.delegation_usage
        task = cast('asyncio.Task[object]', asyncio.current_task())
        self._sibling_tasks.append(task)
        try:
            return await self._wrap_run(ctx, handler)
        except BaseException as error:
            if isinstance(error, FAILED):
                self._end_caller(error)
            if self.recording is not None and not self.recording.is_ended:
                self.store.mark_orphaned(self.recording.run_id)  # so that it can be recovered or cancelled
                if self._parent is None:
                    error.add_note(suspension_note(self.recording.run_id, self.recording.tip.id))
            raise
        finally:
            self._sibling_tasks.remove(task)

    async def _wrap_run(self, ctx: RunContext[object], handler: WrapRunHandler) -> AgentRunResult[Any]:
        try:
            # Run to completion: if this is cancelled during the commit, the stored run still has to be ended.
            recording = self.recording or await run_to_completion(self._begin(ctx))
            if self._parent is not None:
                link = {'pydantic_deep.sub_agent_thread_id': recording.tip.conversation_id}
                trace.get_current_span().set_attributes(link)
            await recording.begin_with(ctx.deps)
            result = await handler()
            await self._stop_lost()
        except BaseException as error:
            if self.recording is not None:
                await run_to_completion(self._fail(self.recording, error))
            raise
        try:
            await run_to_completion(self._finish(recording, result))
        except BranchExistsError as error:
            recording.history.new_branch = None
            await run_to_completion(self._finish(recording, result))
            error.add_note(f'The run is stored as version {recording.tip.id}.')
            raise
        except StoreError as error:
            recording.refused = error
            raise
        except Exception as error:
            await run_to_completion(self._abandon(recording, error, error))
            raise
        return result

    async def _begin(self, ctx: RunContext[object]) -> RecordedRun:
        recording, self._script = await begin_run(self.store, ctx, self._caller)
        self._record(recording)
        self._count(ctx, recording.start.crashed.lost)
        return recording

    def _count(self, ctx: RunContext[object], used: RunUsage) -> None:
        """Add usage of crashed runs that this run does not repeat."""
        ctx.usage.incr(used)
        if self._delegated is not None:
            self._delegated.add_usage(used)

    @property
    def earlier_usage(self) -> RunUsage:
        """The usage of crashed attempts before this run began, except for recorded responses that it uses again."""
        return RunUsage() if self.recording is None else self.recording.start.crashed.earlier

    @property
    def lost_usage(self) -> RunUsage:
        """The part of `earlier_usage` for responses that are not in the history."""
        return RunUsage() if self.recording is None else self.recording.start.crashed.lost

    async def recovered_conversation_id(self) -> str | None:
        """Return the conversation that a crashed process started for the running call; `None` if there is none."""
        caller = CALLER.get()
        before = None if caller is None else await find_begun_run(self.store, caller)
        return None if before is None else before.conversation_id

    def is_recovered_response(self) -> bool:
        """Return whether the last response was recorded by a crashed run."""
        return self._script.is_active

    def _end_caller(self, error: StoreError) -> None:
        """Stop the parent run too: otherwise its model would see a failed subagent, and continue without the subagent's
        work.
        """
        caller = self._caller
        if caller is not None and (self.recording is None or self._is_refused(self.recording, error)):
            caller.refused.append(error)

    def _is_refused(self, recording: RecordedRun, error: BaseException) -> bool:
        """Return whether the store has refused a commit of this run or of a subagent below it.

        If so, the run and all its ancestors stop without an end in the store, and `recover` resumes them: an end would
        lose the refused work, and the unmerged changes of a subagent's fork.
        """
        return error is self._calls.refused or error is recording.refused

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Stage a response for the first of its calls to commit. If none has run, commit it after all calls.

        Messages after the last response are committed with the end of the run, which follows immediately.
        """
        self._live = ctx.messages
        recording = self.recording
        if recording is None:
            return result
        is_response = isinstance(node, ModelRequestNode)
        if is_response:
            self._calls.forget_results()
        if self._script.is_behind:
            if is_response:
                self._catch_up(recording)
        elif isinstance(result, ModelRequestNode):
            self._requests.reject(result.request, self._live)
            await recording.commit_step()
        elif is_response and isinstance(result, CallToolsNode) and result.model_response.tool_calls:
            await recording.stage(ctx.messages, self._usage)
        return result

    def _catch_up(self, recording: RecordedRun) -> None:
        """Continue from the stored history when the last recorded response was used."""
        script = self._script
        if script.position == len(script.responses):
            script.is_behind = False
            self._live[:] = recording.history.catch_up(cast('ModelResponse', self._live[-1]))

    async def earlier_messages(self, ctx: RunContext[object]) -> Sequence[ModelMessage]:
        """Return the messages that summaries have replaced in the history of the run, from the store."""
        return [] if self.recording is None else await earlier_messages(self.store, self.recording.tip)

    def has_overflowed(self) -> bool:
        """Return whether the crashed run's next request was refused as too long."""
        return self._script.has_overflowed

    def next_summary(self) -> ModelMessage | None:
        """Return the next summary that the crashed run created; `None` if there is none, or no crashed run."""
        return self._script.next_summary()

    def may_request_summary(self) -> bool:
        """Return true: a recovered run continues after its recording."""
        return True

    async def persist(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> None:
        """Commit a history before it is rewritten: rejected responses without calls are not stored yet."""
        if self.recording is not None and not self._script.is_behind:
            await self.recording.commit_messages(messages)

    async def record_summary(
        self, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> None:
        """Store the request for a summary at once, because the request that needs the summary may take long."""
        if self.recording is not None:
            await self._requests.record_summary(request, response, started_at=started_at, duration_us=duration_us)

    def record_billed_attempts(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Record the attempts at the last request that were billed and that no response includes."""
        if self.recording is not None:
            self._requests.record_billed_attempts(attempts)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return a model with the recorded responses of a crashed run until they are used up, then one that records
        responses.
        """
        script = self._script.before(model)
        if script is not None or self.recording is None:
            return script
        return self._requests.observe(model)

    async def wrap_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Record the request as sent, and its response. Recorded responses of a crashed run cause no request."""
        self._live = ctx.messages  # includes the prompt: before the first request, no node has ended
        repair(takewhile(lambda message: not isinstance(message, ModelResponse), reversed(ctx.messages)))
        recording = self.recording
        if recording is None:
            return await handler(request_context)
        if self._parent is None:
            recording.note_instructions(literal_instructions_in(request_context.model_request_parameters))
        self._requests.send(ctx, request_context)
        position = self._script.position
        try:
            response = await handler(request_context)
        except SkipModelRequest as skipped:
            self._note_response(position, skipped.response)
            raise
        self._note_response(position, response)
        return response

    def _note_response(self, position: int, response: ModelResponse) -> None:
        """Record the response to a request, unless it comes from the recording."""
        repair([response])
        script = self._script
        if script.position == position:  # a capability has responded instead of the model
            script.position = min(script.position, len(script.responses)) + 1
        if not script.is_active:
            self._requests.answer(response)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        """Skip validation of a call that finished in a crashed run, so that nobody has to approve it.

        The lost writes of other calls are undone first, so that an approval still applies to the file that was shown.
        """
        if self.recording is not None and await self._calls.is_finished(ctx, call):
            return call.args_as_dict()
        return await handler(args)

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Require approval for a call of a crashed run that may have run."""
        if self.recording is not None:
            await self._calls.check_repeat(ctx, call, tool_def, args)
        return args

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Update the ledger: the start of a call, and its result. Finished calls are not repeated."""
        recording = self.recording
        if recording is None:
            return await handler(args)
        known = self._calls.known(call.tool_call_id)
        if known is None or known.result is None:
            return await self._calls.execute(ctx, call, tool_def, args, handler)
        if is_delegation(tool_def):
            await self._count_subagents(ctx, recording.start.crashed.attempts, known)
        return self._calls.replay(known, known.result)

    async def _count_subagents(self, ctx: RunContext[object], attempts: Sequence[RunRecord], call: CallRecord) -> None:
        """Count the usage of the subagents of a call that finished in a crashed run."""
        used, before = await usage_of_call(self.store, attempts, call.response_id, call.tool_call_id)
        self._count(ctx, used)
        for counter in find_capabilities(ctx, SupportsConversationUsage):
            counter.add_earlier_usage(before)

    async def _finish(self, recording: RecordedRun, result: AgentRunResult[Any]) -> None:
        if has_ended_before(recording, self._script, result.output):
            self._live[:] = recording.history.messages
            await recording.end_without_version(recording.tip.state)
        else:
            self._calls.pause()
            is_subagent = self._parent is not None
            await end_run(recording, result, self._usage, is_subagent=is_subagent, expires_at=self.expires_at)
        recording.result = result

    async def _fail(self, recording: RecordedRun, error: BaseException) -> None:
        if isinstance(error, RunTakenOverError):
            return
        if self._is_refused(recording, error):
            await self._stop_calls()
            return
        if isinstance(error, BranchExistsError):
            recording.history.new_branch = None
        self._requests.end_cut_off(self._live)
        await self._stop_calls()
        try:
            await recording.end(
                recording.history.messages if self._script.is_behind else self._calls.with_results(self._live),
                self._usage,
                kind='turn',
                state=state_after(error),
                error=error,
            )
        except StoreError as unsaved:
            error.add_note(f'The work of the run since its last step was not stored: {unsaved}')
        except Exception as unsaved:  # noqa: BLE001 - user deps may raise anything; the first error is the cause
            await self._abandon(recording, error, unsaved)
        else:
            error.add_note(f'The run is stored as version {recording.tip.id}.')

    async def _stop_calls(self) -> None:
        await self._calls.stop()
        await self._stop_lost()

    async def _stop_lost(self) -> None:
        """End the runs of subagents whose calls have ended."""
        await _end(self._child_tasks)

    async def end_lost(self) -> None:
        """End the run, if pydantic-ai has raised its error but has not ended it."""
        await _end(self._sibling_tasks)

    async def _abandon(self, recording: RecordedRun, error: BaseException, unsaved: Exception) -> None:
        """Mark a run as failed if its end cannot be encoded, so that it does not count as running."""
        await recording.end_without_version('failed', error)
        error.add_note(f'The run is stored up to version {recording.tip.id}; the rest cannot be stored: {unsaved}')


async def _end(lost: Sequence[asyncio.Task[object]]) -> None:
    """End the tasks that wrap runs which are over.

    pydantic-ai raises for a run that is cancelled while it begins, but leaves the task that wraps the run waiting forever
    (`_run_lifecycle_hooks`: a cancellation between `_run_ready` and its body).
    """
    if tasks := [*lost]:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
