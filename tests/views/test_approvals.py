"""Approvals have one form on the command line and over HTTP."""

from __future__ import annotations

import pytest

from tests.server.conftest import Client
from tests.views.conftest import Print, converse

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_approvals_are_equal_on_the_command_line_and_over_http(ada: Client, print_json: Print):
    pending, id = [await converse(ada, 'asker', f'write {path}') for path in ('/a.txt', '/b.txt')]
    (asked,) = (await ada.get('/api/approvals', params={'conversation': id})).json()['items']
    edit = {'path': '/c.txt', 'content': 'c\n'}
    answers = {asked['pending_id']: {'decision': 'edit', 'args': edit, 'digest': asked['view']['digest']}}
    await ada.post(f'/api/conversations/{id}/resume', json={'answers': answers, 'reason': 'Better there.'})

    served = (await ada.get('/api/approvals', params={'all': 'true'})).json()['items']

    assert await print_json('approvals', 'list', '--status', 'all') == served[::-1]
    assert [(each['status'], each['reason'], each['edited_args']) for each in served] == [
        ('edited', 'Better there.', edit),
        ('pending', None, None),
    ]
    head = (await ada.get(f'/api/conversations/{pending}')).json()
    (version,) = await print_json('log', '--conversation', pending, '-n', '1')
    details = await print_json('show', head['head'])
    assert (version['is_pending'], details['approvals']) == (True, head['approvals'])
