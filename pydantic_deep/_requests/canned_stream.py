"""Models with a complete response before the request, streamed or not: test models and replay.

Subclasses supply the responses.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.native_tools import SUPPORTED_NATIVE_TOOLS, AbstractNativeTool
from pydantic_ai.profiles import ToolAdditionMode, ToolDeferralMode
from pydantic_ai.settings import ModelSettings

ARGUMENT_PIECE_CHARS = 16
"""Length of a streamed piece of a tool call's arguments: short enough to cut JSON within its tokens."""

MAX_ARGUMENT_PIECES = 200
"""Maximum number of pieces of one tool call. Longer arguments have longer pieces, as each piece costs as much."""

_WORD = re.compile(r'\s*\S+\s*|\s+')
"""A word with the surrounding white space, so that the words of a text concatenate to the text."""


class CannedModel(Model[None]):
    """A model that has its response before the request."""

    # A test double has no wire format of its own: it supports whatever its profile declares.
    supported_tool_deferral_modes: ClassVar[frozenset[ToolDeferralMode]] = frozenset({'standalone', 'with_tool_search'})
    supported_tool_addition_modes: ClassVar[frozenset[ToolAdditionMode]] = frozenset(
        {'by_reference', 'with_definitions'}
    )

    @abstractmethod
    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return the response to one request. It must be a new object each time, as pydantic-ai writes ids into it."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the whole response."""
        return await self.answer(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream the response that `request` returns."""
        response = await self.answer(messages, model_settings, model_request_parameters)
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        yield CannedStream(parameters, response=response)

    @classmethod
    def supported_native_tools(cls) -> frozenset[type[AbstractNativeTool]]:
        """Support all native tools: a test double never runs them."""
        return SUPPORTED_NATIVE_TOOLS


@dataclass
class CannedStream(StreamedResponse):
    """A complete response, streamed: text and thinking word by word, arguments of tool calls in at most
    `MAX_ARGUMENT_PIECES` pieces.
    """

    response: ModelResponse = field(kw_only=True)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        for index, part in enumerate(self.response.parts):
            for event in self._events_of(index, part):
                yield event
        # As with real providers, the usage arrives with the last piece.
        self._usage += self.response.usage
        self.finish_reason = self.response.finish_reason

    def _events_of(self, index: int, part: ModelResponsePart) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events of one part. Each is created on demand, because a created event counts as streamed."""
        parts = self._parts_manager
        if isinstance(part, TextPart) and part.content:
            for word in _WORD.findall(part.content):
                yield from parts.handle_text_delta(vendor_part_id=index, content=word)
        elif isinstance(part, ThinkingPart) and part.content:
            for word in _WORD.findall(part.content):
                yield from parts.handle_thinking_delta(vendor_part_id=index, content=word)
        elif isinstance(part, ToolCallPart):
            yield from self._events_of_call(index, part)
        else:
            yield parts.handle_part(vendor_part_id=None, part=part)

    def _events_of_call(self, index: int, part: ToolCallPart) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events of a tool call: its name and id, then its arguments in pieces."""
        delta = self._parts_manager.handle_tool_call_delta
        start = delta(vendor_part_id=index, tool_name=part.tool_name, tool_call_id=part.tool_call_id)
        text = part.args_as_json_str()
        size = max(ARGUMENT_PIECE_CHARS, math.ceil(len(text) / MAX_ARGUMENT_PIECES))
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        events = chain([start], (delta(vendor_part_id=index, args=piece) for piece in pieces))
        # `None` would be a piece before the name of its tool.
        yield from (event for event in events if event is not None)

    def get(self) -> ModelResponse:
        """Return the response streamed so far; once complete, it equals the response of `request`."""
        partial = super().get()
        return replace(self.response) if partial.state == 'complete' else partial

    async def close_stream(self) -> None:
        """Do nothing: there is no connection to close."""

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.response.model_name or ''

    @property
    def provider_name(self) -> str | None:
        """The provider named in the response, if any."""
        return self.response.provider_name

    @property
    def provider_url(self) -> None:
        """Return `None`: no provider is contacted."""
        return None

    @property
    def timestamp(self) -> datetime:
        """When the response was created."""
        return self.response.timestamp
