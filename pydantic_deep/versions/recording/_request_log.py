"""The record of a model request: settings, canonical content, usage and cost."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from pydantic_deep._messages.coalesced_requests import identical
from pydantic_deep._requests.canonical_request import canonical_message, canonical_request, canonical_settings, digest
from pydantic_deep.store import NewAsset, RequestKind, RequestRecord, new_id
from pydantic_deep_backends import digest_of

from ._prompts import Prompt, note_of
from ._uncommitted_requests import RequestEntry


@dataclass(frozen=True, kw_only=True)
class Head:
    """The parameters of a request, without messages: as sent, and as recorded."""

    settings: ModelSettings | None
    parameters: ModelRequestParameters
    digest: str
    """The digest of the canonical form of settings and parameters."""
    model_settings: str
    """The settings that affect a response, as JSON."""

    def is_of(self, request: ModelRequestContext) -> bool:
        """Return whether another request has the same parameters, which then need not be encoded again."""
        return self.parameters == request.model_request_parameters and self.settings == request.model_settings


@dataclass(kw_only=True)
class RequestLog:
    """The log of the requests of one run, with which each costs only its new messages."""

    _messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    _chain: list[str] = field(default_factory=lambda: [''])
    """The digest of each prefix of the last request's messages."""
    _head: Head | None = None
    """The parameters of the last request."""

    _history: list[ModelMessage] | None = None
    """The history at the last request of the run; `None` before the first."""

    def for_next_run(self) -> RequestLog:
        """Return a log for a run that continues these messages, which need not be digested again."""
        return RequestLog(_messages=self._messages[:], _chain=self._chain[:])

    def note(
        self,
        run_id: str,
        request: ModelRequestContext,
        history: Sequence[ModelMessage],
        *,
        begun_with: Sequence[ModelMessage] = (),
        prompt: Prompt | None = None,
        started_at: int,
        duration_us: int,
        model_name: str | None = None,
        kind: RequestKind = 'failed',
    ) -> tuple[RequestEntry, list[NewAsset]]:
        """Return the entry of a request of a run, without usage, and its new assets.

        `history` has the messages of the run up to the request, and `begun_with` those before the run.
        """
        head, assets = self._head_of(request)
        record = RequestRecord(
            run_id=run_id,
            number=0,
            response_id=new_id(),
            model=model_name or request.model.model_name,
            model_settings=head.model_settings,
            parameters=head.digest,
            digest=self._digest(head, request.messages),
            message_digests=None,
            input_tokens=0,
            output_tokens=0,
            cache_read_tokens=0,
            cache_write_tokens=0,
            cost=None,
            duration_us=duration_us,
            started_at=started_at,
            kind=kind,
        )
        sent = self._sent(run_id, request.messages, history, begun_with, prompt)
        return RequestEntry(record=record, sent=sent), assets

    def digest_of(self, request: ModelRequestContext) -> str:
        """Return the digest of a request in its canonical form."""
        return self._digest(self._head_of(request)[0], request.messages)

    def _head_of(self, request: ModelRequestContext) -> tuple[Head, list[NewAsset]]:
        """Return the parameters of a request, and their asset if it is new."""
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
        return head, assets

    def _sent(
        self,
        run_id: str,
        messages: Sequence[ModelMessage],
        history: Sequence[ModelMessage],
        begun_with: Sequence[ModelMessage],
        prompt: Prompt | None,
    ) -> dict[str, JsonValue]:
        """Return the data of a request that is not in the version's history.

        This is the prompt, and the messages if they differ from the history, or the history was rewritten.
        """
        before, is_first = self._history, self._history is None
        before = begun_with if before is None else before
        self._history = list(history)
        sent: dict[str, JsonValue] = {}
        note = note_of(prompt, history, run_id) if is_first and prompt is not None else None
        if note is not None:
            sent['prompt'] = note
        is_history = identical(history, messages) == len(history) == len(messages)
        is_rewritten = identical(before, history) < len(before)
        if is_rewritten or not is_history:
            sent['messages'] = _reference_messages(messages, before if is_rewritten else history)
        return sent

    @staticmethod
    def parameters_of(request: ModelRequestContext) -> dict[str, JsonValue]:
        """Return the parameters of a request, without messages: `instructions`, `tools`, `options`."""
        head = canonical_request((), request.model_settings, request.model_request_parameters)
        return {
            'instructions': head.instructions,
            'tools': cast('JsonValue', head.tools),
            'options': cast('JsonValue', head.options),
        }

    def _digest(self, head: Head, messages: Sequence[ModelMessage]) -> str:
        return digest([head.digest, self._digest_of_messages(messages)])

    def _digest_of_messages(self, messages: Sequence[ModelMessage]) -> str:
        same = identical(self._messages, messages)
        del self._chain[same + 1 :]
        for message in messages[same:]:
            self._chain.append(digest([self._chain[-1], cast('JsonValue', canonical_message(message))]))
        self._messages[same:] = messages[same:]
        return self._chain[-1]


def _reference_messages(messages: Sequence[ModelMessage], history: Sequence[ModelMessage]) -> list[JsonValue]:
    """Return messages in canonical form; those of the history as ranges of indexes."""
    place_by_message = {id(message): place for place, message in enumerate(history)}
    named: list[JsonValue] = []
    for message in messages:
        place = place_by_message.get(id(message))
        last = named[-1] if named else None
        if place is None:
            named.append(cast('JsonValue', canonical_message(message)))
        elif isinstance(last, list) and last[1] == place:
            last[1] = place + 1
        else:
            named.append([place, place + 1])
    return named


def resolve_messages(named: Sequence[JsonValue], history: Sequence[JsonValue]) -> list[JsonValue]:
    """Return messages in canonical form from the result of `_reference_messages`."""
    messages: list[JsonValue] = []
    for name in named:
        if isinstance(name, list):
            start, stop = cast('list[int]', name)
            messages += history[start:stop]
        else:
            messages.append(name)
    return messages


def clock_us() -> int:
    """Return the time of a monotonic clock, in microseconds."""
    return time.perf_counter_ns() // 1000
