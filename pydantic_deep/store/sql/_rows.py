"""Conversion of records to rows and back, with the columns of each table.

The last column of each row is its seal (see `_seals`), which is verified on every read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from pydantic_deep.store.engine import Row, Value
from pydantic_deep.store.errors import StoreCorruptedError
from pydantic_deep.store.records import (
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    ConversationRecord,
    DelegationRecord,
    MessageRecord,
    RequestRecord,
    RunRecord,
    VersionRecord,
    WorkspaceRecord,
)

from . import _codec, _keys
from ._seals import DAMAGED, check_seal, raise_damage, reads, seal
from ._statements import Kind, bytes_from, decoded, digest_from, encoded, id_from, text_from

R = TypeVar('R')

_Kinds = tuple[Kind | None, ...]


def _reader(table: str, make: Callable[[Iterable[Any]], R], kinds: _Kinds, *key: int) -> Callable[[Row], R]:
    """Return a function that reads a row of a table.

    Args:
        table: The table.
        make: Creates the record from its values.
        kinds: The kinds of the columns.
        key: The places of the columns that name the row in errors.
    """

    @reads(table)
    def read(row: Row) -> R:
        values = tuple(decoded(row[:-1], kinds))
        check_seal(table, ', '.join(str(values[place]) for place in key), values, row[-1])
        return make(values)

    return read


SELECT_VERSION: Final = (
    'SELECT v.id, v.number, v.parent_id, v.cloned_from, v.merged_from, v.kind, v.state, b.conversation_id, b.id,'
    ' b.name, v.message_count, v.run_id, c.agent_name, c.name, c.metadata, c.model, c.model_settings, v.usage,'
    ' v.output, p.digest, d.digest, t.digest, c.backend, v.created_at, v.seal'
)
FROM_VERSION: Final = (
    ' LEFT JOIN branch b ON b.number = v.branch LEFT JOIN config c ON c.number = v.config'
    ' LEFT JOIN asset p ON p.number = v.pending LEFT JOIN asset d ON d.number = v.deps'
    ' LEFT JOIN node t ON t.number = v.tree'
)


def version_seal(record: VersionRecord) -> int:
    """Return the seal of a version, which excludes its number."""
    return seal((record.id, *record[2:]))


@reads('version')
def version_from(row: Row) -> VersionRecord:
    """Read a row of `SELECT_VERSION`."""
    record = decode_version(row)
    check_seal('version', record.id, (record.id, *record[2:]), row[24])
    return record


def decode_version(row: Sequence[Any]) -> VersionRecord:
    """Decode a row.

    This is unrolled instead of a loop over kinds, which takes twice as long: a page has hundreds of versions.
    """
    return VersionRecord(
        id_from(row[0]),
        row[1],
        row[2] and id_from(row[2]),
        row[3] and id_from(row[3]),
        row[4] and id_from(row[4]),
        row[5],
        row[6],
        id_from(row[7]),
        id_from(row[8]),
        row[9],
        row[10],
        row[11] and id_from(row[11]),
        row[12],
        row[13],
        row[14],
        row[15],
        row[16],
        text_from(row[17]),
        row[18] and text_from(row[18]),
        row[19] and digest_from(row[19]),
        row[20] and digest_from(row[20]),
        row[21] and digest_from(row[21]),
        row[22],
        row[23],
    )


SELECT_LINE: Final = (
    'SELECT line.number, v.id, v.cloned_from, v.merged_from, v.kind, v.state, v.branch, v.message_count, v.run_id,'
    ' v.config, v.usage, v.output, v.pending, v.deps, v.tree, v.created_at, v.seal'
)
"""A version of a lineage, with numbers in place of rows that many versions share: there are thousands of versions, and
few branches and configs.

