"""Merges of two versions: files, uploads and conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext

from pydantic_deep import DeepAgentDeps, StateBackend
from pydantic_deep.testing import Answer, call
from pydantic_deep.versions import InvalidMergeChoiceError, MergeConflictError, MergeSide, NoCommonVersionError
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def test_merge_contains_the_changes_of_both_sides(make: MakeAgent):
    lines = ''.join(f'{index}\n' for index in range(20))
    agent = make(put('/ours.txt', 'o'), 'done', put('/theirs.txt', 't'), 'done')
    root = await agent.create(backend=StateBackend({'/shared.txt': lines}))
    ours, theirs = await root.advance('a'), await root.advance('b')

    merged = await ours.merge(theirs)

    assert (merged.kind, merged.parent_id, merged.merged_from) == ('merge', ours.id, theirs.id)
    assert sorted(await merged.file_tree()) == ['/ours.txt', '/shared.txt', '/theirs.txt']
    assert await merged.messages() == await ours.messages()


async def test_merge_of_a_contained_version_stores_nothing(make: MakeAgent, store: SpyStore):
    """As git does: `Already up to date`. A merge contains both sides, and the steps of their turns."""
    agent = make(put('/ours.txt', 'o'), 'done', put('/theirs.txt', 't'), 'done')
    root = await agent.create(backend=StateBackend())
    ours, theirs = await root.advance('a'), await root.advance('b')
    merged = await ours.merge(theirs)
    store.commits.clear()

    for other in (merged, ours, theirs, root, *await theirs.steps()):
        assert (await merged.merge(other, choices={'/ours.txt': 'theirs'})).id == merged.id

    assert store.commits == []
    [step, *_] = await theirs.steps()
    assert (await ours.merge(step)).kind == 'merge'


async def test_merge_contains_the_uploads_of_both_sides(make: MakeAgent):
    deps = DeepAgentDeps(backend=StateBackend())
    for name in ('a.txt', 'b.txt'):
        await deps.upload(name, b'old')
    agent = make('Hello.')
    root = await agent.create(deps=deps)
    ours = await (await root.upload('ours.txt', 'ö'.encode())).upload('a.txt', b'newer')
    theirs = await (await root.upload('theirs.txt', b't')).upload('b.txt', b'newest')

    merged = await ours.merge(theirs)

    sizes = {name: upload.size_bytes for name, upload in merged.uploads.items()}
    assert sizes == {'a.txt': 5, 'b.txt': 6, 'ours.txt': 2, 'theirs.txt': 1}
    assert sorted(await merged.file_tree()) == [f'/uploads/{name}' for name in sorted(sizes)]
    assert (await ours.merge(root)).uploads == ours.uploads
    assert list((await merged.advance('hi')).uploads) == list(merged.uploads)


async def test_versions_without_our_deps_can_be_merged(make_plain: MakeAgent):
    root = await make_plain('one', 'two').create()
    ours, theirs = await root.advance('a'), await root.advance('b')

    merged = await ours.merge(theirs)

    assert (merged.uploads, await merged.messages()) == ({}, await ours.messages())


async def test_upload_removed_on_one_side_is_not_in_the_merge(make: MakeAgent):
    deps = DeepAgentDeps(backend=StateBackend())
    await deps.upload('a.txt', b'a')

    async def forget(ctx: RunContext[DeepAgentDeps]) -> None:
        ctx.deps.uploads.clear()

    agent = make(call('forget'), 'done', tools=[forget])
    root = await agent.create(deps=deps)
    ours, theirs = await root.upload('b.txt', b'b'), await root.advance('go')

    assert list((await ours.merge(theirs)).uploads) == ['b.txt']


async def test_merge_conflict_is_reported_and_nothing_is_stored(make: MakeAgent, store: SpyStore):
    agent = make(put('/a.txt', 'ours'), 'done', put('/a.txt', 'theirs'), 'done')
    root = await agent.create(backend=StateBackend())
    ours, theirs = await root.advance('a'), await root.advance('b')
    store.commits.clear()

    with pytest.raises(MergeConflictError, match=r'a\.txt') as caught:
        await ours.merge(theirs)

    assert [conflict.path for conflict in caught.value.conflicts] == ['/a.txt']
    assert store.commits == []


async def test_unrelated_versions_cannot_be_merged(make: MakeAgent):
    agent = make()
    one, other = await agent.create(), await agent.create()

    with pytest.raises(NoCommonVersionError) as caught:
        await one.merge(other)

    assert (caught.value.ours, caught.value.theirs) == (one.id, other.id)


async def test_merging_the_same_version_again_changes_nothing(make: MakeAgent):
    agent = make(put('/ours.txt', 'o'), 'done', put('/theirs.txt', 't'), 'done')
    root = await agent.create(backend=StateBackend())
    ours, theirs = await root.advance('a'), await root.advance('b')

    twice = await (await ours.merge(theirs)).merge(theirs)

    assert await (await twice.merge(theirs)).file_tree() == await twice.file_tree()


async def test_merges_continue_after_a_merged_version_was_deleted(make: MakeAgent):
    """A deleted version leaves its children, also the merge that contains its files."""
    agent = make(put('/ours.txt', 'o'), 'done', put('/theirs.txt', 't'), 'done', put('/more.txt', 'm'), 'done')
    root = await agent.create(backend=StateBackend())
    ours, theirs = await root.advance('a'), await root.advance('b')
    merged, more = await ours.merge(theirs), await root.advance('c')
    await agent.delete(theirs)

    both = await merged.merge(more)

    assert sorted(await both.file_tree()) == ['/more.txt', '/ours.txt', '/theirs.txt']


SHARED = {'/same.txt': 'old\n', '/removed.txt': 'old\n', '/place': 'old\n', '/dir/a.txt': 'a\n'}


@pytest.mark.parametrize(
    ('side', 'expected'),
    [
        (
            'ours',
            {'/same.txt': 'ours', '/removed.txt': 'ours', '/place': 'ours', '/dir/a.txt': 'ours', '/new.txt': 'n'},
        ),
        ('theirs', {'/same.txt': 'theirs', '/place/b.txt': 'theirs', '/dir': 'theirs', '/new.txt': 'n'}),
    ],
)
async def test_choices_decide_conflicts(make: MakeAgent, side: MergeSide, expected: dict[str, str]):
    """For each conflict, the file or the directory of the chosen version is in the merge, or is absent if it has none.
    Everything else is merged as without conflicts."""

    async def change(ctx: RunContext[DeepAgentDeps], removed: list[str], written: dict[str, str]) -> None:
        for path in removed:
            await ctx.deps.backend.remove(path)
        for path, content in written.items():
            await ctx.deps.backend.write_bytes(path, content.encode())

    ours_now = dict.fromkeys(SHARED, 'ours')
    theirs_now = {'/same.txt': 'theirs', '/place/b.txt': 'theirs', '/dir': 'theirs', '/new.txt': 'n'}
    agent = make(
        call('change', removed=[], written=ours_now),
        'done',
        call('change', removed=['/removed.txt', '/place', '/dir'], written=theirs_now),
        'done',
        tools=[change],
    )
    root = await agent.create(backend=StateBackend(SHARED))
    ours, theirs = await root.advance('a'), await root.advance('b')
    with pytest.raises(MergeConflictError) as refused:
        await ours.merge(theirs)
    paths = [conflict.path for conflict in refused.value.conflicts]
    assert paths == ['/dir', '/place', '/removed.txt', '/same.txt']
    with pytest.raises(MergeConflictError) as undecided:
        await ours.merge(theirs, choices={paths[0]: side})
    assert [conflict.path for conflict in undecided.value.conflicts] == paths[1:]

    merged = await ours.merge(theirs, choices=dict.fromkeys(paths, side))

    tree = await merged.file_tree()
    store = agent.store
    assert {path: (await store.read_asset(file.digest)).decode() for path, file in tree.items()} == expected
    assert merged.merged_from == theirs.id


async def test_choice_without_a_conflict_is_refused(make: MakeAgent):
    """A choice for a file without a conflict is an error that names the path, and nothing is stored."""
    agent = make(put('/a.txt', 'a'), 'done', put('/b.txt', 'b'), 'done')
    root = await agent.create(backend=StateBackend())
    ours, theirs = await root.advance('a'), await root.advance('b')

    with pytest.raises(InvalidMergeChoiceError, match=r"no conflict: '/c\.txt'") as refused:
        await ours.merge(theirs, choices={'/c.txt': 'ours'})

    assert refused.value.paths == ('/c.txt',)


async def test_choice_that_is_not_a_side_is_refused(make: MakeAgent):
    """A misspelled side is an error, and does not decide the conflict for either version."""
    agent = make(put('/a.txt', 'a'), 'done', put('/a.txt', 'b'), 'done')
    root = await agent.create(backend=StateBackend())
    ours, theirs = await root.advance('a'), await root.advance('b')
    misspelled: dict[str, Any] = {'/a.txt': 'their'}

    with pytest.raises(InvalidMergeChoiceError, match=r"no side or no conflict: '/a\.txt'"):
        await ours.merge(theirs, choices=misspelled)

    assert await agent.count() == 3
