"""Operations on content: assets, tree nodes and messages, each stored once.

Existing rows are found by digest or id. If garbage collection had condemned a row, using it again clears the mark in
the same transaction. A collection removes a row only if it can delete its mark: a commit and a collection that want the
same row wait for each other at the mark.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar, cast

from pydantic_deep.store.engine import Operation, Row, Value
from pydantic_deep.store.errors import AssetNotFoundError
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._statements import digest_from, id_from, insert, insert_many, integer, select_in

ASSET: Final = 0
NODE: Final = 1
MESSAGE: Final = 2
BRANCH: Final = 3
CONVERSATION: Final = 4
CONFIG: Final = 5
"""Kinds of rows that can be condemned, and of rows that can refer to an asset."""

TAIL: Final = 6
"""In place of a kind: messages at the end of a branch."""

K = TypeVar('K', str, bytes)

_NumberByKey = dict[str, int]


class _Content(NamedTuple, Generic[K]):
    """Rows that are stored once, and shared."""

    kind: int
    table: str
    key: str
    """The unique column."""
    columns: str
    pack: Callable[[K], Value]
    """Converts a key to the value of its column."""
    unpack: Callable[[object], K]


_ASSETS: Final = _Content(
    ASSET, 'asset', 'digest', 'digest, media_type, size_bytes, data, created_at, seal', _keys.pack_digest, digest_from
)
_NODES: Final = _Content(NODE, 'node', 'digest', 'digest, data', _keys.pack_digest, digest_from)
_MESSAGES: Final = _Content(MESSAGE, 'message', 'id', _rows.MESSAGE, _keys.pack_id, id_from)
_CONFIGS: Final = _Content(
    CONFIG, 'config', 'digest', 'digest, agent_name, name, folded_name, metadata, model, model_settings, backend',
    bytes, partial(cast, bytes),
)  # fmt: skip


def put_assets(new: Mapping[str, Row], referred: Iterable[str]) -> Operation[_NumberByKey]:
    """Store the assets that do not exist; return the numbers of these and of the referenced ones."""
    # In one order, so that two commits of the same assets do not wait for each other.
    return _put_digests(_ASSETS, dict(sorted(new.items())), set(referred))


def put_nodes(new: Mapping[str, Row], referred: Iterable[str]) -> Operation[_NumberByKey]:
    """Store the nodes that do not exist, in their order; return the numbers of these and of the referenced ones."""
    return _put_digests(_NODES, new, set(referred))


def _put_digests(content: _Content[str], new: Mapping[str, Row], referred: set[str]) -> Operation[_NumberByKey]:
    numbers, _ = yield from _put(content, new, referred | new.keys())
    if missing := referred - numbers.keys():
        raise AssetNotFoundError(min(missing))
    return numbers


def put_configs(new: Mapping[bytes, Row]) -> Operation[tuple[dict[bytes, int], set[bytes]]]:
    """Store the configs that do not exist; return the numbers of all, and the digests of these."""
    return _put(_CONFIGS, dict(sorted(new.items())), new.keys())


def put_messages(bodies: Mapping[str, bytes], shared: Iterable[str]) -> Operation[_NumberByKey]:
    """Store the messages that do not exist; return the numbers of these and of the shared ones."""
    wanted = set(shared)
    new = {id: _rows.message_row(id, body) for id, body in bodies.items()}
    numbers, _ = yield from _put(_MESSAGES, new, wanted - new.keys())
    if missing := wanted - numbers.keys():
        raise ValueError(f'There is no message {min(missing)!r} to share. Append it with its body.')
    return numbers


def _put(content: _Content[K], new: Mapping[K, Row], known: Collection[K]) -> Operation[tuple[dict[K, int], set[K]]]:
    """Store the rows that do not exist; return the numbers of these and of the known ones, and the keys of these.

    Args:
        content: The kind of the rows.
        new: The rows.
        known: The keys that probably exist, which are looked up first.
    """
    added: set[K] = set()
    numbers = yield from _find(content, known)
    suffix = f'ON CONFLICT ({content.key}) DO NOTHING RETURNING {content.key}, number'
    while missing := [key for key in new if key not in numbers]:
        done = yield from insert(content.table, content.columns, [new[key] for key in missing], suffix)
        inserted = {content.unpack(key): integer(number) for key, number in done}
        added |= inserted.keys()
        numbers |= inserted
        # The others were inserted by another commit; perhaps a collection removes them before they are found.
        numbers |= yield from _find(content, [key for key in missing if key not in inserted])
    return numbers, added


def _find(content: _Content[K], keys: Collection[K]) -> Operation[dict[K, int]]:
    """Return the numbers of the existing rows, which are no longer condemned."""
    sql = (
        f'SELECT x.{content.key}, x.number, g.since FROM {content.table} x'
        f' LEFT JOIN condemned g ON g.kind = ?1 AND g.number = x.number WHERE x.{content.key} IN ({{}})'
    )
    while True:
        rows = yield from select_in(sql, map(content.pack, keys), content.kind)
        if (yield from clear_condemned(content.kind, [number for _, number, since in rows if since is not None])):
            return {content.unpack(key): integer(number) for key, number, _ in rows}


def clear_condemned(kind: int, numbers: Iterable[Value]) -> Operation[bool]:
    """Remove rows from the list of condemned ones.

    Returns:
        Whether all were in the list. If not, a collection has removed a row or another commit has cleared its mark
        after it was read: read the rows again.
    """
    wanted = set(numbers)
    sql = 'DELETE FROM condemned WHERE kind = ?1 AND number IN ({}) RETURNING number'
    return len((yield from select_in(sql, wanted, kind))) == len(wanted)


def touch_condemned(kind: int, numbers: Iterable[Value]) -> Operation[bool]:
    """Change the marks of rows, so that a collection in progress does not remove them; return as `clear_condemned`.

    The rows are not necessarily reachable now. They remain condemned, no later than the rows to which they refer.
    """
    wanted = set(numbers)
    sql = 'UPDATE condemned SET since = since - 1 WHERE kind = ?1 AND number IN ({}) RETURNING number'
    return len((yield from select_in(sql, wanted, kind))) == len(wanted)


def put_mentions(mentions: Mapping[str, list[str]], assets: _NumberByKey, messages: _NumberByKey) -> Operation[None]:
    """Record which assets each message or asset mentions, so that garbage collection preserves them."""
    rows: list[Row] = []
    for source, digests in mentions.items():
        kind, number = (MESSAGE, messages[source]) if source in messages else (ASSET, assets[source])
        rows += [(kind, number, number_) for number_ in (yield from _find(_ASSETS, digests)).values()]
    yield from insert_many('reference', 'kind, source, asset', sorted(rows), 'ON CONFLICT DO NOTHING')
