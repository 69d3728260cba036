"""A sample store with rows in every table, all reads of it, and statements that damage it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pydantic_deep.store import (
    Append,
    Commit,
    Damage,
    HeadMove,
    NewAsset,
    NewMessage,
    RunEnd,
    SqlStore,
    Store,
    StoreCorruptedError,
    VersionFilter,
    WorkspaceRecord,
    new_id,
    open_store,
)
from pydantic_deep.store._samples import (
    MOMENT,
    Dialogue,
    sample_approval,
    sample_asset,
    sample_call,
    sample_delegation,
    sample_request,
    sample_run,
    stored,
)
from pydantic_deep.store.sql._migrations import FORMAT
from pydantic_deep.store.sql._seals import seal
from pydantic_deep.store.sql._tallies import COUNTED, make_tallies
from pydantic_deep.store.sql.dialect import SQLITE, Dialect
from pydantic_deep.store.sqlite import SqliteEngine
from pydantic_deep_backends.snapshots import FileVersion, Tree

Read = Callable[[Store], Awaitable[object]]


@dataclass
class Sample:
    """A store in a file, and all reads of its contents."""

    path: Path
    reads: Mapping[str, Read]


PLACE = '{"id":"/x","provider":"local"}'
"""Key of the sample's workspace."""


def set_back(version: int, dialect: Dialect = SQLITE) -> list[str]:
    """Return the statements that turn the tables of a sample into those of an older version."""
    undone = ['DROP TABLE queued_run', 'DROP TABLE run_event']
    undone += [sql.format(table=table) for table in COUNTED for sql in dialect.drop_after_insert]
    undone.append('DROP TABLE tally')
    if version >= 3:
        undone += [statement.sql for statement in make_tallies(dialect)]
    undone.append('ALTER TABLE run DROP COLUMN cancelled_at')
    undone.append('ALTER TABLE request DROP COLUMN kind')
    if version < 4:
        undone.append('ALTER TABLE workspace DROP COLUMN identity')
    if version < 2:
        sealed = [table for table in COUNTED if table not in ('node', 'config', 'config_field', 'edge', 'reference')]
        undone += [f'ALTER TABLE {table} DROP COLUMN seal' for table in sealed]
    sealed_meta = seal((FORMAT, str(version))) if version > 1 else None
    return [
        *undone,
        f"UPDATE meta SET value = '{version}' WHERE key = 'version'",
        "DELETE FROM meta WHERE key = 'seal'",
        *([] if sealed_meta is None else [f"INSERT INTO meta (key, value) VALUES ('seal', '{sealed_meta}')"]),
    ]


async def forget_identity(path: Path) -> WorkspaceRecord:
    """Remove the workspace identity from a sample, as in older releases, and return the resulting record."""
    async with open_store(f'sqlite:///{path}') as store:
        known = await store.workspace(PLACE)
        assert known is not None
        await store.commit(Commit(workspaces=[known._replace(identity=None)]))
        return known._replace(identity=None)


