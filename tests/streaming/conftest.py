"""Servers that respond to an official SDK with the output of an encoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import httpx2
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

from pydantic_deep.approvals import PendingApproval, Preview
from pydantic_deep.streaming import AnswerEncoder, Approval, Frame, StreamEvent, approval_of, render_frame

RESPONSE_EVENTS: Mapping[str, type[BaseModel]] = {
    get_args(event.model_fields['type'].annotation)[0]: event for event in get_args(get_args(ResponseStreamEvent)[0])
}
"""The events of OpenAI's Responses API in the official SDK, by type."""


def response_event(frame: Frame) -> Any:
    """Return an event of the Responses API, validated by the official SDK."""
    assert frame.event is not None
    return RESPONSE_EVENTS[frame.event].model_validate_json(frame.data)


def waiting(
    id: str, *, tool: str, path: tuple[str, ...] = (), preview: Preview | None = None, **arguments: object
) -> Approval:
    """Return a pending call as it appears in events."""
    return approval_of(
        PendingApproval(
            id=id, path=path, tool=tool, arguments=arguments, tool_call_id=id, preview=preview,
            decisions=('approve', 'edit', 'deny'),
        )
    )  # fmt: skip


@pytest.fixture
def serve_stream() -> Callable[[AnswerEncoder, Sequence[StreamEvent]], httpx2.AsyncClient]:
    """Return a function that makes a client whose every response is these events as frames."""

    def serve(encoder: AnswerEncoder, events: Sequence[StreamEvent]) -> httpx2.AsyncClient:
        frames = [*(frame for event in events for frame in encoder.encode(event)), *encoder.finish()]
        body = ''.join(map(render_frame, frames)).encode()

        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={'content-type': 'text/event-stream'}, content=body, request=request)

        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    return serve


@pytest.fixture
def serve_body() -> Callable[[dict[str, object], int], httpx2.AsyncClient]:
    """Return a function that makes a client whose every response has this body."""

    def serve(body: dict[str, object], status: int = 200) -> httpx2.AsyncClient:
        def answer(request: httpx2.Request) -> httpx2.Response:
            headers = {'content-type': 'application/json'}
            return httpx2.Response(status, headers=headers, content=json.dumps(body).encode(), request=request)

        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    return serve
