"""The cost of a step in each tier, and how many agents that serves: `python benchmarks/capacity.py`.

A tier is a place where steps are stored, and whether a queue is between the caller and the worker. The cost of a step is
the difference between turns with many steps and turns with few, so that it excludes what is paid once per turn. Each
step calls a tool that writes a file of 100 bytes. The simulation uses these costs: agents wait for their model, compete
for the cores of the workers, and then for those of the database.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from run import running_postgres

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.dispatch import InProcessDispatcher, Worker, submit
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import TurnOptions, VersionedAgent

FEW, MANY = 5, 45
"""The steps of short and of long turns."""

TURNS = 8
"""The turns of each length that are measured, each in a conversation of its own."""


@dataclass(kw_only=True)
class Cost:
    """What turns cost, or a step."""

    commits: float = 0
    statements: float = 0
    reads: float = 0
    """Read transactions."""
    stored_bytes: float = 0
    log_bytes: float = 0
    """Bytes of the write-ahead log, which go to disk and to replicas."""
    client_ms: float = 0
    """CPU of the process that runs the agent."""
    server_ms: float = 0
    """CPU of the database."""

    def __sub__(self, other: Cost) -> Cost:
        return Cost(**{name: value - vars(other)[name] for name, value in vars(self).items()})

    def __truediv__(self, count: float) -> Cost:
        return Cost(**{name: value / count for name, value in vars(self).items()})


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write one file per response, as many as the prompt requests."""
    done = sum(isinstance(message, ModelResponse) for message in messages)
    wanted = int(re.findall(r'steps: (\d+)', str(messages[0]))[0])
    return 'Done.' if done == wanted else call('write_file', path=f'/{done}.txt', content=f'{done:100}')


