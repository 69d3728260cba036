"""Ours with a large store: long lines, long lists, many files, garbage, and many concurrent agents."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from chat import prose, size_of, turn
from loop import Script
from measure import Case, Figures, Sizes, cpu_seconds, measure_cpu_ms, require
from ours_store import EARLY, encoded, keep_turns, messages_of, url_in

from pydantic_deep import DeepAgentDeps, LocalBackend, create_deep_agent
from pydantic_deep.store import (
    Append,
    BranchRecord,
    Commit,
    ConversationRecord,
    NewMessage,
    RunRecord,
    Store,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.versions import AgentVersion, VersionedAgent

_TURNS_IN_A_CONVERSATION = 100


def lines(sizes: Sizes) -> Figures:
    """Return the cost of a long line: of reading it, and of a fork at its end compared with one near its root."""

    async def measure() -> Figures:
        with tempfile.TemporaryDirectory() as directory:
            async with open_store(url_in(directory)) as store:
                agent = VersionedAgent(create_deep_agent(), store)
                root = await agent.create()
                records = await keep_turns(store, root.record, sizes.lineage)
                tip = await agent.load(records[-1].id)
                count = len(await tip.lineage())
                if count != sizes.lineage + 1:
                    raise RuntimeError(f'The lineage has {count} versions, not {sizes.lineage + 1}.')
                lineage_ms = await measure_cpu_ms(sizes.repeats, tip.lineage)
                # Alternating, so that the database has the same size for both.
                pairs = [(await _fork_ms(store, records[EARLY]), await _fork_ms(store, records[-1])) for _ in range(50)]
        early, late = (statistics.median(pair[place] for pair in pairs) for place in (0, 1))
        return {'lineage_ms': lineage_ms, 'fork_ms': late, 'fork_ratio': late / early}

    return asyncio.run(measure())


async def _fork_ms(store: Store, record: VersionRecord) -> float:
    """Return the CPU milliseconds of a turn from a version that has a successor on its branch already."""
    news = [NewMessage(id=new_id(), body=encoded(message)) for message in messages_of(turn(0))]
    append = Append(branch_id=record.branch_id, at=record.message_count, messages=news, fork_id=new_id())
    child = record._replace(id=new_id(), number=0, parent_id=record.id, message_count=record.message_count + len(news))
    start = cpu_seconds()
    await store.commit(Commit(append=append, versions=[child]))
    return (cpu_seconds() - start) * 1000


def lists(sizes: Sizes) -> Figures:
    """Return the cost of a page from very many versions, and of the whole history of one conversation."""

    async def measure() -> Figures:
        with tempfile.TemporaryDirectory() as directory:
            async with open_store(url_in(directory)) as store:
                agent = VersionedAgent(create_deep_agent(), store)
                for number in range(sizes.listed // _TURNS_IN_A_CONVERSATION):
                    root = await agent.create(name=f'case {number}', metadata={'team': number % 7})
                    await keep_turns(store, root.record, _TURNS_IN_A_CONVERSATION - 1)
                long = await agent.create(name='the long one')
                await keep_turns(store, long.record, sizes.listed_history - 1)

                def page(**wanted: object) -> Callable[[], Awaitable[object]]:
                    async def read() -> None:
                        found = len(await agent.list(limit=100, **wanted))  # pyright: ignore[reportArgumentType]
                        if found != 100:
                            raise RuntimeError(f'The page has {found} versions.')

                    return read

                async def history() -> None:
                    found = await agent.list(conversation_id=long.conversation_id, limit=10_000)
                    if len(found) != sizes.listed_history:
                        raise RuntimeError(f'The history has {len(found)} versions.')

                pages = {
                    'page_ms': page(),
                    'page_far_ms': page(offset=sizes.listed // 2),
                    'page_metadata_ms': page(metadata={'team': 3}),
                    'history_list_ms': history,
                }
                figures: dict[str, float] = {}
                for key, read in pages.items():
                    await read()
                    figures[key] = await measure_cpu_ms(sizes.repeats, read)
                return figures

    return asyncio.run(measure())


def garbage(sizes: Sizes) -> Figures:
    """Return the CPU time of a garbage collection that removes nothing."""

    async def measure() -> Figures:
        with tempfile.TemporaryDirectory() as directory:
            async with open_store(url_in(directory)) as store:
                agent = VersionedAgent(create_deep_agent(), store)
                turns = sizes.live_messages // 4
                for _ in range(10):
                    root = await agent.create()
                    await keep_turns(store, root.record, turns // 10)
                start = cpu_seconds()
                report = await agent.gc()
                taken = cpu_seconds() - start
                if report.condemned or any(report.removed.values()):
                    raise RuntimeError(f'Something that lives was taken for garbage: {report}.')
                return {'gc_s': taken}

    return asyncio.run(measure())


def files(sizes: Sizes) -> Figures:
    """Return the cost of versioning a large directory in which each step changes one file, and of a checkout."""

    async def measure() -> Figures:
        with tempfile.TemporaryDirectory() as database, tempfile.TemporaryDirectory() as workspace:
            changed = _make_workspace(Path(workspace), sizes.workspace_files)
            async with open_store(url_in(database)) as store:
                agent = VersionedAgent(create_deep_agent(), store)
                root = await agent.create(backend=LocalBackend(workspace))
                count = sizes.workspace_steps
                paths = [changed[number * 7919 % len(changed)] for number in range(count)]
                calls = [
                    ('write_file', {'path': f'/{path}', 'content': prose(number, 1_024)})
                    for number, path in enumerate(paths)
                ]
                tip = await root.advance('Go on.', model=Script(calls).model)
                require(tip.state, 'complete')
                steps = await tip.steps()
                checkouts = [await _checkout_s(version) for version in (root, steps[len(steps) // 2], tip)]
            size = size_of(Path(database))
        return {
            'files_mb': size / 1e6,
            'files_allowed_ratio': size / (3 * count * 1_024 + 20e6),
            'checkout_s': max(checkouts),
        }

    return asyncio.run(measure())


async def _checkout_s(version: AgentVersion[DeepAgentDeps]) -> float:
    start = cpu_seconds()
    await version.checkout()
    return cpu_seconds() - start


def _make_workspace(root: Path, files: int) -> list[str]:
    """Write files of 1 KiB, 50 per directory; return their paths."""
    paths: list[str] = []
    for number in range(files):
        path = Path(f'package_{number // 500:02d}', f'part_{number // 50 % 10}', f'module_{number:05d}.py')
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(prose(number + 1_000_000, 1_024))
        paths.append(path.as_posix())
    return paths


def agents(sizes: Sizes) -> Figures:
    """Return the number of acknowledged steps per second, wall-clock, for several agents that commit concurrently."""

    async def measure(count: int) -> float:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
            async with open_store(url_in(directory)) as store:
                runs = [await _begin(store) for _ in range(count)]
                count_per_agent = max(sizes.commits // count, 4)
                start = time.perf_counter()
                async with asyncio.TaskGroup() as group:
                    for base, run_id in runs:
                        group.create_task(_commit_steps(store, base, run_id, count_per_agent))
                return count * count_per_agent / (time.perf_counter() - start)

    rates = [asyncio.run(measure(count)) for count in (1, max(sizes.agents // 8, 1), sizes.agents)]
    return {
        'steps_alone': rates[0],
        'steps_some': rates[1],
        'steps_many': rates[2],
        'steps_some_ratio': rates[1] / rates[0],
        'steps_many_ratio': rates[2] / rates[0],
    }


async def _begin(store: Store) -> tuple[VersionRecord, str]:
    conversation, run_id = new_id(), new_id()
    branch = BranchRecord(new_id(), conversation, 'main', None, 0, 0, None, None, 1)
    root = VersionRecord(
        id=new_id(), number=0, parent_id=None, cloned_from=None, merged_from=None, kind='root', state='complete',
        conversation_id=conversation, branch_id=branch.id, branch='main', message_count=0, run_id=None,
        agent_name='agent', name=None, metadata='{}', model=None, model_settings='{}', usage='{}', output=None,
        pending=None, deps=None, tree=None, backend=None, created_at=1,
    )  # fmt: skip
    run = RunRecord(
        id=run_id, conversation_id=conversation, base_id=root.id, agent_name='agent', attempt_of=None,
        parent_run_id=None, state='running', owner=None, prompt=None, options='{}', usage='{}', cost=None, error=None,
        trace_id=None, started_at=1, ended_at=None,
    )  # fmt: skip
    conversations = [ConversationRecord(conversation, 'agent', None, 1)]
    await store.commit(Commit(conversations=conversations, branches=[branch], versions=[root], runs=[run]))
    return root, run_id


async def _commit_steps(store: Store, base: VersionRecord, run_id: str, count: int) -> None:
    bodies = [encoded(message) for message in messages_of(turn(0))[1:3]]
    for _ in range(count):
        news = [NewMessage(id=new_id(), body=body) for body in bodies]
        append = Append(branch_id=base.branch_id, at=base.message_count, messages=news, fork_id=new_id())
        base = base._replace(
            id=new_id(), kind='step', state='interrupted', parent_id=base.id, run_id=run_id,
            message_count=base.message_count + len(news),
        )  # fmt: skip
        await store.commit(Commit(fence=run_id, append=append, versions=[base]))


CASES: dict[str, Case] = {
    'store-lines': lines,
    'store-lists': lists,
    'store-gc': garbage,
    'store-files': files,
    'store-agents': agents,
}
"""The cases of a large store, by name."""
