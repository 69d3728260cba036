"""A request to a model as it is recorded: its settings, what it said in canonical form, what it cost."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from pydantic_deep._canonical import canonical_message, canonical_request, canonical_settings, digest
from pydantic_deep._prices import price_of
from pydantic_deep.store import NewAsset, RequestRecord
from pydantic_deep_backends import digest_of

from ._merged import identical


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a request says besides messages, as it was sent and as it is recorded."""

    settings: ModelSettings | None
    parameters: ModelRequestParameters
    digest: str
    """Of the canonical form of both."""
    model_settings: str
    """The settings that shape an answer, as JSON."""

    def is_of(self, request: ModelRequestContext) -> bool:
        """Return whether another request says the same; what it says is not written down again then."""
        return self.parameters == request.model_request_parameters and self.settings == request.model_settings


@dataclass(kw_only=True)
class RequestLog:
    """What is known of the requests of one run, so that each costs what is new in it."""

    _messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    _chain: list[str] = field(default_factory=lambda: [''])
    """The digest of each beginning of the messages of the last request."""
    _head: Head | None = None
    """What the last request said besides messages."""

    def for_next_run(self) -> RequestLog:
        """Return a log for a run that goes on with these messages: what it sends of them is not digested again."""
        return RequestLog(_messages=self._messages[:], _chain=self._chain[:])

    def note(
        self, run_id: str, request: ModelRequestContext, response: ModelResponse, *, started_at: int, duration_us: int
    ) -> tuple[RequestRecord, list[NewAsset]]:
        """Return a request as it is recorded, and what it says besides messages if that is new."""
        head, assets = self._head, list[NewAsset]()
        if head is None or not head.is_of(request):
            parameters = json.dumps(self.parameters_of(request), sort_keys=True).encode()
            self._head = Head(
                settings=request.model_settings,
                parameters=request.model_request_parameters,
                digest=digest_of(parameters),
                model_settings=json.dumps(canonical_settings(request.model_settings), sort_keys=True),
            )
            if head is None or head.digest != self._head.digest:
                assets.append(NewAsset(digest=self._head.digest, data=parameters, media_type='application/json'))
            head = self._head
        usage, cost = response.usage, price_of(response)
        record = RequestRecord(
            run_id=run_id,
            number=0,
            response_id='',
            model=response.model_name or request.model.model_name,
            model_settings=head.model_settings,
            parameters=head.digest,
            digest=digest([head.digest, self._digest(request.messages)]),
            message_digests=None,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cost=None if cost is None else str(cost),
            duration_us=duration_us,
            started_at=started_at,
        )
        return record, assets

    @staticmethod
    def parameters_of(request: ModelRequestContext) -> dict[str, JsonValue]:
        """Return what a request says besides messages: `instructions`, `tools`, `options`."""
        head = canonical_request((), request.model_settings, request.model_request_parameters)
        return {
            'instructions': head.instructions,
            'tools': cast('JsonValue', head.tools),
            'options': cast('JsonValue', head.options),
        }

    def _digest(self, messages: Sequence[ModelMessage]) -> str:
        same = identical(self._messages, messages)
        del self._chain[same + 1 :]
        for message in messages[same:]:
            self._chain.append(digest([self._chain[-1], cast('JsonValue', canonical_message(message))]))
        self._messages[same:] = messages[same:]
        return self._chain[-1]


def clock_us() -> int:
    """Return microseconds that never go back."""
    return time.perf_counter_ns() // 1000
