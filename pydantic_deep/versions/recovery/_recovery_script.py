"""A run that is told again: its requests are answered from what was recorded, its calls from the ledger."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from pydantic_deep._canned_stream import CannedStream
from pydantic_deep.store import CallRecord


@dataclass(frozen=True, kw_only=True)
class RecordedResponse:
    """An answer of a model, and what became of the calls in it."""

    id: str
    """The id of the message."""
    run_id: str
    """The run that had it."""
    response: ModelResponse
    calls: Mapping[str, CallRecord]
    """By the id of each call."""


@dataclass(kw_only=True)
class Replayed:
    """What was recorded of one run, and how far it is told."""

    run_id: str
    responses: Sequence[RecordedResponse]
    begun_from: RecordedResponse | None = None
    """The response that the run began from, if there was one: calls of it were made in the run."""
    summaries: Sequence[ModelMessage] = ()
    """What it made of histories that were too long, in order."""
    overflowed_after: frozenset[int] = frozenset()
    """After how many of the responses a request was refused as too long."""
    summarized: int = field(default=0, init=False)
    """How many of them were told again."""
    told: int = field(default=0, init=False)
    """How many of the responses."""

    @property
    def last(self) -> RecordedResponse | None:
        """The response whose calls are told now; `None` once something else was answered."""
        if self.told == 0:
            return self.begun_from
        return self.responses[self.told - 1] if self.told <= len(self.responses) else None

    @property
    def is_telling(self) -> bool:
        """Whether the last answer was one of the responses."""
        return 0 < self.told <= len(self.responses)

    def before(self, model: Model) -> Model | None:
        """Return a model that answers with what is left, and then is this one; `None` if nothing is left."""
        if self.told >= len(self.responses):
            self.told = len(self.responses) + 1  # what is answered from now on is not recorded
            return None
        return _ReplayedModel(model, self)

    @property
    def has_overflowed(self) -> bool:
        """Whether the next request was refused as too long."""
        return self.told in self.overflowed_after

    def next_summary(self) -> ModelMessage | None:
        """Return the next summary; `None` if it is to be made."""
        self.summarized += 1
        return self.summaries[self.summarized - 1] if self.summarized <= len(self.summaries) else None

    def next(self) -> ModelResponse:
        """Return the next response, as one of the run that is told."""
        self.told += 1
        return replace(self.responses[self.told - 1].response, run_id=None, conversation_id=None)


class _ReplayedModel(WrapperModel):
    """Answers one request from what was recorded."""

    def __init__(self, wrapped: Model, replayed: Replayed) -> None:
        super().__init__(wrapped)
        self._replayed = replayed

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self._replayed.next()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        yield CannedStream(parameters, response=self._replayed.next())
