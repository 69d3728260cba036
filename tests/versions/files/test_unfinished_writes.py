"""Writes to a directory whose ends a crash has lost: verified by the contents of their files, and made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext

from pydantic_deep import Approve, LocalBackend
from pydantic_deep.store import Commit
from pydantic_deep.testing import Answer
from tests.versions.recovery.crashes import MAY_HAVE_RUN, World, ends, parts_of_returns, plan, returns, tool_call

pytestmark = pytest.mark.anyio


def put(path: str, content: str) -> Any:
    return tool_call('write_file', path=path, content=content)


def change(old: str, new: str, path: str = '/a.txt') -> Any:
    return tool_call('edit_file', path=path, old_string=old, new_string=new)


def keeps(commit: Commit) -> bool:
    return any(version.kind == 'step' for version in commit.versions)


def ends_turn(commit: Commit) -> bool:
    return any(version.kind == 'turn' for version in commit.versions)


WRITES: dict[str, tuple[Answer, dict[str, str], str]] = {
    'a new file': (put('/b/c.txt', 'c'), {'a.txt': 'one', 'b/c.txt': 'c'}, 'Created'),
    'another file': (put('/a.txt', 'two'), {'a.txt': 'two'}, 'Replaced'),
    'an edit that works only once': (change('one', 'one one'), {'a.txt': 'one one'}, 'Replaced 1 match'),
    'edits of one file': ([change('one', 'two'), change('two', 'three')], {'a.txt': 'three'}, 'Replaced 1 match'),
    'an edit that fails': ([change('none', 'some'), put('/b.txt', 'b')], {'a.txt': 'one', 'b.txt': 'b'}, 'is not in'),
    'an edit of a missing file': (change('one', 'two', '/x.txt'), {'a.txt': 'one'}, 'does not exist'),
}


def files_in(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob('*') if path.is_file()}


@pytest.mark.parametrize('has_run', [True, False])
@pytest.mark.parametrize('what', WRITES)
async def test_verified_writes_are_made_again_without_a_question(
    url: str, tmp_path: Path, what: str, has_run: bool
) -> None:
    """Whether they have run or not, results and files are those of calls that ran once."""
    answer, files, result = WRITES[what]
    (tmp_path / 'a.txt').write_text('one')
    world = World(url, plan({'go': [answer, 'end']}))
    async with world.process(**{'dies_before': ends_turn} if has_run else {'dies_after': keeps}) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    assert (files_in(tmp_path) == files) == (has_run or files == {'a.txt': 'one'})
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert (version.output, version.pending) == ('end', [])
        assert result in returns(await version.messages())[0]
        assert files_in(tmp_path) == files
        assert set(await version.file_tree()) == {f'/{name}' for name in files}


async def test_write_of_an_unversioned_file_is_asked_and_an_equal_one_is_made_again(url: str, tmp_path: Path) -> None:
    """No version has the contents of an ignored file from before the call."""
    (tmp_path / '.gitignore').write_text('*.log\n')
    (tmp_path / 'a.log').write_text('one')
    (tmp_path / 'b.log').write_text('one')
    world = World(url, plan({'go': [[change('one', 'two', '/a.log'), put('/b.log', 'two')], 'end']}))
    async with world.process(dies_before=ends_turn) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        [returned] = [part for part in parts_of_returns(await version.messages()) if part.tool_name == 'edit_file']
        assert str(returned.content).startswith(MAY_HAVE_RUN)
        assert version.output == 'end'
    assert files_in(tmp_path) == {'.gitignore': '*.log\n', 'a.log': 'two', 'b.log': 'two'}


async def test_ignored_file_is_never_removed_to_write_it_again(url: str, tmp_path: Path) -> None:
    (tmp_path / '.gitignore').write_text('*.log\n')
    (tmp_path / 'b.log').write_text('one')
    world = World(url, plan({'go': [put('/b.log', 'two'), 'end']}))
    async with world.process(dies_before=ends_turn) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert returns(await version.messages())[0].startswith('Replaced')
    assert files_in(tmp_path) == {'.gitignore': '*.log\n', 'b.log': 'two'}


async def test_unverified_write_is_asked_again_after_another_crash(url: str, tmp_path: Path) -> None:
    """The end of another call stores the edited file. The write is then in the ledger as one that may have run."""
    (tmp_path / 'a.txt').write_text('one')
    answer = [change('one', 'one one'), tool_call('look', key='k')]
    world = World(url, plan({'go': [answer, 'end']}))
    async with world.process(dies_before=ends_turn) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'a.txt').write_text('one, mine')
    for _ in range(2):
        async with world.process(dies_before=lambda commit: bool(commit.approvals)) as agent:
            await agent.recover()
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert (pending.tool, str(pending.preview).startswith(MAY_HAVE_RUN)) == ('edit_file', True)
        done = await version.resume({pending.id: Approve()})
        assert done.output == 'end'
    assert files_in(tmp_path) == {'a.txt': 'one one, mine'}


async def test_end_of_a_write_is_stored_with_the_start_of_the_next_external_call(url: str, tmp_path: Path) -> None:
    """The command may change the same file, which would be unverifiable."""
    (tmp_path / 'a.txt').write_text('one')
    world = World(url, plan({'go': [[tool_call('look', key='k'), change('one', 'two'), tool_call('spoil')], 'end']}))

    @world.tools.tool(sequential=True)
    async def spoil(ctx: RunContext[Any]) -> str:
        """Change the file."""
        await ctx.deps.backend.write_bytes('/a.txt', b'spoiled')
        return 'spoiled'

    async with world.process(dies_before=ends('spoil')) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert [each.tool for each in version.pending] == ['spoil']
        assert [part.outcome for part in parts_of_returns(await version.messages())] == ['success', 'success']


@pytest.mark.parametrize('is_edited', [True, False])
async def test_write_of_a_subagent_is_verified_too(url: str, tmp_path: Path, is_edited: bool) -> None:
    (tmp_path / 'a.txt').write_text('one')
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('look', key='k'), change('one', 'one one'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_before=lambda commit: bool(commit.ends)) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    if is_edited:
        (tmp_path / 'a.txt').write_text('one, mine')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert len(version.pending) == is_edited
        if is_edited:
            version = await version.resume({version.pending[0].id: Approve()})
        assert version.output == 'end'
    assert files_in(tmp_path) == {'a.txt': 'one one, mine' if is_edited else 'one one'}


async def test_write_of_an_approved_call_is_verified_after_a_crash(url: str, tmp_path: Path) -> None:
    """The run that resumes the pause crashes before its first step."""
    (tmp_path / 'a.txt').write_text('one')
    world = World(url, plan({'go': [change('one', 'one one'), 'end']}), options={'interrupt_on': {'edit_file': True}})
    async with world.process(dies_before=ends('edit_file')) as agent:
        pause = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    assert files_in(tmp_path) == {'a.txt': 'one one'}
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert (version.output, version.pending) == ('end', [])
    assert files_in(tmp_path) == {'a.txt': 'one one'}


async def test_file_that_became_a_directory_is_asked(url: str, tmp_path: Path) -> None:
    world = World(url, plan({'go': [put('/a.txt', 'one'), 'end']}))
    async with world.process(dies_before=ends_turn) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'a.txt').unlink()
    (tmp_path / 'a.txt').mkdir()
    async with world.process() as agent:
        (version,) = await agent.recover()
        [returned] = parts_of_returns(await version.messages())
        assert str(returned.content).startswith(MAY_HAVE_RUN)


async def test_call_that_would_fail_before_it_writes_is_asked(url: str, tmp_path: Path) -> None:
    """Its path is unknown, so no comparison is possible."""
    world = World(url, plan({'go': [put('/../a.txt', 'one'), 'end']}))
    async with world.process(dies_before=ends_turn) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        [returned] = parts_of_returns(await version.messages())
        assert returned.outcome != 'success'


async def test_write_that_no_capability_predicts_is_asked(url: str, tmp_path: Path) -> None:
    world = World(url, plan({'go': [tool_call('stamp'), 'end']}))

    @world.tools.tool(metadata={'effect': 'write', 'writes': 'file'})
    async def stamp(ctx: RunContext[Any]) -> str:
        """Write a file."""
        await ctx.deps.backend.write_bytes('/stamp.txt', b'x')
        return 'stamped'

    async with world.process(dies_before=ends_turn) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    assert files_in(tmp_path) == {'stamp.txt': 'x'}
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert [each.tool for each in version.pending] == ['stamp']
