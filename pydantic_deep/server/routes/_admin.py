"""Routes about the server: health, metrics, permissions, agents, audit records, and SQL queries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import anyio
from fastapi import APIRouter, Depends, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import AwareDatetime
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import Model
from pydantic_core import to_json

from pydantic_deep.audit import AuditRecord
from pydantic_deep.audit import Status as AuditStatus
from pydantic_deep.repository import In, Range, Scalar
from pydantic_deep.server._state import State
from pydantic_deep.server.access._authentication import UNAVAILABLE_ERRORS
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.access._scopes import Require
from pydantic_deep.server.http._errors import ServerError, describe_errors, not_found
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._admin import (
    EXAMPLE_RECORD,
    AgentInfo,
    AgentList,
    AuditPage,
    Health,
    Me,
    Readiness,
    SkillInfo,
    SkillList,
    SqlQuery,
    SqlTable,
)
from pydantic_deep.skills import Skills
from pydantic_deep.store import QueryBusyError, QueryError, SqlLimits, SqlStore

T = TypeVar('T')

_SQL_WAIT_SECONDS = 10
"""Maximum time that a query is queued behind others before it is rejected."""

_STORE_SECONDS = 1
"""How long the store may take to answer the query of the readiness route."""

router = APIRouter(route_class=JsonRoute)

AnyCaller = Annotated[Access, Depends(Require(None))]
Auditor = Annotated[Access, Depends(Require('audit'))]
Admin = Annotated[Access, Depends(Require('admin'))]


@router.get(
    '/health',
    tags=['server'],
    summary='Check whether the server accepts requests',
    responses={503: {'model': Health, 'description': 'The server is stopping.'}},
)
async def read_health(state: State, response: Response) -> Health:
    """Requires no API key."""
    if state.runs.is_closed:
        response.status_code = 503
        return Health(status='stopping')
    return Health(status='ok')


@router.get('/healthz', tags=['server'], summary='Check whether the process answers')
async def read_liveness() -> Health:
    """Liveness, for probes. Requires no API key, and no particular `Host` header."""
    return Health(status='ok')


@router.get(
    '/readyz',
    tags=['server'],
    summary='Check whether the server accepts runs',
    responses={503: {'model': Readiness, 'description': 'The server is stopping, or its store does not answer.'}},
)
async def read_readiness(state: State, response: Response) -> Readiness:
    """Readiness, for probes and load balancers. Requires no API key, and no particular `Host` header."""
    if state.runs.is_closed:
        answer = Readiness(status='stopping', message='The server is stopping.')
    elif await _is_answering(state.store):
        return Readiness(status='ok', message='The server accepts runs.')
    else:
        answer = Readiness(status='unavailable', message='The store does not answer.')
    response.status_code = 503
    return answer


async def _is_answering(store: SqlStore) -> bool:
    """Return whether a store answers a query in time. What is wrong with it is not for everybody."""
    with anyio.move_on_after(_STORE_SECONDS), suppress(*UNAVAILABLE_ERRORS):
        await store.queue.measures()
        return True
    return False


@router.get(
    '/metrics',
    tags=['server'],
    summary='Get metrics for Prometheus',
    response_class=Response,
    responses={
        200: {
            'content': {'text/plain': {'example': 'pydantic_deep_runs_running 2.0\n'}},
            'description': 'The metrics as text.',
        },
        **describe_errors(),
    },
)
async def read_metrics(access: Admin) -> Response:
    """Requires the scope `admin`."""
    await access.state.metrics.read_store(access.state.store)
    return Response(access.state.metrics.render(), media_type=CONTENT_TYPE_LATEST)


@router.get('/api/me', tags=['server'], summary='Get the permissions of the caller', responses=describe_errors())
async def read_me(access: AnyCaller) -> Me:
    """Works with any API key or login."""
    known = access.identity
    agents = None if known.agents is None else sorted(known.agents)
    caller = access.caller
    return Me(
        owner=known.owner,
        scopes=sorted(known.scopes),
        agents=agents,
        has_key=caller.has_key,
        logout_url=caller.logout_url,
    )


@router.get('/api/agents', tags=['agents'], summary='List the agents of this key', responses=describe_errors())
async def list_agents(access: AnyCaller) -> AgentList:
    """Works with any API key or login."""
    return AgentList(items=[_info(name, access) for name in sorted(access.state.agents) if access.may_use(name)])


@router.get('/api/agents/{agent}', tags=['agents'], summary='Get an agent', responses=describe_errors('not_found'))
async def read_agent(agent: str, access: AnyCaller) -> AgentInfo:
    """Works with any API key or login."""
    return _info(agent, access)


@router.get(
    '/api/agents/{agent}/skills',
    tags=['agents'],
    summary='List the skills of an agent',
    responses=describe_errors('not_found'),
)
async def list_skills(agent: str, access: AnyCaller) -> SkillList:
    """Works with any API key. Skills in the files of a single conversation are not included."""
    capabilities: list[AbstractCapability[Any]] = []
    access.agent(agent).agent.root_capability.apply(capabilities.append)
    catalogs = [await capability.catalog() for capability in capabilities if isinstance(capability, Skills)]
    return SkillList(
        items=[
            SkillInfo(name=skill.name, description=skill.description, scope=skill.scope)
            for catalog in catalogs
            for skill in catalog.skills.values()
        ]
    )


@router.get(
    '/api/audit',
    tags=['audit'],
    summary='List audit records',
    responses=describe_errors(),
    response_model_exclude={'items': {'__all__': {'messages'}}},
)
async def list_audit(
    access: Auditor,
    status: Annotated[AuditStatus | None, Query(description='Only records with this status.')] = None,
    agent: Annotated[str | None, Query(description='Only records of this agent.', max_length=200)] = None,
    conversation: Annotated[str | None, Query(description='Only records of this conversation.', max_length=200)] = None,
    since: Annotated[
        AwareDatetime | None, Query(description='Only records of runs that started at or after this time.')
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200, description='Maximum number of items in the page.')] = 50,
    cursor: Annotated[str | None, Query(description='The cursor of the previous page.', max_length=4096)] = None,
) -> AuditPage:
    """Requires the scope `audit` or `admin`.

    With `audit`, the list contains runs of the key's owner by agents that the key may use; with `admin`, all runs.
    """
    requested: dict[str, str | None] = {'status': status, 'agent_name': agent, 'conversation_id': conversation}
    where: dict[str, Scalar | In | Range] = {name: value for name, value in requested.items() if value is not None}
    if since is not None:
        where['started_at'] = Range(ge=since)
    if not access.has('admin'):
        where['owner'] = access.owner
        if access.identity.agents is not None:
            where['agent_name'] = In([name for name in access.identity.agents if agent in (None, name)])
    page = await access.state.audit.list(where, order_by='-started_at', limit=limit, cursor=cursor)
    return AuditPage(items=page.items, cursor=page.cursor)


@router.get(
    '/api/audit/{record}',
    tags=['audit'],
    summary='Get an audit record',
    responses={200: {'content': {'application/json': {'example': EXAMPLE_RECORD}}}, **describe_errors('not_found')},
)
async def read_audit(record: str, access: Auditor) -> AuditRecord:
    """Requires the scope `audit` for runs of the key's owner, or `admin`."""
    audit_record = await access.state.audit.get(record)
    is_own = audit_record.owner == access.owner and access.may_use(audit_record.agent_name)
    if not is_own and not access.has('admin'):
        raise not_found()
    return audit_record


