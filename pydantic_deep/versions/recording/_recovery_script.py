"""Recovery of a crashed run: model responses come from the recording, tool results from the ledger."""

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

from pydantic_deep._requests.canned_stream import CannedStream
from pydantic_deep.store import CallRecord


@dataclass(frozen=True, kw_only=True)
class RecordedResponse:
    """A recorded model response with the ledger entries of its tool calls."""

    id: str
    """The id of the message."""
    run_id: str
    """The run that had the response."""
    response: ModelResponse
    calls: Mapping[str, CallRecord]
    """The ledger entries, keyed by tool call id."""


@dataclass(kw_only=True)
class RecoveryScript:
    """The recorded responses of a crashed run, and the number of them that were used; empty if no run crashed."""

    responses: Sequence[RecordedResponse] = ()
    begun_from: RecordedResponse | None = None
    """The response that the run began from, if any. The run has made calls of it."""
    summaries: Sequence[ModelMessage] = ()
    """The summaries that the run created, in order."""
    overflowed_after: frozenset[int] = frozenset()
    """The numbers of responses after which a request was refused as too long."""
    summarized: int = field(default=0, init=False)
    """The number of summaries that were used."""
    position: int = field(default=0, init=False)
    """The number of responses that were used; greater than their total once a model has responded."""
    is_behind: bool = field(init=False)
    """Whether the run has not caught up with the crashed run, so that its steps are already stored."""

    def __post_init__(self) -> None:
        """Begin at the first response."""
        self.is_behind = bool(self.responses)

    @property
    def last(self) -> RecordedResponse | None:
        """The response whose calls run now; `None` once a model has responded."""
        if self.position == 0:
            return self.begun_from
        return self.responses[self.position - 1] if self.position <= len(self.responses) else None

    @property
    def is_active(self) -> bool:
        """Whether the last response was a recorded one."""
        return 0 < self.position <= len(self.responses)

    def before(self, model: Model) -> Model | None:
        """Return a model that gives the remaining responses; `None` if none remain."""
        if self.position >= len(self.responses):
            self.position = len(self.responses) + 1  # further responses come from the model
            return None
        return _ScriptModel(model, self)

    @property
    def has_overflowed(self) -> bool:
        """Whether the next request was refused as too long."""
        return self.position in self.overflowed_after

    def next_summary(self) -> ModelMessage | None:
        """Return the next summary; `None` if the crashed run created no more."""
        self.summarized += 1
        return self.summaries[self.summarized - 1] if self.summarized <= len(self.summaries) else None

    def next(self) -> ModelResponse:
        """Return the next response, without the ids of the crashed run."""
        self.position += 1
        return replace(self.responses[self.position - 1].response, run_id=None, conversation_id=None)


class _ScriptModel(WrapperModel):
    """Responds to one request with the next recorded response."""

    def __init__(self, wrapped: Model, script: RecoveryScript) -> None:
        super().__init__(wrapped)
        self._script = script

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self._script.next()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        yield CannedStream(parameters, response=self._script.next())
