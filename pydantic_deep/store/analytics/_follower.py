"""Updates of a replica: only new rows are read, in batches of bounded size.

A pass includes everything committed before it began. As it reads in batches, it may include part of a concurrent
commit: a run without its last request, or a head whose version is read in the next pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from anyio import to_thread

from pydantic_deep.store.engine import Engine, Row, Value
from pydantic_deep.store.sql._keys import pack_digest
from pydantic_deep.store.sql._statements import bytes_from, chunks, digest_from
from pydantic_deep.store.sql._tallies import COUNTED, complete
from pydantic_deep_backends import Tree

from . import _cells, _store_reads
from ._cells import Cells
from ._replica import Change, Replica
from ._schema import (
    APPROVALS,
    BRANCHES,
    CALLS,
    CONVERSATIONS,
    DELEGATIONS,
    FILE_CHANGES,
    REQUESTS,
    RUNS,
    TODOS,
    VERSIONS,
    ReplicaTable,
)
from ._store_reads import MAX_NUMBERS, Position, Survey

T = TypeVar('T')

ReadNodes = Callable[[str], Awaitable[dict[str, bytes]]]
"""Returns the nodes of a tree by its digest."""

_MARKS: Final = 20_000
"""Number of marks per query."""

_MAX_TREES: Final = 8
"""Number of cached trees: the next version is usually a child of a recent one."""

_MAX_NEW_NODES: Final = 16
"""Number of nodes that are fetched singly before the whole tree is: a changed file creates one per parent directory."""

_AT_ONCE: Final = 50
"""Number of branches, runs or deps per query; the data of each may be large."""

_SIMPLE: Final[dict[str, tuple[ReplicaTable, Callable[[Row], Cells]]]] = {
    'tool_call': (CALLS, _cells.call_cells),
    'delegation': (DELEGATIONS, _cells.delegation_cells),
    'approval': (APPROVALS, _cells.approval_cells),
    'conversation': (CONVERSATIONS, _cells.conversation_cells),
}
"""Kinds that consist of a single row."""


class Follower:
    """Keeps a replica up to date with an engine. Passes must not overlap."""

    def __init__(self, engine: Engine, read_nodes: ReadNodes, replica: Replica) -> None:
        self._engine = engine
        self._read_nodes = read_nodes
        self._replica = replica
        self._trees: dict[str, Tree] = {}
        self._is_counted = False
        self._unreachable: dict[str, int] = {}
        """Number of rows of each kind that the store has and we cannot reach, as of the last comparison."""

    async def follow(self) -> None:
        """Bring the replica up to date.

        Raises:
            StoreCorruptedError: A new row differs from the one that was written, or, on the first read of the store,
                one is missing.
        """
        if not self._is_counted:
            await self._engine.read(partial(complete, COUNTED))
            self._is_counted = True
        store_survey = await self._engine.read(_store_reads.survey)
        replica_survey = await to_thread.run_sync(self._replica.survey)
        has_new_rows = any(store_survey[kind].last > replica_survey[kind].last for kind in _store_reads.KINDS)
        if has_new_rows and await self._engine.wait_for_writes():
            store_survey = await self._engine.read(partial(_store_reads.survey, store_survey))
        unsettled = await to_thread.run_sync(self._replica.unsettled)
        hints = await self._hints(replica_survey['version'], store_survey['version'])
        for kind in _store_reads.KINDS:
            stale = {*unsettled.get(kind, ()), *hints.get(kind, ())}
            if stale or store_survey[kind] != replica_survey[kind]:
                await self._follow_kind(kind, replica_survey[kind], store_survey[kind], sorted(stale))
        if store_survey != replica_survey or any(unsettled.values()):
            await self._compare(store_survey)
            await to_thread.run_sync(self._replica.settle_results)

    async def is_same_store(self) -> bool:
        """Return whether the replica's newest versions are those of the store, as far as the store still has them."""
        newest_versions = await to_thread.run_sync(self._replica.newest_versions)
        store_versions = (
            [_cells.version_cells(row) for row in await self._rows('version', list(newest_versions))]
            if newest_versions
            else []
        )
        return all(newest_versions[cast('int', number)] == id for number, id, *_ in store_versions)

    async def _hints(self, here: Survey, there: Survey) -> dict[str, list[int]]:
        """Return rows that have probably changed because there are new versions."""
        if here.last == 0 or there.last <= here.last:
            return {}
        branches, conversations = await self._engine.read(partial(_store_reads.changed_by_versions, here.last))
        return {'branch': branches, 'conversation': conversations}

    async def _follow_kind(self, kind: str, here: Survey, there: Survey, stale: list[int]) -> None:
        for numbers in chunks(stale, MAX_NUMBERS):
            await self._fetch(kind, numbers)
        after = here.last if kind != 'message' else there.last  # messages are fetched with their branches
        while after < there.last and (
            marks := await self._engine.read(partial(_store_reads.marks, kind, after, there.last, MAX_NUMBERS))
        ):
            await self._fetch(kind, [number for number, _ in marks])
            after = marks[-1][0]

    async def _compare(self, there: dict[str, Survey]) -> None:
        """Find rows that were deleted, and changes that a pass missed."""
        here = await to_thread.run_sync(self._replica.survey)
        for kind in _store_reads.KINDS:
            is_same = (here[kind].total, here[kind].mark_sum) == (there[kind].total, there[kind].mark_sum)
            if is_same or there[kind].total - here[kind].total == self._unreachable.get(kind):
                continue
            marks = await self._all_marks(kind)
            stale = await to_thread.run_sync(self._replica.compare, kind, marks)
            if kind == 'message':
                self._unreachable[kind] = len(stale)
                continue
            for numbers in chunks(stale, MAX_NUMBERS):
                await self._fetch(kind, numbers)

    async def _all_marks(self, kind: str) -> list[tuple[int, int]]:
        marks: list[tuple[int, int]] = []
        while page := await self._engine.read(
            partial(_store_reads.marks, kind, marks[-1][0] if marks else 0, 2**62, _MARKS)
        ):
            marks += page
        return marks

    async def _fetch(self, kind: str, numbers: Sequence[int]) -> None:
        rows = await self._rows(kind, numbers)
        keys: list[Cells] = [(number,) for number in numbers]
        if kind == 'version':
            await self._apply_versions(keys, rows)
        elif kind == 'run':
            await self._apply_runs(keys, rows)
        elif kind == 'branch':
            await self._apply_branches(keys, rows)
        else:
            table, cells_of = _SIMPLE[kind]
            await self._apply(lambda: [Change(table, keys, [cells_of(row) for row in rows])])

    async def _apply_runs(self, keys: Sequence[Cells], runs: Sequence[Row]) -> None:
        requests: list[Row] = []
        for ids in chunks([row[1] for row in runs], _AT_ONCE):
            requests += await self._rows('request', ids)
        await self._apply(
            lambda: [
                Change(RUNS, keys, cells := [_cells.run_cells(row) for row in runs]),
                Change(REQUESTS, [(row[1],) for row in cells], [_cells.request_cells(row) for row in requests]),
            ]
        )

    async def _apply_versions(self, keys: Sequence[Cells], versions: Sequence[Row]) -> None:
        files: list[Cells] = []
        for row in versions:
            before, after = _cells.file_trees(row)
            if after is not None and before != after:  # a version without a tree has no information about files
                files += await self._file_cells(row, before, after)
        todos = await self._todo_cells(versions)
        await self._apply(
            lambda: [
                Change(VERSIONS, keys, cells := [_cells.version_cells(row) for row in versions]),
                Change(FILE_CHANGES, [(row[1],) for row in cells], files),
                Change(TODOS, sorted({(row[0],) for row in todos}), todos),
            ]
        )

    async def _file_cells(self, row: Row, before: str | None, after: str) -> list[Cells]:
        trees = await self._tree(before), await self._tree(after)
        id = cast('str', _cells.version_cells(row)[1])
        return await to_thread.run_sync(lambda: list(_cells.file_cells(id, *trees)))

    async def _tree(self, digest: str | None) -> Tree:
        """Return a tree; if it resembles the previous one, only new nodes are read."""
        if digest is None:
            return Tree()
        tree = self._trees.pop(digest, None)
        if tree is None:
            last = next(reversed(self._trees.values()), None)
            tree = None if last is None else await self._tree_like(digest, last)
        if tree is None:
            nodes = await self._read_nodes(digest)
            tree = await to_thread.run_sync(Tree.from_nodes, digest, nodes)
        self._trees[digest] = tree
        for oldest in list(self._trees)[:-_MAX_TREES]:
            del self._trees[oldest]
        return tree

    async def _tree_like(self, digest: str, last: Tree) -> Tree | None:
        nodes: dict[str, bytes] = {}
        for _ in range(_MAX_NEW_NODES):
            try:
                return await to_thread.run_sync(Tree.from_nodes, digest, nodes, last)
            except KeyError as missing:
                rows = await self._rows('node', [pack_digest(missing.args[0])])
                nodes |= {digest_from(packed): bytes_from(data) for packed, data in rows}
        return None

    async def _todo_cells(self, versions: Sequence[Row]) -> list[Cells]:
        packed = {digest_from(row[19]): row[19] for row in versions if row[19] is not None}
        cells: list[Cells] = []
        for digests in chunks(await to_thread.run_sync(self._replica.unknown_deps, packed), _AT_ONCE):
            assets = await self._rows('asset', [packed[digest] for digest in digests])
            cells += await to_thread.run_sync(_todos_of, assets)
        return cells

    async def _apply_branches(self, keys: Sequence[Cells], branches: Sequence[Row]) -> None:
        """Fetch the messages of branches before the branches: a stored tip marks its messages as complete."""
        numbers = [cast('int', row[0]) for row in branches]
        known = await to_thread.run_sync(self._replica.tips, numbers)
        missing = [
            Position(number, known.get(number, cast('int', row[5])))
            for number, row in zip(numbers, branches, strict=True)
            if known.get(number) != row[6]
        ]
        for positions in chunks(missing, _AT_ONCE):
            await self._follow_messages(positions)
        await self._apply(lambda: [Change(BRANCHES, keys, [_cells.branch_cells(row) for row in branches])])

    async def _follow_messages(self, positions: list[Position]) -> None:
        while True:
            rows = await self._engine.read(partial(_store_reads.branch_messages, positions))
            await to_thread.run_sync(self._add_messages, rows)
            if len(rows) < _store_reads.MAX_MESSAGES:
                return
            branch, seq = cast('int', rows[-1][0]), cast('int', rows[-1][5])
            positions = [Position(branch, seq + 1), *(position for position in positions if position.branch > branch)]

    def _add_messages(self, rows: Sequence[Row]) -> None:
        messages: dict[int, Cells] = {}
        returns: list[Cells] = []
        for row in rows:
            cells, answers = _cells.message_cells(row[1:])
            messages.setdefault(cast('int', cells[0]), cells)
            returns += answers
        self._replica.add_messages(messages, returns)

    async def _rows(self, kind: str, keys: Sequence[Value]) -> list[Row]:
        return await self._engine.read(partial(_store_reads.rows, kind, keys))

    async def _apply(self, make: Callable[[], list[Change]]) -> None:
        """Convert rows to changes and apply them, both in a thread."""
        await to_thread.run_sync(lambda: self._replica.apply(make()))


def _todos_of(assets: Sequence[Row]) -> list[Cells]:
    return [cells for digest, data in assets for cells in _cells.todo_cells(digest_from(digest), bytes_from(data))]