class Meter:
    """Counts what a store does, from its creation on."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.counts = Cost()
        engine: Any = store.engine
        self._put(engine, 'write', 'commits')
        self._put(engine, 'read', 'reads')

    def _put(self, engine: Any, method: str, name: str) -> None:
        inner = getattr(engine, method)

        async def counted(operation: Callable[[], Operation[Any]]) -> Any:
            setattr(self.counts, name, getattr(self.counts, name) + 1)
            return await inner(lambda: self._statements(operation))

        setattr(engine, method, counted)

    def _statements(self, operation: Callable[[], Operation[Any]]) -> Operation[Any]:
        running = operation()
        statement: Statement = next(running)
        while True:
            self.counts.statements += 1
            rows: list[Row] = yield statement
            try:
                statement = running.send(rows)
            except StopIteration as stop:
                return stop.value

    async def totals(self, directory: Path) -> Cost:
        """Return everything up to now."""
        result = Cost(**vars(self.counts))
        result.client_ms = time.process_time() * 1000
        if self.store.url.startswith('postgresql:'):
            sql = "SELECT pg_database_size(current_database()), pg_current_wal_lsn() - '0/0'::pg_lsn"
            connection: Any = await import_module('asyncpg').connect(os.environ['CAPACITY_URL'])
            await connection.execute('CHECKPOINT')
            size, log = await connection.fetchrow(sql)
            pids = [row[0] for row in await connection.fetch('SELECT pid FROM pg_stat_activity')]
            await connection.close()
            result.stored_bytes, result.log_bytes = float(size), float(log)
            result.server_ms = sum(map(process_ms, pids))
        else:
            result.stored_bytes = sum(path.stat().st_size for path in directory.glob('*.db'))
        return result


def process_ms(pid: int) -> float:
    """Return the CPU milliseconds of a process so far; 0 if it has ended."""
    try:
        fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf('SC_CLK_TCK')


async def measure(url: str, directory: Path, *, is_queued: bool) -> tuple[Cost, Cost]:
    """Return the cost of a step, and of a turn without its steps."""
    async with open_store(url) as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(then=answer), name='clerk'), store)
        async with turns_of(agent, store, is_queued=is_queued) as run:
            await run(FEW)
            meter = Meter(store)
            few, many = [await cost_of(meter, directory, run, steps) for steps in (FEW, MANY)]
    step = (many - few) / (MANY - FEW)
    return step, few - Cost(**{name: value * FEW for name, value in vars(step).items()})


async def cost_of(meter: Meter, directory: Path, run: Callable[[int], Any], steps: int) -> Cost:
    """Return the cost of a turn with some steps."""
    before = await meter.totals(directory)
    for _ in range(TURNS):
        await run(steps)
    return (await meter.totals(directory) - before) / TURNS


@asynccontextmanager
async def turns_of(
    agent: VersionedAgent[Any, Any], store: SqlStore, *, is_queued: bool
) -> AsyncGenerator[Callable[[int], Any]]:
    """Yield a function that runs a turn in a new conversation: directly, or by a queue and a worker."""

    async def run_here(steps: int) -> None:
        await (await agent.create(backend=StateBackend())).advance(f'steps: {steps}')

    if not is_queued:
        yield run_here
        return
    dispatcher = InProcessDispatcher()

    async def run_in_worker(steps: int) -> None:
        root = await agent.create(backend=StateBackend())
        run = await submit(root, TurnOptions(prompt=f'steps: {steps}'), store, dispatcher=dispatcher)
        ended = asyncio.Event()
        watch[run.run_id] = ended
        await ended.wait()

    watch: dict[str, asyncio.Event] = {}
    worker = Worker(
        {'clerk': agent}, store, dispatcher=dispatcher,
        on_event=lambda event: watch[event.run_id].set() if event.kind == 'ended' else None,
    )  # fmt: skip
    async with anyio.create_task_group() as group:
        await group.start(worker.run)
        yield run_in_worker
        group.cancel_scope.cancel()


def simulate(
    agents: int, *, model_s: float, worker_ms: float, worker_cores: int, database_ms: float, database_cores: int,
    seconds: float = 60.0,
) -> tuple[float, float]:  # fmt: skip
    """Return the steps per second of agents at work, and the mean seconds that a step takes beside its model.

    Each step waits for its model, exponentially distributed, then for a core of the workers, then for one of the
    database. Both queues are served in order, with fixed durations.
    """
    chance = random.Random(agents)
    events: list[tuple[float, int, float]] = [(chance.expovariate(1 / model_s), 0, 0.0) for _ in range(agents)]
    heapq.heapify(events)
    free: tuple[list[float], list[float]] = ([0.0] * worker_cores, [0.0] * database_cores)
    costs = (worker_ms / 1000, database_ms / 1000)
    count, waited = 0, 0.0
    while events and events[0][0] < seconds:
        at, stage, asked = heapq.heappop(events)
        if stage == 2:
            if at > seconds / 4:  # the first quarter fills the queues
                count, waited = count + 1, waited + at - asked
            heapq.heappush(events, (at + chance.expovariate(1 / model_s), 0, 0.0))
            continue
        end = max(at, heapq.heappop(free[stage])) + costs[stage]
        heapq.heappush(free[stage], end)
        heapq.heappush(events, (end, stage + 1, asked or at))
    return count / (seconds * 3 / 4), waited / max(count, 1)


def print_costs(rows: Sequence[tuple[str, Cost, Cost]]) -> None:
    """Print the cost of a step in each tier; CPU as multiples of the first tier."""
    first = rows[0][1].client_ms
    print('| tier | commits | statements | reads | stored bytes | log bytes | CPU of the agent | CPU of the database |')
    print('|:--|--:|--:|--:|--:|--:|--:|--:|')
    for name, step, turn in rows:
        for label, cost in ((f'{name}: a step', step), (f'{name}: a turn, without its steps', turn)):
            print(
                f'| {label} | {cost.commits:.1f} | {cost.statements:.1f} | {cost.reads:.1f} | {cost.stored_bytes:,.0f} '
                f'| {cost.log_bytes:,.0f} | {cost.client_ms / first:.2f}× | {cost.server_ms / first:.2f}× |'
            )
    print(f'\n1× is {first:.2f} ms here.\n')


def print_fleets(step: Cost, model_s: float = 5.0) -> None:
    """Print simulated fleets, from a step's cost in PostgreSQL with a queue."""
    print('| agents at work | worker cores | database cores | steps/s | s beside the model | busy: workers, database |')
    print('|--:|--:|--:|--:|--:|:--|')
    fleets = ((10, 1, 1), (1_000, 1, 1), (1_000, 2, 1), (1_000, 4, 2), (100_000, 64, 16), (100_000, 256, 64))
    for agents, workers, cores in fleets:
        rate, late = simulate(
            agents, model_s=model_s, worker_ms=step.client_ms, worker_cores=workers,
            database_ms=step.server_ms, database_cores=cores,
        )  # fmt: skip
        busy = rate * step.client_ms / 1000 / workers, rate * step.server_ms / 1000 / cores
        print(f'| {agents:,} | {workers} | {cores} | {rate:,.0f} | {late:.2f} | {busy[0]:.0%}, {busy[1]:.0%} |')


def main() -> None:
    """Measure every tier, simulate fleets, and print both."""
    rows: list[tuple[str, Cost, Cost]] = []
    with tempfile.TemporaryDirectory() as name, running_postgres() as postgres:
        directory = Path(name)
        tiers = [('memory', 'memory:', False)]
        tiers.append(('SQLite', f'sqlite:///{name}/one.db', False))
        if postgres:
            os.environ['CAPACITY_URL'] = postgres
            tiers += [('PostgreSQL', postgres, False), ('PostgreSQL, queue and worker', postgres, True)]
        for label, url, is_queued in tiers:
            step, turn = asyncio.run(measure(url, directory, is_queued=is_queued))
            rows.append((label, step, turn))
            print(f'measured: {label}', file=sys.stderr)
    print_costs(rows)
    print_fleets(rows[-1][1])


if __name__ == '__main__':
    main()
