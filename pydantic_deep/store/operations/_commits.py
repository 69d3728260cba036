"""The operation of `Store.commit`, which applies a commit in the order of its fields.

A step takes one or two statements, however many records it has: on PostgreSQL each is a round trip. Rows that the
commit refers to must exist; `CommitState` holds their numbers, each looked up once.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from pydantic_deep.store.engine import Operation, Row, Statement, for_key_share, for_update
from pydantic_deep.store.errors import BranchExistsError, RunTakenOverError, VersionConflictError, VersionNotFoundError
from pydantic_deep.store.records import (
    ApprovalRecord,
    BranchRecord,
    CallRecord,
    Commit,
    Committed,
    ConversationRecord,
    HeadMove,
    RunEnd,
    RunRecord,
    VersionRecord,
)
from pydantic_deep.store.sql import _keys, _rows
from pydantic_deep.store.sql._commit_rows import Prepared, fields_of
from pydantic_deep.store.sql._seals import seal
from pydantic_deep.store.sql._statements import (
    id_from,
    id_or_none,
    insert,
    insert_many,
    integer,
    select_in,
    text_or_none,
    update,
)

from ._appends import FIND_BRANCHES, Appended, append, conversation_of, find_branches
from ._contents import CONVERSATION, put_assets, put_configs, put_mentions, put_nodes, touch_condemned
from ._queue import refuse_if_busy

PARENT: Final = 0
MERGED: Final = 1
"""Kinds of edges; a version has at most one of each."""

_VERSION: Final = (
    'id, parent_id, cloned_from, merged_from, kind, state, conversation, branch, message_count, run_id, config, usage, output,'
    ' pending, deps, tree, created_at, seal'
)
_FIND_VERSIONS: Final = (
    'SELECT v.id, v.number, v.conversation, g.since FROM version v'
    f' LEFT JOIN condemned g ON g.kind = {CONVERSATION} AND g.number = v.conversation'
    ' WHERE v.id IN ({}) ORDER BY v.id'
)
"""Query for versions that a commit refers to. It locks them, so that they cannot be deleted until the commit ends."""


@dataclass(kw_only=True)
class CommitState:
    """State shared by the steps of one commit."""

    prepared: Prepared
    owner: str
    now: int
    orphans: Collection[str]
    assets: dict[str, int] = field(default_factory=dict[str, int])
    nodes: dict[str, int] = field(default_factory=dict[str, int])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Numbers of the versions that the commit refers to or creates."""
    appended: Appended | None = None

    def asset(self, digest: str | None) -> int | None:
        """Return the number of an asset."""
        return None if digest is None else self.assets[digest]

    def node(self, digest: str | None) -> int | None:
        """Return the number of a node."""
        return None if digest is None else self.nodes[digest]


def commit(
    prepared: Prepared, owner: str, now: int, orphans: Collection[str] = ()
) -> Operation[tuple[Committed, VersionConflictError | None]]:
    """Apply a commit. The conflict over a head is returned, not raised: the rest of the commit remains in effect."""
    state = CommitState(prepared=prepared, owner=owner, now=now, orphans=orphans)
    new = prepared.commit
    yield from _lock_runs(new, owner)
    state.assets = yield from put_assets(prepared.assets, _assets_of(new))
    state.nodes = yield from put_nodes(prepared.nodes, _trees_of(new))
    yield from _put_conversations(new)
    yield from _put_branches(new.branches)
    yield from _find_versions(state)
    yield from _put_runs(state)
    if new.append is not None:
        state.appended = yield from append(new.append, prepared.bodies, now)
    yield from put_mentions(prepared.mentions, state.assets, state.appended.messages if state.appended else {})
    yield from _settle(new)
    yield from _put_versions(state)
    yield from _put_ledger(state)
    yield from _put_approvals(new)
    for end in new.ends:
        yield from _end_run(end, now)
    yield from _put_workspaces(state)
    conflict = yield from _move_heads(new.heads)
    numbers = {version.id: state.numbers[version.id] for version in new.versions}
    return Committed(branch=state.appended.branch if state.appended else None, numbers=numbers), conflict


