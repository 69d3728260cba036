"""One turn from a version: its files and deps are opened, its run is recorded, and all is closed again.

Not here: what is recorded when (`_recorder`), and what users call (`_version`, `_versioned_agent`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import anyio
from pydantic import TypeAdapter
from pydantic_ai import DeferredToolRequests, DeferredToolResults
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, repair_messages
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep._session_id import session_option
from pydantic_deep._spans import AGENT_NAME, CONVERSATION_ID, PARENT_ID, VERSION_ID, open_span, trace_id
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.failures import ToolFailures
from pydantic_deep.store import (
    ApprovalAnsweredError,
    BranchExistsError,
    CallRecord,
    Commit,
    RunEnd,
    RunRecord,
    Store,
    StoreError,
    StoreUnavailableError,
    UnfinishedCheckoutError,
    VersionRecord,
    new_id,
    now,
)
from pydantic_deep_backends import BackendProtocol, ProtectedChange, ReadBlob, ReadOnlyError, StateBackend, Tree
from pydantic_deep_backends.errors import BackendError

from ._settings import load_instructions, load_settings
from .errors import UnversionedBackendError, UnversionedChangesError, WorkspaceReplacedError
from .files._backend_descriptions import (
    attach_backend,
    describe_backend,
    view_of,
    with_omitted,
    with_view,
    workspace_key,
)
from .files._checkout import checkout, is_vacant
from .files._directory_claim import DirectoryClaim, find_noted, make_missing
from .files._protected_files import protected_changes, protected_states, states_before, states_key, warn_of_protected
from .files._run_files import RunFiles, UnversionedFilesWarning, open_run_files, warn_of_omitted, why_unversioned
from .files._turn_files import TurnFiles
from .recording._attempts import CrashRemnants, end_of_attempt
from .recording._deps_state import load_deps
from .recording._prompts import Prompt, encode_prompt
from .recording._recorded_run import FAILED, CallKey, RecordedRun, RunStart, load_usage
from .recording._recorder import Recorder, suspension_note
from .recording._request_log import RequestLog

_LOGGER = logging.getLogger('pydantic_deep')

ALL_RUNS = 1_000_000
"""A limit above the number of runs that crashed processes can leave."""


class TurnSession(Protocol):
    """The part of a `Session` that a turn uses."""

    @property
    def agent(self) -> AbstractAgent[Any, Any]:
        """The agent."""
        ...

    @property
    def store(self) -> Store:
        """The store."""
        ...

    def make_deps(self) -> object:
        """Return fresh deps."""
        ...

    async def history(self, record: VersionRecord) -> tuple[list[ModelMessage], list[str]]:
        """Return the messages of a version and their ids."""
        ...

    async def tree(self, digest: str) -> Tree:
        """Return a tree."""
        ...

    def request_log(self, record: VersionRecord) -> RequestLog:
        """Return what is known of the requests up to a version, for a run that goes on from it."""
        ...

    def keep(self, recording: RecordedRun, tree: Tree | None) -> None:
        """Keep at hand what the next turn will ask for."""
        ...

    @property
    def approval_timeout_seconds(self) -> float | None:
        """After how many seconds what waits is denied."""
        ...


@dataclass(kw_only=True)
class TurnOutcome:
    """What became of the run of a turn, for the caller that gets only an exception."""

    is_suspended: bool = False
    """Whether the run may have begun in the store and has no end there: it can be recovered."""


@dataclass(frozen=True, kw_only=True)
class TurnRequest:
    """What is to be done."""

    base: VersionRecord
    """The version that the turn goes on from."""
    prompt: Prompt | None = None
    results: DeferredToolResults | None = None
    """Answers for what the version waits for."""
    claim_results: Callable[[str], Awaitable[DeferredToolResults]] | None = None
    """Returns them when the run is known to the store, by its id: from then on nobody else acts on them."""
    backend: BackendProtocol | None = None
    """The files of the version, if the caller has them open."""
    deps: object = None
    """The deps to use instead of fresh ones."""
    model: Model | str | None = None
    model_settings: ModelSettings | None = None
    branch: str | None = None
    """How the branch is to be called."""
    usage_limits: UsageLimits | None = None
    run_id: str = field(default_factory=new_id)
    head_id: str | None = None
    """Where the head of the conversation is, if it is to go from there to the version that the turn ends with."""
    attempt_of: str | None = None
    """The run of a dead process that this one goes on with."""
    attempts: Sequence[RunRecord] = ()
    """That one, after those that it went on with."""
    settled: Mapping[CallKey, CallRecord] = field(default_factory=dict[CallKey, CallRecord])
    """What these have begun."""
    asked_by: str | None = None
    """Under which of them calls of the last response of the base are noted."""
    lost: RunUsage = field(default_factory=RunUsage)
    """What they have used that is neither in the usage of the base nor told again."""
    earlier: RunUsage = field(default_factory=RunUsage)
    """What they have used until the base, and what is lost."""
    parent_id: str | None = None
    """The parent of the version that it ends with, if that is not the base."""
    pause_id: str | None = None
    """The version that `results` answer, if that is not the base."""
    left: CrashRemnants | None = None
    """The files that the dead process left, where they are not in their directory any more."""
    left_deps: str | None = None
    """The state of deps that the dead process left, where it is newer than that of the version."""
    can_pause: bool = False
    """Whether the run must be able to wait, whatever the agent says."""
    outcome: TurnOutcome = field(default_factory=TurnOutcome)
    """Filled in when the turn fails."""


@dataclass(frozen=True, kw_only=True)
class OpenTurn:
    """A turn that is ready to run."""

    arguments: dict[str, Any]
    """What `agent.run` takes."""
    recording: RecordedRun
    """Its `tip` is the version that the turn ends with, when the run has ended."""
    backend: BackendProtocol | None
    """The files of the deps."""


@asynccontextmanager
async def open_turn(session: TurnSession, request: TurnRequest) -> AsyncGenerator[OpenTurn]:
    """Open the files of a version, make its deps, and record that a run begins."""
    base = request.base
    about = {AGENT_NAME: base.agent_name, CONVERSATION_ID: base.conversation_id, PARENT_ID: base.id}
    with open_span(f'turn {base.agent_name}', about) as span:
        async with _opened(session, request) as turn:
            yield turn
        span.set_attributes({VERSION_ID: turn.recording.tip.id, 'pydantic_deep.version.kind': turn.recording.tip.kind})


@asynccontextmanager
async def _opened(session: TurnSession, request: TurnRequest) -> AsyncGenerator[OpenTurn]:
    base = request.base
    if request.branch is not None:  # before anything is paid for
        taken = {branch.name for branch in await session.store.branches(base.conversation_id)}
        if request.branch in taken:
            raise BranchExistsError(request.branch)
    if request.claim_results is not None:
        await _refuse_if_taken(session.store, base.id)
    opened = await open_files(session, request)
    run: RunRecord | None = None
    try:
        omitted = () if opened is None else opened.files.omitted
        warn_of_omitted(omitted)
        if opened is not None:
            base = opened.base
        messages, ids = await session.history(base)
        given = request.deps if request.deps is not None else session.make_deps()
        state = request.left_deps or base.deps
        deps = await load_deps(session.store, state, given, None if opened is None else opened.files.files.backend)
        settings, model = load_settings(base.model_settings)
        backend = getattr(deps, 'backend', None) if opened is None else opened.files.files.backend
        began_with = request.attempt_of or (base.run_id if request.base.kind == 'pause' else None)
        is_in_place = opened is None or opened.claim is not None
        found = None if opened is None else opened.protected
        protected = await states_before(session.store, began_with, backend, in_place=is_in_place, found=found)
        states = {} if protected is None else {states_key(in_place=is_in_place): protected}
        run = await _begin(session, request, base, states)
        results = request.results
        if request.claim_results is not None:
            try:
                results = await request.claim_results(run.id)
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
            branch_name=request.branch,
            attempts=request.attempts,
            settled=request.settled,
            asked_by=request.asked_by,
            lost=request.lost,
            earlier=request.earlier,
            parent_id=request.parent_id,
            pause_id=_pause_id(request),
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
        limits = request.usage_limits or (deps.usage_limits if isinstance(deps, DeepAgentDeps) else None)
        arguments: dict[str, Any] = {
            'user_prompt': request.prompt,
            'message_history': repair_messages(messages) if _needs_repair(request) else messages,
            'deferred_tool_results': results,
            'conversation_id': base.conversation_id,
            'run_id': request.run_id,
            'model': request.model or model,
            'model_settings': merge_model_settings(settings, request.model_settings),
            'instructions': load_instructions(base.model_settings) or None,
            'deps': deps,
            'usage': load_usage(base.usage) + request.lost,
            'usage_limits': limits or UsageLimits(request_limit=None),
            'capabilities': [recorder, *missing_failures(session.agent)],
        }
        if request.can_pause:
            arguments['output_type'] = [session.agent.output_type, DeferredToolRequests]
        turn = OpenTurn(
            arguments=arguments,
            recording=recording,
            backend=None if opened is None else opened.files.files.backend,
        )
        try:
            yield turn
        except BaseException as error:
            if not recording.is_begun:  # such as for a model that is not known: no recorder has seen it
                await _end_unbegun(session, request, run, error)
            elif not recording.is_ended:
                request.outcome.is_suspended = True
            raise
        session.keep(recording, None if opened is None else opened.files.tree)
        warn_of_omitted(() if opened is None else [file for file in opened.files.omitted if file not in omitted])
        brought = () if opened is None else opened.brought  # that was said when they were written
        warn_of_protected([each for each in recording.protected_changes if each not in brought])
    finally:
        if opened is not None:
            with anyio.CancelScope(shield=True):
                await opened.files.files.aclose()
                if run is None:
                    await _undo(session.store, opened, request.base)


async def _undo(store: Store, opened: OpenFiles, base: VersionRecord) -> None:
    """Give files back to a version from which no run has begun; what was edited in their directory is that again."""
    if opened.claim is not None:
        await opened.claim.let_go(base.id)
        if opened.base.id != base.id:
            await store.delete(opened.base.id)


def missing_failures(agent: AbstractAgent[Any, Any]) -> list[ToolFailures]:
    """Return what makes a failed result of what a tool raises, if the agent does not have it: no tool ends a turn."""
    own: list[object] = []
    agent.root_capability.apply(own.append)
    return [] if any(isinstance(each, ToolFailures) for each in own) else [ToolFailures()]


def _needs_repair(request: TurnRequest) -> bool:
    """Return whether a history may have calls without results: not after a turn that ended well, however long it is."""
    is_whole = request.base.kind == 'turn' and request.base.state == 'complete'
    return request.prompt is not None and not is_whole


async def _end_unbegun(session: TurnSession, request: TurnRequest, run: RunRecord, error: BaseException) -> None:
    """End a run that nothing has come of, so that nobody recovers it; if the store cannot take that, it is given up.

    One that recovers another is given up too if it was stopped or the store failed: it is to be recovered again.
    """
    is_over = False
    if request.attempt_of is None or (isinstance(error, Exception) and not isinstance(error, FAILED)):
        with anyio.CancelScope(shield=True), suppress(StoreError):  # the error that ends the turn is the one to raise
            with suppress(ValueError):  # the store has no such run
                await session.store.commit(Commit(ends=[RunEnd(run_id=run.id, state='failed')]))
            is_over = True
    if not is_over:
        session.store.mark_orphaned(run.id)
        request.outcome.is_suspended = True
        error.add_note(suspension_note(run.id, request.base.id))


@dataclass(frozen=True, kw_only=True)
class OpenFiles:
    files: TurnFiles
    claim: DirectoryClaim | None
    """Of their directory, if they are in it and not in a view."""
    base: VersionRecord
    """The version with the files as they are: the one asked for, or an edit of it."""
    protected: Mapping[str, str] | None = None
    """The states of protected files before those of the version were brought into the directory; `None` if they were
    there."""
    brought: tuple[ProtectedChange, ...] = ()
    """The protected files that bringing them has changed."""


async def open_files(session: TurnSession, request: TurnRequest) -> OpenFiles | None:
    """Open the files of a version: in their directory if it holds them and nobody works in it, else in a view."""
    base, store = request.base, session.store
    if base.tree is None:
        return None
    backend = request.backend
    if backend is None and base.backend is not None:
        backend = attach_backend(base.backend)
    described = None if backend is None else describe_backend(backend)
    if described is None:
        return await _open_claimed(session, request, backend, None)
    claim = DirectoryClaim(store=store, workspace=workspace_key(described), run_id=request.run_id, backend=backend)
    try:
        held = await _take(claim, request)
        there = request if held is None else replace(request, base=held)
        return await _open_claimed(session, there, backend, None if held is None else claim)
    except (WorkspaceReplacedError, ReadOnlyError) as error:
        await claim.let_go(base.id)
        if isinstance(error, WorkspaceReplacedError) and request.attempt_of is None:
            raise
        return await _open_claimed(session, request, backend, None)  # what a crashed process did there is in the store
    except BaseException:
        await claim.let_go(base.id)
        raise


async def refuse_replaced(session: TurnSession, base: VersionRecord, backend: BackendProtocol | None) -> None:
    """Refuse a version whose directory is another one now, with files of its own, before a run is made for a turn.

    The turn looks again when it has claimed the directory: this says what is true now.

    Args:
        session: The session of the turn.
        base: The version.
        backend: Its files, if the caller has them open.

    Raises:
        WorkspaceReplacedError: A turn from the version would be refused.
    """
    if backend is None and base.backend is not None:
        backend = attach_backend(base.backend)
    described = None if backend is None else describe_backend(backend)
    if backend is None or described is None or base.tree is None:
        return
    noted = await session.store.workspace(workspace_key(described))
    if noted is None or (noted.version_id, noted.run_id) != (base.id, None):
        return  # the turn will work on a view
    claim = DirectoryClaim(store=session.store, workspace=noted.backend, run_id='', backend=backend, noted=noted)
    if await claim.is_same_directory() is not False:
        return
    wanted = await session.tree(base.tree)
    # Where it cannot be looked at, the turn says so or works on a view; a missing directory will be made.
    with suppress(UnversionedBackendError, BackendError, OSError):
        try:
            await checkout(
                backend, current=None, target=wanted, known=[wanted], read_blob=_reader(session.store), only_looks=True
            )
        except UnversionedChangesError as error:
            raise WorkspaceReplacedError(claim.workspace, base.id, error.paths, can_be_kept=error.can_be_kept) from None


async def _take(claim: DirectoryClaim, request: TurnRequest) -> VersionRecord | None:
    """Claim a directory for a run, and return the version that it holds; `None` if the run is to work on a view."""
    try:
        if await claim.take(request.base.id):
            return request.base
        edit = await _abandoned_edit(claim, request.base)
        return edit if edit is not None and await claim.take(edit.id) else None
    except UnfinishedCheckoutError:
        if request.attempt_of is None:
            raise
        return None  # what a dead process did there is in the store, and is gone on with in a view


async def _abandoned_edit(claim: DirectoryClaim, base: VersionRecord) -> VersionRecord | None:
    """Return the edit of a version that a directory holds for a run which died before it began; `None` if it has none."""
    held = await claim.store.workspace(claim.workspace)
    if held is None or held.run_id is None or await claim.store.run(held.run_id) is not None:
        return None
    edit = await find_noted(claim.store, held.version_id)
    return edit if edit is not None and edit.kind == 'edit' and edit.parent_id == base.id else None


async def _open_claimed(
    session: TurnSession, request: TurnRequest, backend: BackendProtocol | None, claim: DirectoryClaim | None
) -> OpenFiles:
    """Open files in the directory that was claimed, or a view of them where none was."""
    base, store, left = request.base, session.store, request.left
    in_place = claim is not None
    tree = await session.tree((base.tree or '') if left is None or in_place else left.tree)

    is_same = claim is None or await claim.is_same_directory()
    if in_place:
        await make_missing(backend)
    read_blob = _reader(store)
    files = await open_run_files(
        backend or StateBackend(), tree=tree, read_blob=read_blob, in_place=in_place, view=view_of(base.backend)
    )
    if files is None:
        raise DeepAgentError(why_unversioned(backend or StateBackend()) or 'The files cannot be versioned.')
    base = base._replace(backend=with_view(_description(base, backend), files.view))
    turn_files = TurnFiles(
        files=files,
        tree=tree,
        at=0 if left is None else left.at,
        is_volatile=not in_place or isinstance(files.backend, StateBackend),
    )
    if claim is None:
        return OpenFiles(files=turn_files, claim=None, base=base)
    try:
        there = replace(request, base=base)
        protected, brought = None, ()
        if not is_same:
            protected, brought = await _settle(session, there, turn_files, claim, is_other=is_same is False)
        return replace(await _take_edits(there, turn_files, claim), protected=protected, brought=brought)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await files.aclose()
        raise


def _reader(store: Store) -> ReadBlob:
    async def read_blob(digest: str) -> bytes:
        return (await store.asset(digest)).data

    return read_blob


async def _settle(
    session: TurnSession, request: TurnRequest, files: TurnFiles, claim: DirectoryClaim, *, is_other: bool
) -> tuple[Mapping[str, str] | None, tuple[ProtectedChange, ...]]:
    """Bring the files of a version into a directory that may never have had them, unless it has files of its own.

    Returns the states of its protected files before, if any were brought, and what has changed of them.

    Args:
        session: The session of the turn.
        request: The turn, from the version that is noted of the directory.
        files: Those of the directory, with the tree of the version.
        claim: Of the directory.
        is_other: Whether it is another directory for certain. If not, its files are edits, unless it has none.

    Raises:
        WorkspaceReplacedError: It has files that the version does not have.
    """
    backend, read_blob = files.files.backend, _reader(claim.store)
    here = (await files.files.capture(files.tree, is_full=True)).tree
    wanted = files.tree if request.left is None else await session.tree(request.left.tree)
    if not is_other and (here == wanted or not await is_vacant(backend, here, wanted, read_blob)):
        return None, ()
    states = await protected_states(backend)
    if here not in (files.tree, wanted):
        try:
            await checkout(backend, current=None, target=wanted, known=[files.tree], read_blob=read_blob)
        except UnversionedChangesError as error:
            raise WorkspaceReplacedError(
                claim.workspace, request.base.id, error.paths, can_be_kept=error.can_be_kept
            ) from None
        _LOGGER.info('The files of the version %s were brought into %s', request.base.id, claim.workspace)
    await claim.store.commit(Commit(workspaces=[await claim.note(request.base.id, claim.run_id)]))
    changes = await protected_changes(states, backend, in_place=True)
    warn_of_protected(changes, by=f'Bringing the files of the version {request.base.id} here')
    return states, changes


def _description(base: VersionRecord, backend: BackendProtocol | None) -> str | None:
    """Return what is kept of the backend of a turn: what it is now, where that has the files of the version's."""
    described = None if backend is None else describe_backend(backend)
    if described is None or base.backend is None or workspace_key(described) != workspace_key(base.backend):
        return base.backend
    return described


