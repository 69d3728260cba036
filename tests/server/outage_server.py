"""A server with an unreliable database: `python outage_server.py DIRECTORY URL PORT`. It prints its port.

A turn calls `hold`, which connects to PORT and returns when the parent process closes the connection. Then it calls
`send`, which appends the prompt to a file outside the store, and answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from functools import partial
from pathlib import Path

import anyio
import uvicorn
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import create_app
from pydantic_deep.store import open_store
from pydantic_deep.testing import Answer, ScriptedModel, call


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Return the next step after the last user prompt, from the messages alone. It is the same in every process."""
    prompt, count = '', 0
    for message in messages:
        if not isinstance(message, ModelRequest):
            count += 1
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                prompt, count = str(part.content), 0
    steps: list[Answer] = [call('hold'), call('send', key=prompt), f'Sent {prompt}.']
    return steps[count]


async def main(directory: Path, url: str, port: int) -> None:
    """Serve until killed."""

    async def hold() -> str:
        """Wait at the gate."""
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        await reader.read()
        writer.close()
        return 'held'

    async def send(key: str) -> str:
        """Send something."""
        descriptor = os.open(directory / 'sent', os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(descriptor, f'{key}\n'.encode())
        os.close(descriptor)
        return f'sent {key}'

    agent = create_deep_agent(ScriptedModel(then=answer), tools=[send], name='analyst')
    agent.tool_plain(metadata={'effect': 'read'})(hold)
    async with open_store(url, wait_seconds=0) as store:
        app = create_app({'analyst': agent}, store)
        with socket.create_server(('127.0.0.1', 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[listener])


if __name__ == '__main__':
    anyio.run(partial(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
