"""Start a run for a caller: validation, and the errors if the run is refused.

Problems that can be detected now are HTTP errors; later failures are events of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.usage import UsageLimits

from pydantic_deep._checks import check_names, check_prompt
from pydantic_deep.approvals import ApprovalChangedError, ApprovalError, Decision, answer_approvals
from pydantic_deep.store import ApprovalAnsweredError, VersionBusyError
from pydantic_deep.versions import InboxItem, SupportsFilling, TurnOptions

from ._state import ServerState
from .access._ownership import Access, AuthorizedConversation, ServedVersion
from .http._errors import ServerError
from .runs._pool import busy_error
from .runs._renderings import Rendering
from .runs._server_run import ServerRun
from .runs._stored_runs import active_queued_runs, active_run_ids, has_ended, load_run, load_running_runs

_LIMITS: TypeAdapter[UsageLimits | None] = TypeAdapter(UsageLimits | None)


async def start_run(
    access: Access,
    version: ServedVersion,
    options: TurnOptions,
    *,
    max_iterations: int | None = None,
    session_id: str | None = None,
    renderings: Mapping[str, Rendering] | None = None,
) -> ServerRun:
    """Start a turn from a version that the caller owns, and return its run when it is stored, so that a crash does not
    lose it. If the version is the head, the head moves with the turn.

    Args:
        access: The access of the caller, who also counts as the author of answers.
        version: The version to start from.
        options: The prompt or the answers, and the other options that the client chose.
        max_iterations: The maximum number of model requests. The limit of the server applies too.
        session_id: The caller's own session id.
        renderings: See `RunPool.start`.

    Raises:
        ServerError: The run cannot start: another run started from the version, approvals are pending, the branch
            exists, too many runs are running, or the server is stopping.
        ValidationError: The prompt or the session id is blank or not a string.
        ApprovalAnsweredError: An approval has already been answered.
        ApprovalChangedError: A pending call has changed since it was shown.
        VersionNotFoundError: The version was deleted in the meantime.
        WorkspaceReplacedError: The directory is not the one with the files of the version, and contains other files.
    """
    check_names(session_id=session_id)
    state, branch = access.state, options.branch
    if options.prompt is None:
        await _check_answers(state, version, options.answers)
    else:
        _refuse_if_pending(version)
        check_prompt('prompt', options.prompt)
    if branch is not None and branch in {known.name for known in await state.store.branches(version.conversation_id)}:
        raise ServerError('conflict', f'The conversation already has a branch {branch!r}. Choose another name.')
    await refuse_if_busy(state, version)
    if isinstance(state.make_backend, SupportsFilling) and not state.hands_over:
        await state.make_backend.fill(state.store, version.record)
    await version.check_directory()
    conversation = await state.store.conversation(version.conversation_id)
    options = replace(
        options,
        by=access.owner,
        usage_limits=await _usage_limits(state, version, max_iterations),
        moves_head=conversation is not None and conversation.head_id == version.id,
        exclusive=True,
    )
    owner, key_id = access.owner, access.caller.account
    if state.hands_over and not renderings:
        return await state.runs.submit(version, options, state.store, owner=owner, key_id=key_id, session_id=session_id)
    run = state.runs.start(version, options, owner=owner, key_id=key_id, session_id=session_id, renderings=renderings)
    await run.begun.wait()
    match run.refusal:
        case None:
            return run
        case VersionBusyError() as error:
            raise busy_error(error.run_id)
        case error:
            raise error


async def refuse_if_running(state: ServerState, conversation_id: str) -> None:
    """Refuse to change a conversation while one of its runs is active.

    Raises:
        ServerError: A run of the conversation is queued or running.
    """
    active = await active_run_ids(state.store, state.runs, conversation_id)
    if active:
        raise busy_error(min(active))
    stored = await load_running_runs(state.store, state.runs, conversation_id)
    if stored:
        raise busy_error(stored[0].id)


async def head_to_change(access: Access, own: AuthorizedConversation) -> ServedVersion:
    """Return the head of a conversation to change it.

    Raises:
        ServerError: A run of the conversation is running, approvals of the head are pending, or it was deleted.
    """
    await refuse_if_running(access.state, own.id)
    head = await access.version_in(own)
    _refuse_if_pending(head)
    return head


def _refuse_if_pending(version: ServedVersion) -> None:
    if version.state != 'awaiting_approval':
        return
    pending = [approval.id for approval in version.pending]
    raise ServerError(
        'conflict',
        f'The version {version.id} has pending approvals: {", ".join(pending)}. Answer them first, or start from an '
        'earlier version.',
        facts={'version_id': version.id, 'pending': [*pending]},
    )


async def _check_answers(state: ServerState, version: ServedVersion, answers: Mapping[str, Decision]) -> None:
    requests = version.deferred_tool_requests
    if requests is None:
        raise ServerError('conflict', f'The version {version.id} has no pending approvals: it is {version.state}.')
    known = await state.store.approvals(status=None, version_id=version.id, limit=10_000)
    for approval in known:
        is_answered_again = approval.pending_id in answers and approval.status != 'pending'
        if approval.resumed_by is not None or is_answered_again:
            raise ApprovalAnsweredError(approval.id, approval.status, approval.decided_by, approval.decided_at)
    if not answers and all(approval.status == 'pending' for approval in known):
        raise ServerError('conflict', f'No pending approval of version {version.id} has an answer yet.')
    items = [InboxItem.from_record(approval) for approval in known if approval.status != 'pending']
    stored = {item.pending_id: item.decision for item in items if item.decision is not None}
    try:
        answer_approvals(requests, {**stored, **answers})
    except ApprovalChangedError:
        raise
    except ApprovalError as error:
        raise ServerError('invalid' if answers else 'conflict', str(error)) from None


async def refuse_if_busy(state: ServerState, version: ServedVersion) -> None:
    """Refuse if a run that any process has started from the same version is active. The run pool checks those of this
    process again; it must not refuse because of one that has ended without being noticed here.
    """
    for queued in await active_queued_runs(state.store, version.conversation_id):
        if queued.base_id == version.id:
            raise busy_error(queued.run_id)
    for run in await load_running_runs(state.store, state.runs, version.conversation_id):
        stored = await load_run(state.store, state.runs, run.id)
        if stored is not None and stored.base_id == version.id:
            raise busy_error(run.id)
    while (here := state.runs.run_from(version.id)) is not None and await has_ended(state.store, here):
        here.has_stored_end = True


async def _usage_limits(state: ServerState, version: ServedVersion, max_iterations: int | None) -> UsageLimits | None:
    """Return the usage limits of the deps, combined with the request limit of the turn.

    The limits of a run replace those of its deps, so both are combined here.
    """
    max_requests = min(
        (limit for limit in (max_iterations, state.settings.max_iterations) if limit is not None), default=None
    )
    if max_requests is None:
        return None
    deps: dict[str, Any] = {}
    if version.record.deps is not None:
        deps = json.loads(await state.store.read_asset(version.record.deps))
    limits = _LIMITS.validate_python(deps.get('usage_limits')) or UsageLimits(request_limit=None)
    allowed = version.usage.requests + max_requests
    return replace(
        limits, request_limit=allowed if limits.request_limit is None else min(limits.request_limit, allowed)
    )
