"""One turn from a version: opens its files and deps, records its run, and closes everything again.

Not here: when each step is recorded (`_recorder`), and the public classes (`_version`, `_versioned_agent`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from opentelemetry.trace import Link
from pydantic_ai import AgentRunResult, DeferredToolRequests, DeferredToolResults, RunCancelled
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import repair_messages
from pydantic_ai.output import OutputSpec
from pydantic_ai.settings import merge_model_settings
from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_deep._messages.usage_json import load_usage
from pydantic_deep._pause_check import has_output_validators, with_pause
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep._session_id import current_session_id
from pydantic_deep._spans import (
    AGENT_NAME,
    CONVERSATION_ID,
    PARENT_ID,
    VERSION_ID,
    link_to,
    open_span,
    span_id,
    submission_links,
    trace_id,
)
from pydantic_deep.approvals import NothingPendingError
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import TurnOptionError
from pydantic_deep.store import (
    ApprovalAnsweredError,
    BranchExistsError,
    Commit,
    RunEnd,
    RunRecord,
    RunTakenOverError,
    Store,
    StoreError,
    StoreUnavailableError,
    VersionRecord,
    new_id,
    now,
)
from pydantic_deep.streaming import dump_failure
from pydantic_deep_backends import BackendProtocol

from ._run_options import RunOptions, json_settings, load_options
from ._session import Session
from ._settings import load_instructions, load_settings
from ._turn_options import TurnOptions
from .files._open_files import FilesRequest, open_files, refuse_without_files
from .files._protected_files import states_before, warn_of_protected
from .files._run_files import warn_of_omitted
from .options._external_tools import ExternalTools
from .pauses._answers import claim, decide
from .pauses._pause_histories import load_pause
from .recording._attempts import CrashedRun, end_of_attempt
from .recording._capabilities import missing_failures, warn_of_other_files
from .recording._deps_state import load_deps
from .recording._prompts import encode_prompt
from .recording._recorded_run import FAILED, RecordedRun
from .recording._recorder import Recorder
from .recording._run_end import state_after, suspension_note
from .recording._run_start import RunStart

ALL_RUNS = 1_000_000
"""A limit above any number of runs that crashed processes can leave."""


@dataclass(kw_only=True)
class TurnOutcome:
    """The outcome of a failed turn, for a caller that receives only an exception."""

    is_suspended: bool = False
    """Whether the run may have begun in the store and has no end there, so that it can be recovered."""


@dataclass(frozen=True, kw_only=True)
class TurnRequest(FilesRequest):
    """A request to run a turn: the base version, the options, and the crashed run to resume."""

    options: TurnOptions
    head_id: str | None = None
    """The head of the conversation, if the end of the turn moves it from there."""
    parent_id: str | None = None
    """The parent of the version that the turn ends with, if it is not the base."""
    crashed: CrashedRun = field(default_factory=CrashedRun)
    """The crashed run that the turn resumes."""
    left_deps: str | None = None
    """The digest of the deps state that the crashed run left, if it is newer than that of the version."""
    results: DeferredToolResults | None = None
    """The answers that the crashed run has claimed."""
    pause_id: str | None = None
    """The version with the answers that the crashed run uses."""
    keeps_run: bool = False
    """Whether the run is suspended instead of ended if it is stopped or the store fails before it has done anything."""
    outcome: TurnOutcome = field(default_factory=TurnOutcome)
    """The outcome, filled in when the turn fails."""

    @property
    def is_resumption(self) -> bool:
        """Whether the turn uses answers to the pending approvals of its base."""
        return self.options.prompt is None and self.attempt_of is None

    @property
    def pause(self) -> str | None:
        """The version with the answers that the turn uses; `None` for a crashed run that stored a step with them."""
        return self.base.id if self.is_resumption else None if self.results is None else self.pause_id


@dataclass(frozen=True, kw_only=True)
class OpenTurn:
    """A turn that is ready to run."""

    arguments: Mapping[str, Any]
    """The arguments of `agent.run`."""
    deps: Any
    """The deps that `arguments` passes to the run."""
    usage: RunUsage
    """The usage of the conversation, which the run adds to."""
    recording: RecordedRun
    """The recording. When the run has ended, `tip` is the version that the turn ends with."""
    backend: BackendProtocol | None
    """The files of the deps; `None` if they are not versioned."""

    def result_despite(self, cancelled: RunCancelled) -> AgentRunResult[Any]:
        """Return the result of a turn whose end was stored before it was cancelled.

        Raises:
            RunCancelled: The turn was cancelled before its end.
        """
        if self.recording.result is None:
            raise cancelled
        return self.recording.result


def turn_request(base: VersionRecord, options: TurnOptions, backend: BackendProtocol | None) -> TurnRequest:
    """Check the options of a new turn, and return its request."""
    options.check()
    return TurnRequest(
        base=base,
        options=options,
        backend=backend,
        run_id=options.run_id or new_id(),
        head_id=base.id if options.moves_head else None,
    )


async def run_turn(session: Session[Any, Any], request: TurnRequest) -> VersionRecord:
    """Run a turn, and return the version that it ends with."""
    async with open_turn(session, request) as turn:
        try:
            await session.agent.run(**turn.arguments, cancellation_token=request.options.cancellation_token)
        except RunCancelled as cancelled:
            turn.result_despite(cancelled)
    return turn.recording.tip


@asynccontextmanager
async def open_turn(session: Session[Any, Any], request: TurnRequest) -> AsyncGenerator[OpenTurn]:
    """Open the files of a version, create its deps, and record the start of a run."""
    base = request.base
    branch = request.options.branch
    if branch is not None:  # before answers are stored and anything is paid for
        taken = {existing.name for existing in await session.store.branches(base.conversation_id)}
        if branch in taken:
            raise BranchExistsError(branch)
    deps = request.options.deps if request.options.deps is not None else session.make_deps()
    if request.backend is None:
        refuse_without_files(base, deps, is_new=request.options.deps is None and not session.has_make_deps)
    pending = None
    if request.is_resumption:
        request = replace(request, options=await _with_options_of_pause(session.store, base, request.options))
        pending = await store_answers(session.store, base, request.options, resumes=True)
    attributes = {AGENT_NAME: base.agent_name, CONVERSATION_ID: base.conversation_id, PARENT_ID: base.id}
    links = await _links(session.store, request)
    with open_span(f'turn {base.agent_name}', attributes, links=links) as span:
        async with _opened(session, request, pending, deps) as turn:
            yield turn
        span.set_attributes({VERSION_ID: turn.recording.tip.id, 'pydantic_deep.version.kind': turn.recording.tip.kind})


async def _links(store: Store, request: TurnRequest) -> list[Link]:
    """Return the links to the span of the run that paused, or of the first attempt at a run that crashed, and to the
    span that submitted a queued turn.
    """
    attempts = request.crashed.attempts
    run = attempts[0] if attempts else None
    if request.is_resumption and request.base.run_id is not None:
        run = await store.run(request.base.run_id)
    earlier = [] if run is None else link_to(run.trace_id, load_options(run).span_id)
    return [*earlier, *submission_links()]


@asynccontextmanager
async def _opened(
    session: Session[Any, Any], request: TurnRequest, pending: DeferredToolRequests | None, run_deps: object
) -> AsyncGenerator[OpenTurn]:
    base = request.base
    options = request.options
    output_type = _output_type(session.agent, options, is_recovery=request.attempt_of is not None)
    if pending is not None:
        await _refuse_if_taken(session.store, base.id)
    opened = await open_files(session.trees, request)
    run: RunRecord | None = None
    try:
        omitted = () if opened is None else opened.files.omitted
        warn_of_omitted(omitted)
        if opened is not None:
            base = opened.base
        messages, ids = await session.history(base)
        state = request.left_deps or base.deps
        deps = await load_deps(session.store, state, run_deps, request.backend if opened is None else opened.backend)
        warn_of_other_files(session.agent, deps)
        settings, model = load_settings(base.model_settings)
        backend = getattr(deps, 'backend', None) if opened is None else opened.backend
        began_with = request.attempt_of or (base.run_id if request.base.kind == 'pause' else None)
        is_in_place = opened is None or opened.claim is not None
        states = None if opened is None else opened.protected
        protected = await states_before(session.store, began_with, backend, in_place=is_in_place, states=states)
        run = await _begin(session, request, base, protected, is_in_place=is_in_place)
        results = request.results
        if pending is not None:
            try:
                results = await claim(session.store, request.base.id, pending, run.id)
            except BaseException as error:
                await _end_unbegun(session, request, run, error)
                raise
        start = RunStart(
            base=base,
            messages=messages,
            message_ids=ids,
            run_record=run,
            files=None if opened is None else opened.files,
            claim=None if opened is None else opened.claim,
            branch_name=options.branch,
            crashed=request.crashed,
            parent_id=request.parent_id,
            pause_id=request.pause,
            head_id=request.head_id,
            has_loaded_deps=state is not None,
            requests=session.request_log(base),
            protected=protected,
        )
        recording = RecordedRun(store=session.store, start=start)
        timeout = session.approval_timeout_seconds
        recorder = Recorder(
            store=session.store,
            recording=recording,
            expires_at=None if timeout is None else now() + int(timeout * 1_000_000),
        )
        limits = options.usage_limits or (deps.usage_limits if isinstance(deps, DeepAgentDeps) else None)
        usage = load_usage(base.usage) + request.crashed.lost
        arguments: dict[str, Any] = {
            'user_prompt': options.prompt,
            'message_history': repair_messages(messages) if _needs_repair(request) else messages,
            'deferred_tool_results': results,
            'conversation_id': base.conversation_id,
            'run_id': request.run_id,
            'model': options.model or model,
            'model_settings': merge_model_settings(settings, options.model_settings),
            'instructions': load_instructions(base.model_settings) or None,
            'deps': deps,
            'usage': usage,
            'usage_limits': limits or UsageLimits(request_limit=None),
            'capabilities': [recorder, *missing_failures(session.agent)],
        }
        if options.external_tools:
            arguments['capabilities'].append(
                ExternalTools(tools=options.external_tools, choice=options.tool_choice or ())
            )
        if output_type is not None:
            arguments['output_type'] = output_type
        turn = OpenTurn(
            arguments=arguments,
            deps=deps,
            usage=usage,
            recording=recording,
            backend=None if opened is None else opened.backend,
        )
        try:
            yield turn
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await recorder.end_lost()
            if not recording.is_begun:  # such as for an unknown model: no recorder has observed the run
                await _end_unbegun(session, request, run, error)
            elif not recording.is_ended:
                request.outcome.is_suspended = True
            raise
        session.cache_run(recording, None if opened is None else opened.files.tree)
        warn_of_omitted(() if opened is None else [file for file in opened.files.omitted if file not in omitted])
        brought = () if opened is None else opened.brought  # a warning named them when they were written
        warn_of_protected([change for change in recording.protected_changes if change not in brought])
    finally:
        if opened is not None:
            with anyio.CancelScope(shield=True):
                await opened.aclose()
                if run is None:
                    await opened.undo(request.base)


async def _with_options_of_pause(store: Store, base: VersionRecord, options: TurnOptions) -> TurnOptions:
    """Return the options of a turn that resumes, with the external tools and output schema of the turn that paused."""
    paused = None if base.run_id is None else await store.run(base.run_id)
    if paused is None:
        return options
    earlier = load_options(paused)
    return replace(
        options,
        external_tools=earlier.external_tools if options.external_tools is None else options.external_tools,
        output_schema=earlier.output_schema if options.output_schema is None else options.output_schema,
    )


def _output_type(agent: AbstractAgent[Any, Any], options: TurnOptions, *, is_recovery: bool) -> OutputSpec[Any] | None:
    """Return the output type of a turn; `None` if it is that of the agent.

    A turn with external tools pauses for their results, and a recovered one for calls that may have run before.

    Raises:
        TurnOptionError: The turn needs another output type than the agent, which has output validators.
    """
    if options.output_schema is not None:
        if has_output_validators(agent):
            raise TurnOptionError(
                'output_schema',
                'the agent has output validators, which accept only its own output type. Omit the schema, or ask an '
                'agent without output validators.',
            )
        from .options._output_schema import output_type_of  # it requires an extra

        return [output_type_of(options.output_schema), DeferredToolRequests]
    output_type = with_pause(agent.output_type) if is_recovery or options.external_tools else None
    if output_type is None or not has_output_validators(agent):
        return output_type
    if options.external_tools:
        raise TurnOptionError(
            'external_tools',
            'the agent has output validators, so that its output type must itself allow a pause for their results. '
            'Add `DeferredToolRequests` to its `output_type`.',
        )
    return None  # such an agent cannot pause, in this turn as in any other


def _needs_repair(request: TurnRequest) -> bool:
    """Return whether a history may have calls without results. After a complete turn it has none."""
    is_whole = request.base.kind == 'turn' and request.base.state == 'complete'
    return request.options.prompt is not None and not is_whole


async def _end_unbegun(session: Session[Any, Any], request: TurnRequest, run: RunRecord, error: BaseException) -> None:
    """End a run that has done nothing, so that it is not recovered; if the store refuses this, mark the run orphaned.

    A run that resumes a crashed one, or is to be kept, is also marked orphaned if it was stopped or the store failed, so
    that it is recovered.
    """
    is_over = False
    is_kept = request.keeps_run or request.attempt_of is not None
    if not is_kept or (isinstance(error, Exception) and not isinstance(error, FAILED)):
        state = state_after(error)
        # One that was refused has no error: its caller has it, and the run has done nothing.
        end = RunEnd(
            run_id=run.id, state=state, error=None if state == 'failed' else dump_failure(error, max_chars=2000)
        )
        with anyio.CancelScope(shield=True), suppress(StoreError):  # the error that ends the turn is the one to raise
            with suppress(RunTakenOverError):  # or the commit of the run failed, and the store has no such run
                await session.store.commit(Commit(fence=run.id, ends=[end]))
            is_over = True
    if not is_over:
        session.store.mark_orphaned(run.id)
        request.outcome.is_suspended = True
        error.add_note(suspension_note(run.id, request.base.id))


async def _begin(
    session: Session[Any, Any],
    request: TurnRequest,
    base: VersionRecord,
    protected: Mapping[str, str] | None,
    *,
    is_in_place: bool,
) -> RunRecord:
    options = request.options
    run = RunRecord(
        id=request.run_id,
        conversation_id=base.conversation_id,
        base_id=base.id,
        agent_name=base.agent_name,
        attempt_of=request.attempt_of,
        parent_run_id=None,
        state='running',
        owner=None,
        prompt=None if options.prompt is None else encode_prompt(options.prompt),
        options=RunOptions(
            model=options.model if isinstance(options.model, str) else None,
            model_settings=json_settings(options.model_settings),
            usage_limits=options.usage_limits,
            branch=options.branch,
            external_tools=options.external_tools,
            tool_choice=options.tool_choice,
            output_schema=options.output_schema,
            head=request.head_id,
            resumes=request.pause,
            after=await _suspended_before(session, request),
            session_id=current_session_id(),
            span_id=span_id(),
            protected=protected if is_in_place else None,
            protected_in_view=None if is_in_place else protected,
        ).dump(),
        usage='{}',
        cost=None,
        error=None,
        trace_id=trace_id(),
        started_at=now(),
        ended_at=None,
    )
    commit = Commit(runs=[run], exclusive=options.exclusive)
    if request.attempt_of is not None:  # one commit ends the attempt and begins the next: a crash leaves one to recover
        ended = await end_of_attempt(session.store, request.attempt_of)
        commit = replace(commit, fence=request.attempt_of, ends=[ended])
    try:
        await run_to_completion(session.store.commit(commit))
    except (asyncio.CancelledError, StoreUnavailableError) as error:  # the store may have committed it nevertheless
        await _end_unbegun(session, request, run, error)
        raise
    return run


async def _suspended_before(session: Session[Any, Any], request: TurnRequest) -> list[str]:
    """Return the suspended runs of the conversation that a new turn moves on from, so that none resumes by itself."""
    if request.attempt_of is not None:
        return []
    running = await session.store.runs(conversation_id=request.base.conversation_id, states=['running'])
    if not running:
        return []
    orphans = {run.id for run in await session.store.orphans(ALL_RUNS)}
    return [run.id for run in running if run.id in orphans]


async def _refuse_if_taken(store: Store, version_id: str) -> None:
    """Raise if another run has claimed the answers, before it sees its directory claimed by this run."""
    for approval in await store.approvals(status=None, version_id=version_id, limit=10_000):
        if approval.resumed_by is not None:
            detail = f'The run {approval.resumed_by} has acted on it already.'
            raise ApprovalAnsweredError(approval.id, approval.status, approval.decided_by, approval.decided_at, detail)


async def store_answers(
    store: Store, base: VersionRecord, options: TurnOptions, *, resumes: bool
) -> DeferredToolRequests:
    """Store the answers of a turn, and return the pending calls of its base."""
    if base.pending is None:
        raise NothingPendingError(f'The version {base.id} has no pending approvals: it is {base.state}.')
    await store.version(base.id)  # raises if the version was deleted, and its approvals with it
    pending = await load_pause(store, await store.read_asset(base.pending))
    if options.answers:
        await decide(store, base, pending, options.answers, by=options.by, reason=options.reason, resumes=resumes)
    return pending
