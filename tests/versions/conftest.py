"""Fixtures for the tests of versions: a store that records statements, and agents on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from pydantic_ai import Agent

from pydantic_deep import create_deep_agent
from pydantic_deep.store import Commit, Committed, SqlStore, open_engine
from pydantic_deep.store.engine import Engine, Operation, Row, Statement
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import Script, ScriptedModel, Step
from pydantic_deep.versions import VersionedAgent

T = TypeVar('T')


class CountingEngine:
    """An engine that records each statement."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.fails_after: int | None = None
        """Number of statements of the next write before it fails."""
        self.fails_at: int | None = None
        """Number of statements of all writes before the one that fails."""
        self.fails_read: BaseException | None = None
        """The error of the first read after the next write."""
        self._has_written = False

    @property
    def url(self) -> str:
        return self._engine.url

    @property
    def owner(self) -> str:
        return self._engine.owner

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        error = self.fails_read if self._has_written else None
        if error is not None:
            self.fails_read = None
            raise error
        return await self._engine.read(lambda: _noted(operation(), self.reads))

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        stop, self.fails_after = self.fails_after, None
        if self.fails_at is not None:
            stop = self.fails_at - len(self.writes)
        self._has_written = self.fails_read is not None
        return await self._engine.write(lambda: _noted(operation(), self.writes, stop))

    async def write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:  # pragma: no cover - the type needs it
        return await self._engine.write_unsynced(operation)

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._engine.write_alone(operation)

    async def wait_for_writes(self) -> bool:
        return await self._engine.wait_for_writes()

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._engine.read_with_tables(lambda: _noted(operation(), self.reads))

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        return await self._engine.living_owners(owners)

    async def aclose(self) -> None:
        await self._engine.aclose()


def _noted(operation: Operation[T], log: list[str], stop: int | None = None) -> Operation[T]:
    count = 0
    try:
        statement: Statement = next(operation)
        while True:
            if count == stop:
                raise RuntimeError('power cut')
            count += 1
            log.append(statement.sql)
            try:
                rows: list[Row] = yield statement
            except Exception as error:
                statement = operation.throw(error)
            else:
                statement = operation.send(rows)
    except StopIteration as end:
        return end.value


class SpyStore(SqlStore):
    """A store that records each commit and can be made to refuse one."""

    def __init__(self, engine: CountingEngine) -> None:
        super().__init__(engine)
        self.counting = engine
        self.commits: list[Commit] = []
        self.refuse: Callable[[Commit], Exception | None] = lambda commit: None
        self.after: Callable[[Commit], None] = lambda commit: None

    async def commit(self, commit: Commit) -> Committed:
        error = self.refuse(commit)
        if error is not None:
            raise error
        committed = await super().commit(commit)
        self.commits.append(commit)
        self.after(commit)
        return committed


class MakeAgent(Protocol):
    """Creates a deep agent with scripted model responses, on the store."""

    def __call__(self, *steps: Step, then: Script | None = None, **options: Any) -> VersionedAgent[Any, Any]: ...


@pytest.fixture
async def store() -> AsyncGenerator[SpyStore]:
    async with SpyStore(CountingEngine(MemoryEngine.open())) as store:
        yield store


@pytest.fixture
def make(store: SpyStore) -> MakeAgent:
    def deep(*steps: Step, then: Script | None = None, **options: Any) -> VersionedAgent[Any, Any]:
        names = ('make_deps', 'approval_timeout_seconds')
        ours = {name: options.pop(name) for name in names if name in options}
        model = options.pop('model', None) or ScriptedModel(*steps, then=then)
        return VersionedAgent(create_deep_agent(model, **options), store, **ours)

    return deep


@pytest.fixture
def make_plain(store: SpyStore) -> MakeAgent:
    """Create a plain pydantic-ai agent, without our capabilities."""

    def plain(*steps: Step, then: Script | None = None, **options: Any) -> VersionedAgent[Any, Any]:
        names = ('make_deps', 'approval_timeout_seconds')
        ours = {name: options.pop(name) for name in names if name in options}
        return VersionedAgent(Agent[Any, Any](ScriptedModel(*steps, then=then), **options), store, **ours)

    return plain


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    """A store that outlives each process because it is held open."""
    url = f'memory:{tmp_path.name}'
    async with SqlStore(await open_engine(url)):
        yield url