def _lock_runs(new: Commit, owner: str) -> Operation[None]:
    """Lock the runs that the commit changes, in the order of their ids, and check the fence."""
    keys = [*new.settled_calls, *((call.run_id,) for call in new.calls)]
    ids = {new.fence, new.clears_prompt_of, *(end.run_id for end in new.ends), *(key[0] for key in keys)} - {None}
    packed = sorted(map(_keys.pack_id, cast('set[str]', ids)))
    rows = yield from select_in(
        f'SELECT id, state, owner FROM run WHERE id IN ({{}}) ORDER BY id{for_update()}', packed
    )
    if new.fence is not None and (_keys.pack_id(new.fence), 'running', owner) not in rows:
        raise RunTakenOverError(new.fence)


def _assets_of(new: Commit) -> set[str]:
    digests = {digest for version in new.versions for digest in (version.pending, version.deps)}
    digests |= {digest for request in new.requests for digest in (request.parameters, request.message_digests)}
    return {digest for digest in digests if digest is not None}


def _trees_of(new: Commit) -> set[str]:
    digests = {version.tree for version in new.versions} | {call.tree for call in new.calls}
    return {digest for digest in digests if digest is not None}


_FIND_CONVERSATIONS: Final = (
    'SELECT c.number, g.since FROM conversation c'
    f' LEFT JOIN condemned g ON g.kind = {CONVERSATION} AND g.number = c.number WHERE c.id IN ({{}})'
)


def _put_conversations(new: Commit) -> Operation[None]:
    """Store the conversations that do not exist. No collection in progress removes those that get branches or runs."""
    records = [_rows.conversation_row(record) for record in new.conversations]
    ids = {record.id for record in new.conversations}
    ids |= {record.conversation_id for record in (*new.branches, *new.runs)}
    while True:
        yield from insert_many('conversation', _rows.CONVERSATION, records, 'ON CONFLICT (id) DO NOTHING')
        rows = yield from select_in(_FIND_CONVERSATIONS, sorted(map(_keys.pack_id, ids)))
        if (yield from touch_condemned(CONVERSATION, [number for number, since in rows if since is not None])):
            return


def _put_branches(branches: Iterable[BranchRecord]) -> Operation[None]:
    for branch in branches:
        others = {other for other in (branch.parent_id, branch.rewrites_id) if other is not None}
        number_by_id = {id_from(row[0]): row[1] for row in (yield from find_branches(FIND_BRANCHES, others))}
        row = _rows.branch_row(
            branch._replace(tip_seq=branch.fork_seq),
            None if branch.parent_id is None else number_by_id[branch.parent_id],
            None if branch.rewrites_id is None else number_by_id[branch.rewrites_id],
        )
        if not (yield from insert('branch', _rows.BRANCH, [row], 'ON CONFLICT DO NOTHING RETURNING number')):
            raise BranchExistsError(branch.name)


def _find_versions(state: CommitState) -> Operation[None]:
    """Look up the versions that the commit refers to and does not contain."""
    new = state.prepared.commit
    created: set[str] = set()
    wanted: set[str] = set()
    for version in new.versions:
        referred = {version.parent_id, version.cloned_from, version.merged_from}
        wanted |= {id for id in referred if id is not None and id not in created}
        created.add(version.id)
    others = [run.base_id for run in new.runs] + [approval.version_id for approval in new.approvals]
    others += [head.version_id for head in new.heads] + [conversation.head_id for conversation in new.conversations]
    wanted |= {id for id in others if id is not None} - created
    packed = sorted(map(_keys.pack_id, wanted))
    lock = for_update('v') if new.exclusive else for_key_share('v')
    while True:
        rows = yield from select_in(f'{_FIND_VERSIONS}{lock}', packed)
        if (yield from touch_condemned(CONVERSATION, [row[2] for row in rows if row[3] is not None])):
            break
    state.numbers = {id_from(id): integer(number) for id, number, *_ in rows}
    # The base of a run may be deleted during the run: its versions are then children of a deleted one.
    known = {version.parent_id for version in new.versions if new.fence is not None and version.run_id == new.fence}
    if missing := wanted - state.numbers.keys() - known:
        raise VersionNotFoundError(min(missing))


