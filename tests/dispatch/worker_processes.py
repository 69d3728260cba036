"""A program that runs workers in processes of their own, to be killed. Its turns are deterministic.

    python -m tests.dispatch.worker_processes URL DIRECTORY

It answers each line of its input with the process id of a new process: `worker` executes queued runs, and `orphans 200`
begins as many turns without a queue. The processes are forked, as importing takes longer than a turn, and killed when
the input ends.

A turn is named by its prompt: a kind and a key. Its calls append lines to a journal, which outlives each process.
"""

# Private names are used because tests shorten the intervals.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.dispatch import Worker, _log_writer, _worker
from pydantic_deep.store import SqlStore, Store, open_store
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import VersionedAgent

HANGS = 'hangs'
"""The key of the turn whose call never returns."""


def calls_of(kind: str, key: str) -> list[ToolCallPart]:
    """Return the calls of a turn, each of which is a response of its own."""
    path = f'/{key.replace("/", "-")}.txt'
    plans: dict[str, list[tuple[str, dict[str, str]]]] = {
        'short': [('note', {'key': key})],
        'paid': [('note', {'key': f'{key}/1'}), ('pay', {'key': key}), ('note', {'key': f'{key}/2'})],
        'child': [('note', {'key': f'{key}/c'})],
        'orphan': [('look', {'key': key}), ('note', {'key': key})],
        'mixed': [
            ('ls', {'path': '/'}),
            ('write_file', {'path': path, 'content': key}),
            ('note', {'key': f'{key}/1'}),
            ('task', {'subagent': 'child', 'description': f'child {key}'}),
            ('note', {'key': f'{key}/2'}),
        ],
    }
    return [ToolCallPart(tool, args, tool_call_id=f'{key}:{at}') for at, (tool, args) in enumerate(plans[kind])]


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    said, count = '', 0
    for message in messages:
        count += not isinstance(message, ModelRequest)
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                said, count = str(part.content), 0
    kind, _, key = said.partition(' ')
    await anyio.sleep(0.001)  # so that some kills occur at this moment
    calls = calls_of(kind, key)
    return calls[count] if count < len(calls) else f'done {key}'


class Journal:
    """The effects of calls, in files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._lines = directory / 'journal'
        self._gate = directory / 'gate'

    def write(self, line: str) -> None:
        """Append a line."""
        with self._lines.open('a') as lines:
            lines.write(f'{line}\n')

    def lines(self) -> list[str]:
        """Return all lines."""
        return self._lines.read_text().splitlines() if self._lines.exists() else []

    def open_gate(self) -> None:
        """Let calls return that wait."""
        self._gate.touch()

    async def wait(self, key: str) -> None:
        """Wait for the gate, which opens for all keys but one."""
        while key == HANGS or not self._gate.exists():  # noqa: ASYNC110 - another process opens it
            await anyio.sleep(0.01)


def make_agent(store: Store, journal: Journal) -> VersionedAgent[Any, Any]:
    """Return the agent as each process creates it."""
    tools = FunctionToolset[Any]()

    @tools.tool_plain
    async def note(key: str) -> str:
        """Note a key, which cannot be undone."""
        await anyio.sleep(0.001)
        journal.write(f'note {key}')
        await anyio.sleep(0.001)
        return f'noted {key}'

    @tools.tool_plain
    async def pay(key: str) -> str:
        """Pay, and wait for the receipt."""
        journal.write(f'pay {key}')
        await journal.wait(key)
        return f'paid {key}'

    @tools.tool_plain(metadata={'effect': 'read'})
    async def look(key: str) -> str:
        """Look."""
        journal.write(f'look {key}')
        await journal.wait(key)
        return f'seen {key}'

    child = Subagent('child', 'Helps.', toolsets=[tools])
    agent = create_deep_agent(ScriptedModel(then=_answer), toolsets=[tools], subagents=[child], name='agent')
    return VersionedAgent(agent, store)


async def _work(store: SqlStore, journal: Journal) -> None:
    await Worker({'agent': make_agent(store, journal)}, store, concurrency=16).run()


async def _begin_orphans(store: SqlStore, journal: Journal, count: int) -> None:
    agent = make_agent(store, journal)
    async with anyio.create_task_group() as group:
        for number in range(count):
            root = await agent.create(backend=StateBackend())
            group.start_soon(root.advance, f'orphan {number if number else HANGS}')


async def _run(url: str, directory: Path, command: str, count: str) -> None:
    async with open_store(url) as store:
        journal = Journal(directory)
        await (_work(store, journal) if command == 'worker' else _begin_orphans(store, journal, int(count)))


def _fork(run: Callable[[], None]) -> int:
    process_id = os.fork()
    if process_id:
        return process_id
    status = 1
    try:
        run()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def main(url: str, directory: str) -> None:
    """Fork a process for each line of the input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes killed processes
    _worker.CONFIRM_SECONDS, _worker.POLL_SECONDS, _worker.ORPHAN_SECONDS = 0.1, 0.02, 0.05
    _log_writer.FLUSH_SECONDS = 0.005
    started: list[int] = []
    try:
        for line in sys.stdin:
            command, _, count = line.strip().partition(' ')
            started.append(_fork(lambda: anyio.run(_run, url, Path(directory), command, count)))  # noqa: B023 - called now
            print(started[-1], flush=True)
    finally:
        for process_id in started:
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)


if __name__ == '__main__':
    main(*sys.argv[1:])
