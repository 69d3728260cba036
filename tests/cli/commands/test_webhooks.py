"""The `webhooks` commands."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke

from .test_server import output_of_a_turn, running

KEY = 'a key of thirty-two or more characters'
URL = 'https://example.com/hook'


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_WEBHOOK_KEY', KEY)


def add(invoke: Invoke, *options: str) -> str:
    """Add a webhook, and return its id."""
    added = invoke('webhooks', 'add', URL, '--owner', 'ada', *options)
    assert added.exit_code == 0, added.output
    assert added.stdout.startswith('whsec_')
    return added.stderr.split()[3].rstrip('.')


def test_webhook_is_added_listed_and_removed(invoke: Invoke):
    """The secret is printed once, and lists show the rest."""
    id = add(invoke, '--event', 'run.ended', '--agent', 'analyst')
    [listed] = json.loads(invoke('webhooks', 'list', '--json').stdout)
    assert (listed['id'], listed['url'], listed['events'], listed['agents']) == (id, URL, ['run.ended'], ['analyst'])
    assert 'secret' not in str(listed)
    table = invoke('webhooks', 'list', '--owner', 'ada').stdout
    assert id in table
    assert invoke('webhooks', 'list', '--owner', 'bob').stderr.startswith('There are no webhooks.')
    assert invoke('webhooks', 'remove', id).stderr == f'{URL} is removed.\n'
    assert json.loads(invoke('webhooks', 'list', '--json').stdout) == []


def test_test_is_stored_for_the_running_server(invoke: Invoke):
    """A test is a pending delivery, which the list shows."""
    id = add(invoke)
    assert invoke('webhooks', 'deliveries', id).stderr == 'There are no deliveries in the last seven days.\n'
    assert 'is sent by the running server' in invoke('webhooks', 'test', id).stderr
    [delivery] = json.loads(invoke('webhooks', 'deliveries', id, '--json').stdout)
    assert (delivery['type'], delivery['state'], delivery['attempts']) == ('test', 'pending', 0)
    assert 'pending' in invoke('webhooks', 'deliveries', id).stdout


@pytest.mark.parametrize('command', ['remove', 'test', 'deliveries'])
def test_unknown_webhook_is_reported(invoke: Invoke, command: str):
    """An id without a webhook is an error that names the id."""
    add(invoke)
    unknown = invoke('webhooks', command, 'unknown')
    assert unknown.exit_code == 2
    assert "There is no webhook 'unknown'. `pydantic-deep webhooks list` shows them." in unknown.stderr


def test_unusable_url_is_reported(invoke: Invoke):
    """A URL that cannot be used is a usage error with the reason."""
    refused = invoke('webhooks', 'add', 'http://example.com/', '--owner', 'ada')
    assert refused.exit_code == 2
    assert 'is not encrypted' in refused.stderr


def test_missing_key_is_reported(invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    """Without `webhook_key`, no webhook is added."""
    monkeypatch.delenv('PYDANTIC_DEEP_SERVER_WEBHOOK_KEY')
    refused = invoke('webhooks', 'add', URL, '--owner', 'ada')
    assert refused.exit_code == 2
    assert 'Webhooks need the setting `webhook_key`' in refused.stderr


@pytest.mark.slow
def test_event_of_a_killed_server_is_sent_by_the_next_one(work: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    """A run whose server is killed before it sends the event is sent by the server that is started next, once."""
    (work / 'agents_of_webhooks.py').write_text(
        'from pydantic_deep import create_deep_agent\n'
        'from pydantic_deep.testing import ScriptedModel\n'
        "agents = {'analyst': create_deep_agent(ScriptedModel('Hello.'))}\n"
    )
    received: list[dict[str, object]] = []
    arrived = threading.Event()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers['content-length']))))
            self.send_response(204)
            self.end_headers()
            arrived.set()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_WEBHOOK_PRIVATE_HOSTS', '["127.0.0.1"]')
    store = f'sqlite:///{work}/agents.db'
    options = ('--agents', 'agents_of_webhooks:agents', '--store', store)
    receiver = HTTPServer(('127.0.0.1', 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        url = f'http://127.0.0.1:{receiver.server_port}/'
        key = invoke('keys', 'create', 'laptop', '--owner', 'ada', '--store', store).stdout.strip()
        assert invoke('webhooks', 'add', url, '--owner', 'ada', '--store', store).exit_code == 0
        id = json.loads(invoke('webhooks', 'list', '--store', store, '--json').stdout)[0]['id']
        invoke('webhooks', 'test', id, '--store', store)
        with running(work, *options) as (first, _, process):
            assert arrived.wait(60)  # the sender has begun to look for events
            assert asyncio.run(output_of_a_turn(first.split()[-1], key)) == 'Hello.'
            process.kill()
        arrived.clear()
        if len(received) == 1:  # the server was killed before its next round
            with running(work, *options):
                assert arrived.wait(60)
    finally:
        receiver.shutdown()
        receiver.server_close()
    assert [event['type'] for event in received] == ['test', 'run.ended']
