"""`VersionedMemory`: the store that `Memory` of the harness expects, with a history of each file and undo."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from dirty_equals import IsNow

pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_ai_harness import Memory
from pydantic_ai_harness.memory import (
    MemoryConflictError,
    MemoryMutation,
    MemoryOperation,
    MemoryOperationConflictError,
    MemoryStore,
    MetadataMemoryStore,
)

from pydantic_deep import DeepAgentDeps, VersionedAgent, create_deep_agent
from pydantic_deep.memory import Memories, RevisionNotFoundError, VersionedMemory
from pydantic_deep.store import Store, open_store
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


@pytest.fixture(params=['memory:', 'sqlite'])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    url = request.param if request.param == 'memory:' else f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        yield store


@pytest.fixture
async def memory(store: Store) -> VersionedMemory:
    return await VersionedMemory.open(store)


def test_class_is_a_store_with_metadata() -> None:
    """`Memory` accepts it wherever it accepts its own stores."""
    assert issubclass(VersionedMemory, MemoryStore)
    assert issubclass(VersionedMemory, MetadataMemoryStore)


async def test_file_is_read_as_it_was_written(memory: VersionedMemory) -> None:
    """A file has its content, a version, and the metadata of its last write; a long one is truncated and says so."""
    assert await memory.read('ada/main/MEMORY.md', max_chars=10) is None
    first = await memory.write('ada/main/MEMORY.md', 'likes tea', expected_version=None)
    assert first == MemoryMutation(version='1', replayed=False, existed=False)
    second = await memory.write_with_metadata(
        'ada/main/MEMORY.md', 'likes coffee', expected_version='1', metadata={'run': 'r'}
    )
    assert second == MemoryMutation(version='2', replayed=False, existed=True)
    file = await memory.read('ada/main/MEMORY.md', max_chars=5)
    assert file is not None
    assert (file.content, file.version, file.truncated, file.metadata) == ('likes', '2', True, {'run': 'r'})


@pytest.mark.parametrize('expected', [None, '2'])
async def test_write_from_another_version_is_refused(memory: VersionedMemory, expected: str | None) -> None:
    """A write that has not seen the latest version changes nothing, and names both versions."""
    await memory.write('a', 'one', expected_version=None)
    with pytest.raises(MemoryConflictError, match=f"'a' has the version 1, and not {expected}"):
        await memory.write('a', 'two', expected_version=expected)
    assert [revision.content for revision in await memory.history('a')] == ['one']


async def test_one_of_two_concurrent_writes_is_refused(memory: VersionedMemory) -> None:
    """Of writes that begin from one version, one succeeds, and the file has no lost revision."""
    await memory.write('a', 'one', expected_version=None)
    outcomes: list[str] = []

    async def write(content: str) -> None:
        try:
            await memory.write('a', content, expected_version='1')
        except MemoryConflictError:
            outcomes.append('refused')
        else:
            outcomes.append(content)

    async with anyio.create_task_group() as tasks:
        for content in ('two', 'three'):
            tasks.start_soon(write, content)
    assert sorted(outcomes)[0] == 'refused'
    assert [revision.content for revision in await memory.history('a')] == [sorted(outcomes)[1], 'one']


async def test_write_that_loses_a_race_is_a_conflict(memory: VersionedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that finds its number taken by another process is refused like one from an old version."""
    await memory.write('a', 'one', expected_version=None)
    [one] = await memory.history('a')
    await memory.write('a', 'two', expected_version='1')

    async def stale(path: str) -> object:
        return one

    monkeypatch.setattr(memory, '_latest', stale)
    with pytest.raises(MemoryConflictError, match='was written in the meantime'):
        await memory.write('a', 'three', expected_version='1')


