"""End-to-end use of versions: the design sketch, and history problems known from other frameworks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, TextPart, UserPromptPart

from pydantic_deep import Approve, LocalBackend, StateBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.store import VersionConflictError
from pydantic_deep.testing import ScriptedModel, Step, call

pytestmark = pytest.mark.anyio


def build(*steps: Step, **options: Any) -> Any:
    return create_deep_agent(ScriptedModel(*steps, **options))


def words(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]


def echo(messages: list[ModelMessage], info: object) -> str:
    return f're {words(messages)[-1]}'


def put(path: str, content: str) -> Any:
    return call('write_file', path=path, content=content)


async def test_design_sketch(tmp_path: Path):
    (tmp_path / 'sales.csv').write_text('a,b\n1,2\n')
    agent = build(
        call('read_file', path='/sales.csv'), put('/summary.md', 'three'), 'summed up', put('/chart.md', '#'),
        'charted', put('/table.md', '|'), 'tabled',
    )  # fmt: skip
    async with open_store(f'sqlite:///{tmp_path.parent}/{tmp_path.name}.db') as store:
        analyst = VersionedAgent(agent, store)
        v0 = await analyst.create(name='Q3', backend=LocalBackend(tmp_path), model_settings={'temperature': 0})
        v1 = await v0.advance('Read sales.csv and write summary.md')
        v2 = await v1.advance('Add a chart')
        alt = await v1.advance('Add a table instead')

        assert [v.id for v in await v2.lineage()] == [v0.id, v1.id, v2.id]
        assert await v1.children() == [v2, alt]
        assert [file.path for file in (await v1.diff(v2)).files] == ['/chart.md']
        joined = await v2.merge(alt)
        await joined.checkout()
        assert sorted(p.name for p in tmp_path.iterdir()) == ['chart.md', 'sales.csv', 'summary.md', 'table.md']
        await v2.checkout()
        assert sorted(p.name for p in tmp_path.iterdir()) == ['chart.md', 'sales.csv', 'summary.md']
        await v0.checkout()
        assert sorted(p.name for p in tmp_path.iterdir()) == ['sales.csv']
        for version in (v1, v2, alt):
            assert (await version.replay()).difference is None


async def test_concurrent_runs_on_one_thread_lose_no_turn():
    """DA: one user's whole turn vanishes without an error."""
    agent = build(then=echo)
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        talk = versioned.conversation((await versioned.create()).conversation_id)

        results = await asyncio.gather(talk.advance('ann'), talk.advance('bob'), return_exceptions=True)

        [conflict] = [each for each in results if isinstance(each, VersionConflictError)]
        kept = [await talk.head(), await versioned.load(conflict.yours)]
        said = sorted([tuple(words(await each.messages())) for each in kept])
        assert said == [('ann', 're ann'), ('bob', 're bob')]


async def test_step_is_stored_before_its_tool_runs(tmp_path: Path):
    """DA: default durability lost acknowledged steps on SIGKILL. Here another process sees the step while the tool
    runs."""
    url = f'sqlite:///{tmp_path}/agents.db'
    seen: list[list[tuple[str, int]]] = []

    async def look() -> str:
        async with open_store(url) as other:
            seen.append([(version.kind, version.message_count) for version in await other.versions()])
        return 'ok'

    agent = create_deep_agent(ScriptedModel(call('look'), call('look'), 'done'), tools=[look])
    async with open_store(url) as store:
        await (await VersionedAgent(agent, store).create()).advance('go')

    assert seen == [[('step', 2), ('root', 0)], [('step', 4), ('step', 2), ('root', 0)]]


async def test_time_travel_covers_files_on_disk(tmp_path: Path):
    """DA, PD: time travel does not cover files; conversation and files cannot be reverted in one step."""
    agent = build(put('/a.txt', 'good'), 'done', call('read_file', path='/a.txt'), put('/a.txt', 'bad'),
                  put('/b.txt', 'worse'), 'oops', 'what was it?')  # fmt: skip
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        good = await (await versioned.create(backend=LocalBackend(tmp_path))).advance('write')
        bad = await good.advance('ruin')
        assert (tmp_path / 'a.txt').read_text() == 'bad'

        await good.checkout()
        again = await good.advance('and now?')

        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {'a.txt': 'good'}
        assert words(await again.messages()) == ['write', 'done', 'and now?', 'what was it?']
        assert words(await bad.messages())[-1] == 'oops'


async def test_forks_have_names_diffs_and_merges():
    """DA: forks have no names, diff or merge"""
    agent = build(put('/chart.md', '#'), 'charted', put('/table.md', '|'), 'tabled')
    async with open_store('memory:') as store:
        root = await VersionedAgent(agent, store).create(backend=StateBackend())
        chart, table = await root.advance('a', branch='chart'), await root.advance('b', branch='table')

        assert (chart.branch, table.branch) == ('chart', 'table')
        assert {file.path: file.kind for file in (await chart.diff(table)).files} == {
            '/chart.md': 'removed',
            '/table.md': 'added',
        }
        assert sorted(await (await chart.merge(table)).file_tree()) == ['/chart.md', '/table.md']


async def test_pruning_never_rebuilds_an_empty_state():
    """DA: naive pruning can silently rebuild an empty state."""
    agent = build('one', put('/a.txt', 'x'), 'two', 'three')
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create(backend=StateBackend())
        first = await root.advance('a')
        second = await first.advance('b')
        for version in (root, first):
            await versioned.delete(version)
        await versioned.gc(0)
        await versioned.gc(0)

        loaded = await VersionedAgent(build('three'), store).load(second.id)
        third = await loaded.advance('c')

        assert words(await third.messages()) == ['a', 'one', 'b', 'two', 'c', 'three']
        assert list(await third.file_tree()) == ['/a.txt']


async def test_concurrent_runs_of_one_agent_share_no_state():
    """PD: state is stored on the agent object, so users leak into each other."""
    agent = build(then=echo)
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        ann, bob = await asyncio.gather(
            versioned.create(metadata={'u': 'ann'}), versioned.create(metadata={'u': 'bob'})
        )

        first, second = await asyncio.gather(ann.advance('i am ann'), bob.advance('i am bob'))

        assert words(await first.messages()) == ['i am ann', 're i am ann']
        assert words(await second.messages()) == ['i am bob', 're i am bob']
        assert await versioned.list(metadata={'u': 'ann'}) == [first, ann]
        assert first.usage.requests == second.usage.requests == 1


async def test_pause_resumes_in_another_process(tmp_path: Path):
    """H: StepPersistence cannot resume an approval pause."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        agent = create_deep_agent(ScriptedModel(put('/a', 'x')), interrupt_on={'write_file': True})
        paused = await (await VersionedAgent(agent, store).create(backend=StateBackend())).advance('go')
    async with open_store(url) as store:
        agent = create_deep_agent(ScriptedModel('done'), interrupt_on={'write_file': True})
        loaded = await VersionedAgent(agent, store).load(paused.id[:23])
        done = await loaded.resume({loaded.pending[0].id: Approve()})

        assert (done.output, list(await done.file_tree())) == ('done', ['/a'])
