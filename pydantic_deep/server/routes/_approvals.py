"""Routes of approvals: list pending calls, and answer each of them once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pydantic_deep.approvals import InvalidDecisionError
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.access._ownership import Access, AuthorizedApproval
from pydantic_deep.server.access._scopes import Require
from pydantic_deep.server.http._errors import ServerError, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._approvals import Answer, ApprovalPage, to_decision
from pydantic_deep.server.schemas._fields import Name
from pydantic_deep.store import ApprovalAnsweredError, ApprovalStatus, VersionFilter
from pydantic_deep.versions import ApprovalInbox, TurnOptions
from pydantic_deep.views import AnsweredApproval, StoredApproval

from ._parameters import Cursor

router = APIRouter(prefix='/api/approvals', tags=['approvals'], route_class=JsonRoute)

Approver = Annotated[Access, Depends(Require('approve'))]
"""The access of a caller that may answer approvals."""

_PAGE = 100
"""Number of versions that are read at once to collect approvals."""

_ALL = 10_000
"""An upper bound for the number of approvals of a version."""


@router.get('', summary='List approvals', responses=describe_errors('not_found'))
async def list_approvals(
    access: Approver,
    status: Annotated[ApprovalStatus | None, Query(description='Only approvals with this status.')] = 'pending',
    all: Annotated[bool, Query(description='Include approvals of every status.')] = False,
    agent: Annotated[Name | None, Query(description='Only approvals of this agent.')] = None,
    conversation: Annotated[
        str | None, Query(description='Only approvals of this conversation.', max_length=64)
    ] = None,
    limit: Annotated[
        int,
        Query(
            ge=1,
            le=200,
            description='Approximate number of items in the page. Approvals of a version are not split.',
        ),
    ] = 50,
    cursor: Cursor = None,
) -> ApprovalPage:
    """Approvals in all conversations of the key's owner, those of the newest versions first."""
    if conversation is not None:
        await access.conversation(conversation)
    wanted = VersionFilter(
        states=['awaiting_approval'], agent_name=agent, conversation_id=conversation, metadata={OWNER: access.owner}
    )
    items: list[StoredApproval] = []
    before = None if cursor is None else int(cursor)
    while True:
        versions = await access.state.store.versions(wanted, limit=_PAGE, before=before)
        for version in versions:
            if len(items) >= limit:
                return ApprovalPage(items=items, cursor=str(before))
            before = version.number
            if version.agent_name in access.state.agents and access.may_use(version.agent_name):
                wanted_status = None if all else status
                records = await access.state.store.approvals(status=wanted_status, version_id=version.id, limit=_ALL)
                items += await access.state.views.approvals(records)
        if len(versions) < _PAGE:
            return ApprovalPage(items=items, cursor=None)


@router.get('/{approval}', summary='Get an approval', responses=describe_errors('not_found'))
async def read_approval(approval: str, access: Approver) -> StoredApproval:
    """Returns all arguments of the call, and the view to show to a person."""
    own = await access.approval(approval)
    return (await access.state.views.approvals([own.record]))[0]


@router.post('/{approval}', summary='Answer an approval', responses=describe_errors('not_found', 'conflict'))
async def answer_approval(
    approval: str,
    body: Answer,
    access: Approver,
    resume: Annotated[
        bool, Query(description='Resume the turn if no approval is pending any more. Also requires the scope `run`.')
    ] = False,
) -> AnsweredApproval:
    """An approval can be answered once. If it was already answered, the error names who answered it.

    The answer must contain the `view.digest` that the person saw, and fails if the call has changed since. Only `deny`
    works without a digest.
    """
    if resume and not access.has('run'):
        raise ServerError('forbidden', 'Resuming the turn requires a key with the scope `run`.')
    own = await access.approval(approval)
    if resume and len(await access.state.store.approvals(status='pending', version_id=own.version.id, limit=2)) < 2:
        # Otherwise the answer would be stored, and no run started.
        await access.state.runs.check_capacity(access.caller.account)
    inbox = ApprovalInbox(access.state.store)
    try:
        await inbox.answer(own.record.id, to_decision(body), by=access.owner, reason=body.reason)
    except InvalidDecisionError as error:
        raise ServerError('invalid', str(error)) from None
    run_id = None
    if resume and not await access.state.store.approvals(status='pending', version_id=own.version.id, limit=1):
        run_id = await _resume(access, own)
    (answered,) = await access.state.views.approvals([await access.state.store.approval(own.record.id)])
    return AnsweredApproval(approval=answered, run_id=run_id)


async def _resume(access: Access, own: AuthorizedApproval) -> str | None:
    """Resume the turn of an answered approval, and return its run. If the last two approvals are answered at the same
    time, both requests return the same run.
    """
    try:
        return (await start_run(access, own.version, TurnOptions())).id
    except ApprovalAnsweredError:  # a run has used the answers
        return (await access.state.store.approval(own.record.id)).resumed_by
    except ServerError as error:
        if 'run_id' not in error.facts:
            raise
        return str(error.facts['run_id'])
