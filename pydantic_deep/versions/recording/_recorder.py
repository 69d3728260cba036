"""`Recorder`: the capability that makes each step of a run a version. It works on any pydantic-ai agent.

It comes first of all capabilities, so that it sees what every other one has made of a request, a call or a result. A
subagent inherits a recorder of its own; the link to the call that started it is stored before its first request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

from opentelemetry import trace
from pydantic_ai import AgentRunResult, DeferredToolRequests, RunCancelled, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.agent import CallToolsNode, ModelRequestNode
from pydantic_ai.capabilities import (
    AbstractCapability,
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
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipModelRequest,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestAttempt,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json

from pydantic_deep._messages.deferred_metadata import (
    MAY_HAVE_RUN_AND_FAILS,
    CallRequest,
    Edited,
    Preview,
    dump,
    parse_answer,
    with_notice,
)
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.approvals import Approvals
from pydantic_deep.extensions import (
    SupportsConversationUsage,
    SupportsDelegationUsage,
    SupportsPreview,
    find_capabilities,
)
from pydantic_deep.store import (
    ApprovalRecord,
    BranchExistsError,
    CallRecord,
    RunTakenOverError,
    Store,
    StoreError,
    VersionNotFoundError,
    VersionState,
    now,
)
from pydantic_deep.versions._instructions_check import literal_instructions_in
from pydantic_deep.versions.files._run_files import OmittedFile, name_omitted
from pydantic_deep.versions.pauses._pause import approvals_of
from pydantic_deep.versions.pauses._pause_histories import store_pause
from pydantic_deep.versions.recording._attempts import calls_before_pause, usage_of_call
from pydantic_deep.versions.recording._recovery_script import RecoveryScript
from pydantic_deep_backends.paths import display_path

from ._ledger import (
    effect_of,
    encode_failure,
    encode_result,
    failure_of,
    is_delegation,
    is_told_by_message,
    parts_of,
    replay_result,
)
from ._presummary_history import earlier_messages
from ._recorded_run import FAILED, RecordedRun
from ._request_accounting import RequestAccounting
from ._run_start import Caller, begin_run, begun_before

_LOGGER = logging.getLogger('pydantic_deep')

RECORDER_ID = 'recorder'
"""The `id` of the capability."""


_CALLER: ContextVar[Caller | None] = ContextVar('pydantic_deep_caller', default=None)


@dataclass(kw_only=True)
class Recorder(AbstractCapability[object]):
    """Commits each step of a run to a store.

    `VersionedAgent` gives one to every run that it makes. Give one to an agent, or to a run, of your own to have its
    runs in a store: each is then a conversation of its own, or goes on with that of its `conversation_id`.
    """

    id: str | None = RECORDER_ID
    """Which capability it is: one recorder replaces another."""
    store: Store
    """Where to."""
    recording: RecordedRun | None = None
    """The run, if it was begun already; else it begins with the run."""
    expires_at: int | None = None
    """When what waits is denied, in microseconds since 1970."""
    _parent: RecordedRun | None = field(default=None, repr=False)
    _caller: Caller | None = field(default=None, init=False, repr=False)
    """The call of it that the run belongs to."""
    _beside: list[asyncio.Task[object]] = field(default_factory=list['asyncio.Task[object]'], repr=False)
    """The tasks of the runs that have the same parent; the list is its."""
    _below: list[asyncio.Task[object]] = field(default_factory=list['asyncio.Task[object]'], init=False, repr=False)
    """The tasks of the runs of subagents."""
    _script: RecoveryScript | None = field(default=None, init=False, repr=False)
    _is_behind: bool = field(default=False, init=False, repr=False)
    """Whether the run has not come as far yet as the one that it recovers: what it does is in the store."""
    _delegated: SupportsDelegationUsage | None = field(default=None, init=False, repr=False)
    """What counts the use of this run and those below it, if it is that of a subagent."""
    _live: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False, repr=False)
    _returned: dict[str, list[ModelRequestPart]] = field(
        default_factory=dict[str, 'list[ModelRequestPart]'], init=False, repr=False
    )
    """What calls of the last response have returned, by their ids."""
    _under_way: list[tuple[asyncio.Task[object], asyncio.Event]] = field(
        default_factory=list['tuple[asyncio.Task[object], asyncio.Event]'], init=False, repr=False
    )
    """The calls that run now: the task of each, and what is set when it has ended."""
    _usage: RunUsage = field(default_factory=RunUsage, init=False, repr=False)
    """What its conversation has used, with all below it."""
    _accounting: RequestAccounting = field(default_factory=RequestAccounting, init=False, repr=False)
    _refused_below: StoreError | None = field(default=None, init=False, repr=False)
    """With what the run of a subagent has ended, because the store did not take what it did."""

    def get_ordering(self) -> CapabilityOrdering:
        """Come before all others."""
        return CapabilityOrdering(position='outermost', wraps=(Approvals,))

    async def for_run(self, ctx: RunContext[object]) -> Recorder:
        """Return the recorder of one run."""
        return self if self.recording is not None else replace(self)

    def for_subagent(self) -> Recorder:
        """Return the recorder of a subagent's run."""
        return Recorder(store=self.store, _parent=self.recording, _beside=self._below)

    async def guarded_changes(self, ctx: RunContext[object]) -> Sequence[str]:
        """Return which protected files the turn has changed so far, over its pauses and crashes."""
        changes = () if self.recording is None else await self.recording.find_protected_changes()
        return [f'{display_path(each.path)} ({each.change})' for each in changes]

    def tracks_all_changes(self) -> bool:
        """Return whether the turn works on the files themselves, of which it knows what was protected when it began."""
        start = None if self.recording is None else self.recording.start
        return start is not None and start.protected is not None and (start.files is None or start.claim is not None)

    async def wrap_run(self, ctx: RunContext[object], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Record the beginning of the run, and its end whatever it is; one that cannot be stored is given up."""
        self._live, self._usage = ctx.messages, ctx.usage
        self._caller = None if self._parent is None else _CALLER.get()
        if (
            self._caller is not None
            and (delegated := next(iter(find_capabilities(ctx, SupportsDelegationUsage)), None)) is not None
        ):
            self._delegated, self._usage = delegated, delegated.delegation_usage
        task = cast('asyncio.Task[object]', asyncio.current_task())
        self._beside.append(task)
        try:
            return await self._wrap_run(ctx, handler)
        except BaseException as error:
            if isinstance(error, FAILED):
                self._tell_caller(error)
            if self.recording is not None and not self.recording.is_ended:
                self._suspend(self.recording, error)
            raise
        finally:
            self._beside.remove(task)

    def _suspend(self, recording: RecordedRun, error: BaseException) -> None:
        """Leave a run whose end the store did not take to be recovered or cancelled."""
        self.store.mark_orphaned(recording.run_id)
        if self._parent is None:
            error.add_note(suspension_note(recording.run_id, recording.tip.id))

    async def _wrap_run(self, ctx: RunContext[object], handler: WrapRunHandler) -> AgentRunResult[Any]:
        try:
            # To its end: who is cancelled while the store commits the beginning has a run to end.
            recording = self.recording or await run_to_completion(self._begin(ctx))
            self._accounting.recording = recording
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
            recording.lose_name()
            await run_to_completion(self._finish(recording, result))
            error.add_note(f'The run is kept as version {recording.tip.id}.')
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
        self.recording = recording
        self._is_behind = self._script is not None and bool(self._script.responses)
        self._count(ctx, recording.start.crashed.lost)
        return recording

    def _count(self, ctx: RunContext[object], used: RunUsage) -> None:
        """Count what crashed processes have used and this run does not do again."""
        ctx.usage.incr(used)
        if self._delegated is not None:
            self._delegated.add_usage(used)

    @property
    def earlier_usage(self) -> RunUsage:
        """What crashed attempts at this run have used before it began, as far as it is not told again."""
        return RunUsage() if self.recording is None else self.recording.start.crashed.earlier

    @property
    def lost_usage(self) -> RunUsage:
        """The part of that which is in no response of the history."""
        return RunUsage() if self.recording is None else self.recording.start.crashed.lost

    async def recovered_conversation_id(self) -> str | None:
        """Return the conversation in which a crashed process has begun the call that runs now; `None` if it has not."""
        caller = _CALLER.get()
        before = None if caller is None else await begun_before(self.store, caller)
        return None if before is None else before.conversation_id

    def is_recovered_response(self) -> bool:
        """Return whether the last response was that of a crashed process."""
        return self._script is not None and self._script.is_active

    def _tell_caller(self, error: StoreError) -> None:
        """Let the run above end too: its model would be told that the subagent failed, and go on without what it did."""
        caller = self._caller
        if caller is not None and (self.recording is None or self._is_left(self.recording, error)):
            caller.refused.append(error)

    def _is_left(self, recording: RecordedRun, error: BaseException) -> bool:
        """Return whether the store has refused what this subagent did, or one below: then no run above it is ended.

        What is not merged of its fork would be lost with them. `recover` tells it again to all of them.
        """
        return error is self._refused_below or (self._parent is not None and error is recording.refused)

    async def after_node_run(
        self, ctx: RunContext[object], *, node: AgentNode[object], result: NodeResult[object]
    ) -> NodeResult[object]:
        """Stage the response of a model for the first of its calls to keep; where none has run, keep it after them.

        What comes after the last response is kept with the end, which is at hand.
        """
        self._live = ctx.messages
        recording = self.recording
        if recording is None:
            return result
        if self._is_behind:
            if isinstance(node, ModelRequestNode):
                self._returned.clear()
                self._catch_up(recording)
        elif isinstance(result, ModelRequestNode):
            self._accounting.reject(result.request, self._live)
            await recording.keep_step()
        elif (
            isinstance(node, ModelRequestNode)
            and isinstance(result, CallToolsNode)
            and result.model_response.tool_calls
        ):
            self._returned.clear()
            await recording.stage(ctx.messages, self._usage)
        return result

    def _catch_up(self, recording: RecordedRun) -> None:
        """Go on with the history that the store has, where the last response of the crashed process was told again."""
        script = cast('RecoveryScript', self._script)
        if script.position == len(script.responses):
            self._is_behind = False
            self._live[:] = recording.catch_up(cast('ModelResponse', self._live[-1]))

    async def earlier_messages(self, ctx: RunContext[object]) -> Sequence[ModelMessage]:
        """Return what summaries have replaced in the history of the run, from the store."""
        return [] if self.recording is None else await earlier_messages(self.store, self.recording.tip)

    def has_overflowed(self) -> bool:
        """Return whether the next request was refused as too long in the run that this one recovers."""
        return self._script is not None and self._script.has_overflowed

    def next_summary(self) -> ModelMessage | None:
        """Return the summary that the run made that this one recovers, as long as it does what that did."""
        return None if self._script is None else self._script.next_summary()

    async def persist(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> None:
        """Make a history durable before it is told anew: answers that were rejected are not yet, if none had calls."""
        if self.recording is not None and not self._is_behind:
            await self.recording.keep_messages(messages)

    async def record_summary(
        self, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> None:
        """Store the request for a summary at once: the request that it is made for may take long."""
        if self.recording is not None:
            await self._accounting.record_summary(request, response, started_at=started_at, duration_us=duration_us)

    def record_billed_attempts(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Note the attempts at the last request that were billed and that no response includes."""
        self._accounting.record_billed_attempts(attempts)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Answer from what was recorded, as long as a run that is recovered does what it did; hear what is answered."""
        script = None if self._script is None else self._script.before(model)
        if script is not None or self.recording is None:
            return script
        return self._accounting.observe(model)

    async def wrap_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Note what was sent in the end, and what it took; nothing was sent for a response that is told again."""
        self._live = ctx.messages  # with the prompt: no node has ended yet at the first request
        recording = self.recording
        if recording is None:
            return await handler(request_context)
        if self._parent is None:
            recording.note_instructions(literal_instructions_in(request_context.model_request_parameters))
        self._accounting.send(ctx, request_context)
        told = None if self._script is None else self._script.position
        try:
            response = await handler(request_context)
        except SkipModelRequest as skipped:
            self._answered(told, skipped.response)
            raise
        self._answered(told, response)
        return response

    def _answered(self, told: int | None, response: ModelResponse) -> None:
        """Note a response of a request, unless it was told again."""
        script = self._script
        if script is not None and script.position == told:  # a capability has answered in place of the model
            script.position = min(script.position, len(script.responses)) + 1
        if self.is_recovered_response():
            return
        self._accounting.answer(response)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        """Let nobody look at a call of a dead process that has ended: a person would be asked about what it changed."""
        recording = self.recording
        known = None if recording is None else self._known(recording, call.tool_call_id)
        if known is not None and known.result is not None:
            return call.args_as_dict()
        return await handler(args)

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Ask a person about a call of a dead process that may have run."""
        recording = self.recording
        if recording is None:
            return args
        known = self._known(recording, call.tool_call_id)
        if known is None or known.status != 'started' or known.effect == 'read' or is_delegation(tool_def):
            return args
        answer = parse_answer(ctx.tool_call_metadata) if ctx.tool_call_approved else None
        preview = await _preview(ctx, call, tool_def, args)
        if preview is not None and preview.failure is not None:  # nothing to decide: it cannot run again
            raise ToolFailed(f'{MAY_HAVE_RUN_AND_FAILS} {preview.failure}')
        request = CallRequest(
            preview=with_notice(preview),
            decisions=('approve', 'deny'),
            edited=answer.args if isinstance(answer, Edited) else None,
        )
        raise ApprovalRequired(metadata=dump(request))

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Keep the ledger: that a call may run, and what it returned. What is done already is not done again."""
        recording = self.recording
        if recording is None:
            return await handler(args)
        known = self._known(recording, call.tool_call_id)
        if known is not None and known.result is not None:
            return await self._tell_result(ctx, recording, known, known.result, is_delegation=is_delegation(tool_def))
        run_id, response_id = self._asked_by(recording)
        entry = CallRecord(
            run_id=run_id,
            response_id=response_id,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.args if isinstance(call.args, str) else to_json(call.args or {}).decode(),
            effect=effect_of(tool_def),
            status='started',
            result=None,
            tree=None,
            error=None,
            started_at=now(),
            ended_at=None,
        )
        if ctx.tool_call_approved:
            await self._supersede(recording, entry)
        intent = args.get('description')
        caller = Caller(
            recording=recording,
            call=entry,
            intent=intent if isinstance(intent, str) else entry.arguments,
            was_begun=known is not None,
        )
        return await self._execute(caller, args, handler, is_delegation=is_delegation(tool_def))

    def _asked_by(self, recording: RecordedRun) -> tuple[str, str]:
        """Return the run and the message under which calls are noted that run now."""
        told = None if self._script is None else self._script.last
        return (recording.asked_by, recording.response_id) if told is None else (told.run_id, told.id)

    async def _supersede(self, recording: RecordedRun, entry: CallRecord) -> None:
        """Mark what was noted of a call that may have run, and that a person has allowed to run now."""
        about = recording.start
        with suppress(VersionNotFoundError):  # the pause was deleted
            attempts = [*about.crashed.attempts, about.run_record]
            for call in await calls_before_pause(self.store, attempts, entry.response_id, entry.tool_call_id):
                recording.supersede(call)

    async def _tell_result(
        self, ctx: RunContext[object], recording: RecordedRun, known: CallRecord, kept: str, *, is_delegation: bool
    ) -> object:
        """Return what a call of a crashed process has returned; what subagents have used in it is counted."""
        if is_delegation:
            attempts = recording.start.crashed.attempts
            now_used, before = await usage_of_call(self.store, attempts, known.response_id, known.tool_call_id)
            self._count(ctx, now_used)
            for counter in find_capabilities(ctx, SupportsConversationUsage):
                counter.add_earlier_usage(before)
        if not self._is_behind:
            recording.note_told(known)
        result = replay_result(kept)
        self._returned[known.tool_call_id] = parts_of(known.tool_name, known.tool_call_id, result)
        return result

    def _known(self, recording: RecordedRun, tool_call_id: str) -> CallRecord | None:
        """Return what a dead process has noted of a call of the last response.

        What it wrote to files that no version has is gone with it, and is written again. Of a fork that is only what no
        call since has kept.
        """
        start = recording.start
        told = None if self._script is None else self._script.last
        if told is not None:
            known = told.calls.get(tool_call_id)
        else:
            settled = start.crashed.settled
            known = settled.get((recording.response_id, tool_call_id)) if settled else None
        if known is None or known.effect != 'write':
            return known
        is_lost = (
            known.status == 'started' if start.fork is not None else start.files is not None and not start.has_files
        )
        return None if is_lost else known

    async def _execute(
        self,
        caller: Caller,
        args: ValidatedToolArgs,
        handler: Callable[[ValidatedToolArgs], Awaitable[Any]],
        *,
        is_delegation: bool,
    ) -> Any:
        recording, entry = caller.recording, caller.call
        under_way = cast('asyncio.Task[object]', asyncio.current_task()), asyncio.Event()
        self._under_way.append(under_way)
        try:
            if is_delegation:  # the run of a subagent begins with the start of the call
                await recording.keep_step()
            else:
                await recording.start_call(entry)
            result = await self._run(caller, args, handler)
        finally:
            self._under_way.remove(under_way)
            under_way[1].set()
        self._accounting.usage.tool_calls += 1
        self._returned[entry.tool_call_id] = parts_of(entry.tool_name, entry.tool_call_id, result)
        is_told = is_told_by_message(result)
        if is_told:
            recording.note_told(entry)
        # What a call that reads returned goes with its message, or nobody knows of it: it is made again.
        is_needed = entry.effect != 'read' or not is_told
        kept = encode_result(entry.tool_name, entry.tool_call_id, result) if is_needed else None
        await self._end(recording, entry._replace(status='done', result=kept))
        omitted = recording.take_omitted()
        return _with_omitted(result, omitted) if omitted else result

    async def _run(
        self, caller: Caller, args: ValidatedToolArgs, handler: Callable[[ValidatedToolArgs], Awaitable[Any]]
    ) -> Any:
        """Run a call that has started, and note how it ends if it returns nothing."""
        recording, entry = caller.recording, caller.call
        token = _CALLER.set(caller)
        try:
            return await handler(args)
        except (ApprovalRequired, CallDeferred):
            recording.note_call(entry._replace(status='deferred'))
            raise
        except Exception as error:
            if not caller.refused:
                await self._end_failed(recording, entry, error)
                raise
        finally:
            _CALLER.reset(token)
        self._refused_below = caller.refused[0]
        raise self._refused_below  # not in the handler: what was raised there has it for its cause

    async def _end_failed(self, recording: RecordedRun, entry: CallRecord, error: Exception) -> None:
        if isinstance(error, (ToolFailed, ModelRetry, ToolFailedError, ToolRetryError)):
            recording.note_told(entry)
            told = failure_of(error)
            entry = entry._replace(result=encode_failure(told), error=_cause_of(told))
        else:  # of the user's code: it ends the run, and the ledger says so
            entry = entry._replace(error=type(error).__name__)
        await self._end(recording, entry._replace(status='failed'))

    async def _end(self, recording: RecordedRun, entry: CallRecord) -> None:
        entry = entry._replace(ended_at=now())
        if recording.can_repeat(entry) and (entry.effect == 'read' or not await recording.changed_deps()):
            recording.note_call(entry)
        else:
            await run_to_completion(recording.end_call(entry))  # it has happened: that must be known

    async def _finish(self, recording: RecordedRun, result: AgentRunResult[Any]) -> None:
        requests = result.output if isinstance(result.output, DeferredToolRequests) else None
        if self._has_ended_before(recording, requests):
            self._live[:] = recording.history[0]
            await recording.end_as_before(self._accounting.usage, self._accounting.total_cost)
        elif requests is None:
            await recording.end(
                result.all_messages(),
                self._usage,
                kind='turn',
                state='complete',
                run_usage=self._accounting.usage,
                cost=self._accounting.total_cost,
                output=_encode_output(result.output),
            )
        else:
            await self._pause(recording, result, requests)

    def _has_ended_before(self, recording: RecordedRun, requests: DeferredToolRequests | None) -> bool:
        """Return whether a crashed process has stored the same end: all that it was answered was told again."""
        base, script = recording.start.base, self._script
        if script is None or script.position != len(script.responses) or recording.tip is not base:
            return False
        state = 'complete' if requests is None else 'awaiting_approval'
        return (
            base.kind != 'step'
            and base.state == state
            and base.run_id in {each.id for each in recording.start.crashed.attempts}
        )

    async def _pause(self, recording: RecordedRun, result: AgentRunResult[Any], requests: DeferredToolRequests) -> None:
        approvals: list[ApprovalRecord] = []
        supersedes: dict[str, str] = {}
        if self._parent is None:  # those of a subagent rise to the top, and are listed there
            approvals, supersedes = await approvals_of(
                self.store,
                recording.start.base,
                requests,
                pause_id=recording.start.pause_id,
                created_at=now(),
                expires_at=self.expires_at,
            )
        await recording.end(
            result.all_messages(),
            self._usage,
            kind='pause',
            state='awaiting_approval',
            run_usage=self._accounting.usage,
            cost=self._accounting.total_cost,
            pending=await store_pause(self.store, requests),
            approvals=approvals,
            supersedes=supersedes,
        )

    async def _fail(self, recording: RecordedRun, error: BaseException) -> None:
        if isinstance(error, RunTakenOverError):
            return
        if self._is_left(recording, error):
            await self._stop_calls()
            return
        if isinstance(error, BranchExistsError):
            recording.lose_name()
        self._accounting.end_cut_off(self._live)
        is_stopped = isinstance(error, RunCancelled) or not isinstance(error, Exception)
        state: VersionState = 'interrupted' if is_stopped else 'failed'
        await self._stop_calls()
        try:
            await recording.end(
                self._with_returned(recording),
                self._usage,
                kind='turn',
                state=state,
                run_usage=self._accounting.usage,
                cost=self._accounting.total_cost,
                error=error,
            )
        except StoreError as unsaved:
            error.add_note(f'What the run did since its last step is not in the store: {unsaved}')
        except Exception as unsaved:  # noqa: BLE001 - the user's deps: it may be anything, and the first error counts
            await self._abandon(recording, error, unsaved)
        else:
            error.add_note(f'The run is kept as version {recording.tip.id}.')

    async def _stop_calls(self) -> None:
        """End what still runs: pydantic-ai cancels the calls of a run only after this, and they may write until then."""
        stopped = [*self._under_way]
        for task, _ in stopped:
            task.cancel()
        for _, ended in stopped:
            await ended.wait()
        await self._stop_lost()

    async def _stop_lost(self) -> None:
        """End the runs of subagents whose calls are over.

        A run that is cancelled in the moment in which it begins should be told so. pydantic-ai raises, and leaves the
        task that wraps the run waiting for its end for ever (`_run_lifecycle_hooks`: a cancellation between `_run_ready`
        and its body).
        """
        if lost := [*self._below]:
            for task in lost:
                task.cancel()
            await asyncio.wait(lost)

    async def _abandon(self, recording: RecordedRun, error: BaseException, unsaved: Exception) -> None:
        """End a run whose end cannot be written down, so that nobody takes it for one that works."""
        await recording.abandon(error, self._accounting.usage, self._accounting.total_cost)
        error.add_note(f'The run is kept up to version {recording.tip.id}; what came after cannot be kept: {unsaved}')

    def _with_returned(self, recording: RecordedRun) -> Sequence[ModelMessage]:
        """Return the messages of a run that is cut off, with what is done of the last response's calls."""
        messages = recording.history[0] if self._is_behind else self._live
        if self._is_behind or not self._returned or not isinstance(messages[-1], ModelResponse):
            return messages
        parts = [part for call in messages[-1].tool_calls for part in self._returned.get(call.tool_call_id, ())]
        about = recording.start.run_record
        return [
            *messages,
            ModelRequest(parts, state='interrupted', run_id=about.id, conversation_id=about.conversation_id),
        ]


async def _preview(
    ctx: RunContext[object], call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
) -> Preview | None:
    """Return what a call would do, of the first capability that knows."""
    for each in find_capabilities(ctx, SupportsPreview):
        preview = await each.preview(ctx, call=call, tool_def=tool_def, args=args)
        if preview is not None:
            return preview
    return None


def _with_omitted(result: object, omitted: Sequence[OmittedFile]) -> object:
    """Return the result of a call with what the model has to know of files that it left."""
    note = f'Not saved in any version: {name_omitted(omitted)}.'
    if isinstance(result, str):
        return f'{result}\n\n{note}'
    given = cast('ToolReturn[Any]', result) if isinstance(result, ToolReturn) else ToolReturn[Any](return_value=result)
    if isinstance(given.return_value, str):
        return replace(given, return_value=f'{given.return_value}\n\n{note}')
    before = [given.content] if isinstance(given.content, str) else [*(given.content or ())]
    return replace(given, content=[*before, note])


def suspension_note(run_id: str, version_id: str) -> str:
    """Return what is added to the error that leaves a run suspended."""
    return (
        f'The run {run_id} is suspended after the version {version_id}: `VersionedAgent.recover` resumes it, and '
        '`VersionedAgent.cancel` ends it.'
    )


def _cause_of(error: BaseException) -> str:
    return type(error.__cause__ or error).__name__


def _encode_output(output: object) -> str:
    """Return an output as JSON; of what JSON cannot hold, its `repr`."""
    return to_json(output, fallback=repr).decode()
