"""`HeardModel`: reports what models answer, before any capability has changed it or sent it back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from pydantic_ai import RunContext
from pydantic_ai.exceptions import FallbackExceptionGroup
from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings


class Hear(Protocol):
    """Takes an answer of a model, and the attempts that failed before it."""

    def __call__(self, response: ModelResponse | None, failed: Sequence[ModelRequestAttempt]) -> None:
        """Note it; `None` if all attempts failed."""
        ...


async def _keep_nothing(is_answered: bool) -> None: ...


class HeardModel(WrapperModel):
    """Asks a model and reports each answer, whatever becomes of it.

    Args:
        wrapped: The model, with what capabilities have put around it.
        hear: Notes an answer, also one of which only a part has arrived.
        keep: Makes durable what was noted. It is awaited before a request is sent, and after its answer.
    """

    def __init__(self, wrapped: Model, hear: Hear, keep: Callable[[bool], Awaitable[None]] = _keep_nothing) -> None:
        super().__init__(wrapped)
        self._hear = hear
        self._keep = keep

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._keep(False)
        try:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        except FallbackExceptionGroup as error:
            self._hear(None, error.attempts)
            raise
        self._hear(response, response.failed_attempts or ())
        await self._keep(True)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        await self._keep(False)
        try:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                try:
                    yield stream
                finally:
                    response = stream.get()
                    self._hear(response, response.failed_attempts or ())
        except FallbackExceptionGroup as error:
            self._hear(None, error.attempts)
            raise
        await self._keep(True)
