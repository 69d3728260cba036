"""The files of a run: in place, or not versioned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep import Approve, DeepAgentDeps, DeepAgentError, Filesystem, VersionedAgent, prompt
from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.errors import UploadTooLargeError
from pydantic_deep.testing import call
from pydantic_deep.versions import Recorder, UnversionedBackendError, UnversionedFilesWarning
from pydantic_deep.versions.files._run_files import open_run_files, why_unversioned
from pydantic_deep_backends import LocalBackend, OverlayBackend, StateBackend, Tree, digest_of
from pydantic_deep_backends.tracking import OmittedFile
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.files.conftest import Blobs

pytestmark = pytest.mark.anyio


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


async def test_files_that_cannot_be_versioned_are_not_opened(blobs: Blobs) -> None:
    overlay = OverlayBackend(StateBackend())
    assert await open_run_files(overlay, tree=Tree(), read_blob=blobs, in_place=True) is None
    assert why_unversioned(overlay) == (
        'The files of OverlayBackend are not versioned: it does not implement `SupportsTracking`. '
        'Use LocalBackend, SandboxBackend, StateBackend, or a CompositeBackend of these.'
    )
    assert why_unversioned(StateBackend()) is None


SIZE = MAX_FILE_BYTES + 1


def grow(directory: Path, name: str) -> None:
    """Create a sparse file that is too large."""
    with (directory / name).open('wb') as file:
        file.truncate(SIZE)


def big(name: str) -> OmittedFile:
    return OmittedFile(path=f'/{name}', reason='too large', size_bytes=SIZE)


def returned(messages: Sequence[ModelMessage]) -> Sequence[object]:
    """Return the results of calls and their additional content, as the model received them."""
    parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart | UserPromptPart)][1:]


@pytest.mark.parametrize('value', ['done', {'rows': 3}], ids=['text', 'data'])
async def test_tool_result_names_files_that_no_version_contains(make: MakeAgent, tmp_path: Path, value: object) -> None:
    """Each file is reported once, by the call that wrote it; files from before the run are not reported again."""
    grow(tmp_path, 'before.bin')
    names = iter(['a.bin', ''])

    async def build(ctx: RunContext[DeepAgentDeps]) -> object:
        """Build."""
        if name := next(names):
            await ctx.deps.backend.write_bytes(f'/{name}', bytes(SIZE))
        return value

    agent = make(call('build'), call('build'), 'done', 'again', tools=[build])
    with pytest.warns(UnversionedFilesWarning):
        root = await agent.create(backend=LocalBackend(tmp_path))
    with pytest.warns(UnversionedFilesWarning):
        done = await root.advance('go')

    note = 'Not saved in any version: /a.bin (too large).'
    said = returned(await done.messages())
    assert said == ([f'done\n\n{note}', 'done'] if value == 'done' else [value, [note], value])
    assert (root.omitted_files, done.omitted_files) == ((big('before.bin'),), (big('a.bin'), big('before.bin')))
    for name in ('a.bin', 'before.bin'):
        (tmp_path / name).unlink()
    assert (await done.advance('again')).omitted_files == ()


@pytest.mark.slow
async def test_file_tools_refuse_files_too_large_for_a_version(make: MakeAgent) -> None:
    half = 'x' * (MAX_FILE_BYTES // 2 + 1)
    agent = make(
        call('write_file', path='/a', content='ab'),
        call('edit_file', path='/a', old_string='ab', new_string=half * 2),
        'done',
    )
    done = await (await agent.create(backend=StateBackend())).advance('go')

    assert 'at most 52.4 MB can be written' in str(returned(await done.messages())[1])
    assert [file.size for _, file in (await done.file_tree()).items()] == [2]


async def test_deps_refuse_uploads_too_large_for_a_version() -> None:
    with pytest.raises(UploadTooLargeError, match=r'has 52,428,801 bytes; at most 52,428,800') as caught:
        await DeepAgentDeps().upload('a.bin', bytes(SIZE))
    assert (caught.value.name, caught.value.size_bytes, caught.value.max_bytes) == ('a.bin', SIZE, MAX_FILE_BYTES)


async def test_unversioned_files_emit_a_warning(make: MakeAgent, tmp_path: Path):
    with pytest.warns(UnversionedFilesWarning):
        root = await make('one').create(backend=LocalWorkspaceBackend(tmp_path))

    assert root.tree is None


@pytest.mark.parametrize('how', ['backend', 'deps', 'conversation', 'make_deps'])
async def test_turns_work_on_files_that_are_not_versioned(make: MakeAgent, tmp_path: Path, how: str):
    """They worked on an empty backend in memory, and what they wrote was lost."""
    files = LocalWorkspaceBackend(tmp_path)
    step = call('write_file', path=str(tmp_path / 'a.txt'), content='a')

    def made() -> DeepAgentDeps:
        return DeepAgentDeps(backend=files)

    agent = make(step, 'done', make_deps=made if how == 'make_deps' else None)
    given = {'deps': {'deps': made()}, 'make_deps': {}}.get(how, {'backend': files})
    with pytest.warns(UnversionedFilesWarning):
        root = await agent.create(**cast('Any', given))
    if how == 'conversation':
        await agent.conversation(root.conversation_id, backend=files).advance('go')
    else:
        await root.advance('go')

    assert (tmp_path / 'a.txt').read_text() == 'a'
    assert root.backend is (None if how == 'make_deps' else files)


def in_memory() -> DeepAgentDeps:
    return DeepAgentDeps(backend=StateBackend())


@pytest.mark.parametrize('how', ['load', 'conversation', 'deps', 'make_deps', 'prompt'])
async def test_turns_are_refused_without_the_backend_that_has_the_files(make: MakeAgent, tmp_path: Path, how: str):
    """They worked on an empty backend in memory without a warning."""
    agent = make('one', 'two')
    files = LocalWorkspaceBackend(tmp_path)
    with pytest.warns(UnversionedFilesWarning):
        root = await agent.create(backend=files)
    first = await root.advance('go')
    later = VersionedAgent(agent.agent, agent.store, make_deps=in_memory if how == 'make_deps' else None)

    async def continue_it() -> None:
        if how == 'conversation':
            await later.conversation(root.conversation_id).advance('again')
        elif how == 'prompt':
            await prompt(later, conversation_id=root.conversation_id).user('again').prompt()
        else:
            await (await later.load(first.id)).advance('again', deps=in_memory() if how == 'deps' else None)

    with pytest.raises(
        UnversionedBackendError, match=r'only its LocalWorkspaceBackend has them. Pass that as `backend'
    ):
        await continue_it()
    assert len(await agent.store.runs()) == 1

    assert (await (await later.load(first.id, backend=files)).advance('again')).output == 'two'


async def test_answers_are_not_stored_without_the_backend_that_has_the_files(make: MakeAgent, tmp_path: Path):
    agent = make(call('write_file', path=str(tmp_path / 'a'), content='a'), 'two', interrupt_on={'write_file': True})
    files = LocalWorkspaceBackend(tmp_path)
    with pytest.warns(UnversionedFilesWarning):
        root = await agent.create(backend=files)
    paused = await agent.load((await root.advance('go')).id)

    with pytest.raises(UnversionedBackendError):
        await paused.resume({paused.pending[0].id: Approve()})
    assert [approval.status for approval in await agent.store.approvals()] == ['pending']


@pytest.mark.parametrize('content', ['a', None])
async def test_files_of_recorded_runs_are_not_replaced_by_none(make: MakeAgent, content: str | None):
    """A recorded run without any files continues on an empty backend."""
    agent = make(*([] if content is None else [call('write_file', path='/a.txt', content=content)]), 'one', 'two')
    deps = in_memory()
    await agent.agent.run('go', deps=deps, capabilities=[Recorder(store=agent.store)])
    [version, *_] = await agent.list()

    if content is None:
        assert (await version.advance('again')).output == 'two'
    else:
        with pytest.raises(UnversionedBackendError, match='only its StateBackend has them'):
            await version.advance('again')
        assert (await version.advance('again', deps=deps)).output == 'two'
        assert await deps.backend.read_bytes('/a.txt') == b'a'


async def test_other_files_of_the_file_tools_emit_a_warning(make: MakeAgent):
    """The tools wrote there, and versions had the empty files of the deps."""
    files = StateBackend({'/a.txt': 'a'})
    agent = make('one', 'two', capabilities=[Filesystem(backend=files)])
    root = await agent.create()

    with pytest.warns(
        UnversionedFilesWarning, match=r'Filesystem\(backend=<StateBackend of 1 files, 1 bytes>\)` are not'
    ):
        await root.advance('go')

    await (await agent.create(backend=files)).advance('go')  # the deps have the same files


async def test_recorded_run_without_deps_of_ours_has_no_backend(store: SpyStore):
    agent = Agent(TestModel(), capabilities=[Recorder(store=store)])
    await agent.run('go')
    [version, *_] = await VersionedAgent(agent, store).list()
    assert version.record.backend is None


async def test_unversioned_backend_is_refused_for_versioned_files(make: MakeAgent, tmp_path: Path):
    agent = make('one')
    root = await agent.create(backend=StateBackend({'/a.txt': 'a'}))

    with pytest.raises(DeepAgentError):
        await (await agent.load(root.id, backend=LocalWorkspaceBackend(tmp_path))).advance('go')

    assert await agent.store.runs() == []
