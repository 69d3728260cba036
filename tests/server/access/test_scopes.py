"""Callers have the scopes and the agents of their keys."""

from __future__ import annotations

import pytest

from tests.server.conftest import MakeClient

pytestmark = pytest.mark.anyio


async def test_missing_scope_is_named_and_admin_has_all(make_client: MakeClient) -> None:
    answer = await (await make_client('run', 'approve')).get('/api/audit')
    assert (answer.status_code, answer.json()['error']) == (
        403,
        {'type': 'forbidden', 'message': 'This requires a key with the scope `audit`.'},
    )
    assert (await (await make_client('audit')).get('/api/audit')).status_code == 200
    assert (await (await make_client('admin')).get('/api/audit')).status_code == 200


async def test_agent_outside_the_key_is_not_found(make_client: MakeClient) -> None:
    client = await make_client(agents=['writer'])
    missing = await client.get('/api/agents/nobody')
    hidden = await client.get('/api/agents/analyst')
    assert (hidden.status_code, hidden.content) == (404, missing.content)
    assert [each['name'] for each in (await client.get('/api/agents')).json()['items']] == ['writer']
    assert (await client.get('/api/me')).json()['agents'] == ['writer']
