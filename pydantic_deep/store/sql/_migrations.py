"""The tables, as numbered migrations that SQLite (3.35 and later) and PostgreSQL both understand.

Data shared by many rows is stored once and referred to by `number`, an integer that is never exposed: messages,
branches, assets, nodes, and the part of a version that seldom changes (`config`). Ids are packed (see `_keys`). The
columns `body`, `data`, `usage`, `output`, `prompt`, `options` and `result` are encoded (see `_codec`), and so are the
`arguments` of a tool call, which can be as large as the files that it writes.

There are no foreign keys: a deleted parent is an edge that became NULL, and a missing one is damage that is reported.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.errors import StoreCorruptedError, StoreFormatError

from ._scans import SEALED, seal_everything
from ._seals import seal
from ._tallies import count_references, make_tallies, split_tallies
from .dialect import FORMAT, Dialect

_FIRST: Final = (
    'CREATE TABLE asset (number {serial}, digest {bytes} NOT NULL UNIQUE, media_type TEXT NOT NULL,'
    ' size_bytes BIGINT NOT NULL, data {bytes} NOT NULL, created_at BIGINT NOT NULL)',
    'CREATE TABLE node (number {serial}, digest {bytes} NOT NULL UNIQUE, data {bytes} NOT NULL)',
    'CREATE TABLE conversation (number {serial}, id {bytes} NOT NULL UNIQUE, agent_name TEXT NOT NULL,'
    ' head_id {bytes}, created_at BIGINT NOT NULL)',
    'CREATE TABLE branch (number {serial}, id {bytes} NOT NULL UNIQUE, conversation_id {bytes} NOT NULL,'
    ' name TEXT NOT NULL, parent BIGINT, fork_seq BIGINT NOT NULL, tip_seq BIGINT NOT NULL, rewrites BIGINT,'
    ' rewrites_seq BIGINT, created_at BIGINT NOT NULL, UNIQUE (conversation_id, name))',
    'CREATE TABLE message (number {serial}, id {bytes} NOT NULL UNIQUE, body {bytes} NOT NULL)',
    'CREATE TABLE entry (branch BIGINT NOT NULL, seq BIGINT NOT NULL, message BIGINT NOT NULL,'
    ' PRIMARY KEY (branch, seq)){clustered}',
    'CREATE TABLE config (number {serial}, digest {bytes} NOT NULL UNIQUE, agent_name TEXT NOT NULL, name TEXT,'
    ' folded_name TEXT, metadata TEXT NOT NULL, model TEXT, model_settings TEXT NOT NULL, backend TEXT)',
    'CREATE TABLE config_field (config BIGINT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,'
    ' PRIMARY KEY (config, name)){clustered}',
    'CREATE TABLE version (number {serial}, id {bytes} NOT NULL UNIQUE, parent_id {bytes}, cloned_from {bytes},'
    ' merged_from {bytes}, kind TEXT NOT NULL, state TEXT NOT NULL, conversation BIGINT NOT NULL, branch BIGINT NOT NULL,'
    ' message_count BIGINT NOT NULL, run_id {bytes}, config BIGINT NOT NULL, usage {bytes} NOT NULL, output {bytes},'
    ' pending BIGINT, deps BIGINT, tree BIGINT, created_at BIGINT NOT NULL)',
    'CREATE INDEX version_conversation ON version (conversation, number)',
    'CREATE INDEX version_run ON version (run_id) WHERE run_id IS NOT NULL',
    'CREATE INDEX version_config ON version (config)',
    'CREATE TABLE edge (child BIGINT NOT NULL, kind BIGINT NOT NULL, parent BIGINT,'
    ' PRIMARY KEY (child, kind)){clustered}',
    'CREATE INDEX edge_parent ON edge (parent)',
    'CREATE TABLE run (number {serial}, id {bytes} NOT NULL UNIQUE, conversation_id {bytes} NOT NULL,'
    ' base_id {bytes}, agent_name TEXT NOT NULL, attempt_of {bytes}, parent_run_id {bytes}, state TEXT NOT NULL,'
    ' owner TEXT, prompt {bytes}, options {bytes} NOT NULL, usage {bytes} NOT NULL, cost TEXT, error TEXT,'
    ' trace_id TEXT, started_at BIGINT NOT NULL, ended_at BIGINT)',
    'CREATE INDEX run_conversation ON run (conversation_id)',
    'CREATE INDEX run_parent ON run (parent_run_id) WHERE parent_run_id IS NOT NULL',
    "CREATE INDEX run_running ON run (number) WHERE state = 'running'",
    'CREATE TABLE request (run_id {bytes} NOT NULL, number BIGINT NOT NULL, response_id {bytes} NOT NULL,'
    ' model TEXT NOT NULL, model_settings TEXT NOT NULL, parameters BIGINT, digest {bytes} NOT NULL,'
    ' message_digests BIGINT, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,'
    ' cache_read_tokens BIGINT NOT NULL, cache_write_tokens BIGINT NOT NULL, cost TEXT, duration_us BIGINT NOT NULL,'
    ' started_at BIGINT NOT NULL, PRIMARY KEY (run_id, number)){clustered}',
    'CREATE TABLE tool_call (number {serial}, run_id {bytes} NOT NULL, response_id {bytes} NOT NULL,'
    ' tool_call_id TEXT NOT NULL, tool_name TEXT NOT NULL, arguments {bytes} NOT NULL, effect TEXT NOT NULL,'
    ' status TEXT NOT NULL, result {bytes}, tree BIGINT, error TEXT, started_at BIGINT NOT NULL, ended_at BIGINT,'
    ' UNIQUE (run_id, response_id, tool_call_id))',
    'CREATE TABLE delegation (number {serial}, parent_run_id {bytes} NOT NULL, response_id {bytes} NOT NULL,'
    ' tool_call_id TEXT NOT NULL, child_conversation_id {bytes} NOT NULL, subagent TEXT NOT NULL,'
    ' intent TEXT NOT NULL, arguments TEXT NOT NULL, created_at BIGINT NOT NULL,'
    ' UNIQUE (parent_run_id, response_id, tool_call_id, child_conversation_id))',
    'CREATE INDEX delegation_child ON delegation (child_conversation_id)',
    'CREATE TABLE approval (number {serial}, id {bytes} NOT NULL UNIQUE, version_id {bytes} NOT NULL,'
    ' pending_id TEXT NOT NULL, conversation_id {bytes} NOT NULL, agent_name TEXT NOT NULL, path TEXT NOT NULL,'
    ' tool_name TEXT NOT NULL, arguments TEXT NOT NULL, arguments_digest TEXT NOT NULL, preview TEXT,'
    ' status TEXT NOT NULL, decision TEXT, decided_by TEXT, reason TEXT, decided_at BIGINT, resumed_by {bytes},'
    ' superseded_by {bytes}, expires_at BIGINT, created_at BIGINT NOT NULL)',
    'CREATE INDEX approval_version ON approval (version_id)',
    'CREATE INDEX approval_status ON approval (status, number)',
    'CREATE TABLE workspace (backend TEXT PRIMARY KEY, version_id {bytes}, run_id {bytes}, owner TEXT){clustered}',
    'CREATE TABLE reference (kind BIGINT NOT NULL, source BIGINT NOT NULL, asset BIGINT NOT NULL,'
    ' PRIMARY KEY (kind, source, asset)){clustered}',
    'CREATE TABLE condemned (kind BIGINT NOT NULL, number BIGINT NOT NULL, since BIGINT NOT NULL,'
    ' PRIMARY KEY (kind, number)){clustered}',
)  # fmt: skip

_QUEUE: Final = (
    'CREATE TABLE queued_run (number {serial}, run_id {bytes} NOT NULL UNIQUE, conversation_id {bytes} NOT NULL,'
    ' base_id {bytes}, agent_name TEXT NOT NULL, account TEXT, key_id TEXT, priority BIGINT NOT NULL,'
    ' prompt {bytes}, options {bytes} NOT NULL, state TEXT NOT NULL, worker TEXT, node TEXT, epoch BIGINT NOT NULL,'
    ' position BIGINT NOT NULL, problem TEXT, submitted_at BIGINT NOT NULL, started_at BIGINT, heartbeat_at BIGINT,'
    ' cancelled_at BIGINT, ended_at BIGINT)',
    "CREATE INDEX queued_run_active ON queued_run (conversation_id, number) WHERE state <> 'ended'",
    "CREATE INDEX queued_run_ready ON queued_run (priority DESC, number) WHERE state <> 'ended'",
    'CREATE INDEX queued_run_worker ON queued_run (worker) WHERE worker IS NOT NULL',
    'CREATE INDEX queued_run_ended ON queued_run (ended_at) WHERE ended_at IS NOT NULL',
    'CREATE TABLE run_event (run_id {bytes} NOT NULL, epoch BIGINT NOT NULL, last BIGINT NOT NULL,'
    ' entries {bytes} NOT NULL, PRIMARY KEY (run_id, epoch, last)){clustered}',
)  # fmt: skip

_SEALS: Final = tuple(f'ALTER TABLE {scan.table} ADD COLUMN seal BIGINT' for scan in SEALED)


def name_store(_dialect: Dialect) -> Operation[None]:
    """Give the store an id, with which the names of its blobs begin. Older releases cannot read contents in blobs."""
    yield Statement("INSERT INTO meta (key, value) VALUES ('id', ?1) ON CONFLICT DO NOTHING", (secrets.token_hex(8),))


MIGRATIONS: Final[tuple[tuple[str | Callable[[Dialect], Operation[None]], ...], ...]] = (
    _FIRST,
    (*_SEALS, lambda dialect: seal_everything(dialect.columns)),
    (make_tallies,),
    ('ALTER TABLE workspace ADD COLUMN identity TEXT',),
    ('ALTER TABLE request ADD COLUMN kind TEXT',),
    (count_references,),
    (name_store,),
    (split_tallies, 'DELETE FROM condemned'),  # garbage collection has more kinds of marks
    _QUEUE,
    ('ALTER TABLE run ADD COLUMN cancelled_at BIGINT',),  # when somebody requested it; not in `RunRecord`, nor sealed
)
"""Statements and operations of each version, from 1. Released migrations never change: a change is a new version."""


def migrate(dialect: Dialect, last: int | None = None) -> Operation[int]:
    """Migrate a database to the newest version, or to `last`; return its previous version, 0 if it was empty.

    Run this in one transaction, before anything else.

    Raises:
        StoreFormatError: The database is not a store, or was made by a newer release.
    """
    version = yield from stored_version(dialect)
    if version == 0:
        yield Statement('CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)')
        yield Statement("INSERT INTO meta (key, value) VALUES ('format', ?1), ('version', '0')", (FORMAT,))
    newest = len(MIGRATIONS) if last is None else last
    for statements in MIGRATIONS[version:newest]:
        for migration in statements:
            if isinstance(migration, str):
                yield Statement(_render(migration, dialect))
            else:
                yield from migration(dialect)
    if version < newest:
        version_text = str(newest)
        yield Statement("DELETE FROM meta WHERE key IN ('version', 'seal')")
        sealed = str(seal((FORMAT, version_text)))
        yield Statement("INSERT INTO meta (key, value) VALUES ('version', ?1), ('seal', ?2)", (version_text, sealed))
    return version


def stored_version(dialect: Dialect) -> Operation[int]:
    """Return the version of the tables, 0 for an empty database. Raises `StoreFormatError` as `migrate` does."""
    if not (yield Statement(dialect.table_exists, ('meta',))):
        if tables := (yield Statement(dialect.any_table)):
            raise StoreFormatError(
                f'The database has a table {tables[0][0]!r} and is not a store: it belongs to another program. '
                'Choose another file or schema.'
            )
        return 0
    rows = yield Statement('SELECT key, value FROM meta')
    meta = {str(key): str(value) for key, value in rows}
    version = meta.get('version', '')
    is_ours = bool((yield Statement(dialect.table_exists, ('entry',))))
    had_no_seals = version == '1' and 'seal' not in meta
    if is_ours and not had_no_seals and meta.get('seal') != str(seal((meta.get('format'), version))):
        raise StoreCorruptedError('meta', None, f'it contains {meta!r}, which differs from what was written')
    if meta.get('format') != FORMAT:
        raise StoreFormatError(
            f'The database format is {meta.get("format")!r}, not {FORMAT!r}. Choose another file or schema.'
        )
    if int(version) > len(MIGRATIONS):
        raise StoreFormatError(
            f'The database has version {version} of the tables; this release of pydantic-deep supports versions up to '
            f'{len(MIGRATIONS)}. Install a newer release.'
        )
    return int(version)


def _render(sql: str, dialect: Dialect) -> str:
    return sql.format(serial=dialect.serial, bytes=dialect.bytes_type, clustered=dialect.clustered)
