"""Access matrix: every route is requested without a key, without the scope, by another owner and for another agent, with
keys and with the login of a host application.

The matrix is built from the routers of the application. A route that it cannot call fails the test: add its ids to
`make_ids` and its request to `CALLS`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast, get_args

import httpx
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo
from starlette.requests import Request

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, Identity, KeyScope, ServerSettings
from pydantic_deep.server.access._authentication import is_public
from pydantic_deep.server.access._scopes import Require
from pydantic_deep.server.routes._routers import ROUTERS
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Client, Serve, Served

pytestmark = pytest.mark.anyio

Ids: TypeAlias = Mapping[str, str]
Values: TypeAlias = Callable[[Ids], object]
"""Returns the JSON body of a call for the ids of one owner."""

UNKNOWN = '00000000-0000-7000-8000-000000000000'
"""An id that does not exist."""

FREE = {'name', 'path', 'pending', 'digest', 'thread'}
"""Names that belong to a resource with an id and identify nothing alone. Threads are separate for each owner."""

OPEN = {'GET /health', 'GET /healthz', 'GET /readyz', 'GET /', 'GET /static/{name}'}
"""The only routes that require no key."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """The request of a route, without its path."""

    json: Values | None = None
    content: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """Query parameters, and the id used for each."""
    headers: Callable[[Ids], dict[str, str]] = lambda ids: {}
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path parameters that use an id of another name."""


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
"""Clients choose thread ids: the same id is another thread for another owner."""
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
    'POST /api/agents/{agent}/memory/{path}': Call(json=lambda ids: {}),
    'POST /api/webhooks': Call(json=lambda ids: {'url': 'https://hooks.invalid/', 'events': ['run.ended']}),
    'DELETE /api/webhooks/{webhook}': Call(),
    'POST /api/webhooks/{webhook}/test': Call(),
    'POST /v1/chat/completions': Call(json=lambda ids: {'model': ids['agent'], 'messages': _SAID}),
    'POST /v1/messages': Call(json=lambda ids: {'model': ids['agent'], 'max_tokens': 9, 'messages': _SAID}),
    'POST /v1/messages/count_tokens': Call(json=lambda ids: {'model': ids['agent'], 'messages': _SAID}),
    'POST /v1beta/models/{agent}:countTokens': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1/models/{agent}:countTokens': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1beta/models/{agent}:generateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1beta/models/{agent}:streamGenerateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1/models/{agent}:generateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1/models/{agent}:streamGenerateContent': Call(json=lambda ids: {'contents': _CONTENTS}),
    'POST /v1/responses': Call(
        json=lambda ids: {'model': ids['agent'], 'input': 'Hi', 'previous_response_id': ids['response']}
    ),
    'POST /v1/responses/input_tokens': Call(
        json=lambda ids: {'model': ids['agent'], 'previous_response_id': ids['response']}
    ),
    'DELETE /v1/responses/{response}': Call(),
    'POST /v1/responses/{response}/cancel': Call(),
    'POST /v1/conversations': Call(json=lambda ids: {}),
    'GET /v1/conversations/{conversation}': Call(path={'conversation': 'openai_conversation'}),
    'POST /v1/conversations/{conversation}': Call(
        path={'conversation': 'openai_conversation'}, json=lambda ids: {'metadata': {}}
    ),
    'DELETE /v1/conversations/{conversation}': Call(path={'conversation': 'openai_conversation'}),
    'GET /v1/conversations/{conversation}/items': Call(path={'conversation': 'openai_conversation'}),
    'POST /v1/conversations/{conversation}/items': Call(
        path={'conversation': 'openai_conversation'}, json=lambda ids: {'items': _SAID}
    ),
    'GET /v1/conversations/{conversation}/items/{item}': Call(path={'conversation': 'openai_conversation'}),
    'DELETE /v1/conversations/{conversation}/items/{item}': Call(path={'conversation': 'openai_conversation'}),
    'POST /mcp': Call(  # `tests/server/mcp` has the matrix of its tools
        json=lambda ids: {'jsonrpc': '2.0', 'id': 1, 'method': 'ping'},
        headers=lambda ids: {'accept': 'application/json, text/event-stream'},
    ),
    'POST /a2a/{agent}': Call(  # `tests/server/a2a` tries its other methods
        json=lambda ids: {
            'jsonrpc': '2.0',
            'id': 1,
            'method': 'SendMessage',
            'params': {
                'message': {
                    'role': 'ROLE_USER',
                    'messageId': 'm1',
                    'parts': [{'text': 'Hi'}],
                    'contextId': ids['conversation'],
                },
            },
        }
    ),
    'POST /ag-ui/{agent}': Call(json=lambda ids: _AG_UI),
    'POST /vercel/{agent}': Call(json=lambda ids: _VERCEL),
    'GET /vercel/{agent}/{thread}/stream': Call(headers=lambda ids: {'last-event-id': f'{ids["ui_run"]}.x.1'}),
}
"""Requests by method and path. A `GET` route that is missing here is called without options."""


