"""Workers on a store that several simulated processes open, with short intervals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from pydantic_deep import StateBackend
from pydantic_deep.dispatch import Worker, submit
from pydantic_deep.store import (
    Commit,
    Committed,
    QueuedRunRecord,
    RunQueue,
    SqlStore,
    StoreUnavailableError,
    open_engine,
)
from pydantic_deep.store.engine import Engine, Operation
from pydantic_deep.streaming import StreamEvent, decode_entry
from pydantic_deep.testing import Answer
from pydantic_deep.versions import TurnOptions, VersionedConversation
from tests.versions.recovery.crashes import MortalStore, When, World

T = TypeVar('T')

PATIENCE_SECONDS = 120
"""How long a test waits before it fails."""


@pytest.fixture(autouse=True)
def intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers look often, and take over at once."""
    short = {
        '_worker.POLL_SECONDS': 0.005,
        '_worker.ORPHAN_SECONDS': 0.005,
        '_worker.CONFIRM_SECONDS': 0,
        '_worker.CANCEL_SECONDS': 0.005,
        '_worker.BEAT_SECONDS': 0.005,
        '_worker.RETRY_SECONDS': (0.0,),
        '_log_writer.FLUSH_SECONDS': 0,
        '_log_writer.RETRY_SECONDS': 0.005,
    }
    for name, value in short.items():
        monkeypatch.setattr(f'pydantic_deep.dispatch.{name}', value)


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    """A store that outlives each process because it is held open."""
    url = f'memory:{tmp_path.name}'
    async with SqlStore(await open_engine(url)):
        yield url


class MortalEngine:
    """An engine that a test makes unavailable, and whose statements it counts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_dead = False
        self.reads = 0

    @property
    def url(self) -> str:
        return self._engine.url

    @property
    def owner(self) -> str:
        return self._engine.owner

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        self._check()
        self.reads += 1
        return await self._engine.read(operation)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        self._check()
        return await self._engine.write(operation)

    async def write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:
        self._check()
        return await self._engine.write_unsynced(operation)

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        self._check()
        return await self._engine.write_alone(operation)

    async def wait_for_writes(self) -> bool:
        return await self._engine.wait_for_writes()

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._engine.read_with_tables(operation)

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        self._check()
        return await self._engine.living_owners(owners)

    async def aclose(self) -> None:
        await self._engine.aclose()

    def _check(self) -> None:
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')


class Store(MortalStore):
    """The store of a simulated process. When it dies, neither the store nor the queue is available any more."""

    def __init__(self, engine: MortalEngine) -> None:
        super().__init__(engine)
        self.mortal = engine
        self.died = anyio.Event()

    @cached_property
    def queue(self) -> RunQueue:
        return RunQueue(self.mortal, self.orphans)

    async def commit(self, commit: Commit) -> Committed:
        try:
            return await super().commit(commit)
        finally:
            if self.is_dead:
                self.die()

    def die(self) -> None:
        self.mortal.is_dead = self.is_dead = True
        self.died.set()


@asynccontextmanager
async def process(
    url: str, *, dies_before: When | None = None, dies_after: When | None = None
) -> AsyncGenerator[Store]:
    async with Store(MortalEngine(await open_engine(url))) as store:
        store.dies_before, store.dies_after = dies_before, dies_after
        yield store


@asynccontextmanager
async def working(world: World, store: Store, **options: Any) -> AsyncGenerator[Worker]:
    """Run a worker, which drains at the end."""
    worker = Worker({'agent': world.agent(store)}, store, **options)
    async with anyio.create_task_group() as group:
        await group.start(worker.run)
        yield worker
        worker.stop()


async def crash(world: World, when: When, *, before: bool = False, **options: Any) -> None:
    """Work until a commit at which the process dies."""
    async with process(world.url, **({'dies_before': when} if before else {'dies_after': when})) as store:
        worker = Worker({'agent': world.agent(store)}, store, drain_seconds=0, **options)
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            with anyio.fail_after(PATIENCE_SECONDS):
                await store.died.wait()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr('pydantic_deep.dispatch._worker.STORE_SECONDS', 0)
                worker.stop()
                await until(lambda: not worker.active_count)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await anyio.sleep(0.002)


async def ended(queue: RunQueue, *runs: QueuedRunRecord) -> list[QueuedRunRecord]:
    """Wait until runs have ended, and return their records."""

    async def have_ended() -> bool:
        return all(run.state == 'ended' for run in await queue.get_all([run.run_id for run in runs]))

    await until(have_ended)
    return [found for run in runs for found in [await queue.get(run.run_id)] if found is not None]


async def begin(world: World, store: SqlStore) -> VersionedConversation[Any, Any]:
    """Create a conversation."""
    agent = world.agent(store)
    root = await agent.create(backend=StateBackend())
    return agent.conversation(root.conversation_id)


async def ask(
    conversation: VersionedConversation[Any, Any], store: SqlStore, prompt: str, **options: Any
) -> QueuedRunRecord:
    """Queue a turn of a conversation."""
    return await submit(conversation, TurnOptions(prompt=prompt), store, **options)


async def events_of(queue: RunQueue, run: QueuedRunRecord) -> list[StreamEvent]:
    """Return the events of the newest claim of a run."""
    known = await queue.get(run.run_id)
    assert known is not None
    parts = await queue.entries(known.run_id, known.epoch)
    return [decode_entry(entry) for part in parts for entry in part.entries]


def answers(**by_prompt: list[Answer]) -> Callable[[str, int], Answer]:
    """Return a script that answers each prompt with these responses, in order."""
    return lambda said, count: by_prompt[said][count]
