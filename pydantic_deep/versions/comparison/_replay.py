"""The replay of a turn with recorded responses and results: compares every request with the recorded one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import takewhile, zip_longest
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai import AgentRunResult, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    ValidatedToolArgs,
    WrapModelRequestHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, SkipModelRequest, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, ToolCallPart, repair_messages
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.settings import merge_model_settings
from pydantic_ai.usage import UsageLimits

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._capabilities.replay_time import replay_scope
from pydantic_deep._messages.notice import noticed
from pydantic_deep._messages.usage_json import load_usage
from pydantic_deep._requests.canonical_request import canonical_message
from pydantic_deep.approvals import Approvals, answer_approvals
from pydantic_deep.store import CallRecord, RequestRecord, RunRecord, Store, VersionRecord
from pydantic_deep.versions._run_options import load_options
from pydantic_deep.versions._session import Session
from pydantic_deep.versions._settings import load_instructions, load_settings
from pydantic_deep.versions.files._backend_descriptions import runs_commands
from pydantic_deep.versions.pauses._answers import answers_of
from pydantic_deep.versions.pauses._pause_histories import load_pause
from pydantic_deep.versions.recording._attempts import attempts_of, load_script, newest_version, runs_called
from pydantic_deep.versions.recording._capabilities import missing_failures
from pydantic_deep.versions.recording._deps_state import load_deps
from pydantic_deep.versions.recording._ledger import effect_of, is_delegation, replay_result
from pydantic_deep.versions.recording._presummary_history import all_messages
from pydantic_deep.versions.recording._prompts import Prompt, prompt_from
from pydantic_deep.versions.recording._recovery_script import RecoveryScript
from pydantic_deep.versions.recording._request_log import RequestLog, resolve_messages
from pydantic_deep_backends import BackendUnavailableError, Command, CommandResult, StateBackend

from ._difference_origins import Origins, Probe, content_of, recorded_content
from ._result_comparison import compare_result
from ._version_diff import Replay, RequestDifference, ResultDifference


class _ReplayEndedError(Exception):
    """Ends a replay that sends more requests than were recorded, or a request that differs."""


@dataclass(kw_only=True)
class _Replayer(BaseCapability[object]):
    """Answers requests and calls from the recording, and compares them with it."""

    id: str | None = 'recorder'
    turn: _Turn
    script: RecoveryScript
    recorded: Sequence[RequestRecord]
    pending: DeferredToolRequests | None
    """The pending calls at the end of the turn."""
    probe: Probe | None = None
    """Finds the origin of a known difference, instead of sending the last request."""
    began_with: Sequence[ModelMessage] = ()
    """The messages that the turn began with."""
    runs_tools: bool = False
    """Whether to run tools without effects outside of the files and todos, and compare their results."""
    path: tuple[str, ...] = ()
    """The names of the subagents that lead to the run."""
    results: list[ResultDifference] = field(default_factory=list[ResultDifference])
    """The results that differ, in this run and those below it."""
    children: list[_Replayer] = field(default_factory=list['_Replayer'], init=False)
    """The replays of subagents."""
    difference: tuple[int, ModelRequestContext] | None = field(default=None, init=False)
    number: int = field(default=0, init=False)
    is_over: bool = field(default=False, init=False)
    """Whether the replay sent one request more than was answered in the recording."""
    leaves: list[AbstractCapability[Any]] = field(default_factory=list[AbstractCapability[Any]], init=False)
    """The capabilities of the run."""
    history: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False)
    """The messages of the run at the last request that equals the recorded one."""
    _log: RequestLog = field(default_factory=RequestLog, init=False)

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position='outermost', wraps=(Approvals,))

    async def for_run(self, ctx: RunContext[object]) -> _Replayer:
        return self

    def for_subagent(self) -> _ChildReplayer:
        return _ChildReplayer()

    def get_wrapper_model(self, model: Model) -> Model | None:
        wrapper = self.script.before(model)
        if wrapper is None or self.number == len(self.recorded):
            self.is_over = True
            raise _ReplayEndedError
        return wrapper

    def has_overflowed(self) -> bool:
        return self.script.has_overflowed

    def next_summary(self) -> ModelMessage | None:
        return self.script.next_summary()

    def may_request_summary(self) -> bool:
        return False

    def recorded_notice(self, heading: str, known: str) -> str:
        parts = (part for message in self.began_with for part in message.parts if isinstance(part, SystemPromptPart))
        return next((text for part in parts if (text := noticed(part, heading)) is not None), known)

    async def wrap_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        if not self.leaves:
            cast('AbstractCapability[Any]', ctx.root_capability).apply(self.leaves.append)
        if self.probe is not None and self.number + 1 == len(self.recorded):
            with suppress(Exception):  # a capability may replace `ProbeEndedError` by another exception
                await self.probe.request(ctx, request_context, self)
            raise _ReplayEndedError
        position = self.script.position
        try:
            response = await handler(request_context)
        except SkipModelRequest:
            self._compare(ctx, request_context, position)
            raise
        except ModelRetry:
            if self.script.position > position:  # the response was rejected; otherwise the request was not sent
                self._compare(ctx, request_context, position)
            raise
        self._compare(ctx, request_context, position)
        return response

    def _compare(self, ctx: RunContext[object], request_context: ModelRequestContext, position: int) -> None:
        """Compare a request with the recorded one, and end the replay if it differs."""
        self.number += 1
        if self.script.position == position:  # a capability has responded instead of the model, as in the recording
            self.script.position += 1
        if self.number > len(self.recorded):
            self.is_over = True
            raise _ReplayEndedError
        if self.difference is None and self._log.digest_of(request_context) != self.recorded[self.number - 1].digest:
            self.difference = (self.number, request_context)
            if not self.path:  # a subagent continues: its result comes from the recording in any case
                raise _ReplayEndedError
        if self.difference is None:
            self.history = list(ctx.messages)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        recorded = self.script.last
        known = None if recorded is None else recorded.calls.get(call.tool_call_id)
        if self.pending is not None and known is not None and known.status not in ('done', 'failed'):
            is_external_by_id = {
                pending_call.tool_call_id: is_external for pending_call, is_external in _pending_calls(self.pending)
            }
            # A call that was superseded by an approval is not pending itself.
            if call.tool_call_id in is_external_by_id:  # pragma: no branch
                metadata = self.pending.metadata.get(call.tool_call_id)
                raise CallDeferred(metadata) if is_external_by_id[call.tool_call_id] else ApprovalRequired(metadata)
        if known is None or known.result is None:
            raise ToolFailed('The result of this call was not recorded.')
        if self.runs_tools and is_delegation(tool_def):
            await self._run_subagent(known, handler, args)
        elif self.runs_tools and effect_of(tool_def) != 'external':
            difference = await compare_result(known, handler, args)
            if difference is not None:
                self.results.append(replace(difference, number=self.number, subagents=self.path))
        return replay_result(known.result)

    async def _run_subagent(self, known: CallRecord, handler: WrapToolExecuteHandler, args: ValidatedToolArgs) -> None:
        """Replay the run of a subagent. Its result comes from the recording."""
        turn = await self.turn.below(known)
        if turn is None:  # the call failed before it started a run
            return
        child = turn.replayer(turn.recorded, runs_tools=True)
        child.path, child.results = (*self.path, str(args.get('subagent'))), self.results
        self.children.append(child)
        token = _CHILD.set(child)
        try:
            # The requests are compared, and the recording has the result.
            with suppress(Exception), replay_scope(turn.attempts[0].started_at):
                await handler(args)
        finally:
            _CHILD.reset(token)


_CHILD: ContextVar[_Replayer] = ContextVar('pydantic_deep_child_replayer')
"""The replay of the subagent that the running tool call starts."""


@dataclass(kw_only=True)
class _ChildReplayer(BaseCapability[object]):
    """Stands for the replay of a subagent until its run starts."""

    id: str | None = 'recorder'

    async def for_run(self, ctx: RunContext[object]) -> AbstractCapability[object]:
        return _CHILD.get()


def _pending_calls(requests: DeferredToolRequests) -> list[tuple[ToolCallPart, bool]]:
    """Return the pending calls, each with whether it is external."""
    return [*((call, True) for call in requests.calls), *((call, False) for call in requests.approvals)]


class _WithCommands(StateBackend):
    """Files for an agent with a command tool. Results of commands come from the recording, as for all calls."""

    async def run(self, command: Command, **options: object) -> CommandResult:
        """Refuse to run a command.

        Raises:
            BackendUnavailableError: Always. Something other than a tool tried to run a command.
        """
        raise BackendUnavailableError(
            f'A replay runs no commands, but something other than a tool tried to run {command!r}.'
        )


async def replay(
    session: Session[Any, Any], record: VersionRecord, *, run_tools: bool = False, model: Model | None = None
) -> Replay:
    """Run the turn of a version again, and compare.

    Args:
        session: The agent and the store.
        record: The version.
        run_tools: Whether to run tools that only read or change the files and todos, and subagents.
        model: The model to prepare the requests for, instead of the recorded one.

    Raises:
        ValueError: The version is not the end of a turn.
    """
    run = None if record.run_id is None else await session.store.run(record.run_id)
    if run is None or run.base_id is None or record.kind not in ('turn', 'pause'):
        raise ValueError(
            f'The version {record.id} is not the end of a turn, but of kind {record.kind!r}. Replay one that is.'
        )
    attempts = await attempts_of(session.store, run)
    turn = await _Turn.load(session, record, attempts)
    turn = turn if model is None else replace(turn, model=model)
    replayer = turn.replayer(turn.recorded, runs_tools=run_tools)
    result = await turn.run(replayer)
    return Replay(
        requests=replayer.number,
        difference=await _first_difference(replayer),
        output=None if result is None else result.output,
        messages=[] if result is None else result.all_messages(),
        results=replayer.results,
    )


async def load_prompt(session: Session[Any, Any], record: VersionRecord) -> Prompt | None:
    """Return the user prompt of the run that made a version; `None` if no run did, or if it began without a prompt."""
    run = None if record.run_id is None else await session.store.run(record.run_id)
    if run is None or run.base_id is None:
        return None
    return (await _Turn.load(session, record, await attempts_of(session.store, run))).prompt


async def _first_difference(replayer: _Replayer) -> RequestDifference | None:
    """Return the first difference of a run; if it has none, the first of its subagents."""
    difference = await _difference(replayer.turn, replayer)
    for child in replayer.children:
        difference = difference or await _first_difference(child)
    return difference


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """The recording of a turn."""

    session: Session[Any, Any]
    base: VersionRecord
    """The version that the turn began from."""
    attempts: Sequence[RunRecord]
    """The run of the turn, after the crashed runs that it resumes."""
    script: RecoveryScript
    recorded: Sequence[RequestRecord]
    pending: DeferredToolRequests | None
    history: Sequence[ModelMessage]
    """The messages of the base."""
    messages: Mapping[str, ModelMessage]
    """The messages of the version, keyed by id, with those that were replaced in its history."""
    prompt: Prompt | None
    files: type[StateBackend]
    model: Model | None = None
    """The model to prepare the requests for, if it is not the recorded one."""

    @classmethod
    async def load(cls, session: Session[Any, Any], record: VersionRecord, attempts: Sequence[RunRecord]) -> _Turn:
        store = session.store
        base = await store.version(attempts[0].base_id or '')
        script = await load_script(store, attempts)
        recorded = await _requests_of(store, attempts, script)
        ids = {request.response_id for request in recorded}
        messages = dict(await all_messages(store, record))
        note = (await _sent(session, recorded[0])).get('prompt') if recorded else None
        run_ids = {attempt.id for attempt in attempts}
        prompt = (
            None
            if load_options(attempts[-1]).resumes is not None
            else prompt_from(note, list(messages.values()), run_ids)
        )
        pending = (
            None if record.pending is None else await load_pause(store, await session.store.read_asset(record.pending))
        )
        return cls(
            session=session,
            base=base,
            attempts=attempts,
            # A response without a request is a capability's changed copy of another, or replaces that of a model.
            script=replace(script, responses=[response for response in script.responses if response.id in ids]),
            recorded=recorded,
            pending=pending,
            history=(await session.history(base))[0],
            messages=messages,
            prompt=prompt,
            files=_WithCommands if record.backend is not None and runs_commands(record.backend) else StateBackend,
        )

    async def below(self, call: CallRecord) -> _Turn | None:
        """Return the recording of the subagent that a call has started; `None` if it has started none."""
        store, own = self.session.store, {attempt.id for attempt in self.attempts}
        runs = await runs_called(store, self.attempts, call.response_id, call.tool_call_id)
        run = next((run for run in runs if run.parent_run_id in own), None)
        attempts = [] if run is None else await attempts_of(store, run)
        newest = await newest_version(store, attempts)
        return None if newest is None else await _Turn.load(self.session, newest, attempts)

    def replayer(
        self, recorded: Sequence[RequestRecord], probe: Probe | None = None, *, runs_tools: bool = False
    ) -> _Replayer:
        """Return a replayer for another run of the turn."""
        run_ids = {attempt.id for attempt in self.attempts}
        own = (message for message in self.messages.values() if message.run_id in run_ids)
        return _Replayer(
            turn=self,
            runs_tools=runs_tools,
            script=replace(self.script),
            recorded=recorded,
            pending=self.pending,
            probe=probe,
            began_with=list(takewhile(lambda message: not isinstance(message, ModelResponse), own)),
        )

    async def run(self, replayer: _Replayer) -> AgentRunResult[Any] | None:
        """Run the turn again, up to the first request that differs from the recording."""
        session, base = self.session, self.base
        view = self.files.of(await session.trees.load(base.tree), session.store.read_asset)
        deps = await load_deps(session.store, base.deps, session.make_deps(), view)
        settings, model = load_settings(base.model_settings)
        options = load_options(self.attempts[-1])
        try:
            with replay_scope(self.attempts[0].started_at):
                return await session.agent.run(
                    self.prompt,
                    message_history=repair_messages(self.history) if self.prompt is not None else self.history,
                    deferred_tool_results=await _results(session, self.attempts),
                    conversation_id=base.conversation_id,
                    model=self.model or options.model or model,
                    model_settings=merge_model_settings(settings, options.settings),
                    instructions=load_instructions(base.model_settings) or None,
                    deps=deps,
                    usage=load_usage(base.usage),
                    usage_limits=UsageLimits(request_limit=None),
                    capabilities=[replayer, *missing_failures(session.agent)],
                )
        except _ReplayEndedError:
            return None

    async def sent(self, number: int, before: Sequence[ModelMessage]) -> list[JsonValue]:
        """Return the messages of a recorded request, in canonical form.

        Args:
            number: The number of the request, from 1.
            before: The messages of the run at the previous request.
        """
        ids = list(self.messages)
        stop = ids.index(self.recorded[number - 1].response_id)
        start = ids.index(self.recorded[number - 2].response_id) if number > 1 else self._start()
        since = list(self.messages.values())[start:stop]
        history = [cast('JsonValue', canonical_message(message)) for message in (*before, *since)]
        named = (await _sent(self.session, self.recorded[number - 1])).get('messages')
        return history if named is None else resolve_messages(cast('list[JsonValue]', named), history)

    def _start(self) -> int:
        """Return the index of the first message of the turn."""
        run_ids = {attempt.id for attempt in self.attempts}
        places = (place for place, message in enumerate(self.messages.values()) if message.run_id in run_ids)
        return next(places)


async def _sent(session: Session[Any, Any], request: RequestRecord) -> Mapping[str, JsonValue]:
    """Return the recorded data of a request that is not in the history."""
    return (
        {} if request.message_digests is None else json.loads(await session.store.read_asset(request.message_digests))
    )


async def _results(session: Session[Any, Any], attempts: Sequence[RunRecord]) -> DeferredToolResults | None:
    pause_id = load_options(attempts[-1]).resumes
    if pause_id is None:
        return None
    run_ids = {attempt.id for attempt in attempts}  # the first attempt has claimed the answers
    approvals = await session.store.approvals(status=None, version_id=pause_id, limit=10_000)
    answers = answers_of([approval for approval in approvals if approval.resumed_by in run_ids])
    pending = (await session.store.version(pause_id)).pending or ''
    return answer_approvals(await load_pause(session.store, await session.store.read_asset(pending)), answers)


async def _requests_of(store: Store, attempts: Sequence[RunRecord], script: RecoveryScript) -> list[RequestRecord]:
    """Return the requests whose responses a turn has, in order."""
    requests = [request for attempt in attempts for request in await store.requests(attempt.id)]
    request_by_response = {request.response_id: request for request in requests}
    return [request_by_response[response.id] for response in script.responses if response.id in request_by_response]


async def _difference(turn: _Turn, replayer: _Replayer) -> RequestDifference | None:
    if replayer.difference is None:
        was_cut_off = turn.attempts[-1].state in ('failed', 'interrupted')  # its last request had no response
        if replayer.number == len(replayer.recorded) and (was_cut_off or not replayer.is_over):
            return None
        probe = Probe()
        probe.leaves = replayer.leaves
        number, detail = len(replayer.recorded) + 1, 'the replay made one more.'
        if not replayer.is_over:
            number, detail = replayer.number + 1, f'the replay made {replayer.number}.'
        detail = f'{len(replayer.recorded)} requests were recorded, and {detail}'
        return RequestDifference(
            number=number,
            part='count',
            detail=detail,
            capabilities=probe.able('count').names,
            subagents=replayer.path,
        )
    number, context = replayer.difference
    recorded = replayer.recorded[number - 1]
    before: dict[str, JsonValue] = json.loads(await turn.session.store.read_asset(recorded.parameters or ''))
    after = RequestLog.parameters_of(context)
    known = await turn.sent(number, replayer.history if number > 1 else turn.history)
    probe = Probe()
    if not replayer.path:  # the origins within a subagent are not searched for
        await turn.run(turn.replayer(turn.recorded[:number], probe))
    pieces, replayed = recorded_content(before, known), probe.content or content_of(context)
    for parameters in (before, after):
        parameters['settings'] = cast('dict[str, JsonValue]', parameters['options']).pop('settings', None)
    for part in ('instructions', 'tools', 'settings', 'options'):
        if before.get(part) != after.get(part):
            origins = probe.origins(part, pieces, replayed)
            return _with_origins(replayer, number, part, _unified(before.get(part), after.get(part)), origins)
    sent = [cast('JsonValue', canonical_message(message)) for message in context.messages]
    origins = probe.origins('messages', pieces, replayed)
    pairs = enumerate(zip_longest(known, sent))
    index, (old, new) = next((pair for pair in pairs if pair[1][0] != pair[1][1]), (len(sent), (None, None)))
    return _with_origins(replayer, number, 'messages', f'message {index}:\n{_unified(old, new)}', origins)


def _with_origins(replayer: _Replayer, number: int, part: str, detail: str, origins: Origins) -> RequestDifference:
    names = () if replayer.path else origins.names
    return RequestDifference(
        number=number,
        part=part,
        detail=f'{detail}\n{origins}' if names else detail,
        capabilities=names,
        subagents=replayer.path,
    )


def _unified(before: object, after: object) -> str:
    texts = [_lines(before), _lines(after)]
    return '\n'.join(difflib.unified_diff(texts[0], texts[1], 'recorded', 'replayed', lineterm='', n=2))


def _lines(value: object) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    return text.splitlines()
