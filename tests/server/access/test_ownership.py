"""The matrix: every route, asked by nobody, by a key without the scope, by another owner, and by a key for other agents.

It is made from the routers of the application. A route that it does not know how to call fails it: add how an id comes
about to `make_ids`, and what a call sends to `CALLS`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

import httpx
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server._agents import AnyAgent
from pydantic_deep.server._api_keys import KeyScope
from pydantic_deep.server.access._authentication import is_public
from pydantic_deep.server.access._callers import Require
from pydantic_deep.server.routes._routers import ROUTERS
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Client, Serve, Served

pytestmark = pytest.mark.anyio

Ids: TypeAlias = Mapping[str, str]
Values: TypeAlias = Callable[[Ids], object]
"""Returns what a call sends, from the ids of whoever's things it is about."""

UNKNOWN = '00000000-0000-7000-8000-000000000000'
"""An id that nothing has."""

FREE = {'name', 'path', 'pending', 'digest', 'thread'}
"""What is within something that has an id, and names nothing by itself; a thread is of whoever asks."""

OPEN = {'GET /health', 'GET /', 'GET /static/{name}'}
"""What needs no key. Nothing else is to come here."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a route is called with, beside its path."""

    json: Values | None = None
    content: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of a parameter, which of the ids it has."""
    headers: Callable[[Ids], dict[str, str]] = lambda ids: {}
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which of the ids a parameter of the path has, if not the one of its name."""


_SAID: list[object] = [{'role': 'user', 'content': 'Hi'}]
_CONTENTS: list[object] = [{'role': 'user', 'parts': [{'text': 'Hi'}]}]
_AG_UI: dict[str, object] = {
    'threadId': 'mine',
    'runId': 'r1',
    'state': {},
    'messages': [{'id': 'm1', 'role': 'user', 'content': 'Hi'}],
    'tools': [],
    'context': [],
    'forwardedProps': {},
}
"""Threads are named by clients: the same name is another thread for another owner."""
_VERCEL: dict[str, object] = {
    'id': 'mine',
    'trigger': 'submit-message',
    'messages': [{'id': 'm1', 'role': 'user', 'parts': [{'type': 'text', 'text': 'Hi'}]}],
}

CALLS: Mapping[str, Call] = {
    'POST /api/sql': Call(json=lambda ids: {'query': 'select 1'}),
    'GET /api/audit': Call(query={'conversation': 'conversation'}),
    'POST /api/conversations': Call(json=lambda ids: {'agent': ids['agent']}),
    'DELETE /api/conversations/{conversation}': Call(),
    'PATCH /api/conversations/{conversation}': Call(json=lambda ids: {'name': 'Other'}),
    'GET /api/conversations/{conversation}/messages': Call(query={'version': 'version'}),
    'POST /api/conversations/{conversation}/turns': Call(
        json=lambda ids: {'prompt': 'Hi', 'from_version': ids['version']}
    ),
    'POST /api/versions/{version}/branch': Call(json=lambda ids: {'prompt': 'Hi'}),
    'POST /api/conversations/{conversation}/resume': Call(
        path={'conversation': 'waiting'},
        json=lambda ids: {
            'answers': {ids['pending']: {'decision': 'approve', 'digest': ids['digest']}},
            'from_version': ids['waiting_version'],
        },
    ),
    'POST /api/conversations/{conversation}/head': Call(json=lambda ids: {'version': ids['other']}),
    'GET /api/versions/{version}/diff': Call(query={'to': 'other'}),
    'POST /api/versions/{version}/merge': Call(json=lambda ids: {'other': ids['other']}),
    'GET /api/runs': Call(query={'conversation': 'conversation'}),
    'POST /api/runs/{run}/cancel': Call(),
    'POST /api/runs/{run}/resume': Call(),
    'GET /api/approvals': Call(query={'conversation': 'waiting'}),
    'POST /api/approvals/{approval}': Call(json=lambda ids: {'decision': 'approve', 'digest': ids['digest']}),
    'PUT /api/conversations/{conversation}/uploads/{name}': Call(content=b'x'),
    'DELETE /api/conversations/{conversation}/uploads/{name}': Call(),
    'POST /v1/chat/completions': Call(json=lambda ids: {'model': ids['agent'], 'messages': _SAID}),
    'POST /v1/messages': Call(json=lambda ids: {'model': ids['agent'], 'max_tokens': 9, 'messages': _SAID}),
    'POST /v1beta/models/{agent}:generateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1beta/models/{agent}:streamGenerateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1/models/{agent}:generateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1/models/{agent}:streamGenerateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /ag-ui/{agent}': Call(json=lambda ids: _AG_UI),
    'POST /vercel/{agent}': Call(json=lambda ids: _VERCEL),
    'GET /vercel/{agent}/{thread}/stream': Call(headers=lambda ids: {'last-event-id': f'{ids["ui_run"]}.x.1'}),
}
"""By method and path. A route that is not here is called without anything, if it is a `GET`."""


