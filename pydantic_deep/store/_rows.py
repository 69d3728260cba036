"""Each record as a row: the names of its columns, what it takes to read one, and to write one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from . import _codec, _keys
from ._engine import Row
from ._sql import Kind, bytes_from, decoded, digest_from, id_from, id_or_none, text_from, text_or_none
from ._types import (
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    ConversationRecord,
    DelegationRecord,
    RequestRecord,
    RunRecord,
    VersionRecord,
)

_Kinds = tuple[Kind | None, ...]

SELECT_VERSION: Final = (
    'SELECT v.id, v.number, v.parent_id, v.cloned_from, v.merged_from, v.kind, v.state, b.conversation_id, b.id,'
    ' b.name, v.message_count, v.run_id, c.agent_name, c.name, c.metadata, c.model, c.model_settings, v.usage,'
    ' v.output, p.digest, d.digest, t.digest, c.backend, v.created_at'
)
FROM_VERSION: Final = (
    ' JOIN branch b ON b.number = v.branch JOIN config c ON c.number = v.config'
    ' LEFT JOIN asset p ON p.number = v.pending LEFT JOIN asset d ON d.number = v.deps'
    ' LEFT JOIN node t ON t.number = v.tree'
)


def version_from(row: Sequence[Any]) -> VersionRecord:
    """Read a row of `SELECT_VERSION`.

    A lineage has thousands, so this is written out instead of a loop over kinds: it takes half the time.
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
    ' v.config, v.usage, v.output, v.pending, v.deps, v.tree, v.created_at'
)
"""A version of a line, with the numbers of what many versions share: there are thousands, and few branches and configs.

Each value of each row costs, so nothing is read twice: a version's parent is the one before it.
"""


def versions_in_line(
    rows: Iterable[Sequence[Any]],
    before: str | None,
    *,
    branches: Mapping[object, Sequence[Any]],
    configs: Mapping[object, Sequence[Any]],
    assets: Mapping[object, str | None],
    nodes: Mapping[object, str | None],
) -> tuple[VersionRecord, ...]:
    """Read rows of `SELECT_LINE`, parents first.

    Args:
        rows: The rows.
        before: What the first version came from.
        branches: By number the ids of the conversation and of the branch, and its name.
        configs: By number what `version_from` takes from a config, `backend` last.
        assets: The digests by number, and `None` by `None`.
        nodes: The same.
    """
    make, unpack, text = VersionRecord._make, _keys.unpack_id, text_from
    versions: list[VersionRecord] = []
    parent = before
    for row in rows:
        number, packed, cloned, merged, kind, state, branch, count, run, config, usage, output, *digests, at = row
        conversation, branch_id, branch_name = branches[branch]
        agent, name, metadata, model, settings, backend = configs[config]
        pending, deps, tree = digests
        id = unpack(packed)
        values = (
            id,
            number,
            parent,
            cloned and unpack(cloned),
            merged and unpack(merged),
            kind,
            state,
            conversation,
            branch_id,
            branch_name,
            count,
            run and unpack(run),
            agent,
            name,
            metadata,
            model,
            settings,
            text(usage),
            output and text(output),
            assets[pending],
            assets[deps],
            nodes[tree],
            backend,
            at,
        )
        versions.append(make(values))
        parent = id
    return tuple(versions)


SELECT_BRANCH: Final = (
    'SELECT b.id, b.conversation_id, b.name, p.id, b.fork_seq, b.tip_seq, r.id, b.rewrites_seq, b.created_at, b.number, c.number'
    ' FROM branch b LEFT JOIN branch p ON p.number = b.parent LEFT JOIN branch r ON r.number = b.rewrites'
    ' LEFT JOIN conversation c ON c.id = b.conversation_id'
)
_BRANCH_KINDS: Final[_Kinds] = (id_from, id_from, None, id_from, None, None, id_from, None, None)


def branch_from(row: Row) -> BranchRecord:
    """Read a row of `SELECT_BRANCH`."""
    return BranchRecord._make(decoded(row[:9], _BRANCH_KINDS))


CONVERSATION: Final = 'id, agent_name, head_id, created_at'
_CONVERSATION_KINDS: Final[_Kinds] = (id_from, None, id_from, None)


def conversation_from(row: Row) -> ConversationRecord:
    """Read a row of `CONVERSATION`."""
    return ConversationRecord._make(decoded(row, _CONVERSATION_KINDS))


def conversation_row(record: ConversationRecord) -> Row:
    """Write a row of `CONVERSATION`."""
    return _keys.pack_id(record.id), record.agent_name, id_or_none(record.head_id), record.created_at


RUN: Final = (
    'id, conversation_id, base_id, agent_name, attempt_of, parent_run_id, state, owner, prompt, options, usage, cost,'
    ' error, trace_id, started_at, ended_at'
)
_RUN_KINDS: Final[_Kinds] = (
    *(id_from, id_from, id_from, None, id_from, id_from, None, None, bytes_from, text_from, text_from),
    *(None, None, None, None, None),
)


def run_from(row: Row) -> RunRecord:
    """Read a row of `RUN`."""
    return RunRecord._make(decoded(row, _RUN_KINDS))