def _put_runs(state: CommitState) -> Operation[None]:
    runs = state.prepared.commit.runs
    if state.prepared.commit.exclusive:
        for run in runs:
            if run.base_id is not None:
                yield from refuse_if_busy(run.conversation_id, run.base_id, state.orphans)
    if runs:
        owner = state.owner
        rows = [_rows.run_row(run._replace(owner=owner if run.state == 'running' else None)) for run in runs]
        done = yield from insert('run', _rows.RUN, rows, 'ON CONFLICT (id) DO NOTHING RETURNING id')
        if len(done) < len(rows):
            raise ValueError(f'The run {runs[0].id!r}, or another run of this commit, exists already. Use new ids.')


def _settle(new: Commit) -> Operation[None]:
    if new.settled_calls:
        settled = set(new.settled_calls)
        calls = yield from find_calls(settled)
        rows: list[Row] = [
            (number, seal(call._replace(result=None)))
            for key, (number, call) in calls.items()
            if key in settled and call.result is not None
        ]
        if rows:
            yield Statement('UPDATE tool_call SET result = NULL, seal = ?2 WHERE number = ?1', (), rows)
    if new.clears_prompt_of is not None:
        for number, run in (yield from _find_run(new.clears_prompt_of)):
            yield from update('run', 'prompt, seal', [(number, None, seal(run._replace(prompt=None)))])


def _find_run(id: str) -> Operation[list[tuple[int, RunRecord]]]:
    rows = yield Statement(f'SELECT {_rows.RUN}, number FROM run WHERE id = ?1', (_keys.pack_id(id),))
    return [(integer(row[-1]), _rows.run_from(row[:-1])) for row in rows]


_CallKey = tuple[str, str, str]


def find_calls(keys: Iterable[_CallKey]) -> Operation[dict[_CallKey, tuple[int, CallRecord]]]:
    """Return the calls of some responses, with their numbers."""
    responses: dict[str, set[str]] = {}
    for run_id, response_id, _ in keys:
        responses.setdefault(run_id, set()).add(response_id)
    sql = _rows.SELECT_CALL.replace(' FROM', ', c.number FROM', 1) + ' WHERE c.run_id = ?1 AND c.response_id IN ({})'
    calls: dict[_CallKey, tuple[int, CallRecord]] = {}
    for run_id, ids in responses.items():
        for row in (yield from select_in(sql, map(_keys.pack_id, ids), _keys.pack_id(run_id))):
            call = _rows.call_from(row[:-1])
            calls[call.run_id, call.response_id, call.tool_call_id] = integer(row[-1]), call
    return calls


def _put_versions(state: CommitState) -> Operation[None]:
    versions = state.prepared.commit.versions
    if not versions:
        return
    branches = yield from _branches_of(state)
    configs = yield from _put_configs(state)
    rows = [_version_row(state, version, branches[version.branch_id], configs[version.id]) for version in versions]
    done = yield from insert('version', _VERSION, rows, 'ON CONFLICT (id) DO NOTHING RETURNING id, number')
    if len(done) < len(rows):
        raise ValueError(
            f'The version {versions[0].id!r}, or another version of this commit, exists already. Use new ids.'
        )
    state.numbers |= {id_from(id): integer(number) for id, number in done}
    edges: list[Row] = []
    for version in versions:
        for kind, parent in ((PARENT, version.parent_id), (MERGED, version.merged_from)):
            if parent is not None:
                edges.append((state.numbers[version.id], kind, state.numbers.get(parent)))
    yield from insert_many('edge', 'child, kind, parent', edges)


class _BranchRef(NamedTuple):
    """The branch of a new version, by number and by id."""

    conversation: int
    branch: int
    conversation_id: str
    branch_id: str
    name: str