# The routes


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A route, and how it is called."""

    name: str
    method: str
    path: str
    scopes: frozenset[KeyScope | None]
    """What it asks for; `None` is any key."""
    call: Call

    def request(self, ids: Ids) -> dict[str, Any]:
        """Return what `httpx` sends."""
        path = re.sub(r'\{(\w+)\}', lambda found: ids[self.call.path.get(found[1], found[1])], self.path)
        request: dict[str, Any] = {
            'method': self.method,
            'url': path,
            'params': {name: ids[slot] for name, slot in self.call.query.items()},
            'headers': self.call.headers(ids),
        }
        if self.call.json is not None:
            request['json'] = self.call.json(ids)
        if self.call.content is not None:
            request['content'] = self.call.content
        return request

    def slots(self, ids: Ids) -> list[str]:
        """Return the ids that a call names."""
        used = _Noting(ids)
        self.request(used)
        return sorted(used.seen - FREE)


class _Noting(dict[str, str]):
    """Notes which of its keys were asked for."""

    def __init__(self, ids: Ids) -> None:
        super().__init__(ids)
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.seen.add(key)
        return super().__getitem__(key)


def routes() -> Iterator[Tried]:
    """Yield all routes of the application."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute), f'{route} has no dependencies: the matrix cannot know what it asks for.'
            for method in sorted(route.methods or ()):
                path = re.sub(r':\w+\}', '}', route.path)
                name = f'{method} {path}'
                known = CALLS.get(name, Call() if method == 'GET' else None)
                assert known is not None, f'The matrix does not know how to call {name!r}: add it to CALLS.'
                yield Tried(name=name, method=method, path=path, scopes=asked(route.dependant), call=known)


def asked(dependant: Dependant) -> frozenset[KeyScope | None]:
    """Return the scopes that a route asks for."""
    found: set[KeyScope | None] = {dependant.call.scope} if isinstance(dependant.call, Require) else set()
    for each in dependant.dependencies:
        found |= asked(each)
    return frozenset(found)


ROUTES = [each for each in routes() if each.name not in OPEN]


async def test_every_route_of_the_application_is_in_the_matrix(document: dict[str, Any]) -> None:
    documented = {
        f'{method.upper()} {re.sub(r":path}", "}", path)}'
        for path, methods in document['paths'].items()
        for method in methods
    }
    assert documented - OPEN == {each.name for each in ROUTES} & documented
    assert documented - OPEN <= {each.name for each in ROUTES}


def test_what_needs_no_key_is_a_short_list() -> None:
    names = {each.name for each in routes()}
    assert {name for name in names if is_public(name.partition(' ')[2])} == names & OPEN


def test_every_route_asks_for_one_scope() -> None:
    assert [each.name for each in ROUTES if len(each.scopes) != 1] == []


def test_nothing_is_known_of_routes_that_are_gone() -> None:
    assert set(CALLS) - {each.name for each in ROUTES} == set()


# Whose things there are


