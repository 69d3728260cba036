"""Operations on content: assets, tree nodes and messages, each stored once.

Existing rows are found by digest or id. If garbage collection had condemned a row, using it again clears the mark in
the same transaction.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.errors import AssetNotFoundError
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._statements import digest_from, id_from, insert, insert_many, integer, select_in

ASSET: Final = 0
NODE: Final = 1
MESSAGE: Final = 2
BRANCH: Final = 3
CONVERSATION: Final = 4
"""Kinds of rows that can be condemned, and of rows that can refer to an asset."""

_NumberByKey = dict[str, int]


def put_assets(new: Mapping[str, Row], referred: Iterable[str]) -> Operation[_NumberByKey]:
    """Store the assets that do not exist; return the numbers of these and of the referenced ones."""
    return _put('asset', 'digest, media_type, size_bytes, data, created_at, seal', ASSET, new, set(referred))


def put_nodes(new: Mapping[str, Row], referred: Iterable[str]) -> Operation[_NumberByKey]:
    """Store the nodes that do not exist; return the numbers of these and of the referenced ones."""
    return _put('node', 'digest, data', NODE, new, set(referred))


def _put(table: str, columns: str, kind: int, new: Mapping[str, Row], referred: set[str]) -> Operation[_NumberByKey]:
    number_by_digest = yield from _find(table, kind, referred | new.keys())
    rows = [row for digest, row in new.items() if digest not in number_by_digest]
    done = yield from insert(table, columns, rows, 'RETURNING digest, number')
    number_by_digest |= {digest_from(digest): integer(number) for digest, number in done}
    if missing := referred - number_by_digest.keys():
        raise AssetNotFoundError(min(missing))
    return number_by_digest


def _find(table: str, kind: int, digests: Iterable[str]) -> Operation[_NumberByKey]:
    rows = yield from select_in(
        f'SELECT x.digest, x.number, g.since FROM {table} x LEFT JOIN condemned g ON g.kind = ?1 AND g.number = x.number'
        ' WHERE x.digest IN ({})',
        map(_keys.pack_digest, digests),
        kind,
    )
    yield from clear_condemned(kind, [integer(number) for _, number, since in rows if since is not None])
    return {digest_from(digest): integer(number) for digest, number, _ in rows}


def clear_condemned(kind: int, numbers: Iterable[int]) -> Operation[None]:
    """Remove rows from the list of condemned ones."""
    rows: list[Row] = [(kind, number) for number in numbers]
    if rows:
        yield Statement('DELETE FROM condemned WHERE kind = ?1 AND number = ?2', (), rows)


def put_messages(bodies: Mapping[str, bytes], shared: Iterable[str]) -> Operation[_NumberByKey]:
    """Store the messages that do not exist; return the numbers of these and of the shared ones."""
    wanted = set(shared)
    number_by_id: _NumberByKey = {}
    if bodies:
        rows = [_rows.message_row(id, body) for id, body in bodies.items()]
        done = yield from insert('message', _rows.MESSAGE, rows, 'ON CONFLICT (id) DO NOTHING RETURNING id, number')
        number_by_id = {id_from(id): integer(number) for id, number in done}
    if rest := (wanted | bodies.keys()) - number_by_id.keys():
        known = yield from select_in(
            'SELECT m.id, m.number, g.since FROM message m LEFT JOIN condemned g ON g.kind = ?1 AND g.number = m.number'
            ' WHERE m.id IN ({})',
            map(_keys.pack_id, rest),
            MESSAGE,
        )
        yield from clear_condemned(MESSAGE, [integer(number) for _, number, since in known if since is not None])
        number_by_id |= {id_from(id): integer(number) for id, number, _ in known}
    if missing := wanted - number_by_id.keys():
        raise ValueError(f'There is no message {min(missing)!r} to share. Append it with its body.')
    return number_by_id


def put_mentions(mentions: Mapping[str, list[str]], assets: _NumberByKey, messages: _NumberByKey) -> Operation[None]:
    """Record which assets each message or asset mentions, so that garbage collection preserves them."""
    rows: list[Row] = []
    for source, digests in mentions.items():
        kind, number = (MESSAGE, messages[source]) if source in messages else (ASSET, assets[source])
        rows += [(kind, number, number_) for number_ in (yield from _find('asset', ASSET, digests)).values()]
    yield from insert_many('reference', 'kind, source, asset', rows, 'ON CONFLICT DO NOTHING')
