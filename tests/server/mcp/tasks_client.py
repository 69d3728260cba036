"""Raw clients of tasks: each sends a request of JSON-RPC, and returns its result or its error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import anyio.lowlevel
import httpx

from tests.server.mcp.test_http import ACCEPT

TASKS: Mapping[str, Any] = {'extensions': {'io.modelcontextprotocol/tasks': {}}}
"""The capabilities of a client that has tasks."""

FORMS: Mapping[str, Any] = {**TASKS, 'elicitation': {'form': {}}}
"""The capabilities of a client that has tasks, and can show forms."""

VERSION = '2026-07-28'


class Exchange(Protocol):
    """A transport: sends a message, and returns the response to it."""

    async def __call__(self, message: dict[str, Any], /) -> dict[str, Any]: ...


class TasksClient:
    """A client that declares capabilities with each request."""

    def __init__(self, exchange: Exchange, capabilities: Mapping[str, Any] = FORMS) -> None:
        self._exchange = exchange
        self._capabilities = capabilities
        self._sent = 0

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return the response."""
        self._sent += 1
        meta = {
            'io.modelcontextprotocol/protocolVersion': VERSION,
            'io.modelcontextprotocol/clientInfo': {'name': 'test', 'version': '1'},
            'io.modelcontextprotocol/clientCapabilities': self._capabilities,
        }
        return await self._exchange(
            {'jsonrpc': '2.0', 'id': self._sent, 'method': method, 'params': {**params, '_meta': meta}}
        )

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return its result without the name of the server."""
        response = await self.send(method, **params)
        result = response['result']
        assert 'serverInfo' in json.dumps(result.pop('_meta'))
        return result

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return await self.request('tools/call', name=tool, arguments=arguments)

    async def get(self, task: str) -> dict[str, Any]:
        """Return a task."""
        return await self.request('tasks/get', taskId=task)

    async def update(self, task: str, responses: Mapping[str, Any]) -> dict[str, Any]:
        """Answer forms of a task."""
        return await self.request('tasks/update', taskId=task, inputResponses=responses)

    async def wait(self, task: str) -> dict[str, Any]:
        """Ask for a task until it does not work any more."""
        while (found := await self.get(task))['status'] == 'working':
            await anyio.lowlevel.checkpoint()
        return found


def over_http(client: httpx.AsyncClient) -> Exchange:
    """Return the transport of `/mcp`."""

    async def exchange(message: dict[str, Any], /) -> dict[str, Any]:
        params = message['params']
        name = params.get('name', params.get('taskId'))
        headers = {
            **ACCEPT,
            'mcp-protocol-version': VERSION,
            'mcp-method': message['method'],
            **({} if name is None else {'mcp-name': name}),
        }
        answer = await client.post('/mcp', json=message, headers=headers)
        if answer.headers['content-type'].startswith('text/event-stream'):
            [*_, last] = [line for line in answer.text.splitlines() if line.startswith('data: ')]
            return json.loads(last.removeprefix('data: '))
        return answer.json()

    return exchange


def accepted(decision: str, **content: Any) -> dict[str, Any]:
    """Return a filled form."""
    return {'action': 'accept', 'content': {'decision': decision, **content}}