The parent is not selected either: it is the preceding version.
"""


class LineReferences(NamedTuple):
    """Rows that the versions of a lineage share, keyed by number, as stored."""

    branches: Mapping[object, Row]
    """Conversation id, branch id and branch name."""
    configs: Mapping[object, Row]
    """The columns of a config that `version_from` reads, `backend` last."""
    assets: Mapping[object, Row]
    """The digests of assets, one per row."""
    nodes: Mapping[object, Row]
    """The digests of nodes, one per row."""


def versions_in_line(
    rows: Iterable[Sequence[Any]], before: str | None, shared: LineReferences
) -> tuple[VersionRecord, ...]:
    """Read rows of `SELECT_LINE`, parents first.

    Args:
        rows: The rows.
        before: The parent of the first version.
        shared: The rows that they refer to.
    """
    unpack, text = _keys.unpack_id, text_from
    branches = _DecodedRows('branch', shared.branches, lambda row: (id_from(row[0]), id_from(row[1]), row[2]))
    configs = _DecodedRows('config', shared.configs, tuple)
    assets = _DecodedRows('asset', shared.assets, lambda row: digest_from(row[0]))
    nodes = _DecodedRows('node', shared.nodes, lambda row: digest_from(row[0]))
    parent, versions = before, list[VersionRecord]()
    for row in rows:
        number, packed, cloned, merged, kind, state, branch, count, run, config, usage, output, *digests, at, stored = (
            row
        )
        try:
            conversation, branch_id, branch_name = branches[branch]
            agent, name, metadata, model, settings, backend = configs[config]
            pending, deps, tree = digests
            version = VersionRecord(
                id := unpack(packed),
                number,
                parent,
                cloned := cloned and unpack(cloned),
                merged := merged and unpack(merged),
                kind,
                state,
                conversation,
                branch_id,
                branch_name,
                count,
                run := run and unpack(run),
                agent,
                name,
                metadata,
                model,
                settings,
                usage := text(usage),
                output := output and text(output),
                pending := pending and assets[pending],
                deps := deps and assets[deps],
                tree := tree and nodes[tree],
                backend,
                at,
            )
            # `version_seal`, unrolled: a lineage has thousands of versions.
            sealed = (
                f'{id}\0{parent}\0{cloned}\0{merged}\0{kind}\0{state}\0{conversation}\0{branch_id}\0{branch_name}'
                f'\0{count}\0{run}\0{agent}\0{name}\0{metadata}\0{model}\0{settings}\0{usage}\0{output}\0{pending}'
                f'\0{deps}\0{tree}\0{backend}\0{at}'
            )
            if zlib.crc32(sealed.encode()) != stored:
                raise StoreCorruptedError('version', id, 'a value differs from the one that was written')
        except DAMAGED as error:
            raise_damage('version', packed, error)
        versions.append(version)
        parent = id
    return tuple(versions)


class _DecodedRows(dict[object, Any]):
    """Rows keyed by number, each decoded on first use; a missing one raises `StoreCorruptedError`."""

    def __init__(self, table: str, rows: Mapping[object, Row], decode: Callable[[Row], object]) -> None:
        self._table = table
        self._rows = rows
        self._decode = decode

    def __missing__(self, number: object) -> object:
        row = self._rows.get(number)
        if row is None:
            raise StoreCorruptedError(self._table, str(number), 'it is missing, and a version refers to it')
        self[number] = reads(self._table)(lambda named: self._decode(named[1:]))((cast('Value', number), *row))
        return self[number]


SELECT_BRANCH: Final = (
    'SELECT b.id, b.conversation_id, b.name, p.id, b.fork_seq, b.tip_seq, r.id, b.rewrites_seq, b.created_at, b.number, c.number,'
    ' b.parent, b.rewrites, b.seal'
    ' FROM branch b LEFT JOIN branch p ON p.number = b.parent LEFT JOIN branch r ON r.number = b.rewrites'
    ' LEFT JOIN conversation c ON c.id = b.conversation_id'
)
BRANCH_KINDS: Final[_Kinds] = (id_from, id_from, None, id_from, None, None, id_from, None, None)


BRANCH: Final = 'id, conversation_id, name, parent, fork_seq, tip_seq, rewrites, rewrites_seq, created_at, seal'


def branch_seal(record: BranchRecord, parent: Value, rewrites: Value) -> int:
    """Return the seal of a branch, which covers the numbers of its parent and of the branch that it rewrites."""
    return seal(branch_values(record, parent, rewrites))


def branch_values(record: BranchRecord, parent: Value, rewrites: Value) -> tuple[object, ...]:
    """Return the values that the seal of a branch covers."""
    return (*record[:3], parent, *record[4:6], rewrites, *record[7:])


@reads('branch')
def branch_from(row: Row) -> BranchRecord:
    """Read a row of `SELECT_BRANCH`."""
    record = BranchRecord._make(decoded(row[:9], BRANCH_KINDS))
    check_seal('branch', record.id, branch_values(record, row[11], row[12]), row[13])
    for number, id in ((row[11], record.parent_id), (row[12], record.rewrites_id)):
        if number is not None and id is None:
            raise StoreCorruptedError('branch', str(number), f'it is missing, and the branch {record.id} refers to it')
    return record


@reads('branch')
def check_branch(row: Row) -> None:
    """Verify the seal of a row of `BRANCH`."""
    id, conversation_id, *values, stored = row
    check_seal('branch', id_from(id), (id_from(id), id_from(conversation_id), *values), stored)


def branch_row(record: BranchRecord, parent: Value, rewrites: Value) -> Row:
    """Return the row of `BRANCH` for a record, with the numbers of its parent and of the branch that it rewrites."""
    return (
        *(_keys.pack_id(record.id), _keys.pack_id(record.conversation_id), record.name, parent, record.fork_seq),
        *(record.tip_seq, rewrites, record.rewrites_seq, record.created_at, branch_seal(record, parent, rewrites)),
    )


MESSAGE: Final = 'id, body, seal'


def message_row(id: str, body: bytes) -> Row:
    """Return the row of `MESSAGE` for an encoded body."""
    return _keys.pack_id(id), body, message_seal(id, body)


def message_seal(id: str, body: bytes) -> int:
    """Return the seal of a message, computed over its encoded body. It is unrolled: a history has thousands of
    messages.
    """
    return zlib.crc32(body, zlib.crc32(id.encode()))


ENTRY: Final = 'branch, seq, message, seal'


def entry_seal(branch_id: str, seq: int, message_id: str) -> int:
    """Return the seal of a message's position on a branch. It equals `seal` of the three values, unrolled for speed."""
    return zlib.crc32(f'{branch_id}\0{seq}\0{message_id}'.encode())


