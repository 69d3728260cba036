"""Routes of approvals: what waits for a person, and the answer, which is taken once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pydantic_deep.approvals import InvalidDecisionError
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server._state import OWNER, State
from pydantic_deep.server.access._callers import Caller, require
from pydantic_deep.server.access._ownership import authorize_approval, authorize_conversation
from pydantic_deep.server.http._errors import ServerError, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._approvals import (
    Answer,
    AnsweredApproval,
    ApprovalPage,
    to_decision,
)
from pydantic_deep.server.schemas._fields import Name
from pydantic_deep.store import ApprovalAnsweredError, ApprovalStatus, VersionFilter
from pydantic_deep.versions import ApprovalInbox, TurnOptions
from pydantic_deep.views import StoredApproval

from ._parameters import Cursor

router = APIRouter(prefix='/api/approvals', tags=['approvals'], route_class=JsonRoute)

Approver = Annotated[Caller, Depends(require('approve'))]
"""Who may answer."""

_PAGE = 100
"""How many versions are read at once in search of approvals."""

_ALL = 10_000
"""As many approvals as a version can have."""


@router.get('', summary='List approvals', responses=describe_errors('not_found'))
async def list_approvals(
    state: State,
    caller: Approver,
    status: Annotated[ApprovalStatus | None, Query(description='What became of them.')] = 'pending',
    all: Annotated[bool, Query(description='Whatever became of them.')] = False,
    agent: Annotated[Name | None, Query(description='Those of one agent.')] = None,
    conversation: Annotated[str | None, Query(description='Those of one conversation.', max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=200, description='About how many: those of a version come together.')] = 50,
    cursor: Cursor = None,
) -> ApprovalPage:
    """Of all conversations of the key's owner, those of the newest versions first."""
    if conversation is not None:
        await authorize_conversation(state, caller, conversation)
    wanted = VersionFilter(
        states=['awaiting_approval'], agent_name=agent, conversation_id=conversation, metadata={OWNER: caller.owner}
    )
    items: list[StoredApproval] = []
    before = None if cursor is None else int(cursor)
    while True:
        found = await state.store.versions(wanted, limit=_PAGE, before=before)
        for version in found:
            if len(items) >= limit:
                return ApprovalPage(items=items, cursor=str(before))
            before = version.number
            if version.agent_name in state.agents and caller.may_use(version.agent_name):
                wanted_status = None if all else status
                records = await state.store.approvals(status=wanted_status, version_id=version.id, limit=_ALL)
                items += await state.views.approvals(records)
        if len(found) < _PAGE:
            return ApprovalPage(items=items, cursor=None)


@router.get('/{approval}', summary='Get an approval', responses=describe_errors('not_found'))
async def read_approval(approval: str, state: State, caller: Approver) -> StoredApproval:
    """With all arguments, and what a person is to be shown of the call."""
    own = await authorize_approval(state, caller, approval)
    return (await state.views.approvals([own.record]))[0]


@router.post('/{approval}', summary='Answer an approval', responses=describe_errors('not_found', 'conflict'))
async def answer_approval(
    approval: str,
    body: Answer,
    state: State,
    caller: Approver,
    resume: Annotated[
        bool, Query(description='Go on with the turn when nothing of it waits any more. Needs the scope `run` too.')
    ] = False,
) -> AnsweredApproval:
    """Each is answered once, by whoever is first: the error tells who that was. An answer carries the `view.digest` of
    what the person was shown, and is refused if the call is another one; only `deny` goes without.
    """
    if resume and not caller.has('run'):
        raise ServerError('forbidden', 'To go on with the turn needs a key with the scope `run`.')
    own = await authorize_approval(state, caller, approval)
    inbox = ApprovalInbox(state.store)
    try:
        await inbox.answer(own.record.id, to_decision(body), by=caller.owner, reason=body.reason)
    except InvalidDecisionError as error:
        raise ServerError('invalid', str(error)) from None
    except ApprovalAnsweredError as error:
        raise answered_error(error) from None
    run_id = None
    if resume and not await state.store.approvals(status='pending', version_id=own.version.id, limit=1):
        run_id = (await start_run(state, caller, own.version, TurnOptions())).id
    (answered,) = await state.views.approvals([await state.store.approval(own.record.id)])
    return AnsweredApproval(approval=answered, run_id=run_id)


def answered_error(error: ApprovalAnsweredError) -> ServerError:
    """Return the error for an approval that has an answer already, with who gave it."""
    return ServerError('conflict', str(error), facts={'status': error.status, 'decided_by': error.by})