async def _take_edits(request: TurnRequest, files: TurnFiles, claim: DirectoryClaim) -> OpenFiles:
    """Make a version of what was edited in the directory since the version that it holds."""
    base, store = request.base, claim.store
    new = await files.capture(is_full=True)
    if new.tree != base.tree and request.attempt_of is None:
        edit = base.child(
            'edit',
            state='complete',
            output=None,
            pending=None,
            tree=new.tree,
            backend=with_omitted(base.backend, new.omitted),
        )
        holds = await claim.note(edit.id, claim.run_id)
        await store.commit(Commit(assets=new.assets, nodes=new.nodes, versions=[edit], workspaces=[holds]))
        base = edit
    elif new.tree != base.tree:
        await store.commit(Commit(assets=new.assets, nodes=new.nodes))
    files.stored(new)
    return OpenFiles(files=files, claim=claim, base=base)


async def open_files_of(backend: BackendProtocol, read_blob: Callable[[str], Awaitable[bytes]]) -> RunFiles | None:
    """Return the files of a backend as they are; `None`, with a warning, if they cannot be versioned."""
    reason = why_unversioned(backend)
    if reason is not None:
        warnings.warn(reason, UnversionedFilesWarning, stacklevel=4)
        return None
    return await open_run_files(backend, tree=Tree(), read_blob=read_blob, in_place=True)


