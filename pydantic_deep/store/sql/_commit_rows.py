"""Preparation of a commit before its transaction: validation, digests and compression."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from pydantic_deep.store.engine import Row
from pydantic_deep.store.records import Commit, NewAsset, VersionRecord
from pydantic_deep_backends.snapshots import digest_of

from . import _codec, _keys
from ._seals import seal

_DIGEST: Final = re.compile(rb'sha256:[0-9a-f]{64}')
_JSON_MEDIA: Final = 'application/json'

MAX_INSIDE_BYTES: Final = 65_536
"""Maximum size of content that stays in the database if the store has blobs: below it, a request to object storage takes
longer than the database does.
"""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A commit with its content encoded for the database."""

    commit: Commit
    assets: dict[str, Row]
    """Rows of `asset`, keyed by digest."""
    nodes: dict[str, Row]
    """Rows of `node`, keyed by digest."""
    bodies: dict[str, bytes]
    """Encoded bodies of messages, keyed by id."""
    mentions: dict[str, list[str]]
    """Digests mentioned in messages and JSON assets, keyed by the id or digest of these."""
    configs: dict[str, Row]
    """Rows of `config`, keyed by version id."""


def prepare(commit: Commit, now: int, blobs: Mapping[str, str] | None = None) -> Prepared:
    """Validate and encode a commit.

    Args:
        commit: The commit.
        now: The current time.
        blobs: Names of blobs that have the contents of assets, by digest.

    Raises:
        ValueError: Content has another digest than stated, or a text cannot be stored.
    """
    for records in _records(commit):
        for record in records:
            check_texts(cast('Iterable[object]', record))
    messages = commit.append.messages if commit.append is not None else ()
    mentions = {message.id: digests_in(message.body) for message in messages if message.body is not None}
    mentions |= {asset.digest: digests_in(asset.data) for asset in commit.assets if asset.media_type == _JSON_MEDIA}
    return Prepared(
        commit=commit,
        assets={asset.digest: _asset_row(asset, now, (blobs or {}).get(asset.digest)) for asset in commit.assets},
        nodes={digest: _node_row(digest, data) for digest, data in (commit.nodes or {}).items()},
        bodies={message.id: _codec.encode(message.body) for message in messages if message.body is not None},
        mentions={source: digests for source, digests in mentions.items() if digests},
        configs={version.id: config_row(version) for version in commit.versions},
    )


def size_of(commit: Commit) -> int:
    """Return the number of bytes that `prepare` will process."""
    size = sum(len(asset.data) for asset in commit.assets) + sum(map(len, (commit.nodes or {}).values()))
    return size + sum(len(message.body or b'') for message in (commit.append.messages if commit.append else ()))


def digests_in(data: bytes) -> list[str]:
    """Return the digests that occur in the data, without duplicates."""
    if b'sha256:' not in data:
        return []
    return sorted({match.decode() for match in _DIGEST.findall(data)})


def check_texts(record: Iterable[object]) -> None:
    """Raise `ValueError` if a text among the values cannot be stored."""
    texts = [value for value in record if isinstance(value, str)]
    together = ''.join(texts)
    if not together.isascii() or '\0' in together:
        for text in texts:
            _keys.check_text(text)


def config_row(version: VersionRecord) -> Row:
    """Return the row of `config` for a version; its first value is the digest of the others."""
    values = (
        *(version.agent_name, version.name, version.name and version.name.casefold(), version.metadata),
        *(version.model, version.model_settings, version.backend),
    )
    return config_digest(values), *values


def config_digest(values: Row) -> bytes:
    """Return the digest of a row of `config`, computed over its other values."""
    return hashlib.sha256(repr(values).encode()).digest()[:16]


@lru_cache(maxsize=256)
def fields_of(metadata: str) -> tuple[tuple[str, str], ...]:
    """Return the filterable metadata in canonical form: keys with values other than arrays and objects.

    Raises:
        ValueError: The metadata is not a JSON object.
    """
    try:
        parsed = cast('object', json.loads(metadata))
    except ValueError as error:
        raise ValueError(f'Metadata must be a JSON object, not {metadata[:80]!r}: {error}.') from None
    if not isinstance(parsed, dict):
        raise ValueError(f'Metadata must be a JSON object, not {metadata[:80]!r}.')
    fields = cast('dict[str, object]', parsed)
    return tuple(
        (_filterable(key), canonical(value))
        for key, value in fields.items()
        if value is None or isinstance(value, str | int | float)
    )


def canonical(value: Scalar) -> str:
    """Return one text for equal values: 1 and 1.0 are equal, `true` and 1 are not, nor are 1 and `"1"`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _filterable(json.dumps(value))


def _filterable(text: str) -> str:
    """Return text that every database can store and compare: characters that `check_text` refuses are escaped."""
    return text.encode('utf-8', 'backslashreplace').decode().replace('\0', '\\0')


def _records(commit: Commit) -> Sequence[Iterable[object]]:
    return (
        *(commit.conversations, commit.branches, commit.runs, commit.versions, commit.requests, commit.calls),
        *(commit.delegations, commit.approvals, commit.workspaces, commit.settled_calls),
        [(end.cost, end.error) for end in commit.ends],
        [(asset.media_type,) for asset in commit.assets],
        [(commit.append.fork_name,)] if commit.append is not None else (),
    )


def is_large(asset: NewAsset) -> bool:
    """Return whether content belongs in a blob. JSON stays in the database, which reads the digests in it."""
    return len(asset.data) > MAX_INSIDE_BYTES and asset.media_type != _JSON_MEDIA


def _asset_row(asset: NewAsset, now: int, blob: str | None) -> Row:
    _check_digest(asset.digest, asset.data)
    stored = _codec.encode(asset.data) if blob is None else _codec.encode_outside(blob)
    return asset_row(asset.digest, asset.media_type, len(asset.data), stored, now)


def asset_row(digest: str, media_type: str, size_bytes: int, stored: bytes, now: int) -> Row:
    """Return the row of an asset with encoded content."""
    sealed = asset_seal(digest, media_type, size_bytes, now)
    return _keys.pack_digest(digest), media_type, size_bytes, stored, now, sealed


def asset_seal(digest: str, media_type: str, size_bytes: int, created_at: int) -> int:
    """Return the seal of an asset. It excludes the content, which the digest covers."""
    return seal((digest, media_type, size_bytes, created_at))


def _node_row(digest: str, data: bytes) -> Row:
    _check_digest(digest, data)
    return _keys.pack_digest(digest), _codec.encode(data, is_json_like=False)


def _check_digest(digest: str, data: bytes) -> None:
    if digest != (actual := digest_of(data)):
        raise ValueError(f'Contents of {len(data)} bytes have the digest {actual!r}, not {digest!r}. Use `digest_of`.')