async def make_sample(path: Path) -> Sample:
    """Fill a store with branches, a rewrite, trees, assets, runs, approvals and workspaces."""
    engine = await SqliteEngine.open(path)
    async with SqlStore(engine, clock=lambda: MOMENT) as store:
        dialogue = Dialogue(store)
        root = await dialogue.begin(name='Main', metadata='{"team":"blue"}', model_settings='{"a":1}')
        deps = NewAsset(
            digest=(asset := sample_asset(b'{"todos":[]}')).digest, data=asset.data, media_type='application/json'
        )
        media = sample_asset(b'media' * 100)
        blob = sample_asset(b'text')
        tree = Tree.of({'/a/b.txt': FileVersion(digest=blob.digest, size=4, mode=0o644)})
        run = sample_run(dialogue.id, base_id=root.id)
        call = sample_call(run.id, new_id(), 'call_1', result='"ok"', status='done', tree=tree.digest, ended_at=MOMENT)
        requests = [
            sample_request(run.id, number)._replace(parameters=deps.digest, message_digests=media.digest)
            for number in (1, 2, 3)
        ]
        step = await dialogue.add(
            root, *(b'{"text":"message %d of a long history","media":"%s"}' % (n, media.digest.encode()) for n in range(4)),
            commit={
                'assets': [deps, media, blob], 'nodes': dict(tree.nodes()), 'runs': [run], 'requests': requests,
                'calls': [call, sample_call(run.id, call.response_id, 'call_2')],
                'delegations': [sample_delegation(run.id, new_id())],
                'workspaces': [WorkspaceRecord(PLACE, root.id, run.id, 'inode 7')],
            },
            kind='step', run_id=run.id, deps=deps.digest, tree=tree.digest, pending=media.digest, output='"out"',
            backend='{"id":"/x","provider":"local"}',
        )  # fmt: skip
        turn = await dialogue.add(step, b'{"last":1}', run_id=run.id, tree=tree.digest)
        approvals = [sample_approval(turn), sample_approval(turn, expires_at=MOMENT + 10**12)]
        await store.commit(
            Commit(
                approvals=approvals,
                ends=[RunEnd(run_id=run.id, state='awaiting_approval', usage='{"requests":3}', cost='0.1')],
                heads=[HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=turn.id)],
            )
        )
        fork = await dialogue.add(step, b'{"fork":1}', b'{"fork":2}', merged_from=turn.id)
        summary = Append(
            branch_id=fork.branch_id, at=0, messages=[NewMessage(id=new_id(), body=b'{"summary":1}')], fork_id=new_id(),
            rewrites=5,
        )  # fmt: skip
        version = dialogue.version(parent_id=fork.id, branch_id=fork.branch_id, message_count=1)
        rewritten = stored(version, await store.commit(Commit(append=summary, versions=[version])))
        other = await Dialogue(store).begin(name='Other')
        await store.commit(Commit(runs=[running := sample_run(other.conversation_id)]))
    ids = [each.id for each in (root, step, turn, fork, rewritten, other)]
    histories = [(each.branch_id, each.message_count) for each in (step, turn, fork, rewritten)]
    conversations, runs = [dialogue.id, other.conversation_id], [run.id, running.id]
    reads: dict[str, Read] = {}
    for number, id in enumerate(ids):
        reads[f'version {number}'] = partial(_call, 'version', id)
        reads[f'lineage {number}'] = partial(_call, 'lineage', id)
        reads[f'children {number}'] = partial(_call, 'children', id)
    for number, (branch_id, count) in enumerate(histories):
        reads[f'messages {number}'] = partial(_call, 'messages', branch_id, count)
        reads[f'last message {number}'] = lambda store, b=branch_id, n=count: store.messages(b, n, start=n - 1)
    for number, id in enumerate(conversations):
        reads[f'conversation {number}'] = partial(_call, 'conversation', id)
        reads[f'branches {number}'] = partial(_call, 'branches', id)
        reads[f'runs of {number}'] = lambda store, id=id: store.runs(conversation_id=id)
        reads[f'versions of {number}'] = lambda store, id=id: store.versions(VersionFilter(conversation_id=id))
    for number, id in enumerate(runs):
        reads[f'run {number}'] = partial(_call, 'run', id)
        reads[f'requests {number}'] = partial(_call, 'requests', id)
        reads[f'calls {number}'] = partial(_call, 'calls', [id])
        reads[f'delegations {number}'] = lambda store, id=id: store.delegations(parent_run_id=id)
    reads |= {
        'versions': partial(_call, 'versions'),
        'count': partial(_call, 'count'),
        'named': lambda store: store.versions(VersionFilter(name='main')),
        'metadata': lambda store: store.versions(VersionFilter(metadata={'team': 'blue'})),
        'conversations': partial(_call, 'conversations'),
        'runs': partial(_call, 'runs'),
        'orphans': partial(_call, 'orphans'),
        'approvals': partial(_call, 'approvals'),
        'approvals of version': lambda store: store.approvals(version_id=turn.id, status=None),
        'approval': partial(_call, 'approval', approvals[0].id),
        'workspace': partial(_call, 'workspace', PLACE),
        'asset': partial(_call, 'asset', media.digest),
        'assets': partial(_call, 'assets', [deps.digest, blob.digest]),
        'nodes': partial(_call, 'nodes', tree.digest),
    }
    return Sample(path, reads)


