"""What a run costs over `/mcp` with progress, beside the same run over our own stream: `python benchmarks/mcp_events.py`.

Both are requests to one application in this process, without a socket and without a client that parses what it receives.
A run calls a tool many times. Its CPU time divided by the calls is the cost of a call with its streamed events, and the
ratio of the two is printed: the median of pairs that run one after the other, so that load of the machine affects both, and
the quartiles, which show how much it has disturbed.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import anyio
from fastapi import FastAPI
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import Identity, ServerSettings, create_app
from pydantic_deep.testing import Answer, ScriptedModel, call

CALLS = 50
"""The calls of a run."""

PAIRS = 25
"""The runs over each route, after one that warms up."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call the tool, then end."""
    return 'Done.' if len(messages) > 2 * CALLS else call('note', text=str(len(messages)))


def note(text: str) -> str:
    """Note a text."""
    return text


async def send(
    app: FastAPI, path: str, body: dict[str, Any], accept: str = 'application/json, text/event-stream'
) -> bytes:
    """Send a request, and return the body of the response."""
    scope = {
        'type': 'http',
        'method': 'POST',
        'path': path,
        'raw_path': path.encode(),
        'root_path': '',
        'scheme': 'http',
        'http_version': '1.1',
        'query_string': b'',
        'server': ('localhost', 80),
        'client': ('127.0.0.1', 1),
        'headers': [
            (b'host', b'localhost'),
            (b'content-type', b'application/json'),
            (b'accept', accept.encode()),
            (b'mcp-protocol-version', b'2025-11-25'),
        ],
    }
    parts, messages = list[bytes](), [{'type': 'http.request', 'body': json.dumps(body).encode(), 'more_body': False}]
    done = anyio.Event()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await done.wait()
        return {'type': 'http.disconnect'}

    async def keep(message: Any) -> None:
        parts.append(message.get('body', b''))
        if message['type'] == 'http.response.body' and not message.get('more_body', False):
            done.set()

    await app(scope, receive, keep)
    return b''.join(parts)


async def over_ours(app: FastAPI) -> bytes:
    """Run a turn of a new conversation, and stream its events."""
    created = json.loads(await send(app, '/api/conversations', {'agent': 'writer'}, 'application/json'))
    return await send(app, f'/api/conversations/{created["id"]}/turns', {'prompt': 'Go.'}, 'text/event-stream')


async def over_mcp(app: FastAPI) -> bytes:
    """Run a turn of a new conversation with the tool `run`, and stream its progress."""
    params = {'name': 'run', 'arguments': {'prompt': 'Go.'}, '_meta': {'progressToken': 1}}
    return await send(app, '/mcp', {'jsonrpc': '2.0', 'id': 1, 'method': 'tools/call', 'params': params})


async def measure(app: FastAPI, over: Any) -> tuple[float, int]:
    """Return the CPU milliseconds of a call, and the streamed events."""
    begun = time.process_time()
    body = await over(app)
    spent = (time.process_time() - begun) / CALLS * 1000
    assert b'Done.' in body, body[-2000:]
    return spent, body.count(b'data: ')


async def main() -> None:
    """Measure and print."""
    agent = create_deep_agent(ScriptedModel(then=answer))
    agent.tool_plain(metadata={'effect': 'read'})(note)
    settings = ServerSettings(requests_per_second=1e6, request_burst=10**9)
    async with open_store('memory:') as store:
        app = create_app({'writer': agent}, store, settings, authenticate=lambda request: Identity(owner='ada'))
        async with app.router.lifespan_context(app):
            pairs = [(await measure(app, over_ours), await measure(app, over_mcp)) for _ in range(PAIRS + 1)][1:]
    for name, index in (('our route', 0), ('/mcp', 1)):
        cost, events = (statistics.median(pair[index][part] for pair in pairs) for part in (0, 1))
        print(f'{name:>9}: {cost:.3f} CPU ms a call, {events:.0f} events')
    low, ratio, high = statistics.quantiles((mcp / ours for (ours, _), (mcp, _) in pairs), n=4)
    print(f'    ratio: {ratio:.3f} ({low:.3f} to {high:.3f})')


if __name__ == '__main__':
    anyio.run(main)