async def _begin(
    session: TurnSession, request: TurnRequest, base: VersionRecord, protected: Mapping[str, Mapping[str, str]]
) -> RunRecord:
    run = RunRecord(
        id=request.run_id,
        conversation_id=base.conversation_id,
        base_id=base.id,
        agent_name=base.agent_name,
        attempt_of=request.attempt_of,
        parent_run_id=None,
        state='running',
        owner=None,
        prompt=None if request.prompt is None else encode_prompt(request.prompt),
        options=json.dumps(
            {
                'model': request.model if isinstance(request.model, str) else None,
                'model_settings': _json_settings(request.model_settings),
                'resumes': _pause_id(request),
                'branch': request.branch,
                'head': request.head_id,
                **protected,
                **session_option(),
                'after': await _suspended_before(session, request),
                'usage_limits': None
                if request.usage_limits is None
                else _limits().dump_python(request.usage_limits, mode='json', exclude_defaults=True),
            }
        ),
        usage='{}',
        cost=None,
        error=None,
        trace_id=trace_id(),
        started_at=now(),
        ended_at=None,
    )
    commit = Commit(runs=[run])
    if request.attempt_of is not None:  # one ends as the other begins: whoever dies in between leaves one to recover
        ended = await end_of_attempt(session.store, request.attempt_of)
        commit = replace(commit, fence=request.attempt_of, ends=[ended])
    try:
        await run_to_completion(session.store.commit(commit))
    except (asyncio.CancelledError, StoreUnavailableError) as error:  # the store may have it all the same
        await _end_unbegun(session, request, run, error)
        raise
    return run


