"""`SqlStore`: the store over any engine. The SQL is in `operations`; this module awaits it."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from anyio.abc import AsyncResource

from pydantic_deep._checks import (
    check_choice,
    check_choices,
    check_key,
    check_keys,
    check_name_list,
    check_object,
    check_page,
    check_seconds,
)
from pydantic_deep._spans import VERSION_ID, open_span

from ._asset_blobs import MAX_STREAM_BYTES, AssetBlobs
from ._backups import write_backup
from ._blob_store import BlobStore
from ._exclusive import write_unless_busy
from ._fork_guard import ForkGuard
from ._run_queue import RunQueue
from ._sql_limits import SqlLimits
from .engine import Engine, Operation
from .errors import (
    ApprovalNotFoundError,
    AssetNotFoundError,
    StoreCorruptedError,
    StoreError,
    StoreUnavailableError,
    VersionNotFoundError,
)
from .operations import _reads, _runs, _text_search
from .operations._backup import Progress, no_progress
from .operations._check import Damage, asset_damage, check_parts
from .operations._commits import commit as commit_operation
from .operations._contents import put_assets
from .operations._deletions import delete, delete_conversations, delete_line
from .operations._garbage_collection import collect_garbage
from .operations._reads import StoredAsset
from .records import (
    ApprovalRecord,
    ApprovalStatus,
    AssetRecord,
    BranchRecord,
    CallRecord,
    Commit,
    Committed,
    ConversationRecord,
    Decision,
    DelegationRecord,
    GarbageReport,
    LineageRecord,
    MessageRecord,
    RequestRecord,
    RunRecord,
    RunState,
    VersionFilter,
    VersionKind,
    VersionRecord,
    VersionState,
    WorkspaceRecord,
    now,
)
from .sql._codec import encode_outside
from .sql._commit_rows import asset_row, check_texts, prepare, size_of
from .sql._scans import verify
from .sql._seals import DAMAGED
from .sql._tallies import complete
from .sql.dialect import SupportsTables

if TYPE_CHECKING:
    from .analytics import Analytics
    from .analytics._table import Table

T = TypeVar('T')

_EVERYTHING: Final = VersionFilter()

_SQL_LIMITS: Final = SqlLimits()

_ALL_RUNS: Final = 1_000_000
"""An upper bound for the number of running runs."""

_INLINE_BYTES: Final = 16_384
"""Maximum size of a commit that is compressed and hashed on the event loop, in about a millisecond; larger ones use a
thread.
"""


class SqlStore(AsyncResource):
    """A `Store` on an engine, which it owns: closing the store closes the engine.

    Args:
        engine: An open engine whose tables are up to date.
        clock: Returns microseconds since 1970; it determines when approvals expire.
        blobs: Storage for large contents, which becomes part of the store: its blobs belong to this database alone.
            Contents of more than 64 KiB that are not JSON go there; their rows remain in the database. `None` to store
            everything in the database.
    """

    def __init__(self, engine: Engine, *, clock: Callable[[], int] = now, blobs: BlobStore | None = None) -> None:
        self._engine = engine
        self._bytes_type = engine.dialect.bytes_type if isinstance(engine, SupportsTables) else ''
        self._blobs = None if blobs is None else AssetBlobs(engine, blobs)
        self._clock = clock
        self._analytics: Analytics | None = None
        self._orphaned: set[str] = set()
        self._fork_guard = ForkGuard()
        self._verified: set[str] = set()
        self._counted: set[str] = set()
        self.commit_listeners: list[Callable[[float], object]] = []
        """Called after each successful commit of a step or run, with its duration in seconds."""

    @property
    def engine(self) -> Engine:
        """The engine, for code that reads the tables directly."""
        return self._engine

    @cached_property
    def queue(self) -> RunQueue:
        """The turns that workers run."""
        return RunQueue(self._engine, self._all_orphans)

    @property
    def url(self) -> str:
        """The URL that opens this store again with `open_store`, without the password."""
        return self._engine.url

    @property
    def owner(self) -> str:
        """A name that is unique among all open stores on the same database."""
        return self._engine.owner

    async def commit(self, commit: Commit) -> Committed:
        """Apply everything in `commit` atomically."""
        self._fork_guard.check(self.url)  # before a thread is requested: a forked child has none
        now = self._clock()
        if size_of(commit) > _INLINE_BYTES:
            blobs = {} if self._blobs is None else await self._blobs.put_large(commit.assets)
            prepared = await asyncio.to_thread(prepare, commit, now, blobs)
        else:
            prepared = prepare(commit, now)
        marked = self._orphaned & {run.id for run in commit.runs}
        version = commit.versions[-1] if commit.versions else None
        about = {} if version is None else {VERSION_ID: version.id, 'pydantic_deep.version.kind': version.kind}
        start = time.perf_counter()
        self._orphaned -= marked  # an earlier commit that was to begin them is lost
        try:
            with open_span('store commit', about):
                committed, conflict = await self._write_unless_busy(
                    lambda orphans: commit_operation(prepared, self.owner, now, orphans)
                )
        except BaseException:
            self._orphaned |= marked  # they exist already
            raise
        if conflict is not None:
            raise conflict
        for listener in self.commit_listeners:
            listener(time.perf_counter() - start)
        return committed

    async def version(self, id: str) -> VersionRecord:
        """Return a version by its id, or by an unambiguous prefix."""
        check_key('id', id)
        if version := await self._engine.read(partial(_reads.version_by_id, id)):
            return version
        return await self._read_existing('version', VersionNotFoundError, partial(_reads.version, id), id=id)

    async def versions(
        self, filter: VersionFilter = _EVERYTHING, *, limit: int = 100, offset: int = 0, before: int | None = None
    ) -> list[VersionRecord]:
        """Return a page of versions, newest first."""
        check_page(limit=limit, offset=offset)
        _check_filter(filter)
        await self._check_counts('version', 'config', 'config_field')
        versions = await self._engine.read(partial(_reads.versions, filter, limit, offset, before, self._bytes_type))
        if not versions and filter.conversation_id is not None:
            await self._verify_table('conversation')
        return versions

    async def newest_by_metadata(
        self, key: str, filter: VersionFilter = _EVERYTHING, *, limit: int = 100, before: int | None = None
    ) -> list[VersionRecord]:
        """Return the newest version for each value of a metadata key, or of each conversation without it."""
        check_page(limit=limit, offset=0)
        check_texts([key])
        _check_filter(filter)
        await self._check_counts('version', 'config', 'config_field')
        return await self._engine.read(partial(_reads.newest_by_metadata, key, filter, limit, before))

    async def count(self, filter: VersionFilter = _EVERYTHING) -> int:
        """Return the number of versions."""
        _check_filter(filter)
        await self._check_counts('version', 'config', 'config_field')
        return await self._engine.read(partial(_reads.count, filter))

    async def lineage(self, id: str) -> LineageRecord:
        """Return the version and all its ancestors, root first."""
        return await self._read_existing('version', VersionNotFoundError, partial(_reads.lineage, id), id=id)

    async def children(self, id: str) -> list[VersionRecord]:
        """Return the children of this version, oldest first."""
        return await self._read_existing('version', VersionNotFoundError, partial(_reads.children, id), id=id)

    async def messages(self, branch_id: str, stop: int, *, start: int = 0) -> list[MessageRecord]:
        """Return the messages of a branch from position `start` up to, not including, `stop`."""
        check_key('branch_id', branch_id)
        messages = await self._engine.read(partial(_reads.messages, branch_id, start, stop))
        if not messages and start < stop:
            await self._verify_table('branch')
        return messages

    async def branches(self, conversation_id: str) -> list[BranchRecord]:
        """Return the branches of a conversation, oldest first."""
        check_key('conversation_id', conversation_id)
        return await self._engine.read(partial(_reads.branches, conversation_id))

    async def conversation(self, id: str) -> ConversationRecord | None:
        """Return a conversation; `None` if no conversation has this id."""
        return await self._read_optional('conversation', partial(_reads.conversation, id), id=id)

    async def conversations(self, *, limit: int = 100, offset: int = 0) -> list[ConversationRecord]:
        """Return a page of conversations, newest first."""
        check_page(limit=limit, offset=offset)
        await self._check_counts('conversation')
        return await self._engine.read(partial(_reads.conversations, limit, offset))

    async def conversations_with(self, text: str, conversation_ids: Collection[str]) -> set[str]:
        """Return the ids of the conversations, among some, that have a prompt or an answer with a text.

        It reads the messages of all their branches, in one query for each 2,000: pass the conversations of a page.
        Prompts are searched as people typed them, with `/NAME` for a skill that was loaded by its name.

        Args:
            text: The text, compared in any case.
            conversation_ids: The conversations to search.
        """
        for id in conversation_ids:
            check_key('conversation_id', id)
        if not conversation_ids:
            return set()
        return await self._engine.read(partial(_text_search.conversations_with, text, conversation_ids))

    async def run(self, id: str) -> RunRecord | None:
        """Return a run; `None` if no run has this id."""
        return await self._read_optional('run', partial(_runs.run, id), id=id)

    async def runs(
        self,
        *,
        conversation_id: str | None = None,
        parent_run_id: str | None = None,
        states: Collection[RunState] | None = None,
        limit: int = 1000,
    ) -> list[RunRecord]:
        """Return runs, newest first."""
        check_page(limit=limit)
        check_keys(conversation_id=conversation_id, parent_run_id=parent_run_id)
        check_choices('states', states, get_args(RunState))
        if conversation_id is None:
            await self._check_counts('run')
        return await self._engine.read(partial(_runs.runs, conversation_id, parent_run_id, states, limit))

    async def runs_after(self, position: int | None, *, limit: int = 1000) -> tuple[list[RunRecord], int]:
        """Return the runs that were stored after a position, oldest first, and the position after them.

        A reader that goes on from each returned position sees every run once, also those of other processes. Runs of
        subagents are omitted. If the returned position is the given one, there are no more.

        Args:
            position: A returned position; 0 for the first run, and `None` for the end, after which there is none.
            limit: Maximum number of runs.
        """
        check_page(limit=limit)
        last = await self._engine.read(_runs.last_run)
        if position is None or last <= position:
            return [], last
        await self._engine.wait_for_writes()
        return await self._engine.read(partial(_runs.runs_after, position, last, limit))

    async def unfinished(self) -> tuple[set[str], set[str]]:
        """Return the ids of the runs that are `running`, and of the pending approvals."""
        return await self._engine.read(partial(_runs.unfinished, self._clock()))

    async def orphans(self, limit: int = 1000) -> list[RunRecord]:
        """Return the `running` runs of crashed owners, parents before their children."""
        check_page(limit=limit)
        await self._check_counts('run')
        running = await self._engine.read(_runs.running)
        owners = {run.owner for run in running if run.owner is not None}
        living = await self._engine.living_owners(sorted(owners))
        orphans = [run for run in running if run.owner not in living or self._is_marked_orphaned(run.id, run.owner)]
        return _parents_first(orphans)[:limit]

    async def _all_orphans(self) -> list[RunRecord]:
        return await self.orphans(_ALL_RUNS)

    async def _write_unless_busy(self, operation: Callable[[Collection[str]], Operation[T]]) -> T:
        return await write_unless_busy(
            lambda orphans: self._engine.write(partial(operation, orphans)), self._all_orphans
        )

    async def claim_run(self, run_id: str) -> bool:
        """Make this process the owner of an orphaned run; return `False` if another process owns it."""
        check_key('run_id', run_id)
        run = await self.run(run_id)
        if run is None or run.owner is None:
            return False
        is_orphaned = self._is_marked_orphaned(run_id, run.owner)
        self._orphaned.discard(run_id)  # before the first await: only one of our concurrent callers claims it
        if not is_orphaned and await self._engine.living_owners([run.owner]):
            return False
        try:
            return await self._engine.write(partial(_runs.claim_run, run_id, run.owner, self.owner))
        except BaseException:
            self.mark_orphaned(run_id)  # has no effect on a run of another owner
            raise

    async def release_run(self, run_id: str) -> bool:
        """Give up a run of this process, so that any process can claim it now; return whether it was running here.

        From then on, the commits of the run raise `RunTakenOverError`, and it stops without an end.
        """
        check_key('run_id', run_id)
        nobody = secrets.token_hex(8)
        return await self._engine.write(partial(_runs.claim_run, run_id, self.owner, nobody))

    def mark_orphaned(self, run_id: str) -> None:
        """Treat a run of this process as an orphan until it is claimed, because its end could not be written."""
        self._orphaned.add(run_id)

    def _is_marked_orphaned(self, run_id: str, owner: str | None) -> bool:
        return run_id in self._orphaned and owner == self.owner

    async def requests(self, run_id: str) -> list[RequestRecord]:
        """Return the requests of a run, in order."""
        check_key('run_id', run_id)
        return await self._engine.read(partial(_runs.requests, run_id))

    async def calls(self, run_ids: Sequence[str]) -> list[CallRecord]:
        """Return the tool calls of runs, in the order in which they started."""
        check_name_list('run_ids', run_ids, check_key)
        return await self._engine.read(partial(_runs.calls, run_ids))

    async def delegations(
        self, *, parent_run_id: str | None = None, child_conversation_id: str | None = None
    ) -> list[DelegationRecord]:
        """Return delegations, oldest first."""
        check_keys(parent_run_id=parent_run_id, child_conversation_id=child_conversation_id)
        await self._check_counts('delegation')
        return await self._engine.read(partial(_runs.delegations, parent_run_id, child_conversation_id))

    async def approvals(
        self,
        *,
        status: ApprovalStatus | None = 'pending',
        version_id: str | None = None,
        agent_name: str | None = None,
        limit: int = 100,
    ) -> list[ApprovalRecord]:
        """Return approvals, oldest first."""
        check_page(limit=limit)
        check_keys(version_id=version_id, agent_name=agent_name)
        if status is not None:
            check_choice('status', status, get_args(ApprovalStatus))
        await self._check_counts('approval')
        return await self._engine.read(partial(_runs.approvals, status, version_id, agent_name, limit, self._clock()))

    async def count_pending_approvals(self) -> tuple[int, int]:
        """Return the number of pending approvals, and when the oldest was requested; 0 if there is none."""
        return await self._engine.read(partial(_runs.pending_approvals, self._clock()))

    async def approval(self, id: str) -> ApprovalRecord:
        """Return an approval by its id, or by an unambiguous prefix."""
        read = partial(_runs.approval, id, self._clock())
        return await self._read_existing('approval', ApprovalNotFoundError, read, id=id)

    async def decide(self, decisions: Sequence[Decision]) -> list[ApprovalRecord]:
        """Store decisions on approvals, all or none."""
        for decision in decisions:
            check_key('id', decision.approval_id)
            check_keys(by=decision.by)
            check_texts((decision.decision, decision.reason, decision.arguments_digest))
        return await self._engine.write(partial(_runs.decide, decisions, self._clock()))

    async def claim_approvals(self, version_id: str, run_id: str) -> list[ApprovalRecord]:
        """Claim the answers of a version for one run."""
        check_key('version_id', version_id)
        check_key('run_id', run_id)
        return await self._engine.write(partial(_runs.claim_approvals, version_id, run_id, self._clock()))

    async def workspace(self, backend: str) -> WorkspaceRecord | None:
        """Return the record of a directory; `None` if the store has none."""
        return await self._read_optional('workspace', partial(_runs.workspace, backend), backend=backend)

    async def claim_workspace(self, backend: str, run_id: str, version_id: str | None) -> bool:
        """Claim a directory for a run; return whether the claim succeeded."""
        check_key('backend', backend)
        check_key('run_id', run_id)
        check_keys(version_id=version_id)
        working = await self._engine.read(partial(_runs.workspace_owner, backend))
        dead = None
        if working is not None and (
            self._is_marked_orphaned(*working) or not await self._engine.living_owners([working[1]])
        ):
            dead = working[0]
        claim = partial(_runs.claim_workspace, backend, run_id, version_id, self.owner, dead)
        return await self._engine.write(claim)

    async def asset(self, digest: str) -> AssetRecord:
        """Return an asset."""
        return await self._with_content(await self._stored_asset(digest))

    async def read_asset(self, digest: str) -> bytes:
        """Return the content of an asset."""
        return (await self.asset(digest)).data

    async def assets(self, digests: Collection[str]) -> dict[str, AssetRecord]:
        """Return the existing assets among these digests, keyed by digest."""
        check_texts(digests)
        assets = await self._engine.read(partial(_reads.assets, digests))
        if not assets.keys() >= set(digests):
            await self._verify_table('asset')
        return {digest: await self._with_content(stored) for digest, stored in assets.items()}

    @property
    def max_stream_bytes(self) -> int:
        """Maximum size of content for `write_asset`; 0 if the store has no `blobs`."""
        return 0 if self._blobs is None else MAX_STREAM_BYTES

    async def write_asset(
        self, digest: str, chunks: AsyncIterable[bytes], *, media_type: str = 'application/octet-stream'
    ) -> None:
        """Store content in chunks, in a transaction of its own."""
        check_key('digest', digest)
        if self._blobs is None:
            raise StoreError('The store has no storage for blobs. Open it with `blobs` to write contents in chunks.')
        if await self.has_assets([digest]):
            return
        blob, size_bytes = await self._blobs.put(digest, chunks)
        row = asset_row(digest, media_type, size_bytes, encode_outside(blob), self._clock())
        await self._engine.write(partial(put_assets, {digest: row}, ()))

    async def stream_asset(self, digest: str) -> AsyncGenerator[bytes]:
        """Yield the content of an asset in chunks. An error after the last one means that they are not the content."""
        stored = await self._stored_asset(digest)
        async with aclosing(self._chunks(stored)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stored_asset(self, digest: str) -> StoredAsset:
        return await self._read_existing('asset', AssetNotFoundError, partial(_reads.asset, digest), digest=digest)

    async def _with_content(self, stored: StoredAsset) -> AssetRecord:
        if stored.blob is None:
            return stored.record
        return replace(stored.record, data=b''.join([chunk async for chunk in self._chunks(stored)]))

    async def _chunks(self, stored: StoredAsset) -> AsyncGenerator[bytes]:
        if stored.blob is None:
            yield stored.record.data
            return
        if self._blobs is None:
            raise StoreUnavailableError(
                f'The content of asset {stored.record.digest!r} ({stored.record.size_bytes:,} bytes) is in object '
                'storage. Open the store with the `blobs` that it was written with (on the command line: `PYDANTIC_DEEP_BLOBS`).'
            )
        async with aclosing(self._blobs.get(stored.record.digest, stored.blob)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def has_assets(self, digests: Collection[str]) -> set[str]:
        """Return the digests of existing assets among these."""
        check_texts(digests)
        return await self._engine.read(partial(_reads.has_assets, digests))

    async def nodes(self, digest: str) -> dict[str, bytes]:
        """Return all nodes of a tree, keyed by digest."""
        return await self._read_existing('node', AssetNotFoundError, partial(_reads.nodes, digest), digest=digest)

    async def delete(self, id: str, *, exclusive: bool = False) -> None:
        """Delete one version; its children remain."""
        check_key('id', id)
        await self._write_unless_busy(lambda orphans: delete(id, orphans if exclusive else None))

    async def delete_conversations(self, ids: Sequence[str]) -> None:
        """Delete all versions of conversations in one transaction: all, or none if it raises.

        Args:
            ids: The conversations. Those that do not exist are ignored.

        Raises:
            VersionBusyError: A run of one of them is active.
        """
        check_name_list('ids', ids, check_key)
        await self._write_unless_busy(partial(delete_conversations, ids))

    async def delete_line(self, head_id: str) -> int:
        """Delete a version and its ancestors, up to the first with other descendants, which remains."""
        check_key('head_id', head_id)
        return await self._engine.write(partial(delete_line, head_id))

    async def gc(self, grace_seconds: float = 3600) -> GarbageReport:
        """Remove everything that no version reaches."""
        check_seconds('grace_seconds', grace_seconds)
        now, grace = self._clock(), int(grace_seconds * 1_000_000)
        report = await collect_garbage(self._engine, now, grace)
        if self._blobs is None:
            return report
        count, freed_bytes = await self._blobs.collect(before=now - grace)
        # Coverage loses lines that follow a call of obstore.
        removed = {**report.removed, 'blob': count}  # pragma: no cover
        return replace(report, removed=removed, freed_bytes=report.freed_bytes + freed_bytes)  # pragma: no cover

    async def check(self) -> list[Damage]:
        """Read every row and every blob, and return all damage, with the table, the row and the problem.

        Returns:
            All damage; an empty list if the store is intact.

        Raises:
            StoreUnavailableError: The store cannot be read at all, or was opened without the `blobs` that it needs.
        """
        engine = self._engine
        if not isinstance(engine, SupportsTables):
            raise TypeError(f'A {type(engine).__name__} has no dialect, which a check needs.')
        damages: list[Damage] = []
        for table, part in check_parts(engine.dialect):
            try:
                damages += await engine.read(part)
            except StoreCorruptedError as error:
                damages.append(Damage(table=error.table or table, row=error.row, problem=error.problem))
            except DAMAGED as error:
                damages.append(Damage(table=table, row=None, problem=f'a value cannot be decoded ({error})'))
        try:
            outside = await engine.read(_reads.assets_outside)
        except StoreCorruptedError:
            outside = []  # a damaged row, which is reported above
        for number, stored in outside:
            try:
                async for _ in self._chunks(stored):
                    pass
            except StoreCorruptedError as error:
                damages += await engine.read(partial(asset_damage, number, stored.record.digest, error.problem))
        return list(dict.fromkeys(damages))

    async def backup(self, path: str | os.PathLike[str], *, on_progress: Progress = no_progress) -> int:
        """Write a consistent snapshot of the store to a file that `restore_store` accepts on any engine.

        Other readers and writers are not blocked. The file appears under its name only when it is complete and on disk,
        readable by its user alone (mode 0600). It includes the rows of repositories in the same database, such as audit
        records and API keys, and the contents in `blobs`, so that it can be restored without the original storage.

        Args:
            path: The file, which must not exist.
            on_progress: Called with each table and the number of its rows written so far, from any thread; then with
                `blob` and the number of contents of `blobs`.

        Returns:
            The number of rows written.

        Raises:
            OSError: The file exists or cannot be written.
            BackupError: Contents are missing from `blobs` or damaged, or the store was opened without its `blobs`.
        """
        engine = self._engine
        if not isinstance(engine, SupportsTables):
            raise TypeError(f'A {type(engine).__name__} has no dialect, which a backup needs.')
        target = await asyncio.to_thread(Path(path).resolve)
        return await write_backup(target, engine, engine.dialect, self._blobs, now=self._clock(), progress=on_progress)

    async def sql(
        self,
        query: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        limits: SqlLimits = _SQL_LIMITS,
        max_rows: int | None = None,
    ) -> Table:
        """Run a query in DuckDB's SQL over the history of all agents, and return its rows.

        The first call reads the whole store into a replica in memory; later calls read only new rows. To persist the
        replica in a file, use `analytics.Analytics`, which also documents what a query may do.

        Args:
            query: One read-only statement.
            parameters: The values of `?`, `$1` or, as a mapping, `$name`.
            limits: Limits on time, memory and concurrency.
            max_rows: Return only the first rows, and whether there are more; without it, more than a million rows raise
                an error.

        Raises:
            QueryError: The query is refused, fails, or exceeds `limits`.
            ImportError: DuckDB is not installed.
        """
        if self._analytics is None:
            await asyncio.to_thread(importlib.import_module, 'pydantic_deep.store.analytics')
            from .analytics import Analytics

            self._analytics = self._analytics or Analytics(self)
        return await self._analytics.sql(query, parameters, limits=limits, max_rows=max_rows)

    async def aclose(self) -> None:
        """Close the store and its engine."""
        if self._analytics is not None and not self._fork_guard.is_child:
            await self._analytics.aclose()
        await self._engine.aclose()

    async def _read_existing(
        self, table: str, absent: type[StoreError], operation: Callable[[], Operation[T]], **key: str
    ) -> T:
        """Run a lookup; if it finds nothing, verify the table before raising."""
        for field, value in key.items():
            check_key(field, value)
        try:
            return await self._engine.read(operation)
        except absent as error:
            if not isinstance(error, StoreCorruptedError):
                await self._verify_table(table)
            raise

    async def _read_optional(self, table: str, operation: Callable[[], Operation[T | None]], **key: str) -> T | None:
        """Run a lookup; if it finds nothing, verify the table before returning `None`."""
        for field, value in key.items():
            check_key(field, value)
        result = await self._engine.read(operation)
        if result is None:
            await self._verify_table(table)
        return result

    async def _check_counts(self, *tables: str) -> None:
        """Check that no row of these tables is missing, once, before the first list of them."""
        if missing := set(tables) - self._counted:
            await self._engine.read(partial(complete, sorted(missing)))
            self._counted |= missing

    async def _verify_table(self, table: str) -> None:
        """Verify all rows of a table, once, at the first lookup that finds nothing in it."""
        if table not in self._verified:
            engine = self._engine
            integrity = engine.dialect.integrity if isinstance(engine, SupportsTables) else ''
            await engine.read(partial(verify, table, integrity))
            self._verified.add(table)


def _check_filter(filter: VersionFilter) -> None:
    check_keys(
        name=filter.name, exact_name=filter.exact_name, agent_name=filter.agent_name, model=filter.model,
        conversation_id=filter.conversation_id, run_id=filter.run_id,
    )  # fmt: skip
    check_object('metadata', filter.metadata, (Mapping, NoneType), "For example, `{'project': 'a'}`.")
    check_choices('kinds', filter.kinds, get_args(VersionKind))
    check_choices('states', filter.states, get_args(VersionState))
    check_name_list('metadata_keys', filter.metadata_keys, check_key)
    for key, value in (filter.metadata or {}).items():
        check_key('metadata', key)
        check_object(f'metadata[{key!r}]', value, (str, int, float, NoneType), 'Only such values can be compared.')


def _parents_first(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Order runs so that each comes after its parent, and otherwise preserve their order."""
    run_by_id = {run.id: run for run in runs}
    ordered: dict[str, RunRecord] = {}
    for run in runs:
        line: list[RunRecord] = []
        above: RunRecord | None = run
        while above is not None and above.id not in ordered and above not in line:
            line.append(above)
            above = run_by_id.get(above.parent_run_id or '')
        ordered |= {run.id: run for run in reversed(line)}
    return list(ordered.values())
