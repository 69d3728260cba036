"""The tool calls of one recorded run: when each starts and ends, and the results that a crashed run left.

Not here: the encoding of results (`_ledger`), and the commits (`_recorded_run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from pydantic_ai import RunContext, ToolDefinition, ToolReturn
from pydantic_ai.capabilities import ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ModelResponse, ToolCallPart
from pydantic_core import to_json

from pydantic_deep._messages.deferred_metadata import (
    MAY_HAVE_RUN_AND_FAILS,
    CallRequest,
    Edited,
    Preview,
    dump,
    has_begun,
    parse_answer,
    with_notice,
)
from pydantic_deep._messages.half_characters import repair_result
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.extensions import SupportsPreview, find_capabilities
from pydantic_deep.store import CallRecord, StoreError, VersionNotFoundError, now
from pydantic_deep.versions.files._run_files import OmittedFile, name_omitted
from pydantic_deep.versions.files._unfinished_writes import undo_writes

from ._attempts import calls_before_pause
from ._ledger import (
    Writes,
    effect_of,
    encode_failure,
    encode_result,
    failure_of,
    is_complete_in_message,
    is_delegation,
    parts_of,
    replay_result,
    run_storable,
    writes_of,
)
from ._recorded_run import RecordedRun
from ._recovery_script import RecoveryScript
from ._stored_history import last_response


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The tool call that a run belongs to."""

    recording: RecordedRun
    """The recording of the run that makes the call."""
    call: CallRecord
    """The ledger entry of the call."""
    intent: str
    """The task of the other agent."""
    was_begun: bool = False
    """Whether the crashed process had begun the call."""
    refused: list[StoreError] = field(default_factory=list[StoreError])
    """The store errors that ended runs within the call."""


CALLER: ContextVar[Caller | None] = ContextVar('pydantic_deep_caller', default=None)
"""The running tool call of a recorded run."""


