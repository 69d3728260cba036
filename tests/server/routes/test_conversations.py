"""Conversations over HTTP: create, list, read, rename and delete, restricted to their owner."""

from __future__ import annotations

import pytest

from pydantic_deep import create_deep_agent
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.access._ownership import Access, AuthorizedConversation, ServedVersion
from pydantic_deep.server.routes import _conversations
from pydantic_deep.store import SqlStore, VersionFilter
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.operations._commits import move_head
from pydantic_deep.store.sql import _rows
from pydantic_deep.store.sql._statements import integer
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import MakeClient, Serve, Served

pytestmark = pytest.mark.anyio


async def test_created_conversation_is_empty_and_readable(make_client: MakeClient):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    ada = await make_client('run')

    created = await ada.post('/api/conversations', json={'agent': 'analyst', 'name': 'Sales', 'metadata': {'a': [1]}})

    assert created.status_code == 201
    body = created.json()
    assert created.headers['location'] == f'/api/conversations/{body["id"]}'
    assert body | {'id': '', 'head': '', 'created_at': ''} == {
        'id': '', 'agent': 'analyst', 'name': 'Sales', 'metadata': {'a': [1]}, 'head': '', 'state': 'complete',
        'branch': 'main', 'running': [], 'suspended': [], 'todos': [], 'approvals': [], 'created_at': '',
        'usage': dict.fromkeys(body['usage'], 0), 'context': None,
    }  # fmt: skip
    assert (await ada.get(created.headers['location'])).json() == body


async def test_conversation_has_its_own_instructions(make_client: MakeClient, served: Served):
    """`POST /api/conversations` accepts `instructions`, which apply to all turns. A blank text is refused."""
    ada = await make_client('run')
    created = await ada.post('/api/conversations', json={'agent': 'analyst', 'instructions': 'Speak like a pirate.'})
    assert created.status_code == 201
    run = (await ada.post(f'{created.headers["location"]}/turns', json={'prompt': 'Hi'})).json()
    [request] = await served.store.requests(run['id'])
    parameters = (await served.store.asset(request.parameters or '')).data
    assert b'Speak like a pirate.' in parameters

    blank = await ada.post('/api/conversations', json={'agent': 'analyst', 'instructions': ' '})
    assert (blank.status_code, blank.json()['error']['field']) == (422, 'instructions')


async def test_transcript_contains_the_messages_of_a_turn(make_client: MakeClient):
    ada = await make_client('run')
    path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    root = (await ada.get(path)).json()['head']

    run = (await ada.post(f'{path}/turns', json={'prompt': 'Hi'})).json()

    transcript = (await ada.get(f'{path}/messages')).json()
    assert transcript['format_version'] == 1
    assert [message['kind'] for message in transcript['messages']] == ['request', 'response']
    assert transcript['messages'][1]['parts'][0]['content'] == 'You said: Hi' == run['output']
    assert (await ada.get(f'{path}/messages', params={'version': root})).json()['messages'] == []


async def test_conversations_are_found_by_a_part_of_their_name(make_client: MakeClient):
    """`search` compares names in any case, in pages like the whole list. Unnamed conversations match no text."""
    ada = await make_client('run')
    ids = {
        name: (await ada.post('/api/conversations', json={'agent': 'analyst', 'name': name})).json()['id']
        for name in ('Sales of May', 'Trip', 'All SALES')
    }
    await ada.post('/api/conversations', json={'agent': 'analyst'})

    first = (await ada.get('/api/conversations', params={'search': 'sales', 'limit': 1})).json()
    second = (await ada.get('/api/conversations', params={'search': 'sales', 'cursor': first['cursor']})).json()
    none = (await ada.get('/api/conversations', params={'search': 'x'})).json()

    assert [each['id'] for each in first['items']] == [ids['All SALES']]
    assert ([each['id'] for each in second['items']], second['cursor']) == ([ids['Sales of May']], None)
    assert none == {'items': [], 'cursor': None}


