"""Routes of the protocols of user interfaces: unknown agents, and threads without a running run."""

from __future__ import annotations

import pytest

from tests.server.conftest import MakeClient

pytestmark = pytest.mark.anyio

AG_UI: dict[str, object] = {
    'threadId': 't',
    'runId': 'r',
    'messages': [{'id': 'u', 'role': 'user', 'content': 'Hi'}],
    'state': {},
    'tools': [],
    'context': [],
    'forwardedProps': {},
}
VERCEL: dict[str, object] = {
    'id': 't',
    'messages': [{'id': 'u', 'role': 'user', 'parts': [{'type': 'text', 'text': 'Hi'}]}],
    'trigger': 'submit-message',
}

protocols = pytest.mark.parametrize(('protocol', 'body'), [('ag-ui', AG_UI), ('vercel', VERCEL)])


@protocols
async def test_unknown_agent_is_not_found(make_client: MakeClient, protocol: str, body: dict[str, object]):
    limited = await make_client('run', agents=['writer'])
    for client, agent in ((await make_client('run'), 'nobody'), (limited, 'analyst')):
        assert (await client.post(f'/{protocol}/{agent}', json=body)).status_code == 404
        assert (await client.get(f'/{protocol}/{agent}/t/stream')).status_code == 404


@protocols
async def test_thread_without_an_active_run_has_no_stream(
    make_client: MakeClient, protocol: str, body: dict[str, object]
):
    """`reconnectToStream` of the AI SDK expects 204."""
    ada = await make_client('run')
    assert (await ada.get(f'/{protocol}/analyst/t/stream')).status_code == 204
    assert (await ada.post(f'/{protocol}/analyst', json=body)).status_code == 200
    assert (await ada.get(f'/{protocol}/analyst/t/stream')).status_code == 204
