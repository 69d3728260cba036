"""Recovery of crashed runs: finished calls are not repeated, safe calls run again, all others need an approval.

A crashed run stays `running` until one commit begins the next attempt at it, so a crash during recovery leaves a run
that can be recovered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from pydantic_ai import CancellationToken, DeferredToolResults, RunCancelled
from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse, UserPromptPart
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.usage_json import load_usage
from pydantic_deep._session_id import session_scope
from pydantic_deep.approvals import answer_approvals
from pydantic_deep.store import (
    ApprovalAnsweredError,
    Commit,
    RunRecord,
    Store,
    VersionFilter,
    VersionNotFoundError,
    VersionRecord,
)
from pydantic_deep.streaming import dump_failure
from pydantic_deep.versions._run_options import load_options
from pydantic_deep.versions._session import Session
from pydantic_deep.versions._turn import ALL_RUNS, TurnRequest, run_turn
from pydantic_deep.versions._turn_options import TurnOptions
from pydantic_deep.versions.files._backend_descriptions import workspace_key
from pydantic_deep.versions.files._directory_claim import DirectoryClaim
from pydantic_deep.versions.pauses._answers import answers_of
from pydantic_deep.versions.pauses._pause_histories import load_pause
from pydantic_deep.versions.recording._attempts import (
    CrashedRun,
    attempts_of,
    crash_remnants,
    end_of_attempt,
    left_deps,
    runs_called,
    settled_calls,
    usage_of_requests,
    usage_of_runs,
)
from pydantic_deep.versions.recording._ledger import result_parts
from pydantic_deep.versions.recording._prompts import decode_prompt
from pydantic_deep.versions.recording._recorded_run import RecordedRun
from pydantic_deep.versions.recording._run_start import RunStart
from pydantic_deep.versions.recording._stored_history import response_id_of

from ._suspended_runs import has_moved_on, last_version

_LOGGER = logging.getLogger('pydantic_deep')


async def cancel(session: Session[Any, Any], run_id: str) -> bool:
    """End a suspended run with a version of its work, and return whether it was suspended."""
    store = session.store
    run = await store.run(run_id)
    if run is None or run.parent_run_id is not None or not await store.claim_run(run.id):
        return False
    cancelled = RunCancelled('The run was cancelled while it was suspended.')
    with _orphaned_on_failure(store, run.id):
        await _end_children(store, run.id)
        newest = await last_version(store, run)
        await (
            _end(store, run, cancelled, state='interrupted')
            if newest is None
            else _close(session, run, newest, cancelled)
        )
    return True


async def recover(
    session: Session[Any, Any],
    run_id: str | None = None,
    make_token: Callable[[str], CancellationToken] | None = None,
) -> list[VersionRecord]:
    """Resume one suspended run of an agent, or all whose conversation has not moved on."""
    store = session.store
    versions: list[VersionRecord] = []
    for run in await store.orphans(ALL_RUNS):
        if run.parent_run_id is not None:
            await _end_stray(store, run, run.parent_run_id)
        elif run.agent_name != session.name or run_id not in (None, run.id):
            continue
        elif run_id is None and await has_moved_on(store, run) and not await _is_void(store, run):
            _LOGGER.info('The run %s stays suspended: its conversation has moved on', run.id)
        elif await store.claim_run(run.id):
            with _orphaned_on_failure(store, run.id):
                await _end_children(store, run.id)  # before anything runs twice: a child may be alive after all
                version = await _resume(session, run, None if make_token is None else make_token(run.id))
            if version is not None:
                versions.append(version)
    return versions


async def claim_rest(session: Session[Any, Any], run_id: str) -> TurnRequest | None:
    """Claim one suspended run, and return the request for its rest; `None` if it is not suspended, or cannot resume and
    was ended.
    """
    store = session.store
    run = await store.run(run_id)
    if run is None or run.state != 'running' or not await store.claim_run(run.id):
        return None
    with _orphaned_on_failure(store, run.id):
        await _end_children(store, run.id)
        return await _rest(session, run)


async def finish_crashed(session: Session[Any, Any], version: VersionRecord) -> VersionRecord:
    """End the crashed runs whose newest version is this one, or that began from it; return the version to continue from."""
    store = session.store
    next_version = version
    for run in await store.runs(conversation_id=version.conversation_id, states=['running'], limit=ALL_RUNS):
        newest = await store.versions(VersionFilter(run_id=run.id), limit=1)
        last_id = newest[0].id if newest else run.base_id
        if last_id == version.id and run.parent_run_id is None and await store.claim_run(run.id):
            with _orphaned_on_failure(store, run.id):
                await _end_children(store, run.id)
                closed = await _close(session, run, version)
            if next_version is version and (newest or load_options(run).branch is None):
                next_version = closed
    return next_version


@contextmanager
def _orphaned_on_failure(store: Store, run_id: str) -> Generator[None]:
    """Mark a claimed run orphaned if the block fails, so that it can be claimed again."""
    try:
        yield
    except BaseException:
        store.mark_orphaned(run_id)
        raise


async def _close(
    session: Session[Any, Any], run: RunRecord, last: VersionRecord, error: BaseException | None = None
) -> VersionRecord:
    """Commit the end of a run after its newest version, or its base, as if it had been stopped there."""
    store = session.store
    attempts = await attempts_of(store, run)
    messages, ids = await session.history(last)
    response_id = response_id_of(messages, ids) or ''
    settled = await settled_calls(store, attempts)
    calls = messages[-1].tool_calls if messages and isinstance(messages[-1], ModelResponse) else ()
    known = [settled.get((response_id, call.tool_call_id)) for call in calls]
    parts: list[ModelRequestPart] = [part for call in known if call is not None for part in result_parts(call)]
    if run.prompt is not None:  # no version of the run has it yet
        parts.append(UserPromptPart(decode_prompt(run.prompt)))
    options = load_options(run)
    remnants, deps = await crash_remnants(store, attempts, response_id), await left_deps(store, attempts, response_id)
    parent_id = await _origin(store, attempts[0])
    branches = {branch.name for branch in await store.branches(last.conversation_id)}
    lost = await _lost_usage(store, attempts, last)
    below = await runs_called(store, attempts, response_id)
    used = load_usage(last.usage) + lost + await usage_of_runs(store, [child.id for child in below])
    used.tool_calls += sum(call is not None and call.status == 'done' for call in known)
    start = RunStart(
        base=last._replace(tree=last.tree if remnants is None else remnants.tree, deps=deps or last.deps),
        messages=messages,
        message_ids=ids,
        run_record=run,
        branch_name=None if options.branch in branches else options.branch,
        parent_id=parent_id,
        claim=await _claim_of(run, store, last),
        pause_id=options.resumes,
        head_id=options.head,
    )
    results = [ModelRequest(parts, state='interrupted', run_id=run.id, conversation_id=run.conversation_id)]
    return await RecordedRun(store=store, start=start, usage=await usage_of_runs(store, [run.id])).end(
        [*messages, *(results if parts else ())],
        used,
        kind='turn',
        state='interrupted',
        error=error,
    )


async def _lost_usage(store: Store, attempts: Sequence[RunRecord], last: VersionRecord) -> RunUsage:
    """Return the usage of attempts since their last version, for responses that were rejected."""
    return await usage_of_requests(store, [attempt.id for attempt in attempts], since=last.created_at)


async def _earlier_usage(store: Store, origin_id: str | None, last: VersionRecord) -> RunUsage:
    """Return the usage of a turn up to one of its versions."""
    before = RunUsage() if origin_id is None else load_usage((await store.version(origin_id)).usage)
    return load_usage(last.usage) - before


async def _claim_of(run: RunRecord, store: Store, version: VersionRecord) -> DirectoryClaim | None:
    """Return a claim of the directory that has the files of a version; `None` if there is none. The claim never
    inspects the directory.
    """
    key = None if version.backend is None else workspace_key(version.backend)
    workspace = None if key is None else await store.workspace(key)
    if workspace is None or workspace.version_id != version.id:
        return None
    return DirectoryClaim(store=store, workspace=workspace.backend, run_id=run.id, noted=workspace)


async def _resume(session: Session[Any, Any], run: RunRecord, token: CancellationToken | None) -> VersionRecord | None:
    """Resume a claimed run, and return the version that it ends with; `None` if it fails or is cancelled."""
    try:
        request = await _rest(session, run)
        if request is not None:
            options = replace(request.options, cancellation_token=token)
            with session_scope(load_options(run).session_id):
                return await run_turn(session, replace(request, options=options))
    except Exception as error:  # tools and models are user code, and may raise anything; the version has the error
        if isinstance(error, RunCancelled):
            _LOGGER.info('The run %s was recovered and then cancelled', run.id)
        else:
            _LOGGER.warning('The run %s was recovered and failed again', run.id, exc_info=True)
        session.store.mark_orphaned(run.id)  # if the next attempt could not begin, the run is still claimed
    return None


async def _rest(session: Session[Any, Any], run: RunRecord) -> TurnRequest | None:
    """Return the request for the rest of a claimed run; end a run that cannot resume, and return `None`."""
    try:
        return await _request(session, run)
    except ApprovalAnsweredError:
        _LOGGER.info('The run %s was ended: another run has claimed its answers', run.id)
        await _end(session.store, run)
    except VersionNotFoundError as error:
        _LOGGER.warning('The run %s cannot be recovered: %s', run.id, error)
        await _end(session.store, run, error)
    return None


async def _request(session: Session[Any, Any], run: RunRecord) -> TurnRequest:
    """Return the request for the rest of a crashed run.

    Raises:
        VersionNotFoundError: The base of the run was deleted.
        ApprovalAnsweredError: Another run has claimed the answers that this one had not claimed yet.
    """
    store = session.store
    newest = await store.versions(VersionFilter(run_id=run.id), limit=1)
    base = newest[0] if newest else await store.version(run.base_id or '')
    attempts = await attempts_of(store, run)
    options = load_options(run)
    messages, ids = await session.history(base)
    response_id = response_id_of(messages, ids)
    origin_id = await _origin(store, attempts[0])
    lost, before = await _lost_usage(store, attempts, base), await _earlier_usage(store, origin_id, base)
    return TurnRequest(
        base=base,
        options=TurnOptions(
            prompt=None if run.prompt is None else decode_prompt(run.prompt),
            model=options.model,
            model_settings=options.settings,
            branch=None if newest else options.branch,
            usage_limits=options.usage_limits,
            external_tools=options.external_tools,
            tool_choice=options.tool_choice,
            output_schema=options.output_schema,
        ),
        results=None if options.resumes is None or newest else await _results(session, attempts, options.resumes),
        pause_id=options.resumes,
        head_id=options.head,
        attempt_of=run.id,
        crashed=CrashedRun(
            attempts=attempts, settled=await settled_calls(store, attempts), lost=lost, earlier=lost + before
        ),
        parent_id=origin_id,
        remnants=await crash_remnants(store, attempts, response_id),
        left_deps=await left_deps(store, attempts, response_id),
    )


async def _origin(store: Store, first: RunRecord) -> str | None:
    """Return the id of the base of the first attempt, which is the parent of the turn; `None` if it was deleted."""
    try:
        return (await store.version(first.base_id or '')).id
    except VersionNotFoundError:
        return None


async def _is_void(store: Store, run: RunRecord) -> bool:
    """Return whether a run depends on answers that another run has claimed, so that it can only be ended."""
    pause_id = load_options(run).resumes
    if pause_id is None or await store.versions(VersionFilter(run_id=run.id), limit=1):
        return False
    own = {None, *(attempt.id for attempt in await attempts_of(store, run))}
    approvals = await store.approvals(status=None, version_id=pause_id, limit=ALL_RUNS)
    return any(approval.resumed_by not in own for approval in approvals)


async def _results(
    session: Session[Any, Any], attempts: Sequence[RunRecord], pause_id: str
) -> DeferredToolResults | None:
    """Return the answers that a run has claimed or is to claim."""
    approvals = await session.store.approvals(status=None, version_id=pause_id, limit=10_000)
    if not any(approval.resumed_by == attempt.id for approval in approvals for attempt in attempts):
        approvals = await session.store.claim_approvals(pause_id, attempts[-1].id)
    pending = (await session.store.version(pause_id)).pending or ''
    return answer_approvals(
        await load_pause(session.store, await session.store.read_asset(pending)), answers_of(approvals)
    )


async def _end_children(store: Store, run_id: str) -> None:
    """End the runs that a crashed run has started; the run that resumes it starts them again."""
    running = await store.runs(parent_run_id=run_id, states=['running'], limit=ALL_RUNS)
    for child in [child for child in running if await store.claim_run(child.id)]:
        with _orphaned_on_failure(store, child.id):
            await _end_children(store, child.id)
            await _end(store, child)


async def _end_stray(store: Store, run: RunRecord, parent_id: str) -> None:
    """End a crashed run whose parent has ended without it, so that nothing will start it again."""
    parent = await store.run(parent_id)
    if (parent is None or parent.state != 'running') and await store.claim_run(run.id):
        with _orphaned_on_failure(store, run.id):
            await _end(store, run)


async def _end(
    store: Store,
    run: RunRecord,
    error: Exception | None = None,
    *,
    state: Literal['interrupted', 'failed'] | None = None,
) -> None:
    dumped = None if error is None else dump_failure(error)
    end = await end_of_attempt(store, run.id, state or ('interrupted' if error is None else 'failed'), dumped)
    await store.commit(Commit(fence=run.id, ends=[end]))
