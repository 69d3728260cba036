"""A server for tests that kill it: `python restart_server.py DIRECTORY`. It prints its port, and its script is fixed.

A turn has six steps. Each appends a line to a file outside the store. The lines show how often each step ran.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path

import anyio
import uvicorn
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings, create_app
from pydantic_deep.store import open_store
from pydantic_deep.testing import Answer, ScriptedModel, call

STEPS = 6
"""Number of tool calls of a turn."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Return the next step after the last user prompt, from the messages alone. It is the same in every process."""
    said, done = '', 0
    for message in messages:
        if isinstance(message, ModelResponse):
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                said, done = str(part.content), 0
            elif isinstance(part, ToolReturnPart):
                done += 1
    assert isinstance(messages[-1], ModelRequest)
    tool = 'look' if done % 2 else 'note'
    return f'All {done} of {said}.' if done == STEPS else [f'{said}/{done} ', call(tool, key=f'{said}/{done}')]


class Journal:
    """Append-only files that are synced after each line. The process crashes at a line named in `kill`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def note(self, key: str) -> str:
        """Append a key: an effect that cannot be undone."""
        self._write('notes', key)
        return f'noted {key}'

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
    agent = create_deep_agent(ScriptedModel(then=answer), tools=[journal.note])
    agent.tool_plain(metadata={'effect': 'read'})(journal.look)
    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        app = create_app({'analyst': agent}, store, ServerSettings(requests_per_second=1000, request_burst=10_000))
        with socket.create_server(('127.0.0.1', 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[listener])


if __name__ == '__main__':
    anyio.run(partial(main, Path(sys.argv[1])))