async def test_conversations_are_found_by_their_prompts_and_answers(make_client: MakeClient):
    """`search` finds texts of the owner's own dialogues, by one query for each page, beside names."""
    ada, bob = await make_client('run'), await make_client('run', owner='bob')
    ids: list[str] = []
    for client, prompt in ((ada, 'Where is my UMBRELLA?'), (ada, 'Rain'), (bob, 'An umbrella')):
        id = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
        await client.post(f'/api/conversations/{id}/turns', json={'prompt': prompt})
        ids.append(id)

    found = (await ada.get('/api/conversations', params={'search': 'umbrella'})).json()
    answer = (await bob.get('/api/conversations', params={'search': 'you said: AN'})).json()
    everything = (await ada.get('/api/conversations', params={'search': ''})).json()

    assert [each['id'] for each in found['items']] == ids[:1]
    assert [each['id'] for each in answer['items']] == ids[2:]
    assert [each['id'] for each in everything['items']] == ids[1::-1]


async def test_search_ends_after_many_conversations_with_a_cursor(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    """A request reads a limited number of conversations, and its cursor continues the search; no match is lost."""
    monkeypatch.setattr(_conversations, 'MAX_SEARCHED', 2)
    ada = await make_client('run')
    for number in range(5):
        await ada.post('/api/conversations', json={'agent': 'analyst', 'name': 'Oldest' if number == 0 else None})

    first = (await ada.get('/api/conversations', params={'search': 'oldest', 'limit': 1})).json()
    assert (first['items'], first['cursor'] is None) == ([], False)
    pages: list[str] = []
    cursor = first['cursor']
    while cursor is not None:
        page = (await ada.get('/api/conversations', params={'search': 'oldest', 'limit': 1, 'cursor': cursor})).json()
        cursor = page['cursor']
        pages += [each['name'] for each in page['items']]
    assert pages == ['Oldest']


async def test_conversations_are_listed_newest_first_in_pages(make_client: MakeClient):
    ada = await make_client('run')
    ids = [
        (await ada.post('/api/conversations', json={'agent': agent})).json()['id']
        for agent in ('analyst', 'writer', 'analyst', 'analyst')
    ]

    first = (await ada.get('/api/conversations', params={'limit': 3})).json()
    second = (await ada.get('/api/conversations', params={'limit': 3, 'cursor': first['cursor']})).json()
    of_writer = (await ada.get('/api/conversations', params={'agent': 'writer'})).json()

    assert [each['id'] for each in first['items']] == ids[:0:-1]
    assert ([each['id'] for each in second['items']], second['cursor']) == (ids[:1], None)
    assert [each['id'] for each in of_writer['items']] == [ids[1]]
    assert (await ada.get('/api/conversations', params={'cursor': 'x'})).status_code == 422


async def test_pages_are_full_after_filtering_by_agents_of_the_key(make_client: MakeClient):
    ada = await make_client('run')
    for agent in ('analyst', 'writer', 'writer', 'analyst', 'writer', 'analyst'):
        await ada.post('/api/conversations', json={'agent': agent})
    narrow = await make_client('run', agents=['analyst'])

    page = (await narrow.get('/api/conversations', params={'limit': 2})).json()
    rest = (await narrow.get('/api/conversations', params={'limit': 2, 'cursor': page['cursor']})).json()

    assert [each['agent'] for each in page['items']] == ['analyst'] * 2
    assert ([each['agent'] for each in rest['items']], rest['cursor']) == (['analyst'], None)


async def test_conversation_is_accessible_only_to_its_owner(make_client: MakeClient, served: Served):
    """004-09: Authentication/authorization flows."""
    ada, bob, again = await make_client('run'), await make_client('run', owner='bob'), await make_client('run')
    path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']

    forged = await bob.post('/api/conversations', json={'agent': 'analyst', 'metadata': {OWNER: 'ada'}})

    assert forged.status_code == 422
    assert (await bob.get(path)).status_code == 404
    assert (await bob.delete(path)).status_code == 404
    assert (await bob.get('/api/conversations')).json() == {'items': [], 'cursor': None}
    assert (await again.get(path)).status_code == 200
    narrow = await make_client('run', agents=['writer'])
    assert (await narrow.get(path)).status_code == 404
    assert (await narrow.post('/api/conversations', json={'agent': 'analyst'})).status_code == 404


async def test_conversation_without_an_owner_is_not_found(make_client: MakeClient, served: Served):
    root = await served.state.agents['analyst'].create()
    ada = await make_client('run')

    assert (await ada.get(f'/api/conversations/{root.conversation_id}')).status_code == 404
    assert (await ada.get(f'/api/versions/{root.id}')).status_code == 404
    assert (await ada.get('/api/conversations/x')).status_code == 404


async def test_deletion_removes_versions_of_subagents(serve: Serve, store: SqlStore):
    model = ScriptedModel(call('task', subagent='scout', description='look'), 'Seen.', 'Done.', 'More.')
    scout = Subagent(name='scout', description='Looks around.', instructions='Look.')
    async with serve(agents={'analyst': create_deep_agent(model, subagents=[scout])}) as served:
        ada = served.client(await served.key())
        path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        run = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
        await ada.post(f'{path}/turns', json={'prompt': 'on', 'from_version': run['base_id']})
        assert await store.count(VersionFilter()) > 4

        deleted = await ada.delete(path)

        assert (deleted.status_code, deleted.content) == (204, b'')
        assert await store.count(VersionFilter()) == 0
        for gone in (path, f'{path}/messages', f'/api/runs/{run["id"]}', f'/api/versions/{run["version_id"]}'):
            assert (await ada.get(gone)).status_code == 404
        assert (await ada.get('/api/conversations')).json()['items'] == []
        await ada.aclose()


async def test_runs_of_a_deleted_conversation_are_not_listed(make_client: MakeClient):
    """The log of the run still exists for a while."""
    ada = await make_client('run')
    paths = [(await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location'] for _ in range(2)]
    runs = [(await ada.post(f'{path}/turns', json={'prompt': 'Hi'})).json()['id'] for path in paths]
    await ada.delete(paths[1])

    assert [run['id'] for run in (await ada.get('/api/runs')).json()['items']] == runs[:1]
    assert (await ada.get(f'/api/runs/{runs[1]}')).status_code == 404


async def test_conversation_without_a_head_accepts_a_new_one(make_client: MakeClient, served: Served):
    ada = await make_client('run')
    path = (await ada.post('/api/conversations', json={'agent': 'analyst', 'name': 'Kept'})).headers['location']
    root = (await ada.get(path)).json()['head']
    first = (await ada.post(f'{path}/turns', json={'prompt': 'Hi'})).json()['version_id']
    await served.store.delete(root)
    await ada.post(f'{path}/turns', json={'prompt': 'Ho', 'from_version': first})
    for version in await served.store.versions(VersionFilter(conversation_id=path.rpartition('/')[2])):
        if version.id != first:
            await served.store.delete(version.id)
    await _behead(served.store, path.rpartition('/')[2])

    headless = (await ada.get(path)).json()
    refused = await ada.post(f'{path}/turns', json={'prompt': 'x'})
    moved = await ada.post(f'{path}/head', json={'version': first})

    assert (headless['head'], headless['state'], headless['name']) == (None, None, 'Kept')
    assert refused.status_code == 409
    assert moved.json()['is_head']


async def _behead(store: SqlStore, conversation_id: str) -> None:
    """Set the head to null, as the deletion of a version without a parent does."""

    def forget() -> Operation[None]:
        (row,) = yield Statement(f'SELECT {_rows.CONVERSATION}, number FROM conversation', ())
        yield from move_head(_rows.conversation_from(row[:-1]), integer(row[-1]), None)

    await store.engine.write(forget)


RESOURCES = {
    'agents': 'L R',
    'conversations': 'C L R U D',
    'messages': 'L',
    'turns': 'C',
    'runs': 'C L R U',
    'versions': 'C L R',
    'heads': 'R U',
    'files': 'L R',
    'archives': 'R',
    'uploads': 'C L U D',
    'approvals': 'L R U',
    'skills': 'L',
    'audit': 'L R',
    'webhooks': 'C L D',
    'memory': 'L R U',
}
"""Supported operations per resource: create, list, read, update, delete. A turn creates a run, and cancelling updates
it."""

ABSENT = {
    'agents C U D': 'agents are defined in code',
    'messages C R U D': 'messages are created only by turns: clients cannot write history',
    'uploads R': 'uploads are files of each version, and are read with the routes of files',
    'runs D': 'runs are deleted with their conversation',
    'versions U D': 'versions are immutable, and are deleted only with their conversation',
    'files C U D': 'files are changed by turns and uploads',
    'approvals C D': 'approvals are created by a pause, and remain as a record of the decisions',
    'audit C U D': 'audit records are written by the server, and remain after their runs are deleted',
    'webhooks R U': 'the list has all that is known of a webhook; to change it, remove it and create another',
    'memory C D': 'agents write their memory; to delete a file, restore its revision 0',
    'skills C R U D': 'skills are files of the application, and their text is for the model',
}
"""Operations that are absent on purpose, with the reason."""

ROUTES = {
    'agents': {'GET /api/agents', 'GET /api/agents/{agent}'},
    'conversations': {
        'POST /api/conversations',
        'GET /api/conversations',
        'GET /api/conversations/{conversation}',
        'PATCH /api/conversations/{conversation}',
        'DELETE /api/conversations/{conversation}',
    },
    'messages': {'GET /api/conversations/{conversation}/messages'},
    'turns': {'POST /api/conversations/{conversation}/turns', 'POST /api/conversations/{conversation}/resume'},
    'runs': {
        'GET /api/runs',
        'GET /api/runs/{run}',
        'GET /api/runs/{run}/events',
        'POST /api/runs/{run}/cancel',
        'POST /api/runs/{run}/resume',
    },
    'versions': {
        'GET /api/conversations/{conversation}/versions',
        'GET /api/versions/{version}',
        'GET /api/versions/{version}/diff',
        'POST /api/versions/{version}/branch',
        'POST /api/versions/{version}/merge',
    },
    'heads': {'POST /api/conversations/{conversation}/head'},
    'files': {'GET /api/versions/{version}/files', 'GET /api/versions/{version}/files/{path:path}'},
    'archives': {'GET /api/versions/{version}/archive'},
    'uploads': {
        'GET /api/conversations/{conversation}/uploads',
        'PUT /api/conversations/{conversation}/uploads/{name:path}',
        'DELETE /api/conversations/{conversation}/uploads/{name:path}',
    },
    'approvals': {'GET /api/approvals', 'GET /api/approvals/{approval}', 'POST /api/approvals/{approval}'},
    'skills': {'GET /api/agents/{agent}/skills'},
    'audit': {'GET /api/audit', 'GET /api/audit/{record}'},
    'memory': {
        'GET /api/agents/{agent}/memory',
        'GET /api/agents/{agent}/memory/{path:path}',
        'POST /api/agents/{agent}/memory/{path:path}',
    },
    'webhooks': {
        'POST /api/webhooks',
        'GET /api/webhooks',
        'DELETE /api/webhooks/{webhook}',
        'POST /api/webhooks/{webhook}/test',
        'GET /api/webhooks/{webhook}/deliveries',
    },
}
"""Routes per resource."""

BESIDE = {'GET /api/me', 'POST /api/sql'}
"""Routes under `/api` that belong to no resource."""


async def test_every_crud_operation_exists_or_is_absent_on_purpose(served: Served):
    """004-07: The routes of the API are audited for missing CRUD operations."""
    ours = {f'{method} {path}' for path, method in _routes(served) if path.startswith('/api')}
    assert ours == set().union(*ROUTES.values()) | BESIDE

    explained = {name.split()[0]: set(name.split()[1:]) for name in ABSENT}
    for resource, operations in RESOURCES.items():
        if resource in {'turns', 'heads', 'archives'}:
            continue  # they are not resources of their own, and support only their own operations
        known = set(operations.split())
        assert set('CLRUD') - known == explained.get(resource, set()), resource
        routes = ROUTES[resource]
        reads = {route.endswith('}') for route in routes if route.startswith('GET ') and '/events' not in route}
        assert (True in reads) == ('R' in known), resource
        assert (False in reads) == ('L' in known), resource
        assert any(route.startswith('DELETE ') for route in routes) == ('D' in known), resource


def _routes(served: Served) -> list[tuple[str, str]]:
    document = served.app.openapi()['paths']
    found = [(path, method.upper()) for path, methods in document.items() for method in methods]
    greedy = {
        '/api/agents/{agent}/memory/{path}',
        '/api/versions/{version}/files/{path}',
        '/api/conversations/{conversation}/uploads/{name}',
    }
    return [(path[:-1] + ':path}' if path in greedy else path, method) for path, method in found]


async def test_every_route_documents_its_input_and_responses(served: Served):
    """004-02: Layers: routes / services / repository / models, small single-purpose units. 004-03: Docstrings, type
    hints, input validation; Pydantic request/response schemas."""
    document = served.app.openapi()
    for path, methods in document['paths'].items():
        if not path.startswith('/api/'):
            continue
        for method, operation in methods.items():
            assert operation['summary'], (method, path)
            assert operation['description'], (method, path)
            good = [answer for status, answer in operation['responses'].items() if status[0] == '2']
            assert good, (method, path)
            assert all('content' in answer or path.endswith('/events') for answer in good) or method == 'delete', path
            for answer in operation['responses'].values():
                shown = answer.get('content', {}).get('application/json', {})
                assert not shown or shown.get('schema'), (method, path)
            body = operation.get('requestBody', {}).get('content', {}).get('application/json')
            if body is not None:
                name = body['schema']['$ref'].rpartition('/')[2]
                assert document['components']['schemas'][name]['examples'], (method, path)


async def test_conversation_can_be_renamed(make_client: MakeClient):
    ada = await make_client('run')
    path = (await ada.post('/api/conversations', json={'agent': 'analyst', 'name': 'Old'})).headers['location']
    await ada.put(f'{path}/uploads/a', content=b'a')

    renamed = await ada.patch(path, json={'name': 'New'})
    empty = await ada.patch(path, json={'name': ''})
    run = (await ada.post(f'{path}/turns', json={'prompt': 'Hi'})).json()

    assert (renamed.status_code, renamed.json()['name'], empty.status_code) == (200, 'New', 422)
    [listed] = (await ada.get('/api/conversations')).json()['items']
    assert (listed['name'], run['base_id']) == ('New', renamed.json()['head'])
    assert (await ada.get(f'/api/versions/{run["version_id"]}')).json()['name'] == 'New'
    assert [each['name'] for each in (await ada.get(f'{path}/uploads')).json()['items']] == ['a']


async def test_conversation_that_pauses_meanwhile_is_not_renamed(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    model = ScriptedModel(call('write_file', path='/a', content='a'))
    check = _conversations.head_to_change
    async with serve({'careful': create_deep_agent(model, interrupt_on={'write_file': True})}) as served:
        ada = served.client(await served.key('run'))
        path = (await ada.post('/api/conversations', json={'agent': 'careful'})).headers['location']

        async def pause(access: Access, own: AuthorizedConversation) -> ServedVersion:
            head = await check(access, own)
            assert (await ada.post(f'{path}/turns', json={'prompt': 'Go'})).json()['state'] == 'awaiting_approval'
            return head

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(_conversations, 'head_to_change', pause)
            assert (await ada.patch(path, json={'name': 'Trip'})).status_code == 409
        assert 'pending approvals' in (await ada.patch(path, json={'name': 'Trip'})).text


async def test_conversation_that_is_deleted_meanwhile_is_not_renamed(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    """The answer was 500. A repetition finds no conversation."""
    ada = await make_client('run')
    path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    check = _conversations.head_to_change

    async def delete(access: Access, own: AuthorizedConversation) -> ServedVersion:
        head = await check(access, own)
        assert (await ada.delete(path)).status_code == 204
        return head

    monkeypatch.setattr(_conversations, 'head_to_change', delete)
    renamed = [await ada.patch(path, json={'name': 'Trip'}) for _ in range(2)]
    assert [each.status_code for each in renamed] == [409, 404]
    assert (await ada.get('/api/conversations')).json()['items'] == []
