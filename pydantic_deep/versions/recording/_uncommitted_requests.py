"""The model requests of a run until they are stored in their final form.

A request is final when a message is known to have its response, or when the run ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from pydantic import JsonValue
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from pydantic_deep.store import NewAsset, RequestRecord
from pydantic_deep_backends import digest_of

from ._stored_history import HistoryChange, last_response


@dataclass(kw_only=True)
class RequestEntry:
    """A model request of a run, mutable until a message is known to have its response."""

    record: RequestRecord
    """The record, with an id of its own until the message with the response is known."""
    sent: dict[str, JsonValue]
    """The data of the request that is not in the history."""
    response: ModelResponse | None = None
    """The message with the response; `None` until it is known."""
    is_stored: bool = False
    """Whether it is stored as a request whose response is lost."""

    def finished(self, response_id: str | None) -> tuple[RequestRecord, list[NewAsset]]:
        """Return the record with the id of the message with the response, and its asset."""
        record, assets = self.record, list[NewAsset]()
        if self.sent:
            data = json.dumps(self.sent, sort_keys=True).encode()
            assets.append(NewAsset(digest=digest_of(data), data=data, media_type='application/json'))
            record = record._replace(message_digests=assets[-1].digest)
        return (record if response_id is None else record._replace(response_id=response_id)), assets

    def lost(self) -> tuple[RequestRecord, list[NewAsset]]:
        """Return the record for the case that a crash loses the response, and its asset."""
        record, assets = self.finished(None)
        return (record._replace(kind='superseded') if record.kind in _USABLE_KINDS else record), assets

    def use(self, usage: RequestUsage, cost: Decimal | None) -> None:
        """Add the usage of a response. There may be several, as a provider may continue a paused response."""
        record = self.record
        known = None if record.cost is None else Decimal(record.cost)
        total = known if cost is None else cost + (known or 0)
        self.record = record._replace(
            input_tokens=record.input_tokens + usage.input_tokens,
            output_tokens=record.output_tokens + usage.output_tokens,
            cache_read_tokens=record.cache_read_tokens + usage.cache_read_tokens,
            cache_write_tokens=record.cache_write_tokens + usage.cache_write_tokens,
            cost=None if total is None else str(total),
        )


_USABLE_KINDS: Final = frozenset({'answer', 'interrupted', 'summary'})
"""The kinds of requests whose response is lost if no version has it."""


@dataclass(frozen=True, kw_only=True)
class RequestBatch:
    """The requests of one commit."""

    records: Sequence[RequestRecord]
    assets: Sequence[NewAsset]
    """The new assets of requests, including those of earlier ones."""
    left: list[RequestEntry]
    """The requests that are not final after the commit."""


@dataclass(kw_only=True)
class UncommittedRequests:
    """The requests of one run that are not stored in their final form, with their assets."""

    _entries: list[RequestEntry] = field(default_factory=list[RequestEntry])
    _assets: list[NewAsset] = field(default_factory=list[NewAsset])
    _count: int = 0

    def add(self, entry: RequestEntry, assets: Sequence[NewAsset] = ()) -> None:
        """Add a request, to be committed with the message that has its response."""
        self._count += 1
        entry.record = entry.record._replace(number=self._count)
        self._entries.append(entry)
        self.add_assets(assets)

    def add_assets(self, assets: Sequence[NewAsset]) -> None:
        """Add assets that requests refer to."""
        self._assets += assets

    def answered(self, change: HistoryChange, *, with_others: bool) -> RequestBatch:
        """Return the requests whose responses are among new messages, or all of them."""
        id_by_object = {
            id(message): message_id for message, message_id in zip(change.messages, change.ids, strict=True)
        }
        last = last_response(change.messages)
        newest = next((entry.response for entry in reversed(self._entries) if entry.response is not None), None)
        if newest is not None and last >= 0:
            id_by_object.setdefault(id(newest), change.ids[last])  # a hook may have replaced the response
        records, left, assets = list[RequestRecord](), list[RequestEntry](), self._assets[:]
        for entry in self._entries:
            response_id = None if entry.response is None else id_by_object.get(id(entry.response))
            if response_id is None and not with_others:
                left.append(entry)
                continue
            record, new = entry.finished(response_id)
            records.append(record)
            assets += new
        return RequestBatch(records=records, assets=assets, left=left)

    def unanswered(self) -> RequestBatch:
        """Return the requests that are not stored at all, for the case that a crash loses their responses."""
        lost = [entry.lost() for entry in self._entries if not entry.is_stored]
        assets = [*self._assets, *(asset for _, of_entry in lost for asset in of_entry)]
        return RequestBatch(records=[record for record, _ in lost], assets=assets, left=self._entries)

    def mark_stored(self, batch: RequestBatch) -> None:
        """Mark a batch as stored, after its commit."""
        self._entries, self._assets = batch.left, []
        numbers = {record.number for record in batch.records}
        for entry in self._entries:
            entry.is_stored = entry.is_stored or entry.record.number in numbers