def _branches_of(state: CommitState) -> Operation[dict[str, _BranchRef]]:
    """Return the branch of each new version, keyed by the version's `branch_id`."""
    known: dict[str, _BranchRef] = {}
    if (request := state.prepared.commit.append) is not None and (appended := state.appended) is not None:
        branch = appended.branch
        branch_ref = _BranchRef(appended.conversation, appended.number, branch.conversation_id, branch.id, branch.name)
        known[request.branch_id] = branch_ref
    if rest := {version.branch_id for version in state.prepared.commit.versions} - known.keys():
        rows = yield from find_branches(FIND_BRANCHES, rest)
        for row in rows:
            id, conversation_id = id_from(row[0]), id_from(row[2])
            conversation = conversation_of(conversation_id, row[3])
            known[id] = _BranchRef(conversation, integer(row[1]), conversation_id, id, str(row[4]))
    return known


def _put_configs(state: CommitState) -> Operation[dict[str, int]]:
    configs = state.prepared.configs
    row_by_digest = {cast('bytes', row[0]): row for row in configs.values()}
    numbers, added = yield from put_configs(row_by_digest)
    fields = [(numbers[digest], *field) for digest in added for field in fields_of(str(row_by_digest[digest][4]))]
    yield from insert_many('config_field', 'config, name, value', fields)
    return {id: numbers[cast('bytes', row[0])] for id, row in configs.items()}


def _version_row(state: CommitState, version: VersionRecord, branch_ref: _BranchRef, config: int) -> Row:
    stored = version._replace(
        conversation_id=branch_ref.conversation_id, branch_id=branch_ref.branch_id, branch=branch_ref.name
    )
    return (
        *(_keys.pack_id(version.id), id_or_none(version.parent_id), id_or_none(version.cloned_from)),
        *(id_or_none(version.merged_from), version.kind, version.state, branch_ref.conversation, branch_ref.branch),
        version.message_count,
        *(id_or_none(version.run_id), config, text_or_none(version.usage), text_or_none(version.output)),
        *(state.asset(version.pending), state.asset(version.deps), state.node(version.tree), version.created_at),
        _rows.version_seal(stored),
    )


def _put_ledger(state: CommitState) -> Operation[None]:
    new = state.prepared.commit
    requests = [
        _rows.request_row(request, state.asset(request.parameters), state.asset(request.message_digests))
        for request in new.requests
    ]
    columns = _rows.REQUEST.split(', ')[2:]
    yield from insert_many(
        'request', _rows.REQUEST, requests,
        f'ON CONFLICT (run_id, number) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in columns)}',
    )  # fmt: skip
    calls = [_rows.call_row(call, state.node(call.tree)) for call in (yield from _merged_calls(new.calls))]
    yield from insert_many(
        'tool_call', _rows.CALL, calls,
        'ON CONFLICT (run_id, response_id, tool_call_id) DO UPDATE SET status = excluded.status,'
        ' result = excluded.result, tree = excluded.tree, error = excluded.error, ended_at = excluded.ended_at,'
        ' seal = excluded.seal',
    )  # fmt: skip
    delegations = [_rows.delegation_row(delegation) for delegation in new.delegations]
    yield from insert_many('delegation', _rows.DELEGATION, delegations, 'ON CONFLICT DO NOTHING')


def _merged_calls(new: Sequence[CallRecord]) -> Operation[list[CallRecord]]:
    """Merge calls with their stored versions: a stored call retains its initial fields."""
    if not new:
        return []
    stored = yield from find_calls((call.run_id, call.response_id, call.tool_call_id) for call in new)
    known = {key: call for key, (_, call) in stored.items()}
    calls: list[CallRecord] = []
    for call in new:
        key = call.run_id, call.response_id, call.tool_call_id
        known[key] = known.get(key, call)._replace(
            status=call.status, result=call.result, tree=call.tree, error=call.error, ended_at=call.ended_at
        )
        calls.append(known[key])
    return calls


def _put_approvals(new: Commit) -> Operation[None]:
    approvals = [_rows.approval_row(approval) for approval in new.approvals]
    yield from insert_many('approval', _rows.APPROVAL, approvals, 'ON CONFLICT (id) DO NOTHING')
    if new.supersedes:
        sql = f"SELECT {_rows.APPROVAL}, number FROM approval WHERE id IN ({{}}) AND status = 'pending' ORDER BY number{for_update()}"
        rows = yield from select_in(sql, map(_keys.pack_id, new.supersedes))
        later = new.supersedes
        yield from change_approvals(rows, lambda old: old._replace(status='superseded', superseded_by=later[old.id]))


