"""Uploads over HTTP: raw bytes, kept at once, and found by the next turn, in this process or another."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import Client, Gate, MakeClient, Serve

pytestmark = pytest.mark.anyio


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call the tool that the user names, and say what it returned."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if not said:
        return f'{[getattr(part, "content", None) for part in last.parts]}'
    tool, _, path = said[-1].partition(' ')
    return call(tool, path=path) if path else call(tool)


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    return {
        'analyst': create_deep_agent(model, tools=[gate.hold]),
        'careful': create_deep_agent(model, interrupt_on={'ls': True}),
    }


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def begin(client: Client, agent: str = 'analyst') -> str:
    return (await client.post('/api/conversations', json={'agent': agent})).headers['location']


async def test_an_upload_is_found_by_the_next_turn(ada: Client):
    path = await begin(ada)

    created = await ada.put(f'{path}/uploads/2026/sales.csv', content=b'month,sum\nmay,4\n')
    run = (await ada.post(f'{path}/turns', json={'prompt': 'read_file /uploads/2026/sales.csv'})).json()

    assert created.status_code == 201
    body = created.json()
    assert body['upload'] == {
        'name': '2026/sales.csv', 'path': '/uploads/2026/sales.csv', 'size_bytes': 16, 'encoding': 'utf-8',
        'line_count': 2, 'media_type': 'text/csv',
    }  # fmt: skip
    assert 'may,4' in run['output']
    assert run['base_id'] == body['version_id']
    assert (await ada.get(f'{path}/uploads')).json() == {'items': [body['upload']]}
    kinds = [each['kind'] for each in (await ada.get(f'{path}/versions')).json()['items']]
    assert kinds == ['turn', 'edit', 'root']


async def test_an_upload_of_the_same_name_replaces_the_one_before(ada: Client):
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'one')

    same = await ada.put(f'{path}/uploads/a', content=b'one')
    other = await ada.put(f'{path}/uploads/a', content=b'other')

    assert (same.status_code, other.status_code) == (201, 201)
    assert (same.json()['upload']['size_bytes'], other.json()['upload']['size_bytes']) == (3, 5)
    assert [each['size_bytes'] for each in (await ada.get(f'{path}/uploads')).json()['items']] == [5]
    version = other.json()['version_id']
    assert (await ada.get(f'/api/versions/{version}/files/uploads/a')).content == b'other'


async def test_names_that_leave_the_uploads_are_refused(ada: Client):
    path = await begin(ada)

    for name in ('..%2fa', 'a/..%2f..%2f..%2fb', '%2fetc/passwd', '%00'):
        refused = await ada.put(f'{path}/uploads/{name}', content=b'x')
        assert refused.status_code in {404, 422}, name
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}


async def test_uploads_that_are_too_large_are_refused_before_they_come(serve: Serve, settings: ServerSettings):
    small = settings.model_copy(update={'max_upload_bytes': 1000, 'max_body_bytes': 500})

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(11):
            yield b'x' * 100

    async with serve(settings=small) as served:
        ada = served.client(await served.key())
        path = await begin(ada)

        announced = await ada.put(f'{path}/uploads/a', content=b'', headers={'content-length': str(10 * 2**30)})
        streamed = await ada.put(f'{path}/uploads/a', content=pieces())
        fits = await ada.put(f'{path}/uploads/a', content=b'x' * 1000)

        assert (announced.status_code, streamed.status_code, fits.status_code) == (413, 413, 201)
        await ada.aclose()


async def test_nothing_is_uploaded_while_a_run_works_or_something_waits(ada: Client, gate: Gate):
    path, careful = await begin(ada), await begin(ada, 'careful')
    await ada.post(f'{careful}/turns', json={'prompt': 'ls /'})
    run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()

    busy = await ada.put(f'{path}/uploads/a', content=b'x')
    waiting = await ada.put(f'{careful}/uploads/a', content=b'x')
    deleted = await ada.delete(path)

    assert (busy.status_code, busy.json()['error']['run_id']) == (409, run['id'])
    assert (waiting.status_code, len(waiting.json()['error']['pending'])) == (409, 1)
    assert deleted.status_code == 409
    gate.opened.set()


async def test_a_conversation_that_moves_on_meanwhile_takes_no_upload(ada: Client):
    path = await begin(ada)

    async def slowly() -> AsyncGenerator[bytes]:
        yield b'one'
        await ada.post(f'{path}/turns', json={'prompt': 'ls /'})
        yield b'two'

    assert (await ada.put(f'{path}/uploads/a', content=slowly())).status_code == 409
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}


async def test_files_of_a_conversation_can_be_a_directory_of_the_application(serve: Serve, tmp_path: Path):
    def make_backend(owner: str, conversation_id: str) -> LocalBackend:
        root = tmp_path / owner / conversation_id
        root.mkdir(parents=True, exist_ok=True)
        return LocalBackend(root)

    async with serve(make_backend=make_backend) as served:
        ada = served.client(await served.key())
        path = await begin(ada)

        await ada.put(f'{path}/uploads/a', content=b'x')
        run = (await ada.post(f'{path}/turns', json={'prompt': 'read_file uploads/a'})).json()

        assert run['state'] == 'complete'
        root = tmp_path / 'ada' / path.rpartition('/')[2]
        assert (root / 'uploads' / 'a').read_bytes() == b'x'
        assert (await ada.get(f'/api/versions/{run["version_id"]}/files/uploads/a')).content == b'x'
        await ada.aclose()


async def test_uploads_of_others_are_not_there(ada: Client, make_client: MakeClient):
    """004-09"""
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'x')
    bob = await make_client('run', owner='bob')

    assert (await bob.get(f'{path}/uploads')).status_code == 404
    assert (await bob.put(f'{path}/uploads/a', content=b'y')).status_code == 404


async def test_an_agent_without_our_deps_holds_no_uploads(serve: Serve):
    async with (
        serve({'plain': Agent(ScriptedModel('Hi.'))}) as served,
        served.client(await served.key('run')) as client,
    ):
        conversation = (await client.post('/api/conversations', json={'agent': 'plain'})).json()['id']
        refused = await client.put(f'/api/conversations/{conversation}/uploads/a.txt', content=b'a')

    assert refused.status_code == 409
    assert refused.json()['error']['type'] == 'conflict'
