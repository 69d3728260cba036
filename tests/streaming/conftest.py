"""Servers that answer an official SDK with what an encoder made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import httpx2
import pytest

from pydantic_deep.streaming import AnswerEncoder, StreamEvent, render_frame


@pytest.fixture
def serve_stream() -> Callable[[AnswerEncoder, Sequence[StreamEvent]], httpx2.AsyncClient]:
    """Return what makes a client that gets events as frames, whatever it asks."""

    def serve(encoder: AnswerEncoder, events: Sequence[StreamEvent]) -> httpx2.AsyncClient:
        frames = [*(frame for event in events for frame in encoder.encode(event)), *encoder.finish()]
        body = ''.join(map(render_frame, frames)).encode()

        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={'content-type': 'text/event-stream'}, content=body, request=request)

        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    return serve


@pytest.fixture
def serve_body() -> Callable[[dict[str, object], int], httpx2.AsyncClient]:
    """Return what makes a client that gets a body, whatever it asks."""

    def serve(body: dict[str, object], status: int = 200) -> httpx2.AsyncClient:
        def answer(request: httpx2.Request) -> httpx2.Response:
            headers = {'content-type': 'application/json'}
            return httpx2.Response(status, headers=headers, content=json.dumps(body).encode(), request=request)

        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    return serve
