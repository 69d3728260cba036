"""Views: a backend of their own for the files of a tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, cast

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from pydantic_deep import Approve, DeepAgentDeps, Subagent
from pydantic_deep.testing import Answer, call
from pydantic_deep.versions import AgentVersion
from pydantic_deep.versions.files._run_files import open_run_files
from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    ReadOnlyBackend,
    ReadOnlyError,
    SandboxBackend,
    StateBackend,
    SupportsCommands,
    Tree,
    WrapperBackend,
    digest_of,
)
from tests.versions.conftest import MakeAgent
from tests.versions.files.conftest import Blobs

pytestmark = pytest.mark.anyio


async def top_of(backend: BackendProtocol) -> str:
    return (await backend.working_dir()).rstrip('/')


@pytest.mark.parametrize('kind', ['state', 'local', 'commands', 'sandbox', 'composite'])
async def test_view_has_the_files_of_its_tree_and_changes_nothing_else(tmp_path: Path, blobs: Blobs, kind: str) -> None:
    (tmp_path / 'files').mkdir()
    (tmp_path / 'scratch').mkdir()
    (tmp_path / 'files' / 'there').write_text('of the directory')
    backends: dict[str, BackendProtocol] = {
        'state': StateBackend({'/there': 'of the backend'}),
        'local': LocalBackend(tmp_path / 'files'),
        'commands': LocalBackend(tmp_path / 'files', allow_commands=True),
        'sandbox': SandboxBackend(tmp_path / 'files'),
        'composite': CompositeBackend(LocalBackend(tmp_path / 'files'), {'/m': StateBackend({'/n': 'x'})}),
    }
    backend = backends[kind]
    tree = blobs.tree(a='one', d_b='two', m_c='three')
    files = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False, scratch=tmp_path / 'scratch')
    assert files is not None
    view, ref = files.backend, files.backend.ref
    top = await top_of(view) if kind != 'sandbox' else '/workspace'
    assert await view.read_bytes(f'{top}/d/b') == b'two'
    assert not await view.exists(f'{top}/there')
    assert (await files.capture(tree, is_full=True)).tree == tree
    await view.write_bytes(f'{top}/d/b', b'changed')
    await view.write_bytes(f'{top}/m/c', b'changed too')
    captured = await files.capture(tree)
    assert captured.tree.diff(tree).changed == ('/d/b', '/m/c')
    assert set(captured.blobs.values()) == {b'changed', b'changed too'}
    assert view.ref == ref != backend.ref
    assert os.listdir(tmp_path / 'files') == ['there']
    assert isinstance(view, SupportsCommands) == isinstance(backend, SupportsCommands)
    await files.aclose()
    assert os.listdir(tmp_path / 'scratch') == []


async def test_views_of_one_tree_are_isolated(tmp_path: Path, blobs: Blobs) -> None:
    backend = LocalBackend(tmp_path)
    tree = blobs.tree(a='one')
    one = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False)
    two = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False)
    assert one is not None
    assert two is not None
    await one.backend.write_bytes('/a', b'changed')
    assert await two.backend.read_bytes('/a') == b'one'
    assert one.backend.ref != two.backend.ref


async def test_commands_of_a_view_run_inside_it(tmp_path: Path, blobs: Blobs) -> None:
    backend = LocalBackend(tmp_path, allow_commands=True)
    tree = blobs.tree(a='one')
    files = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False)
    assert files is not None
    assert isinstance(files.backend, SupportsCommands)
    await files.backend.run(['cp', 'a', 'b'])
    assert sorted((await files.capture(tree)).tree) == ['/a', '/b']
    assert os.listdir(tmp_path) == []
    await files.aclose()


async def test_view_preserves_the_executable_bit(tmp_path: Path, blobs: Blobs) -> None:
    backend = LocalBackend(tmp_path, allow_commands=True)
    plain = blobs.tree(a='#!/bin/sh\nexit 7\n')
    tree = plain.set('/a', FileVersion(digest=plain['/a'].digest, size=plain['/a'].size, mode=0o755))
    files = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False)
    assert files is not None
    assert isinstance(files.backend, SupportsCommands)
    assert (await files.backend.run(['./a'])).exit_code == 7
    await files.aclose()


async def test_view_that_cannot_be_created_leaves_nothing_behind(tmp_path: Path, blobs: Blobs) -> None:
    tree = blobs.tree(a='one')
    lacking = tree.set('/b', FileVersion(digest=digest_of(b'nowhere'), size=7))
    commands = LocalBackend(tmp_path, allow_commands=True)
    with pytest.raises(MissingBlobError):
        await open_run_files(commands, tree=lacking, read_blob=blobs, in_place=False, scratch=tmp_path)
    composite = CompositeBackend(StateBackend(), {'/m': SandboxBackend(tmp_path), '/n': SandboxBackend(tmp_path)})
    nested = Tree().graft('/m/workspace', tree).graft('/n/workspace', lacking)
    with pytest.raises(MissingBlobError):
        await open_run_files(composite, tree=nested, read_blob=blobs, in_place=False, scratch=tmp_path)
    blobs.data[digest_of(b'nowhere')] = b'something else'
    with pytest.raises(MissingBlobError):
        await open_run_files(commands, tree=lacking, read_blob=blobs, in_place=False, scratch=tmp_path)
    assert os.listdir(tmp_path) == []


async def test_large_contents_of_a_view_are_written_in_batches(
    tmp_path: Path, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep.versions.files._tree_views.MAX_BATCH_BYTES', 5)
    sizes: list[int] = []
    patch = LocalBackend.patch

    async def noted(
        self: LocalBackend, tree: Tree, paths: list[str], contents: dict[str, bytes], **options: bool
    ) -> None:
        sizes.append(len(paths))
        await patch(self, tree, paths, contents, **options)

    monkeypatch.setattr(LocalBackend, 'patch', noted)
    backend = LocalBackend(tmp_path, allow_commands=True)
    tree = blobs.tree(a='123', b='123', c='789', d='456')
    files = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False)
    assert files is not None
    assert (await files.capture(tree, is_full=True)).tree == tree
    assert sizes == [3, 1]
    await files.aclose()


async def test_view_of_read_only_files_is_read_only(blobs: Blobs) -> None:
    backend = ReadOnlyBackend(StateBackend())
    files = await open_run_files(backend, tree=blobs.tree(a='one'), read_blob=blobs, in_place=False)
    assert files is not None
    assert await files.backend.read_bytes('/a') == b'one'
    with pytest.raises(ReadOnlyError):
        await files.backend.write_bytes('/a', b'')


class Refusing(WrapperBackend):
    """A wrapper that refuses to remove anything."""

    async def remove(self, path: str) -> None:
        raise PermissionError(path)


@pytest.mark.parametrize('is_part', [False, True])
async def test_view_of_a_wrapper_has_its_operations(blobs: Blobs, is_part: bool) -> None:
    files = StateBackend()
    backend = CompositeBackend(StateBackend(), {'/m': Refusing(files)}) if is_part else Refusing(files)
    tree, path = (blobs.tree(**{'m/a': 'one'}), '/m/a') if is_part else (blobs.tree(a='one'), '/a')
    view = await open_run_files(backend, tree=tree, read_blob=blobs, in_place=False)
    assert view is not None
    with pytest.raises(PermissionError):
        await view.backend.remove(path)
    await view.backend.write_bytes(path, b'two')
    assert (await view.capture(tree)).tree != tree
    assert not await files.exists('/a')


class Foreign:
    """A backend of another framework."""

    def __init__(self) -> None:
        self._files = StateBackend()
        for name in (
            'working_dir',
            'read_bytes',
            'write_bytes',
            'stat',
            'list_dir',
            'make_dir',
            'remove',
            'exists',
            'realpath',
            'track',
        ):
            setattr(self, name, getattr(self._files, name))

    ref: object = None


async def test_unknown_backend_has_no_view(blobs: Blobs) -> None:
    foreign = cast('BackendProtocol', Foreign())
    assert await open_run_files(foreign, tree=Tree(), read_blob=blobs, in_place=False) is None
    assert await open_run_files(foreign, tree=Tree(), read_blob=blobs, in_place=True) is not None
    composite = CompositeBackend(StateBackend(), {'/m': foreign})
    assert await open_run_files(composite, tree=Tree(), read_blob=blobs, in_place=False) is None


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def read(version: AgentVersion[DeepAgentDeps, str], path: str) -> str:
    return (await (await version.files()).read_bytes(path)).decode()


async def test_view_with_commands_has_the_same_path_in_every_turn(make: MakeAgent, tmp_path: Path):
    agent = make(
        *(put('/tmp/x', 'x'), 'in place'),
        *(call('execute', command='pwd > where'), 'a branch', call('execute', command='pwd > again'), 'gone on'),
        call('execute', command='pwd > there'),
        'in place again',
    )
    root = await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))
    main = await root.advance('in place')
    branch = await root.advance('a branch')
    where = (await read(branch, '/where')).strip()
    assert where != str(tmp_path)
    assert not Path(where).exists()

    again = await branch.advance('gone on')

    assert (await read(again, '/again')).strip() == where
    await again.checkout(force=True)
    assert (await read(await again.advance('in place again'), '/there')).strip() == str(tmp_path)
    assert main.id in {version.id for version in await root.children()}


@pytest.mark.slow
@pytest.mark.parametrize('isolation', ['shared', 'fork'])
async def test_pending_call_in_a_view_with_commands_is_asked_again_once(
    make: MakeAgent, tmp_path: Path, isolation: Literal['shared', 'fork']
):
    def script(messages: list[ModelMessage], info: object) -> Answer:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        if any(isinstance(part, ToolReturnPart) for part in last.parts):
            return 'done'
        is_worker = any('write it' in str(part.content) for part in last.parts if isinstance(part, UserPromptPart))
        return put('b.txt', 'b') if is_worker else call('task', subagent='worker', description='write it')

    worker = Subagent('worker', 'Writes.', isolation=isolation, interrupt_on={'write_file': True})
    agent = make(then=script, subagents=[worker], interrupt_on={})
    paused = await (await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))).advance('go')
    clone = await paused.clone()
    await paused.resume({waiting.id: Approve() for waiting in paused.pending})

    done = clone
    for _ in range(2):  # asked once more in the view, because its paths differ, and not again
        assert done.state == 'awaiting_approval'
        done = await done.resume({waiting.id: Approve() for waiting in done.pending})

    assert (done.state, await read(done, '/b.txt')) == ('complete', 'b')


async def test_branches_of_one_directory_see_their_own_files(make: MakeAgent, tmp_path: Path):
    def script(messages: list[ModelMessage], info: object) -> Answer:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        if any(isinstance(part, ToolReturnPart) for part in last.parts):
            return str(next(part.content for part in last.parts if isinstance(part, ToolReturnPart)))
        said = str(last.parts[-1].content)  # type: ignore[union-attr] - a prompt
        return call('ls') if said == 'look' else put(f'/{said}.txt', said)

    agent = make(then=script)
    root = await agent.create(backend=LocalBackend(tmp_path))
    first = await root.advance('chart')
    second = await root.advance('table')

    assert sorted(path.name for path in tmp_path.iterdir()) == ['chart.txt']
    assert '/table.txt' in await second.file_tree()
    assert '/chart.txt' not in await second.file_tree()
    assert 'table.txt' in str((await second.advance('look')).output)
    assert 'chart.txt' in str((await first.advance('look')).output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['chart.txt']