@dataclass(kw_only=True)
class CallLedger:
    """Records the tool calls of one run, and repeats none that finished in a crashed run."""

    recording: RecordedRun
    """The recording of the run."""
    script: RecoveryScript
    """The recording of the crashed run that the run resumes."""
    refused: StoreError | None = field(default=None, init=False)
    """The store error that ended the run of a subagent."""
    _returned: dict[str, list[ModelRequestPart]] = field(
        default_factory=dict[str, 'list[ModelRequestPart]'], init=False
    )
    """The message parts with results of calls of the last response, keyed by tool call id."""
    _running: list[tuple[asyncio.Task[object], asyncio.Event]] = field(
        default_factory=list['tuple[asyncio.Task[object], asyncio.Event]'], init=False
    )
    """The running calls, each with its task and an event that is set when it has ended."""
    _asking: dict[str, tuple[CallRecord, Writes | None]] = field(
        default_factory=dict[str, 'tuple[CallRecord, Writes | None]'], init=False
    )
    """The calls that ask in the middle, keyed by tool call id."""
    _unverified: frozenset[str] | None = field(default=None, init=False)
    """The ids of calls of the crashed run that may have written a file; `None` before they are known."""

    def known(self, tool_call_id: str) -> CallRecord | None:
        """Return the ledger entry that a crashed run left for a call of the last response; `None` if the call must run
        again.

        Its uncommitted file writes were lost and will be redone. In a fork, the only lost writes are those of
        unfinished calls.
        """
        start, recorded = self.recording.start, self.script.last
        if recorded is not None:
            known = recorded.calls.get(tool_call_id)
        else:
            settled = start.crashed.settled
            known = settled.get((self.recording.response_id, tool_call_id)) if settled else None
        if known is None or known.effect != 'write':
            return known
        is_lost = (
            known.status == 'started' if start.fork is not None else start.files is not None and not start.has_files
        )
        return None if is_lost else known

    async def check_repeat(
        self, ctx: RunContext[object], call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> None:
        """Check that a call did not start in a crashed run, or changes nothing.

        Raises:
            ApprovalRequired: The call may have run.
            ToolFailed: The call may have run, and cannot run again.
        """
        known = self.known(call.tool_call_id)
        if known is None:
            if call.tool_call_id not in await self._find_unverified(ctx):
                return
            self.recording.calls.add(self._started(call, tool_def), 'file')  # the next tree may have its changes
        elif known.status != 'started' or known.effect == 'read' or is_delegation(tool_def):
            return
        answer = parse_answer(ctx.tool_call_metadata) if ctx.tool_call_approved else None
        preview = await _preview(ctx, call, tool_def, args)
        if preview is not None and preview.failure is not None:  # no decision needed: it cannot run again
            raise ToolFailed(f'{MAY_HAVE_RUN_AND_FAILS} {preview.failure}')
        request = CallRequest(
            preview=with_notice(preview),
            decisions=('approve', 'deny'),
            edited=answer.args if isinstance(answer, Edited) else None,
        )
        raise ApprovalRequired(metadata=dump(request))

    async def is_finished(self, ctx: RunContext[object], call: ToolCallPart) -> bool:
        """Return whether a call finished in a crashed run. If it did not, the lost writes of other calls are undone."""
        known = self.known(call.tool_call_id)
        if known is not None and known.result is not None:
            return True
        await self._find_unverified(ctx)
        return False

    async def _find_unverified(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the calls without a ledger entry whose changes to a directory cannot be verified, and undo those of
        the others.
        """
        recording, script = self.recording, self.script
        files = recording.calls.files
        is_last = script.position == len(script.responses) if script.responses else recording.is_at_crash
        if files is None or files.crashed is None or not is_last:
            return frozenset()
        if self._unverified is None:
            response = cast('ModelResponse', ctx.messages[last_response(ctx.messages)])
            tools = ctx.tools
            calls = [
                (call, tools[call.tool_name])
                for call in response.tool_calls
                if call.tool_name in tools
                and writes_of(tools[call.tool_name]) == 'file'
                and self.known(call.tool_call_id) is None
            ]
            self._unverified = await undo_writes(ctx, files, calls, recording.store.read_asset)
        return self._unverified

    def _started(self, call: ToolCallPart, tool_def: ToolDefinition) -> CallRecord:
        """Return the ledger entry of a call that starts now."""
        recording, recorded = self.recording, self.script.last
        return CallRecord(
            run_id=recording.asked_by if recorded is None else recorded.run_id,
            response_id=recording.response_id if recorded is None else recorded.id,
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

    def replay(self, known: CallRecord, encoded: str) -> object:
        """Return the result of a call that finished in a crashed run, or raise its exception."""
        if not self.script.is_behind:
            self.recording.calls.add_to_message(known)
        result = replay_result(encoded)
        self._returned[known.tool_call_id] = parts_of(known.tool_name, known.tool_call_id, result)
        return result

    async def execute(
        self,
        ctx: RunContext[object],
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Run a call, and record its start and its end."""
        recording, writes = self.recording, writes_of(tool_def)
        entry = self._started(call, tool_def)
        self._asking.pop(entry.tool_call_id, None)
        if ctx.tool_call_approved:
            await self._supersede(entry)
        intent = args.get('description')
        caller = Caller(
            recording=recording,
            call=entry,
            intent=intent if isinstance(intent, str) else entry.arguments,
            was_begun=self.known(call.tool_call_id) is not None,
        )
        running = cast('asyncio.Task[object]', asyncio.current_task()), asyncio.Event()
        self._running.append(running)
        try:
            if is_delegation(tool_def):  # the commit that starts the subagent's run also starts the call
                await recording.commit_step()
            else:
                await recording.start_call(entry, writes)
            result = repair_result(await self._run(caller, writes, args, handler))
        finally:
            self._running.remove(running)
            running[1].set()
        recording.usage.tool_calls += 1
        self._returned[entry.tool_call_id] = parts_of(entry.tool_name, entry.tool_call_id, result)
        is_in_message = is_complete_in_message(result)
        if is_in_message:
            recording.calls.add_to_message(entry)
        # The result of a call that only reads is stored with its message. If that is lost, the call runs again.
        is_needed = entry.effect != 'read' or not is_in_message
        encoded = encode_result(entry.tool_name, entry.tool_call_id, result) if is_needed else None
        await self._end(entry._replace(status='done', result=encoded), writes)
        omitted = recording.take_omitted()
        return _with_omitted(result, omitted) if omitted else result

    async def _supersede(self, entry: CallRecord) -> None:
        """Mark earlier ledger entries of a call as superseded, after a person has approved running it again."""
        start = self.recording.start
        with suppress(VersionNotFoundError):  # the pause was deleted
            attempts = [*start.crashed.attempts, start.run_record]
            store = self.recording.store
            for call in await calls_before_pause(store, attempts, entry.response_id, entry.tool_call_id):
                self.recording.calls.supersede(call)

    async def _run(
        self, caller: Caller, writes: Writes | None, args: ValidatedToolArgs, handler: WrapToolExecuteHandler
    ) -> Any:
        """Run a started call, and record how it ends unless it returns a result."""
        token = CALLER.set(caller)
        try:
            return await run_storable(partial(handler, args))
        except (ApprovalRequired, CallDeferred) as asked:
            deferred = caller.call._replace(status='deferred'), writes
            if has_begun(asked.metadata):  # until the pause is stored, a crash leaves a call that may have run
                self._asking[caller.call.tool_call_id] = deferred
            else:
                self.recording.calls.add(*deferred)
            raise
        except Exception as error:
            if not caller.refused:
                await self._end_failed(caller.call, writes, error)
                raise
        finally:
            CALLER.reset(token)
        self.refused = caller.refused[0]
        raise self.refused  # outside of the handler, so that it has no other cause

    async def _end_failed(self, entry: CallRecord, writes: Writes | None, error: Exception) -> None:
        if isinstance(error, (ToolFailed, ModelRetry, ToolFailedError, ToolRetryError)):
            self.recording.calls.add_to_message(entry)
            failure = failure_of(error)
            cause = type(failure.__cause__ or failure).__name__
            entry = entry._replace(result=encode_failure(failure), error=cause)
        else:  # an exception of user code, which ends the run
            entry = entry._replace(error=type(error).__name__)
        await self._end(entry._replace(status='failed'), writes)

    async def _end(self, entry: CallRecord, writes: Writes | None) -> None:
        recording, entry = self.recording, entry._replace(ended_at=now())
        if not recording.calls.can_repeat(entry, writes) or not await recording.add_end(entry, writes):
            await run_to_completion(recording.end_call(entry))  # its side effects must be recorded

    def pause(self) -> None:
        """Add that calls are deferred which ask in the middle, for the commit of the pause."""
        for call, writes in self._asking.values():
            self.recording.calls.add(call, writes)

    async def stop(self) -> None:
        """Cancel running calls, and wait until they end: pydantic-ai cancels them only later, and they could write
        until then.
        """
        stopped = [*self._running]
        for task, _ in stopped:
            task.cancel()
        for _, ended in stopped:
            await ended.wait()

    def forget_results(self) -> None:
        """Forget the results of calls, which the next response follows."""
        self._returned.clear()

    def with_results(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        """Return the messages of an interrupted run, with the results of finished calls of the last response."""
        if not self._returned or not isinstance(messages[-1], ModelResponse):
            return messages
        parts = [part for call in messages[-1].tool_calls for part in self._returned.get(call.tool_call_id, ())]
        run = self.recording.start.run_record
        ended = ModelRequest(parts, state='interrupted', run_id=run.id, conversation_id=run.conversation_id)
        return [*messages, ended]


async def _preview(
    ctx: RunContext[object], call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
) -> Preview | None:
    """Return the preview of a call from the first capability that has one."""
    for capability in find_capabilities(ctx, SupportsPreview):
        preview = await capability.preview(ctx, call=call, tool_def=tool_def, args=args)
        if preview is not None:
            return preview
    return None


def _with_omitted(result: object, omitted: Sequence[OmittedFile]) -> object:
    """Return the result of a call with a note for the model about files that no version has."""
    note = f'Not saved in any version: {name_omitted(omitted)}.'
    if isinstance(result, str):
        return f'{result}\n\n{note}'
    returned = (
        cast('ToolReturn[Any]', result) if isinstance(result, ToolReturn) else ToolReturn[Any](return_value=result)
    )
    if isinstance(returned.return_value, str):
        return replace(returned, return_value=f'{returned.return_value}\n\n{note}')
    before = [returned.content] if isinstance(returned.content, str) else [*(returned.content or ())]
    return replace(returned, content=[*before, note])
