"""Versions over HTTP: history, diffs, files, moves of the head, branches and merges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Client, Gate, MakeClient, Served
from tests.server.routes.file_writer import answer, begin, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def test_history_lists_kind_prompt_and_changed_files(ada: Client):
    path = await begin(ada)
    first = await say(ada, path, '/a=1 /b=1')
    second = await say(ada, path, '/a=2')

    items = (await ada.get(f'{path}/versions')).json()['items']

    told = [(each['kind'], each['prompt'], each['files_changed'], each['is_head']) for each in items]
    assert told == [
        ('turn', '/a=2', ['/a'], True),
        ('turn', '/a=1 /b=1', ['/a', '/b'], False),
        ('root', None, [], False),
    ]
    assert [each['id'] for each in items[:2]] == [second, first]
    assert [each['parent_id'] for each in items] == [first, items[2]['id'], None]
    details = (await ada.get(f'/api/versions/{second}')).json()
    assert {name: details[name] for name in items[0]} == items[0]
    steps = (await ada.get(f'{path}/versions', params={'steps': 'true'})).json()['items']
    assert [each['kind'] for each in steps].count('step') == 2


async def test_history_is_paginated(ada: Client):
    path = await begin(ada)
    for number in range(4):
        await say(ada, path, f'{number}')
    whole = (await ada.get(f'{path}/versions')).json()
    seen: list[str] = []
    cursor: str | None = None

    for _ in range(3):
        page = (await ada.get(f'{path}/versions', params={'limit': 2} | ({'cursor': cursor} if cursor else {}))).json()
        seen += [each['id'] for each in page['items']]
        cursor = page['cursor']

    assert cursor is None
    assert seen == [each['id'] for each in whole['items']]


async def test_diff_lists_changed_messages_files_and_usage(ada: Client):
    path = await begin(ada)
    first = await say(ada, path, '/a=1')
    second = await say(ada, path, '/a=2')

    of_parent = (await ada.get(f'/api/versions/{second}/diff')).json()
    named = (await ada.get(f'/api/versions/{first}/diff', params={'to': second})).json()
    back = (await ada.get(f'/api/versions/{second}/diff', params={'to': first})).json()

    assert of_parent == named
    assert (named['before'], named['after'], named['messages_common']) == (first, second, 4)
    assert [each['kind'] for each in named['messages_added']] == ['request', 'response', 'request', 'response']
    assert [(each['path'], each['kind']) for each in named['files']] == [('/a', 'changed')]
    assert '-1\n+2\n' in named['files'][0]['diff']
    assert named['usage']['requests'] == -back['usage']['requests'] == 2
    root = (await ada.get(f'/api/versions/{first}')).json()['parent_id']
    assert (await ada.get(f'/api/versions/{root}/diff')).status_code == 422


async def test_files_are_listed_and_downloaded_as_attachments(ada: Client):
    path = await begin(ada)
    version = await say(ada, path, '/a.html=<script> /dir/b=2')

    files = (await ada.get(f'/api/versions/{version}/files')).json()['items']
    page = await ada.get(f'/api/versions/{version}/files/a.html')

    assert [(each['path'], each['size_bytes'], each['is_executable']) for each in files] == [
        ('/a.html', 9, False),
        ('/dir/b', 2, False),
    ]
    assert page.content == b'<script>\n'
    assert page.headers['content-type'] == 'application/octet-stream'
    assert page.headers['content-disposition'] == "attachment; filename*=UTF-8''a.html"
    assert page.headers['content-security-policy'].startswith('sandbox')
    assert page.headers['etag'] == f'"{files[0]["digest"]}"'
    assert (await ada.get(f'/api/versions/{version}/files/dir/b')).content == b'2\n'
    for wrong in ('c', 'dir', 'dir/%2e%2e/a.html', '%2e%2e/etc/passwd', '/etc/passwd', ''):
        assert (await ada.get(f'/api/versions/{version}/files/{wrong}')).status_code == 404


@pytest.mark.slow
async def test_next_turn_continues_from_a_moved_head(ada: Client):
    path = await begin(ada)
    first = await say(ada, path, '/a=1')
    second = await say(ada, path, '/a=2 /b=2')

    moved = await ada.post(f'{path}/head', json={'version': first})
    again = await ada.post(f'{path}/head', json={'version': first})
    third = await say(ada, path, '/c=3')

    assert (moved.status_code, moved.json()['is_head'], again.status_code) == (200, True, 200)
    files = (await ada.get(f'/api/versions/{third}/files')).json()['items']
    assert [each['path'] for each in files] == ['/a', '/c']
    assert (await ada.get(f'/api/versions/{third}')).json()['parent_id'] == first
    assert (await ada.get(f'/api/versions/{second}/files/b')).content == b'2\n'


async def test_head_is_not_moved_after_a_concurrent_change(ada: Client):
    path, other = await begin(ada), await begin(ada)
    root = (await ada.get(path)).json()['head']
    first = await say(ada, path, '/a=1')
    foreign = await say(ada, other, '/a=1')

    late = await ada.post(f'{path}/head', json={'version': root, 'expected': root})
    strange = await ada.post(f'{path}/head', json={'version': foreign})

    assert late.status_code == 409
    assert late.json()['error']['head'] == first
    assert strange.status_code == 404
    assert (await ada.get(path)).json()['head'] == first


async def test_merge_combines_files_of_both_branches(ada: Client):
    path = await begin(ada)
    base = await say(ada, path, '/a=1')
    head = await say(ada, path, '/b=2')
    branch = await say(ada, path, '/c=3', from_version=base, branch='other')

    merged = await ada.post(f'/api/versions/{head}/merge', json={'other': branch})

    assert merged.status_code == 201
    version = merged.json()
    assert (version['kind'], version['parent_id'], version['merged_from']) == ('merge', head, branch)
    assert version['is_head']
    assert (await ada.get(path)).json()['head'] == version['id']
    files = (await ada.get(f'/api/versions/{version["id"]}/files')).json()['items']
    assert [each['path'] for each in files] == ['/a', '/b', '/c']
    aside = (await ada.post(f'/api/versions/{branch}/merge', json={'other': head})).json()
    assert (aside['is_head'], (await ada.get(path)).json()['head']) == (False, version['id'])


async def test_merge_conflicts_are_listed_and_no_version_is_created(ada: Client):
    path, other = await begin(ada), await begin(ada)
    base = await say(ada, path, '/a=1')
    head = await say(ada, path, '/a=2')
    branch = await say(ada, path, '/a=3', from_version=base)
    foreign = await say(ada, other, '/a=1')

    refused = await ada.post(f'/api/versions/{head}/merge', json={'other': branch})
    unrelated = await ada.post(f'/api/versions/{head}/merge', json={'other': foreign})

    assert refused.status_code == 409
    assert [each['path'] for each in refused.json()['error']['conflicts']] == ['/a']
    assert unrelated.status_code == 409
    assert len((await ada.get(f'{path}/versions')).json()['items']) == 4


async def test_merge_conflicts_are_decided_by_choices(ada: Client):
    """`choices` decides conflicts file by file. A choice for a file without a conflict is refused."""
    path = await begin(ada)
    base = await say(ada, path, '/a=1')
    head = await say(ada, path, '/a=2')
    branch = await say(ada, path, '/a=3', from_version=base)

    unneeded = await ada.post(f'/api/versions/{head}/merge', json={'other': branch, 'choices': {'/b': 'ours'}})
    unknown = await ada.post(f'/api/versions/{head}/merge', json={'other': branch, 'choices': {'/a': 'mine'}})
    merged = await ada.post(f'/api/versions/{head}/merge', json={'other': branch, 'choices': {'/a': 'theirs'}})

    assert (unneeded.status_code, unknown.status_code, merged.status_code) == (422, 422, 201)
    assert "'/b'" in unneeded.json()['error']['message']
    assert (await ada.get(f'/api/versions/{merged.json()["id"]}/files/a')).text == '3\n'


async def test_merge_of_an_ancestor_creates_no_version(ada: Client):
    path = await begin(ada)
    base = await say(ada, path, '/a=1')
    head = await say(ada, path, '/b=2')

    for other in (base, head):
        merged = await ada.post(f'/api/versions/{head}/merge', json={'other': other})
        assert (merged.status_code, merged.json()['id'], merged.json()['is_head']) == (200, head, True)

    assert len((await ada.get(f'{path}/versions')).json()['items']) == 3
    forward = await ada.post(f'/api/versions/{base}/merge', json={'other': head})
    assert (forward.status_code, forward.json()['kind']) == (201, 'merge')


async def test_merge_does_not_move_an_unrelated_head(ada: Client, served: Served):
    path = await begin(ada)
    base = await say(ada, path, '/a=1')
    head = await say(ada, path, '/b=2')
    branch = await say(ada, path, '/c=3', from_version=base)
    await ada.post(f'{path}/head', json={'version': base})

    merged = (await ada.post(f'/api/versions/{head}/merge', json={'other': branch})).json()

    assert not merged['is_head']
    assert (await ada.get(path)).json()['head'] == base


async def test_versions_of_another_owner_are_not_found(ada: Client, make_client: MakeClient):
    """004-09: Authentication/authorization flows."""
    path = await begin(ada)
    version = await say(ada, path, '/a=1')
    bob = await make_client('run', owner='bob')
    mine = await say(bob, await begin(bob), '/a=1')

    for below in ('', '/diff', '/files', '/files/a', '/archive'):
        assert (await bob.get(f'/api/versions/{version}{below}')).status_code == 404
    assert (await bob.get(f'/api/versions/{mine}/diff', params={'to': version})).status_code == 404
    assert (await bob.post(f'/api/versions/{mine}/merge', json={'other': version})).status_code == 404
    assert (await bob.post(f'/api/versions/{version}/branch', json={'prompt': 'x'})).status_code == 404
    assert (await bob.post(f'{path}/head', json={'version': version})).status_code == 404
    assert (await bob.get(f'{path}/messages', params={'version': mine})).status_code == 404


async def test_version_with_a_deleted_parent_is_readable(ada: Client, served: Served):
    path = await begin(ada)
    first = await say(ada, path, '/a=1')
    second = await say(ada, path, '/b=2')
    await served.store.delete(first)

    version = (await ada.get(f'/api/versions/{second}')).json()

    assert (version['parent_id'], version['files_changed'], version['prompt']) == (first, None, '/b=2')
    assert (await ada.get(f'/api/versions/{second}/diff')).status_code == 404