async def test_repeated_operation_writes_once(memory: VersionedMemory) -> None:
    """A call that is repeated returns its first result; with other arguments it is refused."""
    made = MemoryOperation(id='op', fingerprint='f')
    assert await memory.get_operation(made) is None
    await memory.write('a', 'one', expected_version=None)
    first = await memory.write('a', 'two', expected_version='1', operation=made)
    again = await memory.write('a', 'two', expected_version='1', operation=made)
    assert (first.replayed, again) == (False, MemoryMutation(version='2', replayed=True, existed=True))
    with pytest.raises(MemoryOperationConflictError, match="'op' was made before with other arguments"):
        await memory.get_operation(MemoryOperation(id='op', fingerprint='g'))


async def test_deleted_file_keeps_its_revisions(memory: VersionedMemory) -> None:
    """A deleted file is not read or listed, but its history shows it, and the next write continues the numbers."""
    await memory.write('a', 'one', expected_version=None)
    removal = MemoryOperation(id='rm', fingerprint='f')
    assert await memory.delete('a', expected_version='1', operation=removal) == MemoryMutation(
        version=None, replayed=False, existed=True
    )
    assert await memory.delete('a', expected_version='1', operation=removal) == MemoryMutation(
        version=None, replayed=True, existed=True
    )
    assert await memory.delete('b', expected_version=None) == MemoryMutation(
        version=None, replayed=False, existed=False
    )
    assert (await memory.read('a', max_chars=10), await memory.list_paths(limit=10)) == (None, [])
    assert (await memory.write('a', 'three', expected_version=None)).version == '3'
    assert [(one.number, one.content, one.is_deleted) for one in await memory.history('a')] == [
        (3, 'three', False),
        (2, '', True),
        (1, 'one', False),
    ]


