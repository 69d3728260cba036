"""A server for tests that kill it repeatedly: `python chaos_server.py DIRECTORY`. It prints its port.

A turn calls `note`, `look`, `task` with a subagent that calls `note` as well, `publish`, which requires approval, and
`note`. Each `note` appends a line to a file outside the store. The lines show how often each call ran.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path

import anyio
import uvicorn
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import Subagent, create_deep_agent
from pydantic_deep.server import ServerSettings, create_app
from pydantic_deep.store import open_store
from pydantic_deep.testing import Answer, ScriptedModel, call

PLAN = ('note', 'look', 'task', 'publish', 'note')
"""The calls of a turn, in order."""

CHILD_PLAN = ('note', 'look', 'note')
"""The calls of a subagent, in order."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Return the next step after the last user prompt, from the messages alone. It is the same in every process, for
    parent and child."""
    said, done = '', 0
    for message in messages:
        if not isinstance(message, ModelResponse):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    said, done = str(part.content), 0
                elif isinstance(part, ToolReturnPart):
                    done += 1
    plan = CHILD_PLAN if said.endswith('/child') else PLAN
    if done == len(plan):
        return f'All of {said}.'
    if plan[done] == 'task':
        return [f'{said}/{done} ', call('task', subagent='scribe', description=f'{said}/child')]
    return [f'{said}/{done} ', call(plan[done], key=f'{said}/{done}')]


class Journal:
    """Append-only files that are synced after each line."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def note(self, key: str) -> str:
        """Append a key: an effect that cannot be undone."""
        self._write('notes', key)
        await anyio.sleep(0.002)
        return f'noted {key}'

    async def publish(self, key: str) -> str:
        """Append a key after approval."""
        self._write('notes', key)
        return f'published {key}'

    async def look(self, key: str) -> str:
        """Read with a delay in which the process can be killed."""
        self._write('looks', key)
        await anyio.sleep(0.01)
        return f'saw {key}'

    def _write(self, name: str, key: str) -> None:
        descriptor = os.open(self._directory / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(descriptor, f'{key}\n'.encode())
        os.fsync(descriptor)
        os.close(descriptor)


async def main(directory: Path) -> None:
    """Serve until killed."""
    journal = Journal(directory)
    model = ScriptedModel(then=answer)
    scribe = create_deep_agent(model, tools=[journal.note], name='scribe')
    scribe.tool_plain(metadata={'effect': 'read'})(journal.look)
    agent = create_deep_agent(
        model,
        tools=[journal.note, journal.publish],
        subagents=[Subagent('scribe', 'Takes notes.', agent=scribe)],
        interrupt_on={'publish': True},
    )
    agent.tool_plain(metadata={'effect': 'read'})(journal.look)
    settings = ServerSettings(requests_per_second=10_000, request_burst=100_000, max_runs_per_key=1000)
    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        app = create_app({'analyst': agent}, store, settings)
        with socket.create_server(('127.0.0.1', 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[listener])


if __name__ == '__main__':
    anyio.run(partial(main, Path(sys.argv[1])))
