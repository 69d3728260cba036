"""A loopback server with Anthropic's API and prompt caching rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, cast

import pytest
from pydantic_ai import Agent, ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, UserPromptPart

from pydantic_deep.caching import CacheWatch, PrefixBrokenEvent
from pydantic_deep.testing import ScriptedModel, call

LOOK_BACK = 20
"""Number of blocks before a breakpoint that Anthropic checks for a cached prefix."""


class CachingServer(HTTPServer):
    """Answers with scripted content and counts one token per character of a block."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Messages)
        self.answers: list[list[dict[str, Any]]] = []
        """Content of each upcoming answer."""
        self.requests: list[dict[str, Any]] = []
        self.usages: list[dict[str, int]] = []
        self.cached: set[str] = set()
        """Cached prefixes of requests, as JSON."""

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.server_port}'

    def count(self, request: dict[str, Any]) -> dict[str, int]:
        """Return the usage of a request and cache the marked prefixes."""
        blocks = blocks_of(request)
        begins = [json.dumps([block for block, _ in blocks[: end + 1]]) for end in range(len(blocks))]
        marked = [index for index, (_, is_marked) in enumerate(blocks) if is_marked]
        looked_at = {end for mark in marked for end in range(max(0, mark - LOOK_BACK + 1), mark + 1)}
        read = max((len(begins[end]) for end in looked_at if begins[end] in self.cached), default=0)
        written = max((len(begins[mark]) for mark in marked), default=0)
        self.cached |= {begins[mark] for mark in marked}
        return {
            'input_tokens': len(begins[-1]) - max(read, written),
            'cache_read_input_tokens': read,
            'cache_creation_input_tokens': max(0, written - read),
            'output_tokens': 1,
        }


def blocks_of(request: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Return the blocks of a prompt in caching order, without their marks, each with whether it was marked."""
    found: list[dict[str, Any]] = [*request.get('tools', [])]
    system: str | list[dict[str, Any]] = request.get('system', [])
    found += [{'text': system}] if isinstance(system, str) else system
    for message in request['messages']:
        content: str | list[dict[str, Any]] = message['content']
        blocks = [{'type': 'text', 'text': content}] if isinstance(content, str) else content
        found += [{**block, 'role': message['role']} for block in blocks]
    if 'cache_control' in request:  # the provider puts the mark on the last block
        found[-1] = {**found[-1], 'cache_control': request['cache_control']}
    return [
        ({key: value for key, value in block.items() if key != 'cache_control'}, 'cache_control' in block)
        for block in found
    ]


class Messages(BaseHTTPRequestHandler):
    """Handler of the messages endpoint."""

    def do_POST(self) -> None:
        server = cast('CachingServer', self.server)
        request = json.loads(self.rfile.read(int(self.headers['content-length'])))
        server.requests.append(request)
        server.usages.append(server.count(request))
        content = server.answers.pop(0)
        is_call = content[-1]['type'] == 'tool_use'
        body = json.dumps(
            {
                'id': f'msg_{len(server.requests)}',
                'type': 'message',
                'role': 'assistant',
                'model': request['model'],
                'content': content,
                'stop_reason': 'tool_use' if is_call else 'end_turn',
                'stop_sequence': None,
                'usage': server.usages[-1],
            }
        ).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def anthropic() -> Generator[CachingServer]:
    server = CachingServer()
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


Change = Callable[[RunContext[Any], ModelRequestContext], None]


class Changing(AbstractCapability[Any]):
    """Changes the second request and every later one."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.requests = 0

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.requests += 1
        if self.requests > 1:
            self.change(ctx, request_context)
        return request_context


async def broken_by(change: Change, **options: Any) -> list[tuple[str, str]]:
    """Return the events of a run of three requests whose second request is changed."""
    agent = Agent(
        ScriptedModel(call('look'), call('look'), 'done'), capabilities=[Changing(change), CacheWatch()], **options
    )

    @agent.tool_plain
    def look() -> str:
        return 'seen'

    return await events_of(agent, 'go')


async def events_of(agent: Agent[Any, Any], prompt: str, **options: Any) -> list[tuple[str, str]]:
    events: list[tuple[str, str]] = []
    async with agent.run_stream_events(prompt, **options) as stream:
        async for event in stream:
            if isinstance(event, PrefixBrokenEvent):
                events.append((event.reason, event.detail))
    return events


def nothing(ctx: RunContext[Any], request_context: ModelRequestContext) -> None:
    pass


def prompt(text: str, instructions: str | None = None) -> ModelRequest:
    return ModelRequest([UserPromptPart(text)], instructions=instructions)
