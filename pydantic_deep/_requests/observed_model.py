"""`ObservedModel`: reports the responses of a model before any capability changes or rejects them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.exceptions import FallbackExceptionGroup
from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

ResponseObserver: TypeAlias = Callable[[ModelResponse | None, Sequence[ModelRequestAttempt]], None]
"""Receives a response, or `None` if all attempts failed, and the failed attempts before it."""


async def _persist_nothing(is_answered: bool) -> None: ...


class ObservedModel(WrapperModel):
    """Wraps a model and reports each response, whether or not the run uses it.

    Args:
        wrapped: The model, with the wrappers of other capabilities.
        observe: Receives each response, including a partial one.
        persist: Makes the observed responses durable. It is awaited before each request is sent, and after its
            response.
    """

    def __init__(
        self, wrapped: Model, observe: ResponseObserver, persist: Callable[[bool], Awaitable[None]] = _persist_nothing
    ) -> None:
        super().__init__(wrapped)
        self._observe = observe
        self._persist = persist

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._persist(False)
        try:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        except FallbackExceptionGroup as error:
            self._observe(None, error.attempts)
            raise
        self._observe(response, response.failed_attempts or ())
        await self._persist(True)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        await self._persist(False)
        try:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                try:
                    yield stream
                finally:
                    response = stream.get()
                    self._observe(response, response.failed_attempts or ())
        except FallbackExceptionGroup as error:
            self._observe(None, error.attempts)
            raise
        await self._persist(True)
