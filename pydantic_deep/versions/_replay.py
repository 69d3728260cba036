"""A turn once more, on recorded answers and results: every request is compared with what it was then."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue
from pydantic_ai import AgentRunResult, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    ValidatedToolArgs,
    WrapModelRequestHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.usage import UsageLimits

from pydantic_deep._canonical import canonical_message
from pydantic_deep.approvals import Approvals, answer_approvals
from pydantic_deep.store import RequestRecord, RunRecord, RunState, Store, VersionRecord
from pydantic_deep_backends import BackendUnavailableError, Command, CommandResult, StateBackend, Tree

from ._answers import answers_of
from ._attempts import attempts_of, load_replayed
from ._changes import Replay, RequestDifference
from ._deps_state import load_deps
from ._file_backends import runs_commands
from ._ledger import replay_result
from ._pause_histories import load_pause
from ._recording import load_usage
from ._replayed import Replayed
from ._requests import RequestLog
from ._rewritten import earlier_messages
from ._settings import load_instructions, load_settings
from ._turn import Prompt, missing_failures

if TYPE_CHECKING:
    from ._workbench import Workbench


class _ReplayEndedError(Exception):
    """The replay asked for more than was recorded, or found a difference that makes going on pointless."""


@dataclass(kw_only=True)
class _Replayer(AbstractCapability[object]):
    """Answers requests and calls from what was recorded, and compares."""

    id: str | None = 'recorder'
    replayed: Replayed
    recorded: Sequence[RequestRecord]
    waits: DeferredToolRequests | None
    """What the turn waited for in the end."""
    difference: tuple[int, ModelRequestContext] | None = field(default=None, init=False)
    number: int = field(default=0, init=False)
    is_over: bool = field(default=False, init=False)
    """Whether one request more was made than was answered then."""
    _log: RequestLog = field(default_factory=RequestLog, init=False)

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position='outermost', wraps=(Approvals,))

    async def for_run(self, ctx: RunContext[object]) -> _Replayer:
        return self

    def get_wrapper_model(self, model: Model) -> Model | None:
        wrapper = self.replayed.before(model)
        if wrapper is None or self.number == len(self.recorded):
            self.is_over = True
            raise _ReplayEndedError
        return wrapper

    async def earlier_messages(self, ctx: RunContext[object]) -> Sequence[ModelMessage]:
        """Return nothing: what a search found is told from what was recorded."""
        return []

    def overflows(self) -> bool:
        return self.replayed.overflows

    def next_summary(self) -> ModelMessage | None:
        return self.replayed.next_summary()

    async def keep(self, ctx: RunContext[object], messages: Sequence[ModelMessage]) -> None:
        """Keep nothing: it is in the store."""

    def note_summary(self, response: ModelResponse) -> None:
        """Count nothing: a summary that was not recorded differs in what is sent next."""

    async def wrap_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        response = await handler(request_context)
        self.number += 1
        request, _ = self._log.note('', request_context, response, started_at=0, duration_us=0)
        if request.digest != self.recorded[self.number - 1].digest:
            self.difference = (self.number, request_context)
            raise _ReplayEndedError
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        told = self.replayed.last
        known = None if told is None else told.calls.get(call.tool_call_id)
        if self.waits is not None and known is not None and known.status not in ('done', 'failed'):
            waiting = {each.tool_call_id: is_external for each, is_external in _waiting(self.waits)}
            # A call that was superseded by an approval does not wait itself.
            if call.tool_call_id in waiting:  # pragma: no branch
                metadata = self.waits.metadata.get(call.tool_call_id)
                raise CallDeferred(metadata) if waiting[call.tool_call_id] else ApprovalRequired(metadata)
        if known is None or known.result is None:
            raise ToolFailed('The result of this call was not recorded.')
        return replay_result(known.result)


def _waiting(waits: DeferredToolRequests) -> list[tuple[ToolCallPart, bool]]:
    """Return the calls that wait, and whether somebody else is to make them."""
    return [*((call, True) for call in waits.calls), *((call, False) for call in waits.approvals)]


class _WithCommands(StateBackend):
    """Files for an agent that is offered commands: those that ran are told, like all calls."""

    async def run(self, command: Command, **options: object) -> CommandResult:
        """Run nothing.

        Raises:
            BackendUnavailableError: Something else than a tool wants to run a command.
        """
        raise BackendUnavailableError(f'A replay runs no commands, and something that is no tool wants {command!r}.')


async def replay(agent: Workbench[Any, Any], record: VersionRecord) -> Replay:
    """Run the turn of a version again, and compare.

    Raises:
        ValueError: The version is no end of a turn.
    """
    run = None if record.run_id is None else await agent.store.run(record.run_id)
    if run is None or run.base_id is None or record.kind not in ('turn', 'pause'):
        raise ValueError(f'The version {record.id} is no end of a turn, but {record.kind}. Replay one that is.')
    attempts = await attempts_of(agent.store, run)
    base = await agent.store.version(attempts[0].base_id or run.base_id)
    replayed = await load_replayed(agent.store, attempts)
    recorded = await _requests_of(agent.store, attempts, replayed)
    waits = None if record.pending is None else await load_pause(agent.store, await agent.read_asset(record.pending))
    replayer = _Replayer(replayed=replayed, recorded=recorded, waits=waits)
    history, _ = await agent.history(base)
    stored, _ = await agent.history(record)
    said = [*await earlier_messages(agent.store, record), *stored]
    prompt = None if _resumes(run) is not None else _prompt_of(said, {attempt.id for attempt in attempts})
    files = _WithCommands if record.backend is not None and runs_commands(record.backend) else StateBackend
    result = await _run(agent, base, attempts, replayer, history, prompt, files)
    difference = await _difference(agent, replayer, stored, run.state)
    return Replay(
        requests=replayer.number,
        difference=difference,
        output=None if result is None else result.output,
        messages=[] if result is None else result.all_messages(),
    )


async def _run(
    agent: Workbench[Any, Any],
    base: VersionRecord,
    attempts: Sequence[RunRecord],
    replayer: _Replayer,
    history: list[ModelMessage],
    prompt: Prompt | None,
    files: type[StateBackend],
) -> AgentRunResult[Any] | None:
    tree = Tree() if base.tree is None else await agent.tree(base.tree)
    view = files.of(tree, agent.read_asset)
    deps = await load_deps(agent.store, base.deps, agent.make_deps(), view)
    settings, model = load_settings(base.model_settings)
    options: dict[str, Any] = json.loads(attempts[-1].options)
    try:
        return await agent.agent.run(
            prompt,
            message_history=repair_messages(history) if prompt is not None else history,
            deferred_tool_results=await _results(agent, attempts),
            conversation_id=base.conversation_id,
            model=options.get('model') or model,
            model_settings=merge_model_settings(settings, cast('ModelSettings', options.get('model_settings') or {})),
            instructions=load_instructions(base.model_settings) or None,
            deps=deps,
            usage=load_usage(base.usage),
            usage_limits=UsageLimits(request_limit=None),
            capabilities=[replayer, *missing_failures(agent.agent)],
        )
    except _ReplayEndedError:
        return None


async def _results(agent: Workbench[Any, Any], attempts: Sequence[RunRecord]) -> DeferredToolResults | None:
    pause_id = _resumes(attempts[-1])
    if pause_id is None:
        return None
    run_ids = {attempt.id for attempt in attempts}  # the first one has claimed them
    approvals = await agent.store.approvals(status=None, version_id=pause_id, limit=10_000)
    answers = answers_of([each for each in approvals if each.resumed_by in run_ids])
    pending = (await agent.store.version(pause_id)).pending or ''
    return answer_approvals(await load_pause(agent.store, await agent.read_asset(pending)), answers)


def _resumes(run: RunRecord) -> str | None:
    """Return the version whose answers a run acts on, which begins without a prompt then.

    Its first request may have words of a user even so: what a tool had to say besides its result.
    """
    return json.loads(run.options).get('resumes')


async def _requests_of(store: Store, attempts: Sequence[RunRecord], replayed: Replayed) -> list[RequestRecord]:
    """Return the requests that were answered with the responses of a turn, in their order."""
    found = [request for attempt in attempts for request in await store.requests(attempt.id)]
    request_by_response = {request.response_id: request for request in found}
    return [request_by_response[response.id] for response in replayed.responses if response.id in request_by_response]


def _prompt_of(messages: Sequence[ModelMessage], run_ids: Collection[str]) -> Prompt | None:
    """Return what the user said in the first request of a turn; `None` if it began without."""
    for message in messages:
        if isinstance(message, ModelRequest) and message.run_id in run_ids:
            prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
            return prompts[-1].content if prompts else None
    return None


async def _difference(
    agent: Workbench[Any, Any], replayer: _Replayer, stored: Sequence[ModelMessage], state: RunState
) -> RequestDifference | None:
    if replayer.difference is None:
        was_cut_off = state in ('failed', 'interrupted')  # its last request had no answer
        if replayer.number == len(replayer.recorded) and (was_cut_off or not replayer.is_over):
            return None
        if replayer.is_over:
            detail = f'{len(replayer.recorded)} requests were recorded, and the replay made one more.'
            return RequestDifference(number=len(replayer.recorded) + 1, part='count', detail=detail)
        return RequestDifference(
            number=replayer.number + 1,
            part='count',
            detail=f'{len(replayer.recorded)} requests were recorded, and the replay made {replayer.number}.',
        )
    number, context = replayer.difference
    recorded = replayer.recorded[number - 1]
    before: dict[str, JsonValue] = json.loads(await agent.read_asset(recorded.parameters or ''))
    after = RequestLog.parameters_of(context)
    for each in (before, after):
        each['settings'] = cast('dict[str, JsonValue]', each['options']).pop('settings', None)
    for part in ('instructions', 'tools', 'settings', 'options'):
        if before.get(part) != after.get(part):
            return RequestDifference(number=number, part=part, detail=_unified(before.get(part), after.get(part)))
    sent = [canonical_message(message) for message in context.messages]
    known = [canonical_message(message) for message in stored[: len(sent)]]
    for index, (old, new) in enumerate(zip(known, sent, strict=False)):
        if old != new:
            return RequestDifference(number=number, part='messages', detail=f'message {index}:\n{_unified(old, new)}')
    return RequestDifference(
        number=number, part='messages', detail=f'{len(sent)} messages were sent, as many as were not recorded.'
    )


def _unified(before: object, after: object) -> str:
    texts = [json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines() for value in (before, after)]
    return '\n'.join(difflib.unified_diff(texts[0], texts[1], 'recorded', 'replayed', lineterm='', n=2))
