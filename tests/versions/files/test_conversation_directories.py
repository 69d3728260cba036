"""Directories of conversations on several machines, filled by workers and removed when idle."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep import StateBackend
from pydantic_deep.store import (
    Commit,
    SqlStore,
    VersionFilter,
    VersionRecord,
    WorkspaceRecord,
    checkout_claim,
    open_engine,
)
from pydantic_deep.versions import ConversationDirectories, VersionedConversation, workspace_key
from pydantic_deep_backends import BackendProtocol, LocalBackend, Tree
from tests.dispatch.conftest import Store, answers, ask, begin, ended, process, until, working
from tests.versions.recovery.crashes import World, tool_call

pytestmark = pytest.mark.anyio

Conversation = VersionedConversation[Any, Any]

SCRIPT = answers(
    a=[[tool_call('make', key=key) for key in ('one', 'two', 'three')], 'Done.'],
    b=[tool_call('make', key='four'), 'Done.'],
    c=[tool_call('make', key='five'), 'Done.'],
)


def in_memory_backend(path: Path) -> BackendProtocol:
    return StateBackend()


class Directories(ConversationDirectories):
    """Directories with a clock that stands still, and a count of written files."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.now = 0.0
        self.written: list[tuple[str, ...]] = []
        super().__init__(root, clock=lambda: self.now, **options)

    async def fill(self, store: Any, base: VersionRecord) -> tuple[str, ...]:
        self.written.append(await super().fill(store, base))
        return self.written[-1]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    url = f'memory:{tmp_path.name}'
    async with SqlStore(await open_engine(url)):
        yield World(url, SCRIPT)


@pytest.fixture
async def store(world: World) -> AsyncGenerator[Store]:
    async with process(world.url) as opened:
        yield opened


async def turn(world: World, store: Store, conversation: Conversation, prompt: str, files: Directories) -> None:
    async with working(world, store, make_backend=files):
        (run,) = await ended(store.queue, await ask(conversation, store, prompt))
    assert run.problem is None


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def edits(store: Store, conversation: Conversation) -> list[VersionRecord]:
    versions = await store.versions(VersionFilter(conversation_id=conversation.id), limit=100)
    return [version for version in versions if version.kind == 'edit']


async def content(store: Store, version: VersionRecord, path: str) -> bytes:
    tree = Tree.from_nodes(version.tree or '', await store.nodes(version.tree or ''))
    return await store.read_asset(tree[path].digest)


async def test_turn_writes_only_the_files_that_other_machines_have_changed(
    world: World, store: Store, tmp_path: Path
) -> None:
    here, there = Directories(tmp_path / 'here'), Directories(tmp_path / 'there')
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', here)
    await turn(world, store, conversation, 'b', there)
    kept = (tmp_path / 'here' / conversation.id / 'one').stat()
    await turn(world, store, conversation, 'c', here)
    assert there.written == [('/one', '/three', '/two')]
    assert here.written == [(), ('/four',)]
    assert (tmp_path / 'here' / conversation.id / 'one').stat() == kept
    assert names(tmp_path / 'here' / conversation.id) == ['five', 'four', 'one', 'three', 'two']
    await turn(world, store, conversation, 'c', here)
    assert here.written[-1] == ()
    assert await edits(store, conversation) == []


async def test_machines_have_different_directories_at_the_same_path(world: World, store: Store, tmp_path: Path) -> None:
    root, away, other = tmp_path / 'root', tmp_path / 'away', tmp_path / 'other'
    files = Directories(root)
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', files)
    root.rename(away)
    await turn(world, store, conversation, 'b', files)
    root.rename(other)
    away.rename(root)
    await turn(world, store, conversation, 'c', files)
    assert files.written == [(), ('/one', '/three', '/two'), ('/four',)]
    assert names(root / conversation.id) == ['five', 'four', 'one', 'three', 'two']


async def test_edits_by_hand_become_versions(world: World, store: Store, tmp_path: Path) -> None:
    here, there = Directories(tmp_path / 'here'), Directories(tmp_path / 'there')
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', here)
    own = tmp_path / 'here' / conversation.id
    (own / 'one').write_text('by hand')
    await turn(world, store, conversation, 'b', here)
    assert len(await edits(store, conversation)) == 1
    await turn(world, store, conversation, 'c', there)
    (own / 'two').write_text('by hand, while others worked')
    await turn(world, store, conversation, 'b', here)
    assert here.written[-1] == ('/five', '/two')
    assert ((own / 'one').read_text(), (own / 'two').read_text()) == ('by hand', 'two')
    edit, *_ = sorted(await edits(store, conversation), key=lambda version: version.created_at)[1:]
    assert await content(store, edit, '/two') == b'by hand, while others worked'


