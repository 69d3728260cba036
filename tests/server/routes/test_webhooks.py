"""Webhooks over HTTP: created, listed, tested and removed by their owner."""

from __future__ import annotations

import pytest

from pydantic_deep.server import ServerSettings
from tests.server.conftest import Client, MakeClient, Served

pytestmark = pytest.mark.anyio

URL = 'http://127.0.0.1:9/hook'


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings(
        requests_per_second=1000,
        request_burst=100_000,
        webhook_key='a key of thirty-two or more characters',
        webhook_private_hosts=('127.0.0.1',),
    )


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def test_secret_is_shown_once(ada: Client):
    """The response to a creation contains the secret, and lists do not."""
    created = await ada.post('/api/webhooks', json={'url': URL, 'events': ['run.ended', 'approval.requested']})
    assert created.status_code == 201
    webhook = created.json()
    assert webhook.pop('secret').startswith('whsec_')
    assert webhook['events'] == ['approval.requested', 'run.ended']
    assert (await ada.get('/api/webhooks')).json() == {'items': [webhook]}


async def test_test_is_delivered_and_listed(ada: Client):
    """A test is stored as a delivery, which the list shows page by page, newest first."""
    webhook = (await ada.post('/api/webhooks', json={'url': URL})).json()['id']
    tests = [(await ada.post(f'/api/webhooks/{webhook}/test')).json() for _ in range(3)]
    assert {test['type'] for test in tests} == {'test'}
    first = (await ada.get(f'/api/webhooks/{webhook}/deliveries', params={'limit': 2})).json()
    rest = (await ada.get(f'/api/webhooks/{webhook}/deliveries', params={'cursor': first['cursor']})).json()
    listed = [delivery['id'] for delivery in [*first['items'], *rest['items']]]
    assert listed == [test['id'] for test in reversed(tests)]
    assert rest['cursor'] is None


async def test_removed_webhook_does_not_exist(ada: Client, served: Served):
    """A removal includes the deliveries."""
    webhook = (await ada.post('/api/webhooks', json={'url': URL})).json()['id']
    await ada.post(f'/api/webhooks/{webhook}/test')
    assert (await ada.delete(f'/api/webhooks/{webhook}')).status_code == 204
    assert (await ada.get('/api/webhooks')).json() == {'items': []}
    assert (await ada.delete(f'/api/webhooks/{webhook}')).status_code == 404
    assert await served.state.webhooks.deliveries.count() == 0


@pytest.mark.parametrize('path', ['', '/test', '/deliveries'])
async def test_webhooks_of_others_do_not_exist(ada: Client, make_client: MakeClient, path: str):
    """Another owner's webhook answers 404, like one that does not exist."""
    webhook = (await ada.post('/api/webhooks', json={'url': URL})).json()['id']
    bob = await make_client('run', owner='bob')
    method = {'': 'DELETE', '/test': 'POST', '/deliveries': 'GET'}[path]
    theirs = await bob.request(method, f'/api/webhooks/{webhook}{path}')
    missing = await bob.request(method, f'/api/webhooks/unknown{path}')
    assert (theirs.status_code, theirs.json()) == (missing.status_code, missing.json())
    assert theirs.status_code == 404
    assert (await bob.get('/api/webhooks')).json() == {'items': []}


@pytest.mark.parametrize(
    ('body', 'problem'),
    [
        ({'url': 'https://10.0.0.1/'}, '10.0.0.1 is a private address'),
        ({'url': 'http://example.com/'}, 'is not encrypted'),
        ({'url': URL, 'events': []}, 'events'),
        ({'url': URL, 'events': ['run.began']}, 'events'),
    ],
)
async def test_unusable_webhooks_are_refused(ada: Client, body: dict[str, object], problem: str):
    """A webhook that cannot be used is refused with the reason."""
    refused = await ada.post('/api/webhooks', json=body)
    assert refused.status_code == 422
    assert problem in refused.text


async def test_number_of_webhooks_is_limited(ada: Client):
    """An owner has at most 20 webhooks."""
    for _ in range(20):
        assert (await ada.post('/api/webhooks', json={'url': URL})).is_success
    refused = await ada.post('/api/webhooks', json={'url': URL})
    assert 'There are 20 webhooks, and no more are possible. Remove one.' in refused.text


async def test_key_limited_to_agents_gets_events_of_these(make_client: MakeClient, served: Served):
    """The webhooks of a key inherit its agents, and the key; keys of other agents cannot manage them."""
    client = await make_client('run', agents=['analyst'])
    created = (await client.post('/api/webhooks', json={'url': URL})).json()
    assert created['agents'] == ['analyst']
    [hook] = await served.state.webhooks.list('ada')
    assert await served.state.keys.is_valid(hook.key_id or '')
    writer, everyone = await make_client('run', agents=['writer']), await make_client('run')
    of_all = (await everyone.post('/api/webhooks', json={'url': URL})).json()
    seen = [[item['id'] for item in (await each.get('/api/webhooks')).json()['items']] for each in (client, writer)]
    assert seen == [[created['id']], []]
    assert [item['id'] for item in (await everyone.get('/api/webhooks')).json()['items']] == [
        created['id'],
        of_all['id'],
    ]
    assert (await writer.delete(f'/api/webhooks/{created["id"]}')).status_code == 404
    assert (await client.post(f'/api/webhooks/{of_all["id"]}/test')).status_code == 404
    assert (await client.post(f'/api/webhooks/{created["id"]}/test')).status_code == 202


class TestWithoutKey:
    """The setting `webhook_key` is missing."""

    @pytest.fixture
    def settings(self) -> ServerSettings:
        return ServerSettings(requests_per_second=1000, request_burst=100_000)

    async def test_webhooks_need_the_setting(self, ada: Client):
        """Without `webhook_key`, no webhook can be created, and the error names the setting."""
        refused = await ada.post('/api/webhooks', json={'url': URL})
        assert refused.status_code == 422
        assert 'Webhooks need the setting `webhook_key`' in refused.text
