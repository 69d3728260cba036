"""A model wrapper that retries requests and streams.

`_policy` decides which failures are retried; `_attempts` records the attempts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    FinalResultEvent,
    ModelMessage,
    ModelRequestAttempt,
    ModelResponse,
    ModelResponseStreamEvent,
    PartEndEvent,
    PartStartEvent,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from ._attempts import Attempts, Retry
from ._policy import Policy

OnRetry: TypeAlias = Callable[[Retry, bool], Awaitable[None]]
"""Called before each retry, with a flag for whether parts of the failed response were already emitted."""


class RetriedModel(WrapperModel):
    """Retries transient errors and incomplete responses of the wrapped model."""

    def __init__(
        self, wrapped: Model, policy: Policy, on_retry: OnRetry, bill: Callable[[Sequence[ModelRequestAttempt]], None]
    ) -> None:
        """Wrap a model.

        Args:
            wrapped: The model. A `FallbackModel` is retried as a whole: each attempt tries all its models.
            policy: The retry policy.
            on_retry: Called before each delay.
            bill: Called with billed attempts that no response contains, because the last attempt failed.
        """
        super().__init__(wrapped)
        self._policy = policy
        self._on_retry = on_retry
        self._bill = bill

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the first complete response; raise the last error if there is none."""
        attempts = Attempts(model=self.wrapped, policy=self._policy)
        while True:
            attempts.begin()
            response = None
            try:
                response = await self.wrapped.request(messages, model_settings, model_request_parameters)
                attempts.check(response, streamed=False)
            except Exception as error:
                retry = attempts.fail(error, response)
                if retry is None:
                    self._bill(attempts.unanswered(error, response))
                    raise
            else:
                return attempts.settle(response)
            await self._on_retry(retry, False)
            await self._policy.wait(retry.delay_seconds)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream attempts until a response is complete. Each stream is opened when it is read."""
        stream = _RetriedStream(
            model_request_parameters,
            attempts=Attempts(model=self.wrapped, policy=self._policy),
            on_retry=self._on_retry,
            open_stream=lambda: self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ),
        )
        try:
            yield stream
        finally:
            await stream.aclose()


@dataclass
class _RetriedStream(StreamedResponse):
    """The streams of all attempts in sequence. Its properties are those of the last one.

    The parts of each attempt start at index 0. Before the next attempt, the last emitted part is ended, so that every
    started part ends.
    """

    attempts: Attempts = field(kw_only=True)
    on_retry: OnRetry = field(kw_only=True)
    open_stream: Callable[[], AbstractAsyncContextManager[StreamedResponse]] = field(kw_only=True)
    _source: StreamedResponse | None = field(default=None, init=False)
    _events: AsyncGenerator[ModelResponseStreamEvent] | None = field(default=None, init=False)
    _last_start: PartStartEvent | None = field(default=None, init=False)
    _pending_end: PartEndEvent | None = field(default=None, init=False)
    _opened_at: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        """Stream the events of all attempts. The inner streams have already added part ends and final-result events."""
        if self._event_iterator is None:
            self._events = self._event_iterator = self._get_event_iterator()
        return self._event_iterator

    async def _get_event_iterator(self) -> AsyncGenerator[ModelResponseStreamEvent]:
        while True:
            self.attempts.begin()
            self._last_start = self._pending_end = self.final_result_event = None
            try:
                async with self.open_stream() as source:
                    self._source = source
                    if self._cancelled:  # cancelled while the stream was being opened
                        await source.cancel()
                    async for event in source:
                        for ready_event in self._ready_events(event):
                            yield ready_event
                self.state = source.state
                if not self._cancelled:
                    self.attempts.check(source.get(), streamed=True)
            except Exception as error:
                retry = None if self._cancelled else self.attempts.fail(error, self._source and self._source.get())
                if retry is None:
                    raise
            else:
                break
            end, self._source = self._end(), None
            # Call `on_retry` before the end event: an event that it emits now follows the end event, and precedes the
            # parts of the next attempt.
            await self.on_retry(retry, end is not None)
            if end is not None:
                yield end
            await self.attempts.policy.wait(retry.delay_seconds)
            if self._cancelled:
                return
        if self._pending_end is not None:
            yield self._pending_end
        self._finished = not self._cancelled

    def _ready_events(self, event: ModelResponseStreamEvent) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events that can be emitted now: all but the end of a part, which is delayed until the next event."""
        if self._pending_end is not None:
            yield self._pending_end
        self._pending_end = event if isinstance(event, PartEndEvent) else None
        if isinstance(event, PartStartEvent):
            self._last_start = event
        elif isinstance(event, FinalResultEvent):
            self.final_result_event = event
        if self._pending_end is None:
            yield event

    def _end(self) -> PartEndEvent | None:
        """Return the end of the last emitted part; `None` if no part is open."""
        if self._pending_end is not None or self._last_start is None or self._source is None:
            return self._pending_end
        index = self._last_start.index
        return PartEndEvent(index=index, part=self._source.get().parts[index])

    def get(self) -> ModelResponse:
        """Return the response of the last attempt so far, with the failed attempts before it."""
        if self._source is not None:
            response = self._source.get()
        else:
            state = 'interrupted' if self._cancelled else 'incomplete'
            response = ModelResponse(parts=[], model_name=self.model_name, state=state)
        response = self.attempts.settle(response)
        if self.failed_attempts:  # of an outer `FallbackModel`
            response = replace(response, failed_attempts=[*self.failed_attempts, *(response.failed_attempts or [])])
        if self.metadata:
            response = replace(response, metadata={**(response.metadata or {}), **self.metadata})
        return response

    async def close_stream(self) -> None:
        """Close the current stream, and start no further attempt."""
        self._cancelled = True
        if self._source is not None:
            await self._source.cancel()

    async def aclose(self) -> None:
        """Close the streams when the consumer stops reading."""
        if self._events is not None:
            await self._events.aclose()

    def get_stream_cancel_errors(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions that closing the stream may raise in its consumer."""
        return self._source.get_stream_cancel_errors() if self._source else super().get_stream_cancel_errors()

    def time_to_first_chunk(self, request_start: float) -> float | None:
        """Return the time to the first chunk of the last attempt, in seconds."""
        return self._source.time_to_first_chunk(request_start) if self._source else None

    @property
    def usage(self) -> RequestUsage:
        """The usage of the last attempt."""
        return self._source.usage if self._source else RequestUsage()

    @property
    def model_name(self) -> str:
        """The model name of the last attempt."""
        return self._source.model_name if self._source else self.attempts.model.model_name

    @property
    def provider_name(self) -> str | None:
        """The provider name of the last attempt."""
        return self._source.provider_name if self._source else None

    @property
    def provider_url(self) -> str | None:
        """The provider URL of the last attempt."""
        return self._source.provider_url if self._source else None

    @property
    def timestamp(self) -> datetime:
        """The time when the response of the last attempt started."""
        return self._source.timestamp if self._source else self._opened_at