# Routes


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A route and its request."""

    name: str
    method: str
    path: str
    scopes: frozenset[KeyScope | None]
    """The required scopes; `None` stands for any key."""
    call: Call

    def request(self, ids: Ids) -> dict[str, Any]:
        """Return the arguments for `httpx`."""
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
        """Return the ids that the request uses."""
        used = _Noting(ids)
        self.request(used)
        return sorted(used.seen - FREE)


class _Noting(dict[str, str]):
    """A dictionary that records the keys that are read."""

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
            assert isinstance(route, APIRoute), f'{route} has no dependencies: its scope is unknown.'
            for method in sorted(route.methods or ()):
                path = re.sub(r':\w+\}', '}', route.path)
                name = f'{method} {path}'
                known = CALLS.get(name, Call() if method == 'GET' else None)
                assert known is not None, f'The request for {name!r} is unknown: add it to CALLS.'
                yield Tried(name=name, method=method, path=path, scopes=asked(route.dependant), call=known)


def asked(dependant: Dependant) -> frozenset[KeyScope | None]:
    """Return the scopes that a route requires."""
    found: set[KeyScope | None] = {dependant.call.scope} if isinstance(dependant.call, Require) else set()
    for each in dependant.dependencies:
        found |= asked(each)
    return frozenset(found)


ROUTES = [each for each in routes() if each.name not in OPEN]


@pytest.mark.slow
async def test_every_documented_route_is_in_the_matrix(document: dict[str, Any]) -> None:
    documented = {
        f'{method.upper()} {re.sub(r":path}", "}", path)}'
        for path, methods in document['paths'].items()
        for method in methods
    }
    assert documented - OPEN == {each.name for each in ROUTES} & documented
    assert documented - OPEN <= {each.name for each in ROUTES}


def test_public_paths_are_exactly_the_open_routes() -> None:
    names = {each.name for each in routes()}
    assert {name for name in names if is_public(name.partition(' ')[2])} == names & OPEN


def test_every_route_requires_exactly_one_scope() -> None:
    assert [each.name for each in ROUTES if len(each.scopes) != 1] == []


def test_calls_contain_no_removed_routes() -> None:
    assert set(CALLS) - {each.name for each in ROUTES} == set()


# Resources of an owner


def _write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Request to write a file, then answer `Done.`."""
    if len(messages) == 1:
        return ModelResponse(parts=[call('write_file', path='/a.txt', content='x')])
    return ModelResponse(parts=[TextPart('Done.')])


@pytest.fixture
def matrix_agents(agents: Mapping[str, AnyAgent]) -> dict[str, AnyAgent]:
    """An agent that echoes, one that requires approval, and one without conversations."""
    asker = create_deep_agent(ScriptedModel(then=_write), interrupt_on={'write_file': True})
    return {'analyst': agents['analyst'], 'asker': asker, 'writer': agents['writer']}


@pytest.fixture
async def world(serve: Serve, matrix_agents: dict[str, AnyAgent], settings: ServerSettings) -> AsyncGenerator[Served]:
    settings = settings.model_copy(update={'webhook_key': 'a key of thirty-two or more characters'})
    async with serve(matrix_agents, settings, authenticate=authenticate) as served:
        yield served


def authenticate(request: Request) -> Identity | None:
    """The login of a host application: the headers name a user, the scopes and the agents."""
    owner, agents = request.headers.get('x-user'), request.headers.get('x-agents')
    if owner is None:
        return None
    scopes = cast('list[KeyScope]', request.headers['x-scopes'].split())
    return Identity(owner=owner, scopes=scopes, agents=None if agents is None else agents.split())


Enter: TypeAlias = Callable[..., Awaitable[Client]]
"""Returns a client of an owner with scopes: `await enter('run', owner='ada')`."""


@pytest.fixture(params=['key', 'login'])
def enter(request: pytest.FixtureRequest, world: Served) -> Enter:
    """Return clients with API keys, then clients with the login of a host application."""

    async def enter(*scopes: KeyScope, owner: str = 'ada', agents: Sequence[str] | None = None) -> Client:
        if request.param == 'key':
            return world.client(await world.key(*scopes, owner=owner, agents=agents))
        headers = {'x-user': owner, 'x-scopes': ' '.join(scopes)}
        return world.client(headers=headers if agents is None else {**headers, 'x-agents': ' '.join(agents)})

    return enter


@pytest.fixture
async def document(world: Served) -> dict[str, Any]:
    return world.app.openapi()


async def make_ids(world: Served, owner: str) -> dict[str, str]:
    """Create one resource of each kind and return the ids by parameter name."""
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
        openai_conversation = await ok(client.post('/v1/conversations', json={}))
        talk = {'model': 'analyst', 'input': 'Hi', 'conversation': openai_conversation['id']}
        response = await ok(client.post('/v1/responses', json=talk))
        items = await ok(client.get(f'/v1/conversations/{openai_conversation["id"]}/items'))
        ui_run = (await ok(client.get('/api/runs', params={'limit': 1})))['items'][0]
        webhook = await ok(client.post('/api/webhooks', json={'url': 'https://hooks.invalid/'}))
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
        'response': response['id'],
        'openai_conversation': openai_conversation['id'],
        'item': items['first_id'],
        'ui_run': ui_run['id'],
        'webhook': webhook['id'],
        'name': 'b.csv',
        'path': 'uploads/a.csv',
    }