async def test_paths_are_listed_by_prefix_in_order(memory: VersionedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace lists its own files only, at most as many as asked for, over any number of pages."""
    for path in ('b/x', 'a/2', 'a/1', 'ab/1'):
        await memory.write(path, 'x', expected_version=None)
    assert await memory.list_paths('a/', limit=10) == ['a/1', 'a/2']
    assert await memory.list_paths(limit=2) == ['a/1', 'a/2']
    assert await memory.list_paths('c/', limit=2) == []
    listed = memory._rows.list  # pyright: ignore[reportPrivateUsage]

    async def one_by_one(where: object, **options: object) -> object:
        return await listed(where, **{**options, 'limit': 1})  # type: ignore[arg-type]

    monkeypatch.setattr(memory._rows, 'list', one_by_one)  # pyright: ignore[reportPrivateUsage]
    assert await memory.list_paths(limit=10) == ['a/1', 'a/2', 'ab/1', 'b/x']
    assert await memory.list_paths(limit=3) == ['a/1', 'a/2', 'ab/1']


async def test_current_files_are_read_with_one_query(memory: VersionedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files an agent has, `current`, which has their contents, makes one query of the database."""
    for name in ('one.md', 'MEMORY.md', 'two.md'):
        await memory.write(f'ada/main/{name}', name, expected_version=None)
    await memory.write('ada/other/three.md', 'three', expected_version=None)
    listed = memory._rows.list  # pyright: ignore[reportPrivateUsage]
    queries: list[object] = []

    async def counted(where: object, **options: object) -> object:
        queries.append(where)
        return await listed(where, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(memory._rows, 'list', counted)  # pyright: ignore[reportPrivateUsage]
    found = await Memories(files=memory, owner='ada').current()
    assert [revision.content for revision in found] == ['MEMORY.md', 'one.md', 'two.md']
    assert len(queries) == 1


async def test_restore_writes_an_earlier_revision_as_the_latest(memory: VersionedMemory) -> None:
    """Undo adds a revision with its author, so that it can be undone too."""
    await memory.write('a', 'one', expected_version=None)
    await memory.write('a', 'wrong', expected_version='1')
    restored = await memory.restore('a', 1, metadata={'author': 'ada'})
    assert (restored.number, restored.content, restored.metadata) == (3, 'one', {'author': 'ada'})
    assert restored.written_at == IsNow(tz=UTC, delta=60)
    await memory.restore('a', 0)
    assert await memory.read('a', max_chars=10) is None
    await memory.restore('a', 3)
    file = await memory.read('a', max_chars=10)
    assert file is not None
    assert (file.content, file.version) == ('one', '5')
    await memory.restore('a', 4)
    assert await memory.list_paths(limit=1) == []


@pytest.mark.parametrize(('path', 'number'), [('a', 2), ('b', 0), ('b', 1)])
async def test_unknown_revision_is_named(memory: VersionedMemory, path: str, number: int) -> None:
    """The error names the file and the revision, and how to list them."""
    await memory.write('a', 'one', expected_version=None)
    with pytest.raises(RevisionNotFoundError, match=rf"'{path}' has no revision {number}\. `history"):
        await memory.restore(path, number)


async def test_agent_remembers_across_conversations_and_forgets_after_undo(store: Store) -> None:
    """A later conversation of the owner knows what an earlier one wrote and who wrote it; another owner does not."""
    memory = await VersionedMemory.open(store)

    def agent_of(owner: str, *steps: object) -> tuple[VersionedAgent[DeepAgentDeps, str], ScriptedModel]:
        model = ScriptedModel(*steps)  # type: ignore[arg-type]
        capability = Memory[DeepAgentDeps](
            store=memory,
            namespace=owner,
            write_metadata=lambda ctx: {'conversation': ctx.conversation_id or '', 'run': ctx.run_id or ''},
        )
        return VersionedAgent(create_deep_agent(model, capabilities=[capability]), store), model

    agent, _ = agent_of('ada', call('write_memory', content='Likes tea.'), 'Noted.')
    taught = await (await agent.create()).advance('I like tea.')
    assert (await taught.replay()).difference is None  # a replay reads the memory as it was
    [revision] = await memory.history('ada/main/MEMORY.md')
    assert revision.metadata['conversation'] == taught.conversation_id

    async def knows(owner: str) -> bool:
        agent, model = agent_of(owner, 'Hi.')
        await (await agent.create()).advance('Hello.')
        return 'Likes tea.' in str(model.requests[0].messages)

    assert (await knows('ada'), await knows('ben')) == (True, False)
    await memory.restore('ada/main/MEMORY.md', 0, metadata={'author': 'ada'})
    assert not await knows('ada')


async def test_replay_reads_the_memory_as_it_was(store: Store) -> None:
    """Files that were changed, added or deleted since a turn are for its replay as they were when it began."""
    memory = await VersionedMemory.open(store)

    async def write(name: str, content: str, version: str | None = None) -> None:
        await memory.write(f'ada/main/{name}', content, expected_version=version)

    await write('MEMORY.md', 'Likes tea.')
    await write('tea.md', 'Green.')
    await write('gone.md', 'Gone.')
    await memory.delete('ada/main/gone.md', expected_version='1')
    model = ScriptedModel('Hi.')
    capability = Memory[DeepAgentDeps](store=memory, namespace='ada')
    agent = VersionedAgent(create_deep_agent(model, capabilities=[capability]), store)
    version = await (await agent.create()).advance('Hello.')
    assert ('Likes tea.' in str(model.requests[0].messages), 'gone.md' in str(model.requests[0].messages)) == (1, 0)
    moment = datetime.now(UTC)

    for number in range(1, 4):
        await write('MEMORY.md', f'Likes coffee {number}.', str(number))
    await memory.delete('ada/main/tea.md', expected_version='1')
    await write('gone.md', 'Back.')
    await write('new.md', 'New.')
    assert (await version.replay()).difference is None
    was = await memory.at(moment, 'ada/', limit=10)
    assert [(each.path, each.content) for each in was] == [
        ('ada/main/MEMORY.md', 'Likes tea.'),
        ('ada/main/tea.md', 'Green.'),
    ]
    assert await memory.at(moment, limit=1) == was[:1]
    assert await memory.list_paths('ada/', limit=10) == ['ada/main/MEMORY.md', 'ada/main/gone.md', 'ada/main/new.md']
