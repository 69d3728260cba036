"""The server of the streaming case: `python server_process.py DIRECTORY STREAMS`. It prints its port and an API key.

For each input line it prints its resource usage so far. Its model writes as many words as the prompt requests. All runs
wait for each other first, so that all of them stream concurrently.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import socket
import sys
import time
from pathlib import Path

import uvicorn
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings, create_api_key, create_app
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call

SEND_BYTES = 32 * 2**10
"""How much the system may buffer for a client that does not read: little, so that the server notices it."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> list[str | ToolCallPart] | str:
    """Write a word, wait for all other runs, then write the requested number of words."""
    if not any(isinstance(message, ModelResponse) for message in messages):
        return ['Wait. ', call('meet')]
    first = messages[0]
    assert isinstance(first, ModelRequest)
    [asked] = [part.content for part in first.parts if isinstance(part, UserPromptPart)]
    return ' '.join(f'word{number}' for number in range(int(str(asked))))


class Meeting:
    """A barrier for a fixed number of runs."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._complete = asyncio.Event()

    async def meet(self) -> str:
        """Wait for the others."""
        self._missing -= 1
        if self._missing <= 0:
            self._complete.set()
        await self._complete.wait()
        return 'All are here.'


async def main(directory: Path, streams: int) -> None:
    """Serve until the input ends."""
    agent = create_deep_agent(ScriptedModel(then=answer), tools=[Meeting(streams).meet])
    settings = ServerSettings(
        requests_per_second=10**6, request_burst=10**6, max_runs=streams + 10, max_runs_per_key=streams + 10
    )
    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        app = create_app({'talker': agent}, store, settings)
        key = await create_api_key(store, name='bench', scopes=['admin'])
        with socket.create_server(('127.0.0.1', 0), backlog=streams + 10) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
            server = uvicorn.Server(uvicorn.Config(app, http='h11', log_level='warning', backlog=streams + 10))
            print(json.dumps({'port': listener.getsockname()[1], 'key': key}), flush=True)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve(sockets=[listener]))
                while await asyncio.to_thread(sys.stdin.readline):
                    print(json.dumps(_used()), flush=True)
                server.should_exit = True


def _used() -> dict[str, float]:
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {'cpu_s': time.process_time(), 'peak_kib': peak_kib}


if __name__ == '__main__':
    gc.set_threshold(20_000)  # like the command `serve`, as is `h11`
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