async def created(client: Client, agent: str) -> str:
    return (await ok(client.post('/api/conversations', json={'agent': agent})))['id']


async def ok(answer: Any) -> Any:
    """Return the JSON of a successful response."""
    done: httpx.Response = await answer
    assert done.is_success, done.text
    return done.json()


@pytest.fixture
async def ids(world: Served) -> dict[str, str]:
    """The ids of resources of ada."""
    return await make_ids(world, 'ada')


ALL: tuple[KeyScope, ...] = ('run', 'approve', 'audit')
"""Every scope that concerns resources of an owner."""


# Responses


async def test_every_route_requires_a_key(world: Served, ids: Ids) -> None:
    async with world.client() as nobody:
        answers = {each.name: await nobody.request(**each.request(ids)) for each in ROUTES}
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 401} == {}


@pytest.mark.slow
async def test_every_route_requires_its_scope(enter: Enter, ids: Ids) -> None:
    told: dict[str, int] = {}
    for scope in get_args(KeyScope):
        others: list[KeyScope] = [each for each in get_args(KeyScope) if each not in (scope, 'admin')]
        async with await enter(*others) as client:
            for each in ROUTES:
                if scope in each.scopes:
                    told[each.name] = (await client.request(**each.request(ids))).status_code
    assert len(told) > 30
    assert {name: status for name, status in told.items() if status != 403} == {}


@pytest.mark.slow
async def test_resources_of_another_owner_are_not_found(enter: Enter, world: Served, ids: Ids) -> None:
    """The response for a foreign id in the path, the query or the body equals the response for an unknown id."""
    own = await make_ids(world, 'bob')
    tried: list[str] = []
    wrong: list[object] = []
    async with await enter(*ALL, owner='bob') as bob:
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


@pytest.mark.slow
async def test_resources_of_agents_outside_the_key_are_not_found(enter: Enter, ids: Ids) -> None:
    tried: list[str] = []
    wrong: list[object] = []
    async with await enter(*ALL, owner='ada', agents=['writer']) as client:
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
    """Return whether both responses are the same and disclose nothing."""
    is_same = (foreign.status_code, foreign.text) == (unknown.status_code, unknown.text)
    is_nothing = (
        foreign.status_code == 204 or is_not_found(foreign) or (foreign.is_success and not foreign.json()['items'])
    )
    return is_same and is_nothing


def is_not_found(answer: httpx.Response) -> bool:
    """Return whether a resource was not found: HTTP 404, or `TaskNotFoundError` of A2A, which has errors with HTTP 200."""
    return answer.status_code == 404 or ('"jsonrpc"' in answer.text and answer.json()['error']['code'] == -32001)


@pytest.mark.slow
async def test_requests_of_another_owner_change_nothing(enter: Enter, world: Served, ids: Ids) -> None:
    """The resources of ada are unchanged after all requests of bob."""
    before = await everything(world, ids)
    async with await enter(*ALL, owner='bob') as bob:
        for each in ROUTES:
            if each.method != 'GET' and each.scopes <= {*ALL, None} and set(each.slots(ids)) - {'agent'}:
                assert is_not_found(await bob.request(**each.request(ids)))
    assert await everything(world, ids) == before


async def everything(world: Served, ids: Ids) -> list[object]:
    """Return all resources that ada can read."""
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


ONLY_AGENT = 'GET /.well-known/agent-card.json'
"""It answers 404 where several agents are served, as here."""

MEMORY = {f'{method} /api/agents/{{agent}}/memory/{{path}}' for method in ('GET', 'POST')}
"""Routes of files of the memory, which needs pydantic-ai-harness; `routes/test_memory.py` has requests of their owner."""


@pytest.mark.slow
async def test_requests_of_the_owner_succeed(enter: Enter, ids: Ids) -> None:
    """Proves that the requests of the matrix are valid, so the refusals above are due to ownership."""
    refused: list[object] = []
    last = {'GET': 0, 'PUT': 1, 'PATCH': 2, 'POST': 3, 'DELETE': 4}

    def order(each: Tried) -> float:
        # Delete the upload while its version is the head, and the item while its conversation exists.
        is_part = '/uploads/' in each.path or '/items/' in each.path
        return 1.5 if each.method == 'DELETE' and is_part else last[each.method]

    async with await enter('admin', owner='ada') as ada:
        for each in sorted(ROUTES, key=order):
            answer = await ada.request(**each.request(ids))
            if not answer.is_success and answer.status_code != 409 and each.name not in (*MEMORY, ONLY_AGENT):
                refused.append((each.name, answer.status_code, answer.text))
    assert refused == []
