"""Scenarios in a process that imitates Windows: `program.py DIRECTORY SCENARIO…`. Each prints its result."""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

from imitation import OURS, TYPED, imitate_windows


def import_everything() -> int:
    """Import every module, and return how many there are."""
    names = [
        module.name
        for package in map(importlib.import_module, OURS)
        for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.')
        if not module.name.endswith('__main__')
    ]
    return len({importlib.import_module(name) for name in names})


async def import_again(directory: Path) -> None:
    """Import every module, private ones too."""
    print(import_everything() > 300)


async def run_agent(directory: Path) -> None:
    """Run an agent on files in memory, with versions in memory."""
    from pydantic_deep import DeepAgentDeps, StateBackend, VersionedAgent, create_deep_agent, open_store
    from pydantic_deep.testing import ScriptedModel, call

    write = call('write_file', path='/a.txt', content='A')
    agent = create_deep_agent(ScriptedModel(write, 'Written.', write, 'Again.'))
    backend = StateBackend()
    result = await agent.run('Write.', deps=DeepAgentDeps(backend=backend))
    print(result.output, await backend.read_bytes('/a.txt'))
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(agent, store).create(backend=StateBackend())).advance('Write.')
        print(version.output, await (await version.files()).read_bytes('/a.txt'))


async def crash_in_a_run(directory: Path) -> None:
    """End the process during a model request. Its lock is the only sign that it ran."""
    from pydantic_deep import StateBackend, VersionedAgent, create_deep_agent, open_store
    from pydantic_deep.testing import ScriptedModel

    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(then=lambda messages, info: os._exit(9))), store)
        await (await agent.create(backend=StateBackend())).advance('Go.')


async def recover_a_run(directory: Path) -> None:
    """Recover the run of `crash_in_a_run`, but no run with a store still open in this process."""
    from pydantic_deep import StateBackend, VersionedAgent, create_deep_agent, open_store
    from pydantic_deep.testing import ScriptedModel

    url = f'sqlite:///{directory}/agents.db'
    started, finish = asyncio.Event(), asyncio.Event()

    async def wait(messages: object, info: object) -> str:
        started.set()
        await finish.wait()
        return 'Finished.'

    async with open_store(url) as theirs, open_store(url) as ours:
        busy = await VersionedAgent(create_deep_agent(ScriptedModel(wait)), theirs).create(backend=StateBackend())
        turn = asyncio.create_task(busy.advance('Wait.'))
        await started.wait()
        agent = VersionedAgent(create_deep_agent(ScriptedModel('Recovered.')), ours)
        print([version.output for version in await agent.recover()])
        finish.set()
        print((await turn).output)
        backup = directory / 'backup'
        await ours.backup(backup)
    print(backup.exists(), os.listdir(f'{directory}/agents.db.owners'))


async def serve_an_agent(directory: Path) -> None:
    """Request a turn from a server."""
    import httpx

    from pydantic_deep import create_deep_agent, open_store
    from pydantic_deep.server import create_api_key, create_app
    from pydantic_deep.testing import ScriptedModel

    async with open_store(f'sqlite:///{directory}/server.db') as store:
        key = await create_api_key(store, name='test', scopes=['run'])
        app = create_app({'writer': create_deep_agent(ScriptedModel('Hello.'))}, store)
        transport = httpx.ASGITransport(app)
        http = httpx.AsyncClient(
            transport=transport, base_url='http://localhost', headers={'authorization': f'Bearer {key}'}
        )
        async with app.router.lifespan_context(app), http:
            conversation = (await http.post('/api/conversations', json={'agent': 'writer'})).json()
            response = await http.post(f'/api/conversations/{conversation["id"]}/turns', json={'prompt': 'Hi'})
            print(response.status_code, response.json()['output'])


async def open_directories(directory: Path) -> None:
    """Request everything that needs POSIX."""
    from pydantic_deep import LocalBackend, SandboxBackend, open_store
    from pydantic_deep.store import StoreUnavailableError
    from pydantic_deep_backends import BackendUnavailableError

    for backend in (LocalBackend, SandboxBackend):
        try:
            backend(directory)
        except (BackendUnavailableError, StoreUnavailableError) as error:
            print(error)
    async with open_store('memory:') as store:
        try:
            await store.sql('SELECT 1')
        except (BackendUnavailableError, StoreUnavailableError) as error:
            print(error)


async def use_the_command_line(directory: Path) -> None:
    """Show the help, list the versions of `serve_an_agent`, and request a turn in a directory."""
    from typer.testing import CliRunner

    from pydantic_deep.cli._app import app
    from pydantic_deep.cli._environment import Environment
    from pydantic_deep.testing import ScriptedModel

    environment = Environment(models={'given': ScriptedModel('Done.')}, variables={'XDG_STATE_HOME': str(directory)})
    for arguments, expected in {
        '--help': 'Usage: pydantic-deep',
        f'log --all --store sqlite:///{directory}/server.db': 'Hi',
        'run Hello --model given': '`LocalBackend` and `SandboxBackend` need Linux or macOS',
    }.items():
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments.split(), obj=environment)
        print(result.exit_code, expected in result.output)


async def interrupt_a_turn(directory: Path) -> None:
    """Press Ctrl-C in a turn of the command line."""
    from pydantic_deep.cli.terminal._interrupts import stop_on_interrupt

    with stop_on_interrupt() as interrupts:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        print(interrupts.stop.cancelled)


async def discard_input(directory: Path) -> None:
    """Discard unread console input."""
    from prompt_toolkit.input import DummyInput

    from pydantic_deep.cli.terminal._terminal import Terminal

    terminal = Terminal(stdin=sys.stdin, stdout=sys.stdout)
    vars(terminal)['_input'] = DummyInput()  # the real one looks for the console
    terminal.discard_input()
    print(TYPED)


SCENARIOS: dict[str, Callable[[Path], Coroutine[None, None, None]]] = {
    scenario.__name__: scenario
    for scenario in (
        import_again,
        run_agent,
        crash_in_a_run,
        recover_a_run,
        serve_an_agent,
        open_directories,
        interrupt_a_turn,
        discard_input,
        use_the_command_line,
    )
}


def main() -> None:
    """Run scenarios, each below a line with its name."""
    directory, *names = sys.argv[1:]
    import_everything()  # including third-party packages, which are built for this system
    imitate_windows()
    for name in names:
        print(f'== {name}', flush=True)
        asyncio.run(SCENARIOS[name](Path(directory)))


if __name__ == '__main__':
    main()