async def _call(name: str, *arguments: object) -> object:
    *values, store = arguments
    return await getattr(store, name)(*values)


async def answers_of(sample: Sample, path: Path) -> dict[str, object]:
    """Return the result of each read of a store, or the error that it raises."""
    answers: dict[str, object] = {}
    try:
        engine = await SqliteEngine.open(path)
    except Exception as error:
        return dict.fromkeys(sample.reads, error)
    async with SqlStore(engine, clock=lambda: MOMENT) as store:
        for name, read in sample.reads.items():
            try:
                answers[name] = await read(store)
            except Exception as error:
                answers[name] = error
    return answers


def wrong_answers(right: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    """Return the answers that are neither right nor a `StoreCorruptedError`."""
    return {
        name: answer
        for name, answer in found.items()
        if not isinstance(answer, StoreCorruptedError) and answer != right[name]
    }


TABLES: Final = (
    *(
        'asset',
        'node',
        'conversation',
        'branch',
        'message',
        'entry',
        'config',
        'config_field',
        'version',
        'edge',
        'run',
    ),
    *('request', 'tool_call', 'delegation', 'approval', 'workspace', 'reference', 'tally'),
)


def deletions(path: Path) -> Iterator[str]:
    """Yield statements that each delete one row."""
    with closing(sqlite3.connect(path)) as raw:
        for table in TABLES:
            keys = [row[1] for row in raw.execute(f'PRAGMA table_info({table})') if row[5]]
            for row in raw.execute(f'SELECT {", ".join(keys)} FROM {table}').fetchall():
                where = ' AND '.join(f'{key} = {_literal(value)}' for key, value in zip(keys, row, strict=True))
                yield f'DELETE FROM {table} WHERE {where}'


def changes(path: Path) -> Iterator[str]:
    """Yield statements that each change a value in one row."""
    with closing(sqlite3.connect(path)) as raw:
        for table in TABLES:
            info = raw.execute(f'PRAGMA table_info({table})').fetchall()
            keys = [row[1] for row in info if row[5]]
            columns = [row[1] for row in info]
            for row in raw.execute(f'SELECT {", ".join(columns)} FROM {table}').fetchall():
                value_by_column = dict(zip(columns, row, strict=True))
                where = ' AND '.join(f'{key} = {_literal(value_by_column[key])}' for key in keys)
                for column, value in value_by_column.items():
                    for other in _damaged(value):
                        yield f'UPDATE OR IGNORE {table} SET {column} = {_literal(other)} WHERE {where}'


def _damaged(value: object) -> list[object]:
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str):
        return [chr(ord(value[0]) ^ 1) + value[1:] if value else 'x']
    if isinstance(value, bytes) and value:
        middle = len(value) // 2
        return [value[:middle] + bytes([value[middle] ^ 0x81]) + value[middle + 1 :], value[:-1]]
    return ['x', 1]


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


async def check_after(path: Path, statement: str) -> list[Damage]:
    """Return the report of a check after a statement, which is then undone."""
    data = path.read_bytes()
    with closing(sqlite3.connect(path)) as raw:
        changed = raw.execute(statement).rowcount
        raw.commit()
    async with open_store(f'sqlite:///{path}') as store:
        found = await store.check()
    path.write_bytes(data)
    return found if changed else [Damage(table=None, row=None, problem='the statement changed nothing')]
