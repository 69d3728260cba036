"""Requests that a client repeats by itself, for example after a lost connection: they join the run of the first one.

Other requests that continue the same history at the same time start branches (`_turns`).
"""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeAlias

from fastapi import Depends, Header, Request

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.runs._repetitions import RequestIdentity
from pydantic_deep.server.runs._server_run import ServerRun

from ._dialogue import Dialogue
from ._turns import CompatTurn, start_turn


async def identify_request(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(description='Identifies the request. A repetition joins the run of the first one.', max_length=255),
    ] = None,
) -> RequestIdentity:
    """Return the identity of a request, as a dependency."""
    body = hashlib.sha256(f'body {request.url.path}\n'.encode() + await request.body()).hexdigest()
    if idempotency_key is None:
        return RequestIdentity(digest=body, content=body)
    key = hashlib.sha256(f'key {request.url.path}\n{idempotency_key}'.encode()).hexdigest()
    return RequestIdentity(digest=key, content=body, has_key=True)


Identity: TypeAlias = Annotated[RequestIdentity, Depends(identify_request)]
"""The parameter type with which a route receives the identity of its request."""


async def start_or_join(
    access: Access, agent_name: str, dialogue: Dialogue, *, session_id: str | None, identity: RequestIdentity
) -> CompatTurn:
    """Start the turn that a client requests, or join the run of the request that it repeats.

    Raises:
        ServerError: See `start_turn`.
    """
    access.model(agent_name)

    async def start(run_id: str | None) -> ServerRun:
        return (await start_turn(access, agent_name, dialogue, session_id=session_id, run_id=run_id)).run

    run = await access.state.repetitions.start(access.owner, agent_name, identity, start)
    return CompatTurn(access=access, agent_name=agent_name, request=dialogue, run=run)