async def test_files_that_cannot_be_stored_stay_and_the_turn_works_on_a_view(
    world: World, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = Directories(tmp_path / 'here'), Directories(tmp_path / 'there')
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', here)
    await turn(world, store, conversation, 'b', there)
    link = tmp_path / 'here' / conversation.id / 'four'
    link.symlink_to('one')
    await turn(world, store, conversation, 'c', here)
    assert 'is not filled' in caplog.text
    assert link.is_symlink()
    head = (await conversation.head()).record
    assert await content(store, head, '/four') == b'four'
    assert await content(store, head, '/five') == b'five'


async def test_interrupted_filling_is_completed(
    world: World, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Directories(tmp_path / 'here'), Directories(tmp_path / 'there')
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', here)

    async def patch(self: LocalBackend, *args: Any) -> None:
        raise OSError('The disk is full.')

    with monkeypatch.context() as context:
        context.setattr('pydantic_deep.dispatch._worker.RETRY_SECONDS', (0.0,))  # it is tried five times
        context.setattr(LocalBackend, 'patch', patch)
        async with working(world, store, make_backend=there):
            (run,) = await ended(store.queue, await ask(conversation, store, 'b'))
    assert run.problem == (
        'The run failed with OSError. The log of the application has the details.\nOSError: The disk is full.'
    )
    own = tmp_path / 'there' / conversation.id
    (own / 'two').write_bytes(b'two')  # a part was written
    await turn(world, store, conversation, 'b', there)
    assert there.written == [('/one', '/three')]
    assert names(own) == ['four', 'one', 'three', 'two']


@pytest.mark.parametrize('id', ['', '..', '.', 'a/b', '.hidden', '-x', 'A', 'a\0', 'x' * 129, 'a\n'])
def test_ids_that_cannot_name_a_directory_are_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(ValueError, match='cannot name a directory'):
        ConversationDirectories(tmp_path / 'root')('', id)
    assert not (tmp_path / 'root').exists()


async def test_versions_without_files_and_backends_without_an_id_need_no_filling(
    world: World, store: Store, tmp_path: Path
) -> None:
    head = await (await begin(world, store)).head()
    assert (
        await Directories(tmp_path / 'a').fill(
            store, head.record.child('edit', state='complete', output=None, pending=None, tree=None)
        )
        == ()
    )
    in_memory = Directories(tmp_path / 'b', make=in_memory_backend)
    assert await in_memory.fill(store, head.record) == ()
    (tmp_path / 'b' / 'x').mkdir()
    await in_memory.clean_up(store)
    in_memory.now = 3600
    assert await in_memory.clean_up(store) == ()
    assert repr(in_memory) == f"ConversationDirectories('{tmp_path / 'b'}')"


async def test_idle_directories_are_removed_and_filled_again(
    world: World, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Directories(tmp_path / 'root')
    assert await files.clean_up(store) == ()
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', files)
    own = tmp_path / 'root' / conversation.id
    (tmp_path / 'root' / '.removed-x').mkdir()  # of a crashed process
    files.now = 3599
    assert await files.clean_up(store) == ()
    assert names(own.parent) == [conversation.id]
    files.now = 3600
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CLEAN_SECONDS', 0.005)
    async with working(world, store, make_backend=files):
        await until(lambda: not own.exists())
    assert names(own.parent) == []
    await turn(world, store, conversation, 'b', files)
    assert names(own) == ['four', 'one', 'three', 'two']
    assert files.written == [(), ('/one', '/three', '/two')]


async def record_of(store: Store, path: Path) -> WorkspaceRecord:
    noted = await store.workspace(workspace_key(f'{{"id":"{path}","provider":"local"}}'))
    assert noted is not None
    return noted


@pytest.mark.parametrize(
    'change', ['edit', 'ignored', 'link', 'folder link', 'removed', 'checkout', 'deleted', 'replaced']
)
async def test_directories_with_other_files_stay(world: World, store: Store, tmp_path: Path, change: str) -> None:
    files = Directories(tmp_path / 'root')
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', files)
    own = tmp_path / 'root' / conversation.id
    noted = await record_of(store, own)
    match change:
        case 'edit':
            (own / 'one').write_text('by hand')
        case 'ignored':
            (own / '.gitignore').write_text('*\n')
        case 'link':
            (own / 'link').symlink_to('one')
        case 'folder link':
            (own / 'link').symlink_to(tmp_path)
        case 'removed':
            (own / 'one').unlink()
        case 'checkout':
            claim = checkout_claim(noted.version_id or '')
            await store.commit(Commit(workspaces=[noted._replace(run_id=claim)]))
        case 'deleted':
            await store.commit(Commit(workspaces=[noted._replace(version_id=None)]))
        case _:
            shutil.copytree(own, tmp_path / 'copy')
            shutil.rmtree(own)
            (tmp_path / 'copy').rename(own)
    files.now = 3600
    assert await files.clean_up(store) == ()
    assert own.is_dir()
    files.now = 7199
    assert await files.clean_up(store) == ()


async def test_directory_of_a_running_turn_stays(world: World, store: Store, tmp_path: Path) -> None:
    files = Directories(tmp_path / 'root', idle_seconds=0)
    conversation = await begin(world, store)
    world.script = answers(a=[tool_call('pay', key='x'), 'Done.'])
    world.may_pay.clear()
    async with working(world, store, make_backend=files) as worker:
        run = await ask(conversation, store, 'a')
        await until(lambda: world.asked == ['a 0'] and worker.active_count == 1)
        await until(lambda: (tmp_path / 'root' / conversation.id).is_dir())
        assert await files.clean_up(store) == ()
        world.may_pay.set()
        await ended(store.queue, run)
    assert await files.clean_up(store) == (conversation.id,)


async def test_directory_that_a_run_claims_first_stays(
    world: World, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Directories(tmp_path / 'root', idle_seconds=0)
    conversation = await begin(world, store)
    await turn(world, store, conversation, 'a', files)

    async def claim(backend: str, run_id: str, version_id: str | None) -> bool:
        return False

    monkeypatch.setattr(store, 'claim_workspace', claim)
    assert await files.clean_up(store) == ()
    monkeypatch.undo()
    assert await files.clean_up(store) == (conversation.id,)