def messages_from(rows: Iterable[Row]) -> list[MessageRecord]:
    """Read rows of id, body, seal, position, seal of the position, and branch id of each message."""
    messages, unpack, decode = list[MessageRecord](), _keys.unpack_id, _codec.decode
    for packed, body, stored, seq, placed, packed_branch in cast('Iterable[Sequence[Any]]', rows):
        try:
            id, branch_id = unpack(packed), unpack(packed_branch)
            if message_seal(id, body) != stored:
                raise StoreCorruptedError('message', id, 'a value differs from the one that was written')
            if entry_seal(branch_id, seq, id) != placed:
                raise StoreCorruptedError(
                    'entry', f'{branch_id}, {seq}', 'it refers to another message than the one that was written'
                )
            messages.append(MessageRecord(id, seq, decode(body)))
        except DAMAGED as error:
            raise_damage('message', packed, error)
    return messages


CONVERSATION: Final = 'id, agent_name, head_id, created_at, seal'
CONVERSATION_KINDS: Final[_Kinds] = (id_from, None, id_from, None)


conversation_from = _reader('conversation', ConversationRecord._make, CONVERSATION_KINDS, 0)
"""Read a row of `CONVERSATION`."""


def conversation_row(record: ConversationRecord) -> Row:
    """Return the row of `CONVERSATION` for a record."""
    return (*encoded(record, CONVERSATION_KINDS), seal(record))


RUN: Final = (
    'id, conversation_id, base_id, agent_name, attempt_of, parent_run_id, state, owner, prompt, options, usage, cost,'
    ' error, trace_id, started_at, ended_at, seal'
)
RUN_KINDS: Final[_Kinds] = (
    *(id_from, id_from, id_from, None, id_from, id_from, None, None, bytes_from, text_from, text_from),
    *(None, None, None, None, None),
)


run_from = _reader('run', RunRecord._make, RUN_KINDS, 0)
"""Read a row of `RUN`."""


def run_row(record: RunRecord) -> Row:
    """Return the row of `RUN` for a record."""
    return (*encoded(record, RUN_KINDS), seal(record))


REQUEST: Final = (
    'run_id, number, response_id, model, model_settings, parameters, digest, message_digests, input_tokens,'
    ' output_tokens, cache_read_tokens, cache_write_tokens, cost, duration_us, started_at, kind, seal'
)
SELECT_REQUEST: Final = (
    'SELECT r.run_id, r.number, r.response_id, r.model, r.model_settings, p.digest, r.digest, m.digest, r.input_tokens,'
    ' r.output_tokens, r.cache_read_tokens, r.cache_write_tokens, r.cost, r.duration_us, r.started_at, r.kind, r.seal'
    ' FROM request r'
    ' LEFT JOIN asset p ON p.number = r.parameters LEFT JOIN asset m ON m.number = r.message_digests'
)
REQUEST_KINDS: Final[_Kinds] = (
    *(id_from, None, id_from, None, None, digest_from, digest_from, digest_from),
    *(None, None, None, None, None, None, None, None),
)


