"""The start of a run without a `VersionedAgent`: of a subagent, or of an agent with a recorder of its own.

For a subagent, one commit stores the empty conversation, the link to the call and the run, after the step of the parent
and before the first request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage

from pydantic_deep._session_id import current_session_id
from pydantic_deep._spans import trace_id
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import (
    BranchRecord,
    Commit,
    ConversationRecord,
    DelegationRecord,
    RunRecord,
    Store,
    VersionFilter,
    VersionNotFoundError,
    VersionRecord,
    new_id,
    now,
)
from pydantic_deep.versions._messages import encode_message, load_history
from pydantic_deep.versions._run_options import RunOptions
from pydantic_deep.versions.recording._attempts import (
    CrashedRun,
    attempts_of,
    last_deps,
    last_fork,
    load_script,
    newest_version,
    settled_calls,
    usage_of_requests,
)
from pydantic_deep.versions.recording._recovery_script import RecoveryScript
from pydantic_deep_backends.overlay import OverlayBackend

from ._call_ledger import Caller
from ._deps_state import restore_deps, restore_fork
from ._recorded_run import RecordedRun
from ._run_start import RunStart
from ._stored_history import StoredHistory

MAIN = 'main'
"""The name of the first branch of a conversation."""


@dataclass(frozen=True, kw_only=True)
class _StartingPoint:
    """The version and history that a run starts from."""

    base: VersionRecord
    messages: Sequence[ModelMessage]
    message_ids: Sequence[str]
    commit: Commit = field(default_factory=Commit)
    """The commit that creates the base, if the store does not have it."""
    attempts: Sequence[RunRecord] = ()
    """The crashed runs that the run resumes, oldest first."""


async def begin_run(store: Store, ctx: RunContext[object], caller: Caller | None) -> tuple[RecordedRun, RecoveryScript]:
    """Record the start of a run, and return its recovery script, which is empty unless it resumes a crashed run.

    A run that resumes a crashed one continues in its conversation, after its last version.

    Args:
        store: The store to commit to.
        ctx: The context of the run.
        caller: The tool call that the run belongs to, in a recorded run; `None` for a top-level run.
    """
    history = list(ctx.messages)
    conversation_id = ctx.conversation_id or new_id()
    point = await _find_crashed(store, history, caller)
    point = point or await _find_or_create(store, ctx, conversation_id, history, caller)
    base, attempts = point.base, point.attempts
    run = RunRecord(
        id=ctx.run_id or new_id(),
        conversation_id=conversation_id,
        base_id=base.id,
        agent_name=base.agent_name,
        attempt_of=attempts[-1].id if attempts else None,
        parent_run_id=None if caller is None else caller.recording.run_id,
        state='running',
        owner=None,
        prompt=None,
        options=RunOptions(session_id=current_session_id()).dump(),
        usage='{}',
        cost=None,
        error=None,
        trace_id=trace_id(),
        started_at=now(),
        ended_at=None,
    )
    commit = replace(point.commit, runs=[run])
    if caller is not None:
        commit = replace(
            commit,
            fence=caller.recording.run_id,
            calls=[] if caller.call.effect == 'read' else [caller.call],
            delegations=[_link(caller, conversation_id, base.agent_name)],
        )
    own_fork = _own_fork(ctx.deps, caller)
    script = RecoveryScript()
    crashed = CrashedRun()
    try:
        await store.commit(commit)
        if attempts:
            await _restore(store, attempts, ctx.deps, own_fork)
            script = await load_script(store, attempts)
            recorded = [response.id for response in script.responses]
            lost = await usage_of_requests(store, [attempt.id for attempt in attempts], without=recorded)
            crashed = CrashedRun(
                attempts=attempts, settled=await settled_calls(store, attempts), lost=lost, earlier=lost
            )
    except BaseException:
        store.mark_orphaned(run.id)  # no caller has the recording yet
        raise
    files = None if caller is None else caller.recording.start.files
    origin = attempts[0].base_id if attempts else base.id
    start = RunStart(
        base=base,
        messages=point.messages,
        message_ids=point.message_ids,
        run_record=run,
        files=files,
        has_files=files is not None and _has_backend(ctx.deps, files.files.backend),
        fork=conversation_id if own_fork is not None else _fork_above(ctx.deps, caller),
        crashed=crashed,
        parent_id=origin,
        pause_id=base.id if base.state == 'awaiting_approval' and not attempts else None,
    )
    return RecordedRun(store=store, start=start), script


async def _find_or_create(
    store: Store, ctx: RunContext[object], conversation_id: str, history: list[ModelMessage], caller: Caller | None
) -> _StartingPoint:
    point = await _find(store, conversation_id, history) if history else None
    if point is not None:
        return point
    is_new = await store.conversation(conversation_id) is None
    return _new_branch(ctx, conversation_id, history, caller, name=MAIN if is_new else None)


async def _find_crashed(store: Store, history: list[ModelMessage], caller: Caller | None) -> _StartingPoint | None:
    """Return the starting point of the crashed run that belongs to a call; `None` if there is none."""
    before = None if caller is None else await find_begun_run(store, caller)
    if before is None:
        return None
    attempts = await attempts_of(store, before)
    try:
        newest = await newest_version(store, attempts)
        base = newest or await store.version(before.base_id or '')
        messages, ids = await load_history(store, base)
    # The versions of the subagent were deleted after the crash.
    except VersionNotFoundError:  # pragma: no cover
        return None
    return _StartingPoint(
        base=base,
        messages=history if newest is None else messages,
        message_ids=ids,
        attempts=attempts,
    )


async def _restore(store: Store, attempts: Sequence[RunRecord], deps: object, own_fork: OverlayBackend | None) -> None:
    """Restore the deps and the fork of a crashed run."""
    await restore_deps(store, await last_deps(store, attempts), deps)
    forked = None if own_fork is None else await last_fork(store, attempts)
    if own_fork is not None and forked is not None:
        await restore_fork(store, forked, own_fork)


def _has_backend(deps: object, backend: object) -> bool:
    """Return whether the backend of deps is this one, and not a view of it."""
    return isinstance(deps, DeepAgentDeps) and deps.backend is backend


def _own_fork(deps: object, caller: Caller | None) -> OverlayBackend | None:
    """Return the fork that was created for a subagent, if any."""
    if caller is None or not isinstance(deps, DeepAgentDeps) or _has_backend(caller.recording.deps, deps.backend):
        return None
    return deps.backend if isinstance(deps.backend, OverlayBackend) else None


def _fork_above(deps: object, caller: Caller | None) -> str | None:
    """Return the conversation that owns the fork in which a subagent works, if it shares the files of its parent."""
    shares = (
        caller is not None and isinstance(deps, DeepAgentDeps) and _has_backend(caller.recording.deps, deps.backend)
    )
    return caller.recording.start.fork if caller is not None and shares else None


def _called(caller: Caller) -> str | None:
    """Return the name of the other agent in the call, if it has one."""
    arguments = json.loads(caller.call.arguments)
    named = cast('dict[str, object]', arguments).get('subagent') if isinstance(arguments, dict) else None
    return named if isinstance(named, str) else None


def _link(caller: Caller, conversation_id: str, agent_name: str) -> DelegationRecord:
    call = caller.call
    return DelegationRecord(
        parent_run_id=call.run_id,
        response_id=call.response_id,
        tool_call_id=call.tool_call_id,
        child_conversation_id=conversation_id,
        subagent=_called(caller) or agent_name,
        intent=caller.intent,
        arguments=call.arguments,
        created_at=now(),
    )


async def _find(store: Store, conversation_id: str, history: Sequence[ModelMessage]) -> _StartingPoint | None:
    """Return the version with exactly this history."""
    for version in await store.versions(VersionFilter(conversation_id=conversation_id), limit=20):
        if version.message_count != len(history):
            continue
        records = await store.messages(version.branch_id, version.message_count)
        if all(record.body == encode_message(message)[0] for record, message in zip(records, history, strict=True)):
            return _StartingPoint(base=version, messages=history, message_ids=[record.id for record in records])
    return None


def _new_branch(
    ctx: RunContext[object],
    conversation_id: str,
    history: Sequence[ModelMessage],
    caller: Caller | None,
    *,
    name: str | None,
) -> _StartingPoint:
    """Return a new base version for a history that is not stored.

    `name` is the name of the branch; `None` creates a unique one, for a conversation that has other branches.
    """
    agent_name = (ctx.agent.name if ctx.agent is not None else None) or 'agent'
    if caller is not None:  # the general-purpose subagent is the agent itself, but its versions have another name
        agent_name = _called(caller) or agent_name
    branch = first_branch(conversation_id, name or f'branch-{new_id()[-12:]}')
    root = root_version(agent_name, branch)
    if caller is not None:
        root = root._replace(tree=caller.recording.tip.tree, backend=caller.recording.tip.backend)
    change = StoredHistory(branch_id=branch.id).change_to(history, None)
    versions = [root, root.child('edit', message_count=len(history))] if history else [root]
    commit = Commit(
        assets=change.assets,
        conversations=[new_conversation(conversation_id, agent_name)],
        branches=[branch],
        append=change.append,
        versions=versions,
    )
    return _StartingPoint(base=versions[-1], messages=history, message_ids=change.ids, commit=commit)


def new_conversation(id: str, agent_name: str) -> ConversationRecord:
    """Return a conversation without a head."""
    return ConversationRecord(id=id, agent_name=agent_name, head_id=None, created_at=now())


def first_branch(conversation_id: str, name: str = MAIN) -> BranchRecord:
    """Return an empty branch that forks from no other."""
    return BranchRecord(
        id=new_id(),
        conversation_id=conversation_id,
        name=name,
        parent_id=None,
        fork_seq=0,
        tip_seq=0,
        rewrites_id=None,
        rewrites_seq=None,
        created_at=now(),
    )


def root_version(agent_name: str, branch: BranchRecord) -> VersionRecord:
    """Return the first version of a conversation."""
    return VersionRecord(
        id=new_id(),
        number=0,
        parent_id=None,
        cloned_from=None,
        merged_from=None,
        kind='root',
        state='complete',
        conversation_id=branch.conversation_id,
        branch_id=branch.id,
        branch=branch.name,
        message_count=0,
        run_id=None,
        agent_name=agent_name,
        name=None,
        metadata='{}',
        model=None,
        model_settings='{}',
        usage='{}',
        output=None,
        pending=None,
        deps=None,
        tree=None,
        backend=None,
        created_at=now(),
    )


async def find_begun_run(store: Store, caller: Caller) -> RunRecord | None:
    """Return the newest run that crashed processes have started for a call."""
    if not caller.was_begun:
        return None
    call = caller.call
    links = [
        link
        for link in await store.delegations(parent_run_id=call.run_id)
        if (link.response_id, link.tool_call_id) == (call.response_id, call.tool_call_id)
    ]
    runs = await store.runs(conversation_id=links[-1].child_conversation_id) if links else []
    return runs[0] if runs else None
