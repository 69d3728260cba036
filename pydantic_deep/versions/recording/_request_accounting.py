"""The model requests of one run: which were sent, which message has the response to each, and their cost.

Each request becomes one row of the store, even if its response was rejected, superseded or lost.

Not here: the row itself and its encoding (`_request_log`), and when it is committed (`_recorded_run`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestAttempt,
    ModelRequestPart,
    ModelResponse,
    RetryFeedbackPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.usage import RequestUsage

from pydantic_deep._requests.canonical_request import canonical_message
from pydantic_deep._requests.observed_model import ObservedModel
from pydantic_deep._requests.prices import price_of
from pydantic_deep.store import NewAsset, RequestKind, now
from pydantic_deep.versions._messages import encode_message
from pydantic_deep.versions.recording._capabilities import is_framework, overrides

from ._recorded_run import RecordedRun
from ._request_log import RequestLog, clock_us
from ._uncommitted_requests import RequestEntry


@dataclass(kw_only=True)
class RequestAccounting:
    """Records the model requests of one run, and counts their usage."""

    recording: RecordedRun
    """The recording of the run."""
    _ctx: RunContext[object] | None = field(default=None, init=False, repr=False)
    """The run context of the last request."""
    _last_request: ModelRequestContext | None = field(default=None, init=False, repr=False)
    """The last request that was sent."""
    _sent_at: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    """When `_last_request` was sent: microseconds since 1970, and on a monotonic clock."""
    _is_held: bool = field(default=False, init=False, repr=False)
    """Whether a capability may delay or change its response."""
    _last_entry: RequestEntry | None = field(default=None, init=False, repr=False)
    """The entry of `_last_request`, from the first model response until the message with the response is known."""
    _original: tuple[object, tuple[bytes, list[NewAsset]]] | None = field(default=None, init=False, repr=False)
    """The response before capabilities changed it, in canonical and in stored form; `None` if none can change it."""
    _settled: RequestEntry | None = field(default=None, init=False, repr=False)
    """The entry of the last request whose response is in a message."""
    _observed: ObservedModel | None = field(default=None, init=False, repr=False)

    def observe(self, model: Model) -> ObservedModel:
        """Return the model wrapped so that its responses are recorded; the same wrapper for the same model."""
        if self._observed is None or self._observed.wrapped is not model:
            self._observed = ObservedModel(model, self._record_response, self._commit_responses)
        return self._observed

    def send(self, ctx: RunContext[object], request: ModelRequestContext) -> None:
        """Record that a request is sent now."""
        self._ctx, self._last_request, self._original = ctx, request, None
        self._sent_at = now(), clock_us()
        self._is_held = _may_hold(ctx)

    def answer(self, response: ModelResponse) -> None:
        """Record that `response` is the message with the response to the last request."""
        request = cast('ModelRequestContext', self._last_request)
        self.recording.model = f'{request.model.system}:{request.model.model_name}'
        self._settle(response, 'answer')

    def reject(self, request: ModelRequest, live: Sequence[ModelMessage]) -> None:
        """Record the last response as rejected if a hook or an output validator has sent it back to the model."""
        if self._last_entry is not None and isinstance(live[-1], ModelResponse):
            self._settle(live[-1], 'rejected')
        elif self._settled is not None and request.parts and all(map(self._is_refusal, request.parts)):
            self._settled.record = self._settled.record._replace(kind='rejected')

    def _is_refusal(self, part: ModelRequestPart) -> bool:
        """Return whether a part reports to the model that its output was rejected."""
        tools = () if self._last_request is None else self._last_request.model_request_parameters.output_tools
        is_of_output = (
            isinstance(part, ToolReturnPart)
            and part.outcome == 'retried'
            and part.tool_name in {tool.name for tool in tools}
        )
        return is_of_output or isinstance(part, RetryFeedbackPart)

    async def record_summary(
        self, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> None:
        """Store the request for a summary at once, because the request that needs the summary may take long."""
        noted = self._note_apart(request, started_at, duration_us, response.model_name, 'summary')
        self.recording.usage.requests += 1
        self._use(noted, response.usage, response)
        self._note_failed(request, response.failed_attempts or ())
        await self.recording.commit_requests()

    def record_billed_attempts(self, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Record the attempts at the last request that were billed and that no response includes."""
        if self._last_request is not None:
            self._note_failed(self._last_request, attempts)

    def _note_failed(self, request: ModelRequestContext, attempts: Sequence[ModelRequestAttempt]) -> None:
        """Record billed attempts at a request whose responses could not be used."""
        for attempt in attempts:
            if attempt.usage is None:
                continue
            started_at = int(attempt.timestamp.timestamp() * 1e6)
            duration_us = attempt.duration // timedelta(microseconds=1)
            noted = self._note_apart(request, started_at, duration_us, attempt.model_name, 'failed')
            self._use(noted, attempt.usage)

    def _note_apart(
        self, request: ModelRequestContext, started_at: int, duration_us: int, model_name: str | None, kind: RequestKind
    ) -> RequestEntry:
        """Record a request whose response is in no message of the history."""
        noted, assets = RequestLog().note(
            self.recording.run_id,
            request,
            request.messages,
            started_at=started_at,
            duration_us=duration_us,
            model_name=model_name,
            kind=kind,
        )
        self.recording.requests.add(noted, assets)
        return noted

    def _use(self, noted: RequestEntry, usage: RequestUsage, response: ModelResponse | None = None) -> None:
        """Add the usage of a response."""
        cost = usage.cost if usage.cost is not None or response is None else price_of(response)
        noted.use(usage, cost)
        self.recording.usage.incr(usage)
        if cost is not None:
            self.recording.cost = (self.recording.cost or Decimal()) + cost

    def _record_response(self, response: ModelResponse | None, failed: Sequence[ModelRequestAttempt]) -> None:
        """Record the model's response to the last request, and its failed attempts."""
        request = cast('ModelRequestContext', self._last_request)
        self._note_failed(request, failed)
        if response is None or not (response.parts or response.usage.has_values()):
            return
        if self._last_entry is None:
            self._last_entry = self._note(request, response)
        self._use(self._last_entry, response.usage, response)
        if self._is_held:
            self._original = canonical_message(response), encode_message(response)

    def _note(self, request: ModelRequestContext, response: ModelResponse) -> RequestEntry:
        """Record a request with the history at the time when it was sent."""
        recording, ctx = self.recording, cast('RunContext[object]', self._ctx)
        noted, assets = recording.start.requests.note(
            recording.run_id,
            request,
            ctx.messages,
            begun_with=recording.start.messages,
            prompt=ctx.prompt,
            started_at=self._sent_at[0],
            duration_us=clock_us() - self._sent_at[1],
            model_name=response.model_name,
            kind='superseded',  # until a message has the response
        )
        self.recording.requests.add(noted, assets)
        return noted

    def _settle(self, response: ModelResponse, kind: RequestKind) -> None:
        """Record which message has the response to the last request."""
        entry, self._last_entry = self._last_entry, None
        if entry is None:  # a capability has responded instead of the model
            entry, kind = self._note(cast('ModelRequestContext', self._last_request), response), 'skipped'
            self._use(entry, response.usage, response)
        entry.response, entry.record = response, entry.record._replace(kind=kind)
        self.recording.usage.requests += 1
        original, self._original = self._original, None
        if original is not None and original[0] != canonical_message(response):
            body, assets = original[1]
            entry.sent['response'] = json.loads(body)
            self.recording.requests.add_assets(assets)
        self._settled = entry

    def end_cut_off(self, live: Sequence[ModelMessage]) -> None:
        """Settle the last request of a run that ends before its response was processed."""
        if self._last_entry is None:
            return
        if isinstance(live[-1], ModelResponse) and live[-1].parts:
            self._settle(live[-1], 'interrupted')
        else:  # pydantic-ai counts its usage, but no request
            self._last_entry.record = self._last_entry.record._replace(kind='failed')

    async def _commit_responses(self, is_answered: bool) -> None:
        """Commit responses before the next request is sent, and before another capability may delay one."""
        if self._is_held or not is_answered:
            await self.recording.commit_requests()


def _may_hold(ctx: RunContext[object]) -> bool:
    """Return whether a user's capability may delay or change a response."""
    leaves: list[AbstractCapability[Any]] = []
    cast('AbstractCapability[Any]', ctx.root_capability).apply(leaves.append)
    return any(
        overrides(leaf, 'after_model_request', 'wrap_model_request') for leaf in leaves if not is_framework(leaf)
    )