def change_approvals(
    rows: Iterable[Row], change: Callable[[ApprovalRecord], ApprovalRecord]
) -> Operation[list[ApprovalRecord]]:
    """Update approvals, given as rows of `APPROVAL` and `number`; return their new state."""
    changed = [(integer(row[-1]), change(_rows.stored_approval_from(row[:-1]))) for row in rows]
    yield from update(
        'approval', 'status, decision, decided_by, reason, decided_at, resumed_by, superseded_by, seal',
        [
            (number, approval.status, approval.decision, approval.decided_by, approval.reason, approval.decided_at,
             id_or_none(approval.resumed_by), id_or_none(approval.superseded_by), seal(approval))
            for number, approval in changed
        ],
    )  # fmt: skip
    return [approval for _, approval in changed]


def _end_run(end: RunEnd, now: int) -> Operation[None]:
    rows = yield from _find_run(end.run_id)
    if not rows:
        raise ValueError(f'There is no run {end.run_id!r} to end. Commit it first.')
    ((number, run),) = rows
    ended = run._replace(state=end.state, usage=end.usage, cost=end.cost, error=end.error, ended_at=now, owner=None)
    values = (number, end.state, text_or_none(end.usage), end.cost, end.error, now, None, seal(ended))
    yield from update('run', 'state, usage, cost, error, ended_at, owner, seal', [values])
    if end.state == 'failed' or end.error is not None:  # without a version: release the answers that it claimed
        sql = (
            f'SELECT {_rows.APPROVAL}, number FROM approval WHERE resumed_by = ?1'
            f' AND NOT EXISTS (SELECT 1 FROM version v WHERE v.run_id = ?1) ORDER BY number{for_update()}'
        )
        rows = yield Statement(sql, (_keys.pack_id(end.run_id),))
        yield from change_approvals(rows, lambda claimed: claimed._replace(resumed_by=None))


def _put_workspaces(state: CommitState) -> Operation[None]:
    """Store the records of directories. An interrupted checkout has no owner."""
    yield from put_workspaces(
        [
            _rows.workspace_row(
                workspace, state.owner if workspace.run_id is not None and not workspace.checkouts else None
            )
            for workspace in state.prepared.commit.workspaces
        ]
    )


def put_workspaces(rows: Sequence[Row]) -> Operation[None]:
    """Insert or replace rows of `WORKSPACE`, in the order of their keys."""
    yield from insert_many(
        'workspace', _rows.WORKSPACE, sorted(rows, key=lambda row: str(row[0])),
        'ON CONFLICT (backend) DO UPDATE SET version_id = excluded.version_id, run_id = excluded.run_id,'
        ' owner = excluded.owner, identity = excluded.identity, seal = excluded.seal',
    )  # fmt: skip


def _move_heads(heads: Iterable[HeadMove]) -> Operation[VersionConflictError | None]:
    """Move the heads that are where the caller expected; return a conflict for the first that is not."""
    conflict: VersionConflictError | None = None
    for move in heads:
        sql = f'SELECT {_rows.CONVERSATION}, number FROM conversation WHERE id = ?1{for_update()}'
        rows = yield Statement(sql, (_keys.pack_id(move.conversation_id),))
        if not rows:
            raise ValueError(f'There is no conversation {move.conversation_id!r} to move the head of. Commit it first.')
        known = _rows.conversation_from(rows[0][:-1])
        if known.head_id == move.expected_id:
            yield from move_head(known, integer(rows[0][-1]), move.version_id)
        else:
            conflict = conflict or VersionConflictError(known.head_id, move.version_id)
    return conflict


def move_head(conversation: ConversationRecord, number: int, version_id: str | None) -> Operation[None]:
    """Set the head of a conversation, or clear it."""
    updated = conversation._replace(head_id=version_id)
    yield from update('conversation', 'head_id, seal', [(number, id_or_none(version_id), seal(updated))])