def _write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Want to write a file, and say so when that has been answered."""
    if len(messages) == 1:
        return ModelResponse(parts=[call('write_file', path='/a.txt', content='x')])
    return ModelResponse(parts=[TextPart('Done.')])


@pytest.fixture
def matrix_agents(agents: Mapping[str, AnyAgent]) -> dict[str, AnyAgent]:
    """One that echoes, one that must ask, and one that nobody has talked to."""
    asker = create_deep_agent(ScriptedModel(then=_write), interrupt_on={'write_file': True})
    return {'analyst': agents['analyst'], 'asker': asker, 'writer': agents['writer']}


@pytest.fixture
async def world(serve: Serve, matrix_agents: dict[str, AnyAgent]) -> AsyncGenerator[Served]:
    async with serve(matrix_agents) as served:
        yield served


@pytest.fixture
async def document(world: Served) -> dict[str, Any]:
    return world.app.openapi()


async def make_ids(world: Served, owner: str) -> dict[str, str]:
    """Make one of everything that has an id, and return the ids by what routes call them."""
    async with world.client(await world.key('run', 'approve', 'audit', owner=owner)) as client:
        conversation = await created(client, 'analyst')
        await ok(client.put(f'/api/conversations/{conversation}/uploads/a.csv', content=b'a,b\n'))
        run = await ok(client.post(f'/api/conversations/{conversation}/turns', json={'prompt': 'Hello'}))
        branch = {'prompt': 'Hello again', 'branch': 'aside'}
        other = await ok(client.post(f'/api/versions/{run["version_id"]}/branch', json=branch))
        waiting = await created(client, 'asker')
        paused = await ok(client.post(f'/api/conversations/{waiting}/turns', json={'prompt': 'Write'}))
        [approval] = (await ok(client.get('/api/approvals', params={'conversation': waiting})))['items']
        thread = await client.post('/vercel/analyst', json={**_VERCEL, 'id': f'of-{owner}'})
        assert thread.is_success, thread.text
        ui_run = (await ok(client.get('/api/runs', params={'limit': 1})))['items'][0]
        [record] = (await ok(client.get('/api/audit', params={'conversation': waiting})))['items']
    return {
        'agent': 'analyst',
        'conversation': conversation,
        'version': run['version_id'],
        'run': run['id'],
        'other': other['version_id'],
        'waiting': waiting,
        'waiting_version': paused['version_id'],
        'approval': approval['id'],
        'pending': approval['pending_id'],
        'digest': approval['view']['digest'],
        'record': record['id'],
        'thread': f'of-{owner}',
        'ui_run': ui_run['id'],
        'name': 'b.csv',
        'path': 'uploads/a.csv',
    }


async def created(client: Client, agent: str) -> str:
    return (await ok(client.post('/api/conversations', json={'agent': agent})))['id']


async def ok(answer: Any) -> Any:
    """Return the JSON of an answer that is none of an error."""
    done: httpx.Response = await answer
    assert done.is_success, done.text
    return done.json()


@pytest.fixture
async def ids(world: Served) -> dict[str, str]:
    """What belongs to ada."""
    return await make_ids(world, 'ada')


ALL: tuple[KeyScope, ...] = ('run', 'approve', 'audit')
"""Every scope that is about things of an owner."""


# What each is told


async def test_without_a_key_nothing_is_answered(world: Served, ids: Ids) -> None:
    async with world.client() as nobody:
        answers = {each.name: await nobody.request(**each.request(ids)) for each in ROUTES}
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 401} == {}


async def test_without_the_scope_nothing_is_answered(world: Served, ids: Ids) -> None:
    told: dict[str, int] = {}
    for scope in get_args(KeyScope):
        others: list[KeyScope] = [each for each in get_args(KeyScope) if each not in (scope, 'admin')]
        async with world.client(await world.key(*others)) as client:
            for each in ROUTES:
                if scope in each.scopes:
                    told[each.name] = (await client.request(**each.request(ids))).status_code
    assert len(told) > 30
    assert {name: status for name, status in told.items() if status != 403} == {}


async def test_what_is_of_another_owner_is_not_there(world: Served, ids: Ids) -> None:
    """Whichever id of a call it is, in the path, the query or the body: the answer is that of an id that nothing has."""
    own = await make_ids(world, 'bob')
    tried: list[str] = []
    wrong: list[object] = []
    async with world.client(await world.key(*ALL, owner='bob')) as bob:
        for each in ROUTES:
            for slot in each.slots(own):
                if each.scopes <= {*ALL, None} and slot != 'agent':
                    tried.append(f'{each.name} {slot}')
                    foreign = await bob.request(**each.request({**own, slot: ids[slot]}))
                    unknown = await bob.request(**each.request({**own, slot: UNKNOWN}))
                    if not is_hidden(foreign, unknown):
                        wrong.append((each.name, slot, foreign.status_code, unknown.status_code))
    assert wrong == []
    assert len(tried) > 30


async def test_what_is_of_an_agent_that_the_key_may_not_use_is_not_there(world: Served, ids: Ids) -> None:
    tried: list[str] = []
    wrong: list[object] = []
    async with world.client(await world.key(*ALL, owner='ada', agents=['writer'])) as client:
        for each in ROUTES:
            used = each.slots(ids)
            if used and each.scopes <= {*ALL, None}:
                tried.append(each.name)
                foreign = await client.request(**each.request(ids))
                unknown = await client.request(**each.request({**ids, **dict.fromkeys(used, UNKNOWN)}))
                if not is_hidden(foreign, unknown):
                    wrong.append((each.name, foreign.status_code, unknown.status_code))
    assert wrong == []
    assert len(tried) > 30


def is_hidden(foreign: httpx.Response, unknown: httpx.Response) -> bool:
    """Return whether two answers tell nothing, and the same."""
    is_same = (foreign.status_code, foreign.text) == (unknown.status_code, unknown.text)
    is_nothing = foreign.status_code in (204, 404) or (foreign.is_success and foreign.json()['items'] == [])
    return is_same and is_nothing


async def test_asking_changes_nothing_of_another_owner(world: Served, ids: Ids) -> None:
    """After all that bob tries, what ada has is what it was."""
    before = await everything(world, ids)
    async with world.client(await world.key(*ALL, owner='bob')) as bob:
        for each in ROUTES:
            if each.method != 'GET' and each.scopes <= {*ALL, None} and set(each.slots(ids)) - {'agent'}:
                assert (await bob.request(**each.request(ids))).status_code == 404
    assert await everything(world, ids) == before


async def everything(world: Served, ids: Ids) -> list[object]:
    """Return what ada sees."""
    async with world.client(await world.key(*ALL, owner='ada')) as ada:
        return [
            await ok(ada.get(path, params=query))
            for path, query in (
                (f'/api/conversations/{ids["conversation"]}', {}),
                (f'/api/conversations/{ids["conversation"]}/versions', {'steps': 'true'}),
                (f'/api/conversations/{ids["waiting"]}', {}),
                (f'/api/approvals/{ids["approval"]}', {}),
                ('/api/runs', {}),
            )
        ]


async def test_the_owner_is_answered(world: Served, ids: Ids) -> None:
    """The calls of the matrix are such that work: what is refused above is refused for whose it is."""
    refused: list[object] = []
    admin = await world.key('admin', owner='ada')
    last = {'GET': 0, 'PUT': 1, 'PATCH': 2, 'POST': 3, 'DELETE': 4}

    def order(each: Tried) -> float:
        # An upload is deleted while it is at the head, before anything moves that.
        return 1.5 if each.method == 'DELETE' and '/uploads/' in each.path else last[each.method]

    async with world.client(admin) as ada:
        for each in sorted(ROUTES, key=order):
            answer = await ada.request(**each.request(ids))
            if not answer.is_success and answer.status_code != 409:
                refused.append((each.name, answer.status_code, answer.text))
    assert refused == []
