"""The login of a host application: `create_app(authenticate=…)`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_deep import create_deep_agent
from pydantic_deep.server import Identity, ServerSettings, list_api_keys
from pydantic_deep.server.access._authentication import CROSS_ORIGIN, LOGIN_REQUIRED, is_cross_origin
from pydantic_deep.server.access._identity import InvalidLoginError
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import BASE_URL, Gate, Listen, Serve, Served

pytestmark = pytest.mark.anyio


@dataclass
class Users:
    """A host that knows people by a cookie, as a coroutine function."""

    known: dict[str, Identity] = field(default_factory=dict[str, Identity])
    """The users, by the value of the cookie."""
    asked: int = 0
    """How often `authenticate` was called."""

    async def authenticate(self, request: Request) -> Identity | None:
        self.asked += 1
        return self.known.get(request.cookies.get('session', ''))


@pytest.fixture
def users() -> Users:
    return Users({'a': Identity(owner='ada'), 'b': Identity(owner='bob', scopes=['run'], agents=['writer'])})


@pytest.fixture
async def hosted(serve: Serve, users: Users) -> AsyncGenerator[Served]:
    """The application with that login."""
    async with serve(authenticate=users.authenticate, login_url='/login', logout_url='/logout') as served:
        yield served


def browser(served: Served, session: str, **headers: str) -> httpx.AsyncClient:
    """Return a client with a cookie."""
    return served.client(headers={'cookie': f'session={session}', **headers})


async def test_user_of_the_host_needs_no_key(hosted: Served) -> None:
    """The cookie of the host identifies the owner, who has the default scopes and all agents."""
    async with browser(hosted, 'a') as ada:
        assert (await ada.get('/api/me')).json() == {
            'owner': 'ada', 'scopes': ['approve', 'run'], 'agents': None, 'has_key': False, 'logout_url': '/logout'
        }  # fmt: skip
        assert (await ada.post('/api/conversations', json={'agent': 'analyst'})).status_code == 201
    assert await list_api_keys(hosted.store) == []


async def test_scopes_and_agents_of_the_identity_are_required(hosted: Served) -> None:
    """A user without a scope gets 403 in words for a user, and an agent outside the identity is not found."""
    async with browser(hosted, 'b') as bob:
        refused = await bob.get('/api/approvals')
        assert (refused.status_code, refused.json()['error']['message']) == (
            403,
            'This requires a user with the scope `approve`.',
        )
        assert (await bob.get('/api/agents/analyst')).status_code == 404


async def test_key_is_accepted_if_the_host_knows_nobody(hosted: Served) -> None:
    """Programs send keys to the same server. A key of an owner accesses the conversations of that user."""
    async with browser(hosted, 'a') as ada, hosted.client(await hosted.key(owner='ada')) as program:
        made = (await ada.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
        assert (await program.get(f'/api/conversations/{made}')).status_code == 200
        me = (await program.get('/api/me')).json()
        assert (me['has_key'], me['logout_url']) == (True, None)


async def test_stranger_is_told_where_to_log_in(hosted: Served, serve: Serve, users: Users) -> None:
    """Without a login and a key, the answer is 401 with the address of the login, if the host gave one."""
    async with browser(hosted, 'unknown') as stranger:
        answer = await stranger.get('/api/me')
    assert (answer.status_code, answer.headers['www-authenticate']) == (401, 'Bearer')
    assert answer.json() == {'error': {'type': 'unauthenticated', 'message': LOGIN_REQUIRED, 'login_url': '/login'}}
    async with serve(authenticate=users.authenticate) as served, browser(served, 'unknown') as stranger:
        assert (await stranger.get('/api/me')).json() == {
            'error': {'type': 'unauthenticated', 'message': LOGIN_REQUIRED}
        }


async def test_public_paths_do_not_ask_the_host(hosted: Served, users: Users) -> None:
    """The page, its files and the probes are the same for everybody."""
    async with browser(hosted, 'a') as ada:
        assert [(await ada.get(path)).status_code for path in ('/', '/static/page.js', '/healthz')] == [200, 200, 200]
    assert users.asked == 0


async def test_rate_limit_counts_the_requests_of_an_owner(serve: Serve, users: Users) -> None:
    """All browsers of a user share a limit, and other users have their own."""
    settings = ServerSettings(requests_per_second=0.001, request_burst=2)
    users.known['a2'] = users.known['a']
    async with serve(settings=settings, authenticate=users.authenticate) as served, served.client() as client:
        told = [
            (await client.get('/api/me', headers={'cookie': f'session={session}'})).status_code
            for session in ('a', 'a2', 'a', 'b')
        ]
    assert told == [200, 200, 429, 200]


async def test_running_turns_are_counted_for_the_owner(serve: Serve, users: Users, gate: Gate) -> None:
    """`max_runs_per_key` limits a user without a key as it limits a key."""
    agent = create_deep_agent(ScriptedModel([call('hold')], 'Done.'), tools=[gate.hold])
    settings = ServerSettings(max_runs_per_key=1)
    async with (
        serve({'slow': agent}, settings, authenticate=users.authenticate) as served,
        browser(served, 'a') as ada,
    ):
        made = [(await ada.post('/api/conversations', json={'agent': 'slow'})).headers['location'] for _ in range(2)]
        turns = [(await ada.post(f'{path}/turns?wait=false', json={'prompt': 'Go'})).status_code for path in made]
        gate.opened.set()
        await served.state.runs.drain()
    assert turns == [202, 429]


@pytest.mark.parametrize(
    ('headers', 'is_cross'),
    [
        ({}, False),  # no browser
        (
            {'sec-fetch-site': 'same-origin', 'origin': 'http://evil.example'},
            False,
        ),  # `Sec-Fetch-Site` cannot be forged
        ({'sec-fetch-site': 'none'}, False),  # typed by a person
        ({'sec-fetch-site': 'same-site'}, True),
        ({'sec-fetch-site': 'cross-site'}, True),
        ({'sec-fetch-site': 'cross-site', 'origin': 'http://localhost'}, True),
        ({'origin': 'http://localhost'}, False),
        ({'origin': 'https://localhost'}, False),  # a proxy has decrypted it
        ({'origin': 'ftp://localhost'}, True),
        ({'origin': 'chrome-extension://localhost'}, True),
        ({'origin': 'http://localhost:8000'}, True),
        ({'origin': 'http://evil.example'}, True),
        ({'origin': 'http://localhost.evil.example'}, True),
        ({'origin': 'http://localhost@evil.example'}, True),
        ({'origin': 'http://[::1'}, True),
        ({'origin': 'null'}, True),  # a sandboxed frame
        ({'origin': ''}, True),
    ],
)
async def test_page_of_another_origin_changes_nothing(hosted: Served, headers: dict[str, str], is_cross: bool) -> None:
    """Browsers add cookies to requests of any page, so with a login only pages of this origin can change something."""
    assert is_cross_origin(Headers({'host': 'localhost', **headers}), 'http') is is_cross
    async with browser(hosted, 'a', **headers) as ada:
        answers = [
            await ada.post('/api/conversations', json={'agent': 'analyst'}),
            await ada.put('/api/conversations/x/uploads/a.txt', content=b''),
            await ada.patch('/api/conversations/x', json={'name': 'x'}),
            await ada.delete('/api/conversations/x'),
        ]
        assert (await ada.get('/api/conversations')).status_code == 200
    assert [answer.status_code for answer in answers] == ([403] * 4 if is_cross else [201, 404, 404, 404])
    if is_cross:
        assert answers[0].json() == {'error': {'type': 'forbidden', 'message': CROSS_ORIGIN}}


async def test_program_with_a_key_may_be_on_a_page_of_another_origin(hosted: Served) -> None:
    """A page of another origin has no key unless somebody gave it one, so the check does not apply to keys."""
    headers = {'x-api-key': await hosted.key(), 'sec-fetch-site': 'cross-site'}
    async with hosted.client(headers=headers) as program:
        assert (await program.post('/api/conversations', json={'agent': 'analyst'})).status_code == 201


async def test_exception_of_the_host_refuses_the_request(serve: Serve) -> None:
    """Functions of FastAPI refuse requests by `HTTPException`: the status is kept, the text is not for clients."""

    def refuse(request: Request) -> None:
        raise HTTPException(403, f'The account of {request.cookies["session"]} is locked.')

    async with serve(authenticate=refuse) as served, browser(served, 'secret') as client:
        answer = await client.get('/api/me')
    assert (answer.status_code, answer.json()['error']['type']) == (403, 'forbidden')
    assert 'secret' not in answer.text


@pytest.mark.parametrize('returned', ['ada', True, {'owner': 'ada'}])
async def test_other_return_values_let_nobody_in(serve: Serve, returned: Any) -> None:
    """A function that returns something else than an identity is a defect: 500, and an error that says what to return."""

    def authenticate(request: Request) -> Any:
        return returned

    async with serve(authenticate=authenticate) as served:
        async with served.client(raise_app_exceptions=False) as client:
            assert (await client.get('/api/me')).status_code == 500
        async with served.client() as client:
            with pytest.raises(InvalidLoginError, match='Return an `Identity`, or `None` to require an API key'):
                await client.get('/api/me')


async def test_body_is_not_available_to_the_host(serve: Serve) -> None:
    """The body is read after authentication, and only by the route."""

    async def authenticate(request: Request) -> Identity:
        await request.body()
        return Identity(owner='ada')

    async with serve(authenticate=authenticate) as served, served.client() as client:
        with pytest.raises(RuntimeError, match='Receive channel has not been made available'):
            await client.post('/api/conversations', json={'agent': 'analyst'})


async def test_stream_ends_with_the_login_and_the_run_continues(
    serve: Serve, gate: Gate, listen: Listen, users: Users
) -> None:
    """A stream of a user who was logged out, or whose permissions changed, ends at the next check."""
    agent = create_deep_agent(ScriptedModel([call('hold')], 'Done.'), tools=[gate.hold])
    async with (
        serve({'slow': agent}, ServerSettings(keepalive_seconds=0.01), authenticate=users.authenticate) as served,
        listen(served.app) as url,
        httpx.AsyncClient(base_url=url, timeout=60, headers={'cookie': 'session=a'}) as client,
    ):
        made = await client.post('/api/conversations', json={'agent': 'slow'})
        turns, headers = f'{made.headers["location"]}/turns', {'accept': 'text/event-stream'}
        async with client.stream('POST', turns, json={'prompt': 'Go'}, headers=headers) as response:
            await gate.reached.wait()
            users.known['a'] = Identity(owner='ada', scopes=['approve'])
            told = [line async for line in response.aiter_lines() if line.startswith('event: ')]
        gate.opened.set()
        await served.state.runs.drain()
        users.known['a'] = Identity(owner='ada')
        assert told[:2] == ['event: start', 'event: notice']
        assert 'event: end' not in told
        assert (await client.get(f'/api/runs/{response.headers["x-run-id"]}')).json()['state'] == 'complete'


async def test_user_set_by_middleware_of_the_host_is_available_when_mounted(serve: Serve) -> None:
    """Middleware of the host application wraps mounted applications, so `request.state` has what it stored there."""

    class SignIn:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault('state', {})['key'] = Request(scope).headers.get('x-test-user')
            await self._app(scope, receive, send)

    def authenticate(request: Request) -> Identity | None:
        return None if request.state.key is None else Identity(owner=request.state.key)

    async with serve(authenticate=authenticate) as served:
        outer = Starlette(routes=[Mount('/deep', served.app)], middleware=[Middleware(SignIn)])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url=BASE_URL) as client:
            assert (await client.get('/deep/api/me')).status_code == 401
            known = await client.get('/deep/api/me', headers={'x-test-user': 'ada'})
            assert (known.status_code, known.json()['owner']) == (200, 'ada')
