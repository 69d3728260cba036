"""Fixtures for audit tests: an in-memory repository that fails on demand, and audited agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

import pytest
from pydantic_ai import Agent

from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord
from pydantic_deep.repository import Repository
from pydantic_deep.repository.memory import MemoryRepository
from pydantic_deep.store import SqlStore
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel


class Rows(MemoryRepository[AuditRecord]):
    """Stores records, counts the writes, and fails or hangs for the statuses in its sets."""

    def __init__(self) -> None:
        super().__init__(AuditRecord, fields=AUDIT_FIELDS)
        self.writes: list[str] = []
        self.fails: set[str] = set()
        """Statuses whose write fails."""
        self.hangs: set[str] = set()
        """Statuses whose write never completes."""
        self.gives_up: set[str] = set()
        """Statuses whose write cancels itself."""
        self.waits: set[str] = set()
        """Statuses whose write completes when `go` is set."""
        self.fails_at_last = False
        """Whether such a write fails then."""
        self.go = asyncio.Event()
        self.writing = asyncio.Event()

    async def upsert(self, item: AuditRecord) -> None:
        self.writes.append(item.status)
        if item.status in self.fails:
            raise OSError('the disk of postgres://me:hunter2@host is full')
        if item.status in self.hangs:
            await asyncio.Event().wait()
        if item.status in self.gives_up:
            raise asyncio.CancelledError
        if item.status in self.waits:
            self.writing.set()
            await self.go.wait()
            if self.fails_at_last:
                raise OSError('the disk is full')
        await super().upsert(item)

    async def all(self) -> list[AuditRecord]:
        return (await self.list(limit=1000)).items

    async def one(self) -> AuditRecord:
        (record,) = await self.all()
        return record


@pytest.fixture
async def rows() -> Rows:
    return Rows()


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with SqlStore(MemoryEngine.open()) as store:
        yield store


@pytest.fixture
def audited(rows: Rows) -> Callable[..., Agent[Any, Any]]:
    """Make a pydantic-ai agent with an audit and a tool named `work`."""

    def make(
        model: ScriptedModel, *, work: Callable[..., Any] = lambda: 'done', audit: Audit | None = None, **options: Any
    ) -> Agent[Any, Any]:
        agent = Agent[Any, Any](model, capabilities=[audit or Audit(rows)], name='worker', **options)
        agent.tool_plain(name='work')(work)
        return agent

    return make


MakeAgent = Callable[..., Agent[Any, Any]]


class AuditRows(Repository[AuditRecord], Protocol):
    """The type of the fixture `rows`."""

    writes: list[str]
    fails: set[str]
    hangs: set[str]
    gives_up: set[str]
    waits: set[str]
    fails_at_last: bool
    go: asyncio.Event
    writing: asyncio.Event

    async def all(self) -> list[AuditRecord]: ...

    async def one(self) -> AuditRecord: ...
