"""Unversioned files are reported to the model and on the version; conversations can be renamed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend
from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.errors import UploadTooLargeError
from pydantic_deep.testing import call
from pydantic_deep.versions import OmittedFile, UnversionedFilesWarning
from pydantic_deep.versions.files._backend_descriptions import omitted_in, with_omitted
from tests.versions.conftest import MakeAgent

pytestmark = pytest.mark.anyio

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


def test_omitted_files_are_removed_from_the_description() -> None:
    described = '{"kind": "local", "id": "x"}'
    omitted = OmittedFile(path='big.bin', reason='too large', size_bytes=7)

    with_one = with_omitted(described, [omitted])
    without = with_omitted(with_one, ())

    assert (omitted_in(with_one), omitted_in(without)) == ((omitted,), ())
    assert 'omitted' not in (without or '')
