"""The files of a run: in place, in views, and the backend they belong to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pytest
from pydantic_ai.workspaces import WorkspaceRef

from pydantic_deep.versions import workspace_key
from pydantic_deep.versions.files._backend_descriptions import attach_backend, describe_backend
from pydantic_deep.versions.files._run_files import open_run_files, why_unversioned
from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    FileVersion,
    LocalBackend,
    MissingBlobError,
    OverlayBackend,
    ReadOnlyBackend,
    ReadOnlyError,
    SandboxBackend,
    StateBackend,
    SupportsCommands,
    Tree,
    WrapperBackend,
    digest_of,
)
from pydantic_deep_backends.tracking import OmittedFile

pytestmark = pytest.mark.anyio


class Blobs:
    """Contents by digest, like a store."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def __call__(self, digest: str) -> bytes:
        return self.data[digest]

    def tree(self, **files: str) -> Tree:
        """Return a tree of these files, with `_` in their names replaced by `/`."""
        versions: dict[str, FileVersion] = {}
        for name, text in files.items():
            digest = digest_of(text.encode())
            self.data[digest] = text.encode()
            versions['/' + name.replace('_', '/')] = FileVersion(digest=digest, size=len(text))
        return Tree.of(versions)


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


async def top_of(backend: BackendProtocol) -> str:
    return (await backend.working_dir()).rstrip('/')


async def test_run_in_place_uses_the_backend_itself(tmp_path: Path, blobs: Blobs) -> None:
    backend = LocalBackend(tmp_path)
    files = await open_run_files(backend, tree=Tree(), read_blob=blobs, in_place=True)
    assert files is not None
    assert files.backend is backend
    await backend.write_bytes('/.gitignore', b'*.log')
    await backend.write_bytes('/a.log', b'left out')
    await backend.write_bytes('/a.txt', b'kept')
    captured = await files.capture(Tree())
    assert captured.blobs == {digest_of(b'*.log'): b'*.log', digest_of(b'kept'): b'kept'}
    await files.aclose()
    assert (tmp_path / 'a.log').exists()


async def test_too_large_files_are_reported(tmp_path: Path, blobs: Blobs) -> None:
    backend = LocalBackend(tmp_path)
    files = await open_run_files(backend, tree=Tree(), read_blob=blobs, in_place=True, max_file_bytes=3)
    assert files is not None
    await backend.write_bytes('/large', b'1234')
    assert (await files.capture(Tree())).omitted == (OmittedFile(path='/large', reason='too large', size_bytes=4),)


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


async def test_files_that_cannot_be_versioned_are_not_opened(blobs: Blobs) -> None:
    overlay = OverlayBackend(StateBackend())
    assert await open_run_files(overlay, tree=Tree(), read_blob=blobs, in_place=True) is None
    assert why_unversioned(overlay) == (
        'The files of OverlayBackend are not versioned: it does not implement `SupportsTracking`. '
        'Use LocalBackend, SandboxBackend, StateBackend, or a CompositeBackend of these.'
    )
    assert why_unversioned(StateBackend()) is None


async def test_unknown_backend_has_no_view(blobs: Blobs) -> None:
    foreign = cast('BackendProtocol', Foreign())
    assert await open_run_files(foreign, tree=Tree(), read_blob=blobs, in_place=False) is None
    assert await open_run_files(foreign, tree=Tree(), read_blob=blobs, in_place=True) is not None
    composite = CompositeBackend(StateBackend(), {'/m': foreign})
    assert await open_run_files(composite, tree=Tree(), read_blob=blobs, in_place=False) is None


# Which backend


async def test_directory_is_attached_as_described(tmp_path: Path) -> None:
    plain, commands, sandbox = (
        describe_backend(backend)
        for backend in (LocalBackend(tmp_path), LocalBackend(tmp_path, allow_commands=True), SandboxBackend(tmp_path))
    )
    assert plain == f'{{"id":"{tmp_path}","provider":"local"}}'
    assert commands == f'{{"commands":true,"id":"{tmp_path}","provider":"local"}}'
    assert sandbox == f'{{"id":"{tmp_path}","provider":"sandbox"}}'
    attached = [attach_backend(description or '') for description in (plain, commands, sandbox)]
    assert [type(backend) for backend in attached] == [LocalBackend, LocalBackend, SandboxBackend]
    assert [isinstance(backend, SupportsCommands) for backend in attached] == [False, True, True]
    assert {workspace_key(description) for description in (plain, commands, sandbox) if description} == {
        f'{{"id":"{tmp_path}","provider":"directory"}}'
    }


async def test_files_in_memory_are_described_but_not_attached() -> None:
    state = StateBackend()
    composite = CompositeBackend(state, {'/m': StateBackend()})
    for backend in (state, composite):
        description = describe_backend(backend)
        assert description is not None
        assert attach_backend(description) is None
        assert json.loads(workspace_key(description)) == json.loads(description)


class WithRef:
    """A backend with a foreign `ref`."""

    def __init__(self, ref: object) -> None:
        self.ref = ref


def test_foreign_workspace_is_described_by_its_ref() -> None:
    def described(ref: object) -> str | None:
        return describe_backend(cast('BackendProtocol', WithRef(ref)))

    assert described(WorkspaceRef(provider='cloud', id='7')) == '{"id":"7","provider":"cloud"}'
    assert described(None) is None
    assert described(7) is None


@pytest.mark.parametrize(
    'description',
    [
        '',
        '[]',
        'null',
        '{"provider":"local"}',
        '{"provider":"local","id":7}',
        '{"provider":"local","id":"relative"}',
        '{"provider":"local","id":"/with\\u0000nul"}',
        '{"provider":"os.system","id":"/"}',
        '{"provider":["local"],"id":"/"}',
    ],
)
def test_invalid_description_attaches_nothing(description: str) -> None:
    assert attach_backend(description) is None


def test_commands_are_allowed_only_by_a_literal_true(tmp_path: Path) -> None:
    for value in ('"true"', '1', '{}', 'null', 'false'):
        backend = attach_backend(f'{{"commands":{value},"id":"{tmp_path}","provider":"local"}}')
        assert not isinstance(backend, SupportsCommands)
