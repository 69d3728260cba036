"""The `worker` command: arguments, and worker processes that are stopped in the middle of a run."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from pydantic_deep import create_deep_agent
from pydantic_deep.dispatch import WorkerEvent, submit
from pydantic_deep.server import ServerSettings
from pydantic_deep.server._state import OWNER
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.cli.conftest import PATIENCE_SECONDS, Invoke

MODULE = """
import os
from pathlib import Path

import anyio
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call


def answer(messages, info):
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    return f'{done} steps' if done == 3 else call('step', number=done)


async def step(number: int) -> str:
    "Do one step; the second one waits until the test continues it."
    with Path('steps').open('a') as file:
        file.write(f'{number}\\n')
    while number == 1 and not Path('continue').exists():
        await anyio.sleep(0.01)
    return f'step {number}'


agent = create_deep_agent(ScriptedModel(then=answer), name='analyst')
agent.tool_plain(metadata={'effect': 'read'})(step)
bad = {'a b': agent}
"""


@pytest.fixture
def agents_module(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with an agent in the working directory."""
    (work / 'fleet.py').write_text(MODULE)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    return work


@pytest.mark.parametrize(
    ('arguments', 'code', 'message'),
    [
        ((), 2, 'There are no agents. Name them as for `serve`: --agents MODULE:NAME.'),
        (('--agents', 'fleet'), 2, 'Write `package.module:attribute`'),
        (('--agents', 'fleet:bad'), 2, "'a b' cannot be the name of a served agent"),
        (('--agents', 'fleet:agent', '--store', 'memory:'), 2, 'The store memory: is visible in one process only'),
        (('--agents', 'fleet:agent', '--store', 'nowhere'), 2, "There is no store at 'nowhere'"),
        (('--agents', 'fleet:agent', '--concurrency', '0'), 2, "Invalid value for '--concurrency'"),
        (
            ('--agents', 'fleet:agent', '--work-dir', 'fleet.py/a'),
            2,
            "fleet.py' is not a directory that this process can",
        ),
        (('--agents', 'fleet:agent', '--drain', '-1'), 2, "Invalid value for '--drain'"),
        (('--agents', 'fleet:agent', '--dispatcher', 'none://'), 2, 'dispatcher: There is no dispatcher at'),
    ],
)
def test_worker_reports_invalid_arguments(
    agents_module: Path, invoke: Invoke, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = invoke('worker', *arguments)
    assert (result.exit_code, message in ' '.join(result.stderr.split())) == (code, True), result.stderr


def test_worker_passes_its_options_and_prints_events(
    agents_module: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options override the environment; the ready line and the events go to standard error."""
    given: list[ServerSettings] = []

    async def work(
        agents: object,
        store: object,
        settings: ServerSettings,
        *,
        on_start: Callable[[str], None],
        on_event: Callable[[WorkerEvent], None],
        on_stop: Callable[[int], None],
    ) -> None:
        given.append(settings)
        on_start('none')
        on_event(
            WorkerEvent(kind='began', run_id='r', agent_name='analyst', conversation_id='c\x1b[31m', state='running')
        )
        on_stop(2)

    monkeypatch.setattr('pydantic_deep.server.run_worker', work)
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_WORKER_CONCURRENCY', '7')
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_DISPATCHER', 'temporal://one')
    options = ('--agents', 'fleet:agent', '--store', f'sqlite:///{agents_module}/a.db', '--concurrency', '3')
    result = invoke('worker', *options, '--drain', '1.5', '--metrics-port', '9464', '--work-dir', 'files')
    assert result.exit_code == 0, result.stderr
    [settings] = given
    assert (settings.worker_concurrency, settings.dispatcher, settings.shutdown_seconds) == (3, 'temporal://one', 1.5)
    assert (settings.metrics_port, settings.work_dir) == (9464, Path('files'))
    ready, event, stop = result.stderr.splitlines()
    assert re.fullmatch(r'Worker ready: agents analyst; store \S+/a\.db; dispatcher none; concurrency 3', ready)
    assert re.fullmatch(
        r'time=\d{4}-\d\d-\d\dT[\d:.]+Z event=began run=r agent=analyst conversation=c\S+31m state=running', event
    )
    assert '\x1b' not in event
    assert stop == 'Stopping: waiting up to 1.5 seconds for running runs (2).'


@pytest.mark.parametrize('command', ['worker', 'serve'])
def test_warnings_and_errors_are_written_to_standard_error(
    agents_module: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """An operator reads there why a run has failed. What models and tools have written cannot control the terminal."""

    async def fail(*arguments: object, **options: object) -> None:
        try:
            raise RuntimeError('The tool wrote \x1b[31m.')
        except RuntimeError:
            logging.getLogger('pydantic_deep').exception('The run r failed')

    monkeypatch.setattr(logging.root, 'handlers', [])  # without those of the tests
    monkeypatch.setattr(f'pydantic_deep.server.{"run_worker" if command == "worker" else command}', fail)
    result = invoke(command, '--agents', 'fleet:agent', '--store', f'sqlite:///{agents_module}/a.db')
    assert re.search(r'^\S+ \S+ ERROR pydantic_deep: The run r failed$', result.stderr, re.MULTILINE), result.stderr
    assert r'RuntimeError: The tool wrote \x1b[31m.' in result.stderr


def test_worker_works_on_if_nobody_reads_its_events(
    agents_module: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error is a pipe whose reader has ended."""

    async def work(*arguments: object, on_start: Callable[[str], None], **options: object) -> None:
        on_start('none')
        (agents_module / 'worked').touch()

    def fail(*arguments: object, **options: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr('pydantic_deep.server.run_worker', work)
    monkeypatch.setattr('typer.echo', fail)
    invoke('worker', '--agents', 'fleet:agent', '--store', f'sqlite:///{agents_module}/a.db')
    assert (agents_module / 'worked').exists()


def test_worker_opens_its_store_with_the_settings(
    agents_module: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, object]] = []

    def note(url: str, **options: Any) -> AbstractAsyncContextManager[SqlStore]:
        opened.append(options)
        return open_store(url, **options)

    async def work(*arguments: object, **options: object) -> None:
        pass

    monkeypatch.setattr('pydantic_deep.cli.history._store.open_store', note)
    monkeypatch.setattr('pydantic_deep.server.run_worker', work)
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_STORE_WAIT_SECONDS', '5')
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_BLOBS', f'file://{agents_module}/blobs')
    result = invoke('worker', '--agents', 'fleet:agent', '--store', f'sqlite:///{agents_module}/a.db')
    assert result.exit_code == 0, result.stderr
    assert opened == [{'blobs': f'file://{agents_module}/blobs', 'wait_seconds': 5}]


def test_worker_reports_that_the_library_of_the_dispatcher_is_missing(
    agents_module: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'temporalio.client', None)
    monkeypatch.delitem(sys.modules, 'pydantic_deep.dispatch.temporal', raising=False)
    options = (
        '--agents',
        'fleet:agent',
        '--store',
        f'sqlite:///{agents_module}/a.db',
        '--dispatcher',
        'temporal://one',
    )
    result = invoke('worker', *options)
    assert result.exit_code == 2
    assert 'dispatcher: ' in result.stderr
    assert 'temporalio' in result.stderr


def test_serve_without_a_worker_hands_runs_over(
    agents_module: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[ServerSettings] = []

    async def serve(agents: object, store: object, settings: ServerSettings, **_: object) -> None:
        given.append(settings)

    monkeypatch.setattr('pydantic_deep.server.serve', serve)
    for options in (('--no-worker',), ()):
        assert invoke('serve', '--agents', 'fleet:agent', *options).exit_code == 0
    assert [settings.worker for settings in given] == [False, True]


@asynccontextmanager
async def worker_process(work: Path, store: str, drain: str) -> AsyncGenerator[tuple[Process, TextReceiveStream]]:
    """Start a worker, and wait until it is ready."""
    program = 'import sys; from pydantic_deep.cli import main; sys.exit(main())'
    options = ['--agents', 'fleet:agent', '--store', store, '--drain', drain]
    variables = {**os.environ, 'HOME': str(work), 'XDG_STATE_HOME': str(work / 'state')}
    command = [sys.executable, '-c', program, 'worker', *options]
    process = await anyio.open_process(command, cwd=work, env=variables, stdout=None, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        lines = TextReceiveStream(process.stderr)
        assert (await lines.receive()).startswith('Worker ready: agents analyst; store ')
        yield process, lines
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()


async def submit_run(store_url: str) -> str:
    """Queue a run in a new conversation and return its id."""
    async with open_store(store_url) as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(), name='analyst'), store)
        root = await agent.create(metadata={OWNER: 'ada'})
        return (await submit(root, TurnOptions(prompt='Go', moves_head=True), store)).run_id


async def events_until(lines: TextReceiveStream, kind: str) -> list[tuple[str, str]]:
    """Read the events of a worker up to one of a kind, as `(kind, state)`."""
    events: list[tuple[str, str]] = []
    async for text in lines:
        events += re.findall(r'event=(\S+) .* state=(\S+)', text)
        if kind in dict(events):
            return events
    raise AssertionError(f'The worker ended after {events}.')


async def text_until(lines: TextReceiveStream, wanted: str) -> None:
    text = ''
    while wanted not in text:
        text += await lines.receive()


async def wait_for_steps(work: Path, count: int) -> None:
    while not (work / 'steps').exists() or len((work / 'steps').read_text().split()) < count:  # noqa: ASYNC110
        await anyio.sleep(0.05)  # the other process needs the CPU


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    ('signals', 'code', 'after'),
    [
        ([signal.SIGTERM], 0, 'resumed'),
        ([signal.SIGKILL], -signal.SIGKILL, 'taken_over'),
        ([signal.SIGINT, signal.SIGINT], -signal.SIGINT, 'taken_over'),
    ],
)
async def test_run_of_a_worker_that_ends_continues_on_another(
    agents_module: Path, signals: list[signal.Signals], code: int, after: str
) -> None:
    """SIGTERM gives the run back after `--drain`; SIGKILL and a second SIGINT leave it to be taken over."""
    url = f'sqlite:///{agents_module}/agents.db'
    drain = '0' if signals == [signal.SIGTERM] else '1000'
    with anyio.fail_after(5 * PATIENCE_SECONDS):
        async with AsyncExitStack() as stack:
            first, first_lines = await stack.enter_async_context(worker_process(agents_module, url, drain))
            run_id = await submit_run(url)
            assert await events_until(first_lines, 'began') == [('began', 'running')]
            await wait_for_steps(agents_module, 2)
            _, second_lines = await stack.enter_async_context(worker_process(agents_module, url, '0'))
            first.send_signal(signals[0])
            for number in signals[1:]:
                await text_until(first_lines, 'Stopping: ')
                first.send_signal(number)
            assert await first.wait() == code
            (agents_module / 'continue').touch()
            assert await events_until(second_lines, 'ended') == [(after, 'running'), ('ended', 'complete')]
    async with open_store(url) as store:
        [newest] = await store.versions(limit=1)
        assert json.loads(newest.output or 'null') == '3 steps'
        queued = await store.queue.get(run_id)
        assert queued is not None
        assert (queued.state, queued.epoch) == ('ended', 2)
    # Only the step in which the worker ended ran again.
    assert (agents_module / 'steps').read_text().split() == ['0', '1', '1', '2']
