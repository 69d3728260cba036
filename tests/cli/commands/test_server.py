"""The `serve` and `keys` commands: a server in a separate process, and its API keys."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

import httpx
import pytest

from pydantic_deep import open_store
from pydantic_deep.cli.commands._server import Scope
from pydantic_deep.client import ApiError, Client
from pydantic_deep.server._api_keys import SCOPES
from tests.cli.conftest import PATIENCE_SECONDS, Invoke

MODULE = """
from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel

agents = {'analyst': create_deep_agent(ScriptedModel('Hello.')), 'writer': create_deep_agent(ScriptedModel())}
bad = {'a b': create_deep_agent(ScriptedModel())}
"""


@pytest.fixture
def agents_module(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with agents in the working directory."""
    (work / 'house_of_agents.py').write_text(MODULE)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    return work


@contextmanager
def running(work: Path, *arguments: str) -> Generator[tuple[str, IO[str], subprocess.Popen[str]]]:
    """Start a server process; yield its first line of output, its stderr and the process."""
    program = 'import sys; from pydantic_deep.cli import main; sys.exit(main())'
    command = [sys.executable, '-c', program, 'serve', '--port', '0', *arguments]
    variables = {**os.environ, 'HOME': str(work), 'XDG_STATE_HOME': str(work / 'state')}
    with subprocess.Popen(
        command, cwd=work, env=variables, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().strip(), process.stderr, process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.usefixtures('measured_processes')
def test_serve_runs_agents_of_a_module_until_sigterm(agents_module: Path, invoke: Invoke) -> None:
    """A server started without keys accepts a key created later, answers, and exits without an error."""
    store = f'sqlite:///{agents_module}/agents.db'
    with running(agents_module, '--agents', 'house_of_agents:agents', '--store', store) as (first, rest, process):
        found = re.fullmatch(r'Serving analyst, writer at (http://127\.0\.0\.1:\d+)', first)
        assert found, first + rest.read()
        assert rest.readline() == f'versions in ~{"/agents.db"}\n'
        assert rest.readline() == f'There is no key yet. Create one: pydantic-deep keys create NAME --store {store}\n'
        created = invoke('keys', 'create', 'laptop', '--store', store)
        key = created.stdout.strip()
        assert asyncio.run(output_of_a_turn(found[1], key)) == 'Hello.'
        [listed] = json.loads(invoke('keys', 'list', '--store', store, '--json').stdout)
        assert listed['last_used_at'] is not None
        invoke('keys', 'revoke', listed['id'], '--store', store)
        with pytest.raises(ApiError) as refused:
            asyncio.run(output_of_a_turn(found[1], key))
        assert refused.value.status == 401
        process.send_signal(signal.SIGTERM)
        assert (rest.read(), process.wait(PATIENCE_SECONDS)) == ('', 0)
    with running(agents_module, '--agents', 'house_of_agents:agents', '--store', store) as (_, rest, process):
        rest.readline()
        process.send_signal(signal.SIGTERM)
        assert (rest.read(), process.wait(PATIENCE_SECONDS)) == ('', 0)  # a key exists, so no hint is printed


async def output_of_a_turn(url: str, key: str) -> str | None:
    async with Client(url, key, timeout_seconds=PATIENCE_SECONDS) as client:
        conversation = await client.conversations.create('analyst')
        run = await client.turns.start(conversation.id, 'Hi')
        return (await client.turns.wait(run.id)).output


@pytest.mark.slow
def test_serve_without_agents_serves_a_deep_agent(work: Path) -> None:
    (work / 'server.toml').write_text('port = 1\nstore = "sqlite:///agents.db"\n')  # `--port` takes precedence
    with running(work, '--model', 'test', '--config', 'server.toml') as (first, rest, process):
        found = re.fullmatch(r'Serving deep-agent at (http://\S+)', first)
        assert found, first + rest.read()
        assert httpx.get(f'{found[1]}/health', timeout=PATIENCE_SECONDS).json() == {'status': 'ok'}
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize(
    ('arguments', 'code', 'message'),
    [
        (('--agents', 'house_of_agents'), 2, 'Write `package.module:attribute`'),
        (('--agents', 'house_of_agents:bad'), 2, "'a b' cannot be the name of a served agent"),
        (('--agents', 'no_such_house:agents'), 2, "There is no module 'no_such_house'"),
        ((), 3, 'No model to use.'),
        (('--model', 'nobody:x'), 3, "'nobody:x'"),
        (('--config', 'wrong.toml'), 2, "there is no setting 'prot'"),
        (('--config', 'none.toml'), 2, 'does not exist'),
        (('--file-url-domain', 'https://a.example'), 2, "'https://a.example', which is not a domain"),
        (('--store', 'nowhere'), 2, "There is no store at 'nowhere'"),
        (('--store', 'memory:'), 2, 'The store memory: is visible in one process only'),
        (('--agents', 'house_of_agents:agents', '--host', '192.0.2.1'), 1, 'Cannot assign requested address'),
    ],
)
def test_serve_reports_invalid_arguments(
    agents_module: Path, invoke: Invoke, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (agents_module / 'wrong.toml').write_text('prot = 1\n')
    given = arguments if arguments[:1] != ('--store',) else (*arguments, '--agents', 'house_of_agents:agents')
    result = invoke('serve', *given)
    assert (result.exit_code, message in ' '.join(result.stderr.split())) == (code, True), result.stderr


@pytest.mark.parametrize('command', [('keys', 'create', 'laptop'), ('keys', 'list'), ('webhooks', 'list')])
def test_keys_and_webhooks_in_memory_are_refused_because_no_server_would_see_them(
    invoke: Invoke, command: tuple[str, ...]
) -> None:
    result = invoke(*command, '--store', 'memory:')
    assert (result.exit_code, result.stdout) == (2, '')
    assert 'Use sqlite:///… or postgresql://….' in ' '.join(result.stderr.split())


def test_new_key_is_printed_alone_on_stdout(invoke: Invoke) -> None:
    created = invoke('keys', 'create', 'laptop')
    assert re.fullmatch(r'pd_[0-9a-f-]{36}_[A-Za-z0-9_-]{43}\n', created.stdout)
    assert created.stderr == 'Store it: it is not shown again.\n'
    listed = invoke('keys', 'list', '--json').stdout + invoke('keys', 'list').stdout
    assert created.stdout.strip()[40:] not in listed
    assert 'digest' not in listed


def test_key_has_the_requested_scopes_owner_and_expiry(invoke: Invoke) -> None:
    invoke('keys', 'create', 'first')
    options = ('--scope', 'audit', '--scope', 'run', '--owner', 'ada', '--agent', 'analyst', '--expires-in', '1.5')
    invoke('keys', 'create', 'second', *options)
    first, second = json.loads(invoke('keys', 'list', '--json').stdout)
    assert (first['scopes'], first['agents'], first['expires_at']) == (['run', 'approve'], None, None)
    assert first['owner'] == first['id']
    assert (second['scopes'], second['agents'], second['owner']) == (['audit', 'run'], ['analyst'], 'ada')
    lasts = datetime.fromisoformat(second['expires_at']) - datetime.fromisoformat(second['created_at'])
    assert lasts == timedelta(days=1.5)


def test_keys_list_prints_a_table(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('COLUMNS', '200')
    invoke('keys', 'create', 'laptop', '--owner', 'ada', '--agent', 'analyst', '--expires-in', '10')
    invoke('keys', 'create', 'phone\x1b[31m', '--owner', 'bob', '--scope', 'admin')
    listed = json.loads(invoke('keys', 'list', '--json').stdout)
    ids = [each['id'] for each in listed]
    invoke('keys', 'revoke', ids[1])
    header, *rows = [line.rstrip() for line in invoke('keys', 'list').stdout.splitlines()]
    assert header.split('  ')[0] == 'id'
    until = datetime.fromisoformat(listed[0]['expires_at']).strftime('%Y-%m-%d %H:%M')
    assert re.fullmatch(rf'{ids[0]} +laptop +ada +run, approve +analyst +{until} +never', rows[0])
    assert re.fullmatch(rf'{ids[1]} +phone\S*31m +bob +admin +all +revoked +never', rows[1])
    assert '\x1b' not in rows[1]


async def create_store(url: str) -> None:
    async with open_store(url):
        pass


def test_keys_list_without_keys_prints_a_hint(work: Path, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / 'state/pydantic-deep').mkdir(parents=True)
    asyncio.run(create_store(f'sqlite:///{tmp_path}/state/pydantic-deep/agents.db'))
    assert invoke('keys', 'list').stderr == 'There is no key yet. Create one: pydantic-deep keys create NAME\n'
    store = f'sqlite:///{work}/other.db'
    asyncio.run(create_store(store))
    hint = f'There is no key yet. Create one: pydantic-deep keys create NAME --store {store}\n'
    assert invoke('keys', 'list', '--store', store).stderr == hint


@pytest.mark.parametrize(
    'command',
    [
        ('keys', 'list'),
        ('keys', 'revoke', 'x'),
        ('webhooks', 'list'),
        ('webhooks', 'remove', 'x'),
        ('webhooks', 'test', 'x'),
        ('webhooks', 'deliveries', 'x'),
    ],
)
def test_store_with_a_misspelled_name_is_reported_and_not_created(
    work: Path, invoke: Invoke, command: tuple[str, ...]
) -> None:
    result = invoke(*command, '--store', f'sqlite:///{work}/agnets.db')
    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith(f'There is no store {work}/agnets.db yet.')
    assert not list(work.glob('agnets.db*'))


def test_unknown_key_is_reported(invoke: Invoke) -> None:
    invoke('keys', 'create', 'laptop')
    result = invoke('keys', 'revoke', 'nobody')
    assert (result.exit_code, result.stderr) == (
        2, "There is no key 'nobody'. `pydantic-deep keys list` shows them.\n",
    )  # fmt: skip


def test_revoke_prints_the_key_name(invoke: Invoke) -> None:
    invoke('keys', 'create', 'laptop')
    [key] = json.loads(invoke('keys', 'list', '--json').stdout)
    assert invoke('keys', 'revoke', key['id']).stderr == 'laptop is revoked.\n'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('create', ' '), "Invalid value for 'name': it is empty. Pass a text."),
        (('create', 'a', '--scope', 'root'), "'root' is not one of"),
        (('create', 'a', '--expires-in', '0'), "Invalid value for '--expires-in'"),
    ],
)
def test_invalid_key_arguments_are_reported(invoke: Invoke, arguments: tuple[str, ...], message: str) -> None:
    result = invoke('keys', *arguments)
    assert (result.exit_code, message in re.sub(r'[\s│]+', ' ', result.stderr)) == (2, True), result.stderr


def test_keys_use_the_store_of_the_config_file(work: Path, invoke: Invoke) -> None:
    (work / 'server.toml').write_text(f'store = "sqlite:///{work}/served.db"\n')
    invoke('keys', 'create', 'laptop', '--config', 'server.toml')
    assert (work / 'served.db').exists()
    assert 'There is no store' in invoke('keys', 'list').stderr


def test_server_commands_without_the_extra_print_how_to_install(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith('pydantic_deep.server')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'prometheus_client', None)
    for arguments in (('serve', '--model', 'test'), ('keys', 'list')):
        result = invoke(*arguments)
        assert (result.exit_code, "pip install 'versioned-deep-agents[server]'" in result.stderr) == (2, True)


def test_cli_scopes_match_server_scopes() -> None:
    assert tuple(Scope) == SCOPES