@router.post(
    '/api/sql',
    tags=['server'],
    summary='Query the history of all agents with SQL',
    response_model=SqlTable,
    responses=describe_errors(),
)
async def query_history(body: SqlQuery, access: Admin, request: Request) -> Response:
    """Requires the scope `admin`. API keys and audit records are not available as tables.

    A query ends when its time limit is reached or the client disconnects. If two queries are already running, further
    ones are queued, and after ten seconds they fail with 503 and `Retry-After`.
    """
    settings = access.state.settings
    limits = SqlLimits(
        timeout_seconds=settings.sql_timeout_seconds,
        memory_bytes=settings.sql_memory_bytes,
        max_bytes=settings.max_sql_bytes,
        at_once=settings.max_sql_at_once,
        wait_seconds=_SQL_WAIT_SECONDS,
    )
    query = access.state.store.sql(body.query, body.parameters, limits=limits, max_rows=settings.max_sql_rows)
    try:
        table = await _while_connected(request, query)
    except QueryBusyError as error:
        raise ServerError('unavailable', str(error), headers={'Retry-After': '5'}) from None
    except QueryError as error:
        raise ServerError('invalid', str(error)) from None
    answer = {'columns': table.columns, 'rows': table.rows, 'is_truncated': table.is_truncated}
    return Response(
        to_json(answer, bytes_mode='hex', inf_nan_mode='null', serialize_unknown=True), media_type='application/json'
    )


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`, or cancel it if the client disconnects first.

    The body has been read, so the next message of the request is the disconnect.
    """
    leaving, working = asyncio.ensure_future(request.receive()), asyncio.ensure_future(work)
    try:
        await asyncio.wait([leaving, working], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ServerError('unavailable', 'The client disconnected.')
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.wait([leaving, working])


def _info(name: str, access: Access) -> AgentInfo:
    served = access.agent(name)
    model = served.agent.model
    if isinstance(model, Model):
        model = f'{model.system}:{model.model_name}'
    description = served.agent.description
    return AgentInfo(
        name=name,
        description=None if description is None else str(description),
        model=model,
        examples=list(access.state.settings.examples.get(name, ())),
    )
