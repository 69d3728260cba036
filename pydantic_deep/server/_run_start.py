"""A run begins for a caller: what is wrong is said at once where it can be known, and everything else by the log."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep._checks import check_names, check_prompt
from pydantic_deep.approvals import (
    ApprovalChangedError,
    ApprovalError,
    Approve,
    Decision,
    Deny,
    Edit,
    Respond,
    answer_approvals,
)
from pydantic_deep.store import ApprovalAnsweredError
from pydantic_deep.versions._turn import refuse_replaced

from ._state import ServerState
from .access._authentication import Caller
from .access._ownership import ServedVersion
from .http._errors import ServerError
from .runs._pool import HubClosedError, Rendering, TooManyRunsError, Turn, VersionBusyError
from .runs._server_run import ServerRun
from .runs._stored_run_events import load_run, working_in
from .schemas._schemas import Answer

BUSY_SECONDS = 5
"""When to ask again for a run that too many others are in the way of."""

_LIMITS: TypeAdapter[UsageLimits | None] = TypeAdapter(UsageLimits | None)


async def begin_run(
    state: ServerState,
    caller: Caller,
    version: ServedVersion,
    turn: Turn,
    *,
    reason: str | None = None,
    branch: str | None = None,
    model_settings: ModelSettings | None = None,
    max_iterations: int | None = None,
    session_id: str | None = None,
    renderings: Mapping[str, Rendering] | None = None,
) -> ServerRun:
    """Begin a run from a version of the caller's. The head goes along if it is there.

    Args:
        state: The server.
        caller: Who asks, and who answers.
        version: The version that it goes on from.
        turn: What the user says, or answers to what waits; none to go on with those of the inbox.
        reason: Why it was answered so.
        branch: A name for a branch that begins here.
        model_settings: Settings of this turn.
        max_iterations: How often models may be asked at most; never more than the server allows.
        session_id: The caller's own id.
        renderings: See `RunHub.start`.

    Raises:
        ServerError: It cannot begin: a run works here already, something waits, the branch is there, too many runs
            work, or the server stops.
        ValidationError: The prompt or the caller's own id is blank, or no text.
        ApprovalAnsweredError: Somebody was faster with an answer.
        ApprovalChangedError: A call is another one than an answer is for.
        WorkspaceReplacedError: The directory is not the one that had the files of the version, and has others.
    """
    check_names(session_id=session_id)
    if isinstance(turn, Mapping):
        await _check_answers(state, version, turn)
    else:
        _refuse_if_waiting(version)
        check_prompt('prompt', turn)
    if branch is not None and branch in {each.name for each in await state.store.branches(version.conversation_id)}:
        raise ServerError('conflict', f'The conversation has a branch {branch!r} already. Choose another name.')
    await _refuse_if_busy(state, version)
    await refuse_replaced(state.agents[version.agent_name].workbench, version.record, version.backend)
    conversation = await state.store.conversation(version.conversation_id)
    limits = await _limits(state, version, max_iterations)
    with refusing():
        return state.hub.start(
            version,
            turn,
            owner=caller.owner,
            key_id=caller.key_id,
            by=caller.owner,
            reason=reason,
            branch=branch,
            moves_head=conversation is not None and conversation.head_id == version.id,
            model_settings=model_settings,
            usage_limits=limits,
            session_id=session_id,
            renderings=renderings,
        )


@contextmanager
def refusing() -> Generator[None]:
    """Answer what the hub refuses by an error of the API."""
    try:
        yield
    except VersionBusyError as error:
        raise _busy(error.run_id) from None
    except HubClosedError as error:
        raise ServerError('unavailable', str(error), headers={'Retry-After': str(BUSY_SECONDS)}) from None
    except TooManyRunsError as error:
        raise ServerError('rate_limited', str(error), headers={'Retry-After': str(BUSY_SECONDS)}) from None


def decision_of(answer: Answer) -> Decision:
    """Return what a person has decided.

    Raises:
        ServerError: `args` or `content` are not where they belong, or an answer other than `deny` does not say by its
            digest what the person was shown.
    """
    if answer.digest is None and answer.decision != 'deny':
        raise ServerError(
            'invalid',
            f'The decision {answer.decision!r} needs `digest`: the `view.digest` of the approval as the person was '
            'shown it. Only `deny` goes without.',
        )
    if answer.args is not None and answer.decision != 'edit':
        raise ServerError('invalid', f'`args` belong to the decision `edit`, and this is {answer.decision!r}.')
    match answer.decision:
        case 'approve':
            return Approve(digest=answer.digest)
        case 'deny':
            deny = Deny() if answer.reason is None else Deny(answer.reason)
            return replace(deny, digest=answer.digest)
        case 'respond':
            return Respond(answer.content, digest=answer.digest)
        case _:
            if answer.args is None:
                raise ServerError('invalid', 'The decision `edit` needs `args`: all arguments of the call.')
            return Edit(answer.args, digest=answer.digest)


async def refuse_if_running(state: ServerState, conversation_id: str) -> None:
    """Refuse to change what a run works on.

    Raises:
        ServerError: A run works in the conversation.
    """
    here = state.hub.runs_in(conversation_id)
    if here:
        raise _busy(here[0].id)
    stored = await working_in(state, conversation_id)
    if stored:
        raise _busy(stored[0].id)


def refuse_waiting(version: ServedVersion) -> ServerError:
    """Return what is raised where something waits for a person first."""
    pending = [each.id for each in version.pending]
    return ServerError(
        'conflict',
        f'The version {version.id} waits for {len(pending)} approvals. Answer them with `resume`, or go on from before.',
        facts={'version_id': version.id, 'pending': [*pending]},
    )


def _refuse_if_waiting(version: ServedVersion) -> None:
    if version.state == 'awaiting_approval':
        raise refuse_waiting(version)


async def _check_answers(state: ServerState, version: ServedVersion, answers: Mapping[str, Decision]) -> None:
    requests = version.deferred_tool_requests
    if requests is None:
        raise ServerError('conflict', f'The version {version.id} waits for nothing: it is {version.state}.')
    known = await state.store.approvals(status=None, version_id=version.id, limit=10_000)
    for each in known:
        if each.resumed_by is not None or (each.pending_id in answers and each.status != 'pending'):
            raise ApprovalAnsweredError(each.id, each.status, each.decided_by, each.decided_at)
    if not answers:
        if all(each.status == 'pending' for each in known):
            raise ServerError('conflict', f'Nothing that the version {version.id} waits for has an answer yet.')
        return
    try:
        answer_approvals(requests, answers)
    except ApprovalChangedError:
        raise
    except ApprovalError as error:
        raise ServerError('invalid', str(error)) from None


async def _refuse_if_busy(state: ServerState, version: ServedVersion) -> None:
    """Refuse where a run of another process goes on from the same version; the hub knows those of this one."""
    for run in await working_in(state, version.conversation_id):
        if state.hub.get(run.id) is None:
            stored = await load_run(state, run.id)
            if stored is not None and stored.base_id == version.id:
                raise _busy(run.id)


def _busy(run_id: str) -> ServerError:
    return ServerError(
        'conflict',
        f'The run {run_id} works here now. Wait for it, cancel it, or go on from another version.',
        facts={'run_id': run_id},
    )


async def _limits(state: ServerState, version: ServedVersion, max_iterations: int | None) -> UsageLimits | None:
    """Return what the conversation may use: what its deps say, and so many requests more as the turn may make.

    Limits of a run replace those of deps, so both are put together.
    """
    most = min((each for each in (max_iterations, state.settings.max_iterations) if each is not None), default=None)
    if most is None:
        return None
    kept: dict[str, Any] = {}
    if version.record.deps is not None:
        kept = json.loads((await state.store.asset(version.record.deps)).data)
    limits = _LIMITS.validate_python(kept.get('usage_limits')) or UsageLimits(request_limit=None)
    allowed = version.usage.requests + most
    return replace(
        limits, request_limit=allowed if limits.request_limit is None else min(limits.request_limit, allowed)
    )