async def _suspended_before(session: TurnSession, request: TurnRequest) -> list[str]:
    """Return the suspended runs of the conversation that a new turn moves on from, so that none resumes by itself."""
    if request.attempt_of is not None:
        return []
    running = await session.store.runs(conversation_id=request.base.conversation_id, states=['running'])
    if not running:
        return []
    orphans = {run.id for run in await session.store.orphans(ALL_RUNS)}
    return [run.id for run in running if run.id in orphans]


async def _refuse_if_taken(store: Store, version_id: str) -> None:
    """Refuse to act on answers that another run acts on, before that run finds its directory claimed by this one."""
    for each in await store.approvals(status=None, version_id=version_id, limit=10_000):
        if each.resumed_by is not None:
            detail = f'The run {each.resumed_by} has acted on it already.'
            raise ApprovalAnsweredError(each.id, each.status, each.decided_by, each.decided_at, detail)


def _pause_id(request: TurnRequest) -> str | None:
    """Return the version that the answers of a turn are for."""
    if request.results is None and request.claim_results is None:
        return None
    return request.pause_id or request.base.id


def load_limits(options: Mapping[str, Any]) -> UsageLimits | None:
    """Return the limits that a run was given, from the options with which it was recorded."""
    said = options.get('usage_limits')
    return None if said is None else _limits().validate_python(said)


@cache
def _limits() -> TypeAdapter[UsageLimits]:
    return TypeAdapter(UsageLimits)


def _json_settings(settings: ModelSettings | None) -> dict[str, object]:
    kept: dict[str, object] = {}
    for name, value in (settings or {}).items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        kept[name] = value
    return kept
