"""The model that asks again, and the stream that begins anew.

Not here: what is worth another attempt (`_policy`), and what the attempts came to (`_attempts`).
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

Tell: TypeAlias = Callable[[Retry, bool], Awaitable[None]]
"""Told of each attempt that follows a failed one, and whether pieces of the failed answer were told."""


class RetriedModel(WrapperModel):
    """Asks the wrapped model again where a failure passes and where an answer was cut."""

    def __init__(
        self, wrapped: Model, policy: Policy, tell: Tell, bill: Callable[[Sequence[ModelRequestAttempt]], None]
    ) -> None:
        """Wrap a model.

        Args:
            wrapped: The model that is asked; a `FallbackModel` as a whole, so that one attempt asks all its models.
            policy: When to ask again.
            tell: Called before each wait.
            bill: Called with attempts that were billed and of which no response can tell, because there is none.
        """
        super().__init__(wrapped)
        self._policy = policy
        self._tell = tell
        self._bill = bill

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask until there is a whole answer or no attempt left; then raise the last error."""
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
            await self._tell(retry, False)
            await self._policy.sleep(retry.delay_seconds)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream one answer after another until one is whole; each is opened when the stream is read."""
        stream = _RetriedStream(
            model_request_parameters,
            attempts=Attempts(model=self.wrapped, policy=self._policy),
            tell=self._tell,
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
    """The streams of all attempts, one after another; what it is at any moment is what the last of them is.

    The parts of each attempt begin at index 0. Before the next attempt, the last part that was told is ended, so that
    every part that was started is ended too.
    """

    attempts: Attempts = field(kw_only=True)
    tell: Tell = field(kw_only=True)
    open_stream: Callable[[], AbstractAsyncContextManager[StreamedResponse]] = field(kw_only=True)
    _source: StreamedResponse | None = field(default=None, init=False)
    _events: AsyncGenerator[ModelResponseStreamEvent] | None = field(default=None, init=False)
    _last_start: PartStartEvent | None = field(default=None, init=False)
    _held: PartEndEvent | None = field(default=None, init=False)
    _opened_at: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        """Stream the events of the attempts; pydantic-ai has marked the ends of parts and the final result already."""
        if self._event_iterator is None:
            self._events = self._event_iterator = self._get_event_iterator()
        return self._event_iterator

    async def _get_event_iterator(self) -> AsyncGenerator[ModelResponseStreamEvent]:
        while True:
            self.attempts.begin()
            self._last_start = self._held = self.final_result_event = None
            try:
                async with self.open_stream() as source:
                    self._source = source
                    if self._cancelled:  # while it was being opened
                        await source.cancel()
                    async for event in source:
                        for told in self._told(event):
                            yield told
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
            # Before the event: what is emitted in this pull comes after it, and before the parts of the next attempt.
            await self.tell(retry, end is not None)
            if end is not None:
                yield end
            await self.attempts.policy.sleep(retry.delay_seconds)
            if self._cancelled:
                return
        if self._held is not None:
            yield self._held
        self._finished = not self._cancelled

    def _told(self, event: ModelResponseStreamEvent) -> Iterator[ModelResponseStreamEvent]:
        """Yield what is told now: all but the end of a part, which waits for what comes next."""
        if self._held is not None:
            yield self._held
        self._held = event if isinstance(event, PartEndEvent) else None
        if isinstance(event, PartStartEvent):
            self._last_start = event
        elif isinstance(event, FinalResultEvent):
            self.final_result_event = event
        if self._held is None:
            yield event

    def _end(self) -> PartEndEvent | None:
        """Return the end of the last part that was told; `None` if none was."""
        if self._held is not None or self._last_start is None or self._source is None:
            return self._held
        index = self._last_start.index
        return PartEndEvent(index=index, part=self._source.get().parts[index])

    def get(self) -> ModelResponse:
        """Return what the last attempt has brought so far, with what was tried before it."""
        if self._source is not None:
            response = self._source.get()
        else:
            state = 'interrupted' if self._cancelled else 'incomplete'
            response = ModelResponse(parts=[], model_name=self.model_name, state=state)
        response = self.attempts.settle(response)
        if self.failed_attempts:  # of a `FallbackModel` around this one
            response = replace(response, failed_attempts=[*self.failed_attempts, *(response.failed_attempts or [])])
        if self.metadata:
            response = replace(response, metadata={**(response.metadata or {}), **self.metadata})
        return response

    async def close_stream(self) -> None:
        """Close the stream of the attempt that is on, and begin no other."""
        self._cancelled = True
        if self._source is not None:
            await self._source.cancel()

    async def aclose(self) -> None:
        """Close the stream whose reader has gone."""
        if self._events is not None:
            await self._events.aclose()

    def get_stream_cancel_errors(self) -> tuple[type[BaseException], ...]:
        """Return what closing the stream may raise in who reads it."""
        return self._source.get_stream_cancel_errors() if self._source else super().get_stream_cancel_errors()

    def time_to_first_chunk(self, request_start: float) -> float | None:
        """Return how long the first piece of the last attempt took to come."""
        return self._source.time_to_first_chunk(request_start) if self._source else None

    @property
    def usage(self) -> RequestUsage:
        """What the last attempt has used."""
        return self._source.usage if self._source else RequestUsage()

    @property
    def model_name(self) -> str:
        """The model that answers."""
        return self._source.model_name if self._source else self.attempts.model.model_name

    @property
    def provider_name(self) -> str | None:
        """Its provider."""
        return self._source.provider_name if self._source else None

    @property
    def provider_url(self) -> str | None:
        """Where its provider is."""
        return self._source.provider_url if self._source else None

    @property
    def timestamp(self) -> datetime:
        """When the answer began."""
        return self._source.timestamp if self._source else self._opened_at