def run_row(record: RunRecord, owner: str) -> Row:
    """Write a row of `RUN`; `owner` is this store."""
    return (
        *(_keys.pack_id(record.id), _keys.pack_id(record.conversation_id), id_or_none(record.base_id)),
        *(record.agent_name, id_or_none(record.attempt_of), id_or_none(record.parent_run_id), record.state),
        *(
            owner if record.state == 'running' else None,
            None if record.prompt is None else _codec.encode(record.prompt),
        ),
        *(_codec.encode_text(record.options), _codec.encode_text(record.usage), record.cost, record.error),
        *(record.trace_id, record.started_at, record.ended_at),
    )


REQUEST: Final = (
    'run_id, number, response_id, model, model_settings, parameters, digest, message_digests, input_tokens,'
    ' output_tokens, cache_read_tokens, cache_write_tokens, cost, duration_us, started_at'
)
SELECT_REQUEST: Final = (
    'SELECT r.run_id, r.number, r.response_id, r.model, r.model_settings, p.digest, r.digest, m.digest, r.input_tokens,'
    ' r.output_tokens, r.cache_read_tokens, r.cache_write_tokens, r.cost, r.duration_us, r.started_at FROM request r'
    ' LEFT JOIN asset p ON p.number = r.parameters LEFT JOIN asset m ON m.number = r.message_digests'
)
_REQUEST_KINDS: Final[_Kinds] = (
    *(id_from, None, id_from, None, None, digest_from, digest_from, digest_from),
    *(None, None, None, None, None, None, None),
)


def request_from(row: Row) -> RequestRecord:
    """Read a row of `SELECT_REQUEST`."""
    return RequestRecord._make(decoded(row, _REQUEST_KINDS))


def request_row(record: RequestRecord, parameters: int | None, message_digests: int | None) -> Row:
    """Write a row of `REQUEST`, with the numbers of its assets."""
    return (
        *(_keys.pack_id(record.run_id), record.number, _keys.pack_id(record.response_id), record.model),
        *(record.model_settings, parameters, _keys.pack_digest(record.digest), message_digests, record.input_tokens),
        *(record.output_tokens, record.cache_read_tokens, record.cache_write_tokens, record.cost, record.duration_us),
        record.started_at,
    )


CALL: Final = (
    'run_id, response_id, tool_call_id, tool_name, arguments, effect, status, result, tree, error, started_at, ended_at'
)
SELECT_CALL: Final = (
    'SELECT c.run_id, c.response_id, c.tool_call_id, c.tool_name, c.arguments, c.effect, c.status, c.result, t.digest,'
    ' c.error, c.started_at, c.ended_at FROM tool_call c LEFT JOIN node t ON t.number = c.tree'
)
_CALL_KINDS: Final[_Kinds] = (
    *(id_from, id_from, None, None, text_from, None, None, text_from, digest_from, None, None, None),
)


def call_from(row: Row) -> CallRecord:
    """Read a row of `SELECT_CALL`."""
    return CallRecord._make(decoded(row, _CALL_KINDS))


def call_row(record: CallRecord, tree: int | None) -> Row:
    """Write a row of `CALL`, with the number of its tree."""
    return (
        *(_keys.pack_id(record.run_id), _keys.pack_id(record.response_id), record.tool_call_id, record.tool_name),
        *(_codec.encode_text(record.arguments), record.effect, record.status, text_or_none(record.result), tree),
        *(record.error, record.started_at, record.ended_at),
    )


DELEGATION: Final = (
    'parent_run_id, response_id, tool_call_id, child_conversation_id, subagent, intent, arguments, created_at'
)
_DELEGATION_KINDS: Final[_Kinds] = (id_from, id_from, None, id_from, None, None, None, None)


def delegation_from(row: Row) -> DelegationRecord:
    """Read a row of `DELEGATION`."""
    return DelegationRecord._make(decoded(row, _DELEGATION_KINDS))


def delegation_row(record: DelegationRecord) -> Row:
    """Write a row of `DELEGATION`."""
    return (
        *(_keys.pack_id(record.parent_run_id), _keys.pack_id(record.response_id), record.tool_call_id),
        *(_keys.pack_id(record.child_conversation_id), record.subagent, record.intent, record.arguments),
        record.created_at,
    )


APPROVAL: Final = (
    'id, version_id, pending_id, conversation_id, agent_name, path, tool_name, arguments, arguments_digest, preview,'
    ' status, decision, decided_by, reason, decided_at, resumed_by, superseded_by, expires_at, created_at'
)
_APPROVAL_KINDS: Final[_Kinds] = (
    *(id_from, id_from, None, id_from, None, None, None, None, None, None, None, None, None, None, None),
    *(id_from, id_from, None, None),
)


def approval_from(row: Row, now: int) -> ApprovalRecord:
    """Read a row of `APPROVAL`; one that waits longer than it may is expired."""
    record = ApprovalRecord._make(decoded(row, _APPROVAL_KINDS))
    is_over = record.status == 'pending' and record.expires_at is not None and record.expires_at <= now
    return record._replace(status='expired') if is_over else record


def approval_row(record: ApprovalRecord) -> Row:
    """Write a row of `APPROVAL`."""
    return (
        *(_keys.pack_id(record.id), _keys.pack_id(record.version_id), record.pending_id),
        *(_keys.pack_id(record.conversation_id), record.agent_name, record.path, record.tool_name, record.arguments),
        *(record.arguments_digest, record.preview, record.status, record.decision, record.decided_by, record.reason),
        *(record.decided_at, id_or_none(record.resumed_by), id_or_none(record.superseded_by), record.expires_at),
        record.created_at,
    )
