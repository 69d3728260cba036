"""A model wrapper that offers `search_history` only after a summary, and shortens a history that the provider rejects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelMessage, ModelResponse, repair_messages
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

Offered: TypeAlias = Callable[[ModelRequestParameters], ModelRequestParameters]
"""Returns the parameters of a request with the tools that are offered at the moment."""

Prepare: TypeAlias = Callable[[Sequence[ModelMessage]], list[ModelMessage]]
"""Prepares messages for the model."""


class OverflowModel(WrapperModel):
    """Retries a request once, with a shorter history, if it was rejected as too long.

    Tools are selected here and not in a hook: pydantic-ai would announce a tool that appears in the middle of a run by
    a message.

    Args:
        wrapped: The model.
        shorten: Shortens the history permanently and returns it prepared; `None` if it cannot be shortened.
        offered: Selects the tools of each request.
    """

    def __init__(
        self, wrapped: Model, shorten: Callable[[Prepare], Awaitable[list[ModelMessage] | None]], offered: Offered
    ) -> None:
        super().__init__(wrapped)
        self._shorten = shorten
        self._offered = offered

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Request a complete response."""
        try:
            return await self.wrapped.request(messages, model_settings, self._offered(model_request_parameters))
        except ModelContextWindowExceededError:
            shorter = await self._shorter(model_request_parameters)
            if shorter is None:
                raise
        return await self.wrapped.request(shorter, model_settings, self._offered(model_request_parameters))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Request a streamed response. A rejection occurs before the first event."""
        async with AsyncExitStack() as stack:

            async def begin(sent: list[ModelMessage]) -> StreamedResponse:
                offered = self._offered(model_request_parameters)
                stream = self.wrapped.request_stream(sent, model_settings, offered, run_context)
                return await stack.enter_async_context(stream)

            try:
                response = await begin(messages)
            except ModelContextWindowExceededError:
                shorter = await self._shorter(model_request_parameters)
                if shorter is None:
                    raise
                response = await begin(shorter)
            yield response

    async def _shorter(self, parameters: ModelRequestParameters) -> list[ModelMessage] | None:
        return await self._shorten(lambda messages: sendable(self.wrapped, messages, parameters))


def sendable(model: Model, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> list[ModelMessage]:
    """Return messages as an agent passes them to a model: repaired, prepared for the model, and repaired again."""
    repaired = repair_messages(messages)
    prepared = model.prepare_messages(repaired, parameters)
    return prepared if prepared is repaired else repair_messages(prepared)
