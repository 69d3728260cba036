"""The OpenAPI document matches the server: schemathesis sends valid and invalid requests.

The requests use a socket, because a client in the same process would normalize them. `make soak` runs more examples.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings, create_api_key, create_app
from pydantic_deep.store import open_store
from pydantic_deep.testing import Answer, ScriptedModel, call

pytestmark = pytest.mark.slow

SOAK_ROUNDS = int(os.environ.get('SOAK_ROUNDS', '0'))
"""Number of rounds of the soak test, set by `make soak`."""

EXAMPLES = 4
"""Number of requests per operation and mode."""

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""A shared context for plain HTTP clients. Creating one with certificates would take longer than all requests."""

RULES = cast('Any', checks).positive_data_acceptance
"""An excluded check: a valid request may violate a rule that the schema cannot express, such as the format of a cursor.
"""


@dataclass(frozen=True)
class Running:
    """A running server on a port."""

    url: str
    key: str
    document: Mapping[str, Any]
    read: dict[str, str] = field(default_factory=dict[str, str])
    """Ids for operations that change nothing."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Request to write a file with approval, then answer."""
    return call('write_file', path='/a.txt', content='x') if len(messages) % 2 else 'Done.'


@pytest.fixture(scope='module')
def running() -> Generator[Running]:
    """A server in a thread, with one agent that answers and one that requires approval."""
    agents = {
        'analyst': create_deep_agent(ScriptedModel(then=lambda messages, info: 'Hello.')),
        'asker': create_deep_agent(ScriptedModel(then=answer), interrupt_on={'write_file': True}),
    }
    settings = ServerSettings(
        requests_per_second=1e6, request_burst=10**9, wrong_key_burst=10**9, max_runs_per_key=1000
    )
    begun, found, stop = threading.Event(), list[Running](), list[uvicorn.Server]()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun.set()

    async def serve() -> None:
        async with open_store('memory:') as store:
            app = create_app(agents, store, settings)
            key = await create_api_key(store, name='t', scopes=['run', 'approve', 'audit', 'admin'], owner='ada')
            with socket.create_server(('127.0.0.1', 0)) as listener:
                url = f'http://127.0.0.1:{listener.getsockname()[1]}'
                found.append(Running(url, key, app.openapi()))
                stop.append(Server(uvicorn.Config(app, log_config=None)))
                await stop[0].serve(sockets=[listener])

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    assert begun.wait(60)
    try:
        yield found[0]
    finally:
        stop[0].should_exit = True
        thread.join()


def test_responses_match_the_openapi_document(running: Running) -> None:
    """No response is a 5xx, and each has a documented status, content type and body."""
    assert ask_everything(running, schemathesis.GenerationMode.POSITIVE, EXAMPLES) > 30


def test_requests_invalid_by_the_document_are_refused(running: Running) -> None:
    assert ask_everything(running, schemathesis.GenerationMode.NEGATIVE, EXAMPLES) > 15


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
@pytest.mark.parametrize('mode', list(schemathesis.GenerationMode))
def test_openapi_document_soak(running: Running, mode: schemathesis.GenerationMode) -> None:
    assert ask_everything(running, mode, max(EXAMPLES, SOAK_ROUNDS // 50)) > 15


def ask_everything(running: Running, mode: schemathesis.GenerationMode, examples: int) -> int:
    """Send valid or invalid requests to each operation, and return the number of operations."""
    schema: Any = schemathesis.openapi.from_dict(dict(running.document))
    schema.config.update(base_url=running.url)
    asked = 0
    wrong: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        has_rules = any(True for each in (operation.query, operation.body) for _ in each)
        if mode is schemathesis.GenerationMode.POSITIVE or has_rules:
            asked += 1
            wrong += ask(running, operation, mode, examples)
    assert wrong == []
    return asked


def ask(running: Running, operation: Any, mode: schemathesis.GenerationMode, examples: int) -> list[str]:
    """Send requests to one operation and return the failures. Two thirds of the requests use existing ids."""
    headers = {'Authorization': f'Bearer {running.key}'}
    ids, numbers, wrong = ids_for(running, operation), count(), list[str]()

    @given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis_settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    def try_one(case: Any) -> None:
        if next(numbers) % 3:
            case.path_parameters = {**case.path_parameters, **{k: ids[k] for k in case.path_parameters if k in ids}}
        try:
            case.call_and_validate(headers=headers, timeout=60, excluded_checks=[RULES])
        except FailureGroup as failures:
            wrong.extend(f'{operation.label}: {each}\n{case.as_curl_command()}' for each in failures.exceptions)

    try_one()
    return wrong


def ids_for(running: Running, operation: Any) -> Mapping[str, str]:
    """Return ids for the path of an operation: new ones if it may change them, otherwise shared ones."""
    if '{' not in operation.path:
        return {}
    if operation.method.upper() != 'GET':
        return make_ids(running)
    if not running.read:
        running.read.update(make_ids(running))
    return running.read


def make_ids(running: Running) -> dict[str, str]:
    """Create one resource for each path parameter."""
    headers = {'Authorization': f'Bearer {running.key}'}
    with httpx.Client(base_url=running.url, headers=headers, timeout=60, verify=PLAIN) as client:
        said: dict[str, Any] = {}
        for agent in ('asker', 'analyst'):
            path = client.post('/api/conversations', json={'agent': agent}).headers['location']
            said = client.post(f'{path}/turns', json={'prompt': 'Hello'}).json()
        approval = client.get('/api/approvals').json()['items'][0]['id']
    return {
        'agent': 'analyst',
        'conversation': said['conversation_id'],
        'version': said['version_id'],
        'run': said['id'],
        'approval': approval,
    }