_stored_request_from = _reader('request', RequestRecord._make, REQUEST_KINDS, 0, 1)


def request_from(row: Row) -> RequestRecord:
    """Read a row of `SELECT_REQUEST`."""
    record = _stored_request_from(row)
    return record if cast('object', record.kind) is not None else record._replace(kind='answer')


def request_row(record: RequestRecord, parameters: int | None, message_digests: int | None) -> Row:
    """Return the row of `REQUEST` for a record, with the numbers of its assets. The kind `answer` is NULL, as in old
    rows.
    """
    kind = None if record.kind == 'answer' else record.kind
    return (
        *(*encoded(record[:5], REQUEST_KINDS), parameters, _keys.pack_digest(record.digest), message_digests),
        *(*record[8:-1], kind, seal((*record[:-1], kind))),
    )


CALL: Final = (
    'run_id, response_id, tool_call_id, tool_name, arguments, effect, status, result, tree, error, started_at, ended_at,'
    ' seal'
)
SELECT_CALL: Final = (
    'SELECT c.run_id, c.response_id, c.tool_call_id, c.tool_name, c.arguments, c.effect, c.status, c.result, t.digest,'
    ' c.error, c.started_at, c.ended_at, c.seal FROM tool_call c LEFT JOIN node t ON t.number = c.tree'
)
CALL_KINDS: Final[_Kinds] = (
    *(id_from, id_from, None, None, text_from, None, None, text_from, digest_from, None, None, None),
)


call_from = _reader('tool_call', CallRecord._make, CALL_KINDS, 0, 2)
"""Read a row of `SELECT_CALL`."""


def call_row(record: CallRecord, tree: int | None) -> Row:
    """Return the row of `CALL` for a record, with the number of its tree."""
    return (*encoded(record[:8], CALL_KINDS), tree, *record[9:], seal(record))


DELEGATION: Final = (
    'parent_run_id, response_id, tool_call_id, child_conversation_id, subagent, intent, arguments, created_at, seal'
)
DELEGATION_KINDS: Final[_Kinds] = (id_from, id_from, None, id_from, None, None, None, None)


delegation_from = _reader('delegation', DelegationRecord._make, DELEGATION_KINDS, 0, 2)
"""Read a row of `DELEGATION`."""


def delegation_row(record: DelegationRecord) -> Row:
    """Return the row of `DELEGATION` for a record."""
    return (*encoded(record, DELEGATION_KINDS), seal(record))


APPROVAL: Final = (
    'id, version_id, pending_id, conversation_id, agent_name, path, tool_name, arguments, arguments_digest, preview,'
    ' status, decision, decided_by, reason, decided_at, resumed_by, superseded_by, expires_at, created_at, seal'
)
APPROVAL_KINDS: Final[_Kinds] = (
    *(id_from, id_from, None, id_from, None, None, None, None, None, None, None, None, None, None, None),
    *(id_from, id_from, None, None),
)


stored_approval_from = _reader('approval', ApprovalRecord._make, APPROVAL_KINDS, 0)
"""Read a row of `APPROVAL` as stored."""


def approval_from(row: Row, now: int) -> ApprovalRecord:
    """Read a row of `APPROVAL`; one that is pending past its deadline is expired."""
    record = stored_approval_from(row)
    is_over = record.status == 'pending' and record.expires_at is not None and record.expires_at <= now
    return record._replace(status='expired') if is_over else record


def approval_row(record: ApprovalRecord) -> Row:
    """Return the row of `APPROVAL` for a record."""
    return (*encoded(record, APPROVAL_KINDS), seal(record))


WORKSPACE: Final = 'backend, version_id, run_id, owner, identity, seal'
WORKSPACE_KINDS: Final[_Kinds] = (None, id_from, id_from, None, None)


_workspace_values = _reader('workspace', tuple[Any, ...], WORKSPACE_KINDS, 0)


def workspace_from(row: Row) -> tuple[WorkspaceRecord, str | None]:
    """Read a row of `WORKSPACE`, with the open store that owns the claim."""
    backend, version_id, run_id, owner, identity = _workspace_values(row)
    return WorkspaceRecord(backend, version_id, run_id, identity), owner


def workspace_row(record: WorkspaceRecord, owner: str | None) -> Row:
    """Return the row of `WORKSPACE` for a record."""
    values = (record.backend, record.version_id, record.run_id, owner, record.identity)
    return (*encoded(values, WORKSPACE_KINDS), seal(values))
