"""The promises of `Store` as tests, for everyone who writes one. Needs pytest and the pytest plugin of anyio.

Subclass `StoreSuite` in a test module and provide a fixture `open_store`: a function that opens a store on one place,
fresh for each test, again each time that it is called. What it opened the fixture closes.

```text
class TestMyStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async with AsyncExitStack() as stack:
            async def open_one() -> Store:
                return await stack.enter_async_context(open_my_store(tmp_path))
            yield open_one
```
A store that forgets when the last who has it open closes it says so with `is_durable = False`.

One class and one long file on purpose: a subclass overrides a rule by its name, and a reader finds all rules here.
"""

# ruff: noqa: D102, PT012, PT017 - the name of a rule is the sentence that a docstring would say again; what a rule
# builds to be refused stands where it is refused

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeAlias

import pytest

from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of

from ._ids import new_id
from ._open import open_store as open_at
from ._open import restore_store
from ._protocol import Store, SupportsBackup
from ._samples import (
    MOMENT,
    Dialogue,
    sample_approval,
    sample_asset,
    sample_call,
    sample_delegation,
    sample_request,
    sample_run,
)
from .errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    AssetNotFoundError,
    BranchExistsError,
    RunTakenOverError,
    StoreClosedError,
    UnfinishedCheckoutError,
    VersionConflictError,
    VersionNotFoundError,
)
from .records import (
    Append,
    BranchRecord,
    Commit,
    ConversationRecord,
    Decision,
    HeadMove,
    NewAsset,
    NewMessage,
    RunEnd,
    VersionFilter,
    WorkspaceRecord,
    checkout_claim,
)

__all__ = ('OpenStore', 'StoreSuite')

OpenStore: TypeAlias = Callable[[], Awaitable[Store]]
"""Opens a store, each time on the same place."""

_WRITERS = 20
"""How many do the same thing at once in the rules about races."""

_ODD_TEXTS = (
    '',
    ' ',
    "it's",
    '"; DROP TABLE version; --',
    '%',
    '_',
    '\\',
    'é',
    '日本語',
    '🙂',
    '\u202e',
    'a\nb',
    '\x01',
)
"""Text that is kept as it is."""

_REFUSED_TEXTS = ('a\0b', '\ud800', 'a\udcffb')
"""Text that not every database keeps."""


def _as_decision(id: str, status: str = 'approved', **fields: object) -> Decision:
    values: dict[str, object] = {'decision': '{}', 'arguments_digest': digest_of(b'arguments'), **fields}
    return Decision(approval_id=id, status=status, **values)  # pyright: ignore[reportArgumentType] - of a record


class StoreSuite:
    """What holds for every store."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    is_durable: ClassVar[bool] = True
    """Whether what was acknowledged is there after all have closed it."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> Store:
        return await open_store()

    @pytest.fixture
    def dialogue(self, store: Store) -> Dialogue:
        return Dialogue(store)

    # Commits

    async def test_what_is_committed_is_read_back_as_it_was(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin(name='Q3', metadata='{"a": [1]}', model_settings='{"temperature":0}')
        deps, tree = sample_asset(b'{"todos":[]}', 'application/json'), Tree()
        run = sample_run(dialogue.id, base_id=root.id, trace_id='0' * 32)
        request = sample_request(run.id)._replace(parameters=deps.digest, message_digests=deps.digest)
        call = sample_call(run.id, request.response_id, 'call_1', result='{"x":1}', tree=tree.digest)
        child = await dialogue.add(
            root,
            b'{"a":1}',
            b'{"b":2}',
            commit={
                'assets': [deps], 'nodes': dict(tree.nodes()), 'runs': [run], 'requests': [request], 'calls': [call],
            },
            run_id=run.id, deps=deps.digest, pending=deps.digest, tree=tree.digest, output='"é"',
            backend='{"id":"/w","provider":"local"}', cloned_from=root.id, merged_from=root.id,
        )  # fmt: skip
        store = dialogue.store
        assert await store.version(child.id) == child
        assert await store.version(root.id) == root
        assert await store.run(run.id) == run._replace(owner=store.owner)
        assert await store.requests(run.id) == [request]
        assert await store.calls([run.id]) == [call]
        assert await dialogue.history(child) == [b'{"a":1}', b'{"b":2}']
        assert await store.conversation(dialogue.id) == ConversationRecord(dialogue.id, 'analyst', root.id, MOMENT)

    async def test_a_commit_that_fails_at_its_end_leaves_nothing(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        asset = sample_asset(b'contents')
        with pytest.raises(ValueError, match='no run'):
            await dialogue.add(root, b'{}', commit={'assets': [asset], 'ends': [RunEnd(run_id='none', state='failed')]})
        assert await dialogue.store.count() == 1
        assert await dialogue.store.has_assets([asset.digest]) == set()
        assert [branch.tip_seq for branch in await dialogue.store.branches(dialogue.id)] == [0]

    async def test_an_empty_commit_does_nothing(self, store: Store) -> None:
        committed = await store.commit(Commit())
        assert (committed.branch, dict(committed.numbers)) == (None, {})

    async def test_numbers_grow_in_the_order_of_commits(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1')
        second = await dialogue.add(first, b'2')
        assert 0 < root.number < first.number < second.number

    async def test_what_is_there_already_stays_as_it_is(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        other = ConversationRecord(dialogue.id, 'somebody else', None, 5)
        await dialogue.store.commit(Commit(conversations=[other]))
        assert await dialogue.store.conversation(dialogue.id) == ConversationRecord(
            dialogue.id, 'analyst', root.id, MOMENT
        )

    async def test_ids_are_used_once(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        run = sample_run(dialogue.id)
        await dialogue.store.commit(Commit(runs=[run]))
        with pytest.raises(ValueError, match=root.id):
            await dialogue.store.commit(Commit(versions=[root]))
        with pytest.raises(ValueError, match=run.id):
            await dialogue.store.commit(Commit(runs=[run]))

    async def test_a_version_that_is_referred_to_must_be_there(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        missing = new_id()
        for version in (
            dialogue.version(parent_id=missing), dialogue.version(cloned_from=missing),
            dialogue.version(parent_id=root.id, merged_from=missing),
        ):  # fmt: skip
            with pytest.raises(VersionNotFoundError, match=missing):
                await dialogue.store.commit(Commit(versions=[version]))
        with pytest.raises(VersionNotFoundError, match=missing):
            move = HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=missing)
            await dialogue.store.commit(Commit(heads=[move]))
        assert await dialogue.store.count() == 1

    async def test_contents_that_are_referred_to_must_be_there(self, dialogue: Dialogue) -> None:
        await dialogue.begin()
        missing = digest_of(b'missing')
        for version in (dialogue.version(deps=missing), dialogue.version(tree=missing)):
            with pytest.raises(AssetNotFoundError, match=missing):
                await dialogue.store.commit(Commit(versions=[version]))

    async def test_a_branch_and_its_conversation_must_be_there(self, store: Store) -> None:
        dialogue = Dialogue(store)
        branch = BranchRecord(dialogue.branch_id, dialogue.id, 'main', None, 0, 0, None, None, 1)
        with pytest.raises(ValueError, match=dialogue.branch_id):
            await store.commit(Commit(versions=[dialogue.version()]))
        with pytest.raises(ValueError, match=dialogue.id):
            await store.commit(Commit(branches=[branch], versions=[dialogue.version()]))

    # Messages and branches

    async def test_an_append_at_the_tip_stays_on_its_branch(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        child = await dialogue.add(root, b'1', b'2')
        assert child.branch == 'main'
        assert (await dialogue.add(child, b'3')).branch_id == dialogue.branch_id

    async def test_an_append_below_the_tip_forks(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1', b'2')
        await dialogue.add(first, b'3')
        fork = await dialogue.add(first, b'4')
        assert fork.branch == 'branch-2'
        assert await dialogue.history(fork) == [b'1', b'2', b'4']
        main, other = await dialogue.store.branches(dialogue.id)
        assert (main.tip_seq, other.parent_id, other.fork_seq, other.tip_seq) == (3, main.id, 2, 3)

    async def test_everybody_who_appends_at_one_point_keeps_a_history(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'first')
        bodies = [b'%d' % index for index in range(_WRITERS)]
        children = await asyncio.gather(*(dialogue.add(first, body) for body in bodies))
        assert len({child.branch_id for child in children}) == _WRITERS
        assert {child.branch for child in children} == {'main', *(f'branch-{n}' for n in range(2, _WRITERS + 1))}
        for child, body in zip(children, bodies, strict=True):
            assert await dialogue.history(child) == [b'first', body]

    async def test_a_fork_of_a_fork_reads_through_to_the_first(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        main = await dialogue.add(root, b'1', b'2', b'3')
        fork = await dialogue.add(main._replace(message_count=2), b'4', b'5')
        deep = await dialogue.add(fork._replace(message_count=3), b'6')
        before_its_branch = await dialogue.add(deep._replace(message_count=1), b'7')
        assert await dialogue.history(deep) == [b'1', b'2', b'4', b'6']
        assert await dialogue.history(before_its_branch) == [b'1', b'7']

    async def test_messages_are_read_from_and_to_where_is_asked(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        main = await dialogue.add(root, b'0', b'1', b'2')
        fork = await dialogue.add(main._replace(message_count=2), b'3', b'4')
        found = await dialogue.store.messages(fork.branch_id, 4, start=1)
        assert [(message.seq, message.body) for message in found] == [(1, b'1'), (2, b'3'), (3, b'4')]
        assert [each.seq for each in await dialogue.store.messages(fork.branch_id, 99, start=3)] == [3]
        assert await dialogue.store.messages(new_id(), 5) == []

    async def test_a_message_is_shared_by_its_id(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        main = await dialogue.add(root, b'0', b'1')
        known = (await dialogue.store.messages(main.branch_id, 2))[1]
        shared = [NewMessage(id=known.id, body=None), NewMessage(id=new_id(), body=b'new')]
        append = Append(branch_id=main.branch_id, at=0, messages=shared, fork_id=new_id(), rewrites=2)
        committed = await dialogue.store.commit(Commit(append=append))
        branch = committed.branch
        assert branch is not None
        assert (branch.parent_id, branch.rewrites_id, branch.rewrites_seq) == (None, main.branch_id, 2)
        assert branch.name == 'main.2'
        found = await dialogue.store.messages(branch.id, branch.tip_seq)
        assert [(each.id, each.body) for each in found] == [(known.id, b'1'), (shared[1].id, b'new')]
        with pytest.raises(ValueError, match='no message'):
            missing = Append(branch_id=branch.id, at=2, messages=[NewMessage(id='x', body=None)], fork_id='y')
            await dialogue.store.commit(Commit(append=missing))

    async def test_a_message_that_comes_again_is_kept_as_it_was(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        append = Append(branch_id=root.branch_id, at=0, messages=[NewMessage(id='m', body=b'1')], fork_id=new_id())
        await dialogue.store.commit(Commit(append=append))
        again = Append(branch_id=root.branch_id, at=1, messages=[NewMessage(id='m', body=b'2')], fork_id=new_id())
        await dialogue.store.commit(Commit(append=again))
        assert [each.body for each in await dialogue.store.messages(root.branch_id, 2)] == [b'1', b'1']

    async def test_a_branch_has_the_name_that_is_asked_for_or_none_is_made(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        asked = Append(branch_id=root.branch_id, at=0, messages=(), fork_id=new_id(), fork_name='idea', is_fork=True)
        committed = await dialogue.store.commit(Commit(append=asked))
        assert committed.branch is not None
        assert committed.branch.name == 'idea'
        with pytest.raises(BranchExistsError, match='idea'):
            again = Append(
                branch_id=root.branch_id, at=0, messages=(), fork_id=new_id(), fork_name='idea', is_fork=True
            )
            await dialogue.store.commit(Commit(append=again))
        with pytest.raises(BranchExistsError, match='main'):
            branch = BranchRecord(new_id(), dialogue.id, 'main', root.branch_id, 0, 0, None, None, 1)
            await dialogue.store.commit(Commit(branches=[branch]))

    async def test_names_that_are_taken_are_not_made(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        taken = BranchRecord(new_id(), dialogue.id, 'branch-3', root.branch_id, 0, 0, root.branch_id, 0, MOMENT)
        await dialogue.store.commit(Commit(branches=[taken]))
        assert (await dialogue.store.branches(dialogue.id))[1] == taken
        ids = [new_id(), new_id()]
        for id, name in zip(ids, ('branch-4', 'branch-5'), strict=True):
            append = Append(branch_id=root.branch_id, at=0, messages=(), fork_id=id, is_fork=True)
            committed = await dialogue.store.commit(Commit(append=append))
            assert committed.branch is not None
            assert committed.branch.name == name
        with pytest.raises(ValueError, match=ids[0]):
            again = Append(branch_id=root.branch_id, at=0, messages=(), fork_id=ids[0], is_fork=True)
            await dialogue.store.commit(Commit(append=again))

    async def test_nobody_appends_where_no_message_is(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        with pytest.raises(ValueError, match='0 messages'):
            await dialogue.add(root._replace(message_count=5), b'1')
        with pytest.raises(ValueError, match='no branch'):
            await dialogue.add(root._replace(branch_id='none'), b'1')

    # Heads

    async def test_a_head_moves_once_and_the_loser_keeps_everything(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        children = [dialogue.version(parent_id=root.id) for _ in range(_WRITERS)]

        async def move(version_id: str) -> VersionConflictError | None:
            version = next(each for each in children if each.id == version_id)
            heads = [HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=version_id)]
            try:
                await dialogue.store.commit(Commit(versions=[version], heads=heads))
            except VersionConflictError as error:
                return error
            return None

        results = await asyncio.gather(*(move(child.id) for child in children))
        winner = children[results.index(None)].id
        losers = [result for result in results if result is not None]
        assert [error.head for error in losers] == [winner] * (_WRITERS - 1)
        assert {error.yours for error in losers} == {child.id for child in children} - {winner}
        assert await dialogue.store.count() == _WRITERS + 1
        conversation = await dialogue.store.conversation(dialogue.id)
        assert conversation is not None
        assert conversation.head_id == winner

    async def test_a_head_that_is_nowhere_is_not_expected_anywhere(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        with pytest.raises(VersionConflictError) as caught:
            move = HeadMove(conversation_id=dialogue.id, expected_id=None, version_id=root.id)
            await dialogue.store.commit(Commit(heads=[move]))
        assert caught.value.head == root.id
        with pytest.raises(ValueError, match='no conversation'):
            move = HeadMove(conversation_id='none', expected_id=None, version_id=root.id)
            await dialogue.store.commit(Commit(heads=[move]))

    # Lineage

    async def test_a_lineage_goes_from_the_root_to_the_version(self, dialogue: Dialogue) -> None:
        line = [await dialogue.begin()]
        for index in range(5):
            line.append(await dialogue.add(line[-1], b'%d' % index))
        await dialogue.add(line[2], b'beside')
        lineage = await dialogue.store.lineage(line[-1].id)
        assert (lineage.versions, lineage.truncated_at) == (tuple(line), None)

    async def test_a_lineage_ends_where_a_version_was_deleted(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        middle = await dialogue.add(root, b'1')
        leaf = await dialogue.add(middle, b'2')
        await dialogue.store.delete(middle.id)
        lineage = await dialogue.store.lineage(leaf.id)
        assert (lineage.versions, lineage.truncated_at) == ((leaf,), middle.id)
        assert await dialogue.history(leaf) == [b'1', b'2']

    async def test_a_run_goes_on_though_what_it_came_from_is_deleted(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        run = sample_run(dialogue.id, base_id=root.id)
        await dialogue.store.commit(Commit(runs=[run]))
        await dialogue.store.delete(root.id)
        with pytest.raises(VersionNotFoundError, match=root.id):
            await dialogue.add(root, b'1')
        leaf = await dialogue.add(root, b'1', commit={'fence': run.id}, run_id=run.id)
        lineage = await dialogue.store.lineage(leaf.id)
        assert (lineage.versions, lineage.truncated_at) == ((leaf,), root.id)

    async def test_children_are_the_versions_with_this_parent_oldest_first(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1', kind='step')
        second = await dialogue.add(root, b'2')
        merged = await dialogue.add(first, b'3', merged_from=second.id, kind='merge')
        assert await dialogue.store.children(root.id) == [first, second]
        assert await dialogue.store.children(first.id) == [merged]
        assert await dialogue.store.children(second.id) == []

    # Looking versions up

    async def test_the_beginning_of_an_id_is_enough_if_it_fits_one(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        store = dialogue.store
        assert await store.version(root.id[:30]) == root
        assert await store.version(root.id[:30].upper()) == root
        other = await dialogue.add(root, b'1', id=root.id[:-2] + ('00' if root.id[-2:] != '00' else '11'))
        with pytest.raises(VersionNotFoundError) as caught:
            await store.version(root.id[:30])
        assert root.id in str(caught.value)
        assert other.id in str(caught.value)

    async def test_an_id_that_is_none_is_not_found(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        for id in (new_id(), root.id[:7], '', '%', '________', root.id + '0', root.id[:8] + '_', "' OR 1=1 --"):
            with pytest.raises(VersionNotFoundError) as caught:
                await dialogue.store.version(id)
            assert caught.value.id == id

    async def test_filters_choose_versions(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin(name='Über Q3', metadata='{"a": 1, "b": "x", "c": true, "d": null}', created_at=10)
        turn = await dialogue.add(root, b'1', name='q3', model='other', agent_name='critic', created_at=20, run_id='r')
        step = await dialogue.add(turn, b'2', kind='step', state='interrupted', metadata='{"a": "1"}', created_at=30)
        for filter, expected in (
            (VersionFilter(), [step, turn, root]),
            (VersionFilter(name='Q3'), [turn, root]),
            (VersionFilter(name='über'), [root]),
            (VersionFilter(name=''), [turn, root]),
            (VersionFilter(name='q3' * 100_000), []),
            (VersionFilter(exact_name='q3'), [turn]),
            (VersionFilter(exact_name='Q3'), []),
            (VersionFilter(agent_name='critic'), [turn]),
            (VersionFilter(model='other'), [turn]),
            (VersionFilter(run_id='r'), [turn]),
            (VersionFilter(kinds=['root', 'turn']), [turn, root]),
            (VersionFilter(kinds=[]), []),
            (VersionFilter(states=['interrupted']), [step]),
            (VersionFilter(since=20), [step, turn]),
            (VersionFilter(until=20), [root]),
            (VersionFilter(since=11, until=30), [turn]),
            (VersionFilter(conversation_id=dialogue.id), [step, turn, root]),
            (VersionFilter(conversation_id='other'), []),
            (VersionFilter(metadata={'a': 1}), [root]),
            (VersionFilter(metadata={'a': 1.0, 'b': 'x'}), [root]),
            (VersionFilter(metadata={'a': '1'}), [step]),
            (VersionFilter(metadata={'a': True}), []),
            (VersionFilter(metadata={'c': True}), [root]),
            (VersionFilter(metadata={'c': 1}), []),
            (VersionFilter(metadata={'d': None}), [root]),
            (VersionFilter(metadata={'e': None}), []),
            (VersionFilter(name='3', kinds=['turn'], since=0, conversation_id=dialogue.id), [turn]),
        ):
            assert await dialogue.store.versions(filter) == expected, filter
            assert await dialogue.store.count(filter) == len(expected), filter

    async def test_texts_of_filters_mean_nothing_but_themselves(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin(name='plain')
        odd = await dialogue.add(root, b'1', name='100%_\\ "; --', metadata='{"\\"k\' ->> %": "\' OR 1=1"}')
        store = dialogue.store
        for part in ('%', '_', '\\', '0%_', '"; --'):
            assert await store.versions(VersionFilter(name=part)) == [odd], part
        assert await store.versions(VersionFilter(metadata={'"k\' ->> %': "' OR 1=1"})) == [odd]
        for hostile in ("' OR '1'='1", '") OR 1=1 --', '$.a', '%%'):
            assert await store.versions(VersionFilter(metadata={hostile: 1})) == []
            assert await store.versions(VersionFilter(metadata={'a': hostile})) == []
            assert await store.versions(VersionFilter(exact_name=hostile)) == []
            assert await store.versions(VersionFilter(model=hostile, agent_name=hostile, name=hostile)) == []

    async def test_pages_are_newest_first_and_stay_where_they_are(self, dialogue: Dialogue) -> None:
        line = [await dialogue.begin()]
        for index in range(6):
            line.append(await dialogue.add(line[-1], b'%d' % index))
        newest = line[::-1]
        store = dialogue.store
        assert await store.versions(limit=3) == newest[:3]
        assert await store.versions(limit=3, offset=3) == newest[3:6]
        assert await store.versions(limit=3, offset=99) == []
        before = newest[2].number
        await dialogue.add(line[-1], b'more')
        assert await store.versions(limit=2, before=before) == newest[3:5]

    async def test_conversations_are_listed_newest_first(self, store: Store) -> None:
        ids = [new_id() for _ in range(3)]
        for id in ids:
            await store.commit(Commit(conversations=[ConversationRecord(id, 'analyst', None, MOMENT)]))
        assert [each.id for each in await store.conversations(limit=2)] == ids[:0:-1]
        assert [each.id for each in await store.conversations(offset=2)] == ids[:1]
        assert await store.conversation(new_id()) is None

    # Contents

    async def test_contents_come_back_whole(self, store: Store) -> None:
        datas = [b'', b'x', bytes(range(256)) * 9, b'{"kind":"request"}' * 20, b'\0' * 1_000_000]
        assets = [sample_asset(data, f'text/{index}') for index, data in enumerate(datas)]
        await store.commit(Commit(assets=assets))
        for asset in assets:
            found = await store.asset(asset.digest)
            assert (found.data, found.media_type, found.size_bytes) == (asset.data, asset.media_type, len(asset.data))

    async def test_contents_that_come_again_are_one(self, store: Store) -> None:
        asset = sample_asset(b'contents', 'text/plain')
        await store.commit(Commit(assets=[asset]))
        first = await store.asset(asset.digest)
        await store.commit(Commit(assets=[sample_asset(b'contents', 'other/type')] * 2))
        assert await store.asset(asset.digest) == first
        assert await store.has_assets([asset.digest, digest_of(b'missing')]) == {asset.digest}
        assert await store.has_assets([]) == set()

    async def test_contents_must_have_their_digest(self, store: Store) -> None:
        wrong = digest_of(b'other')
        with pytest.raises(ValueError, match=wrong):
            await store.commit(Commit(assets=[NewAsset(digest=wrong, data=b'contents')]))
        with pytest.raises(ValueError, match=wrong):
            await store.commit(Commit(nodes={wrong: b'contents'}))
        with pytest.raises(AssetNotFoundError, match=wrong):
            await store.asset(wrong)

    async def test_a_tree_comes_back_from_its_nodes(self, dialogue: Dialogue) -> None:
        files = {f'/d{n % 7}/e/f{n}': FileVersion(digest=digest_of(b'%d' % n), size=n, mode=0o644) for n in range(60)}
        tree = Tree.of(files)
        await dialogue.store.commit(Commit(nodes=dict(tree.nodes())))
        nodes = await dialogue.store.nodes(tree.digest)
        assert Tree.from_nodes(tree.digest, nodes) == tree
        with pytest.raises(AssetNotFoundError):
            await dialogue.store.nodes(digest_of(b'missing'))

    async def test_odd_text_is_kept_as_it_is(self, dialogue: Dialogue) -> None:
        version = await dialogue.begin()
        for text in _ODD_TEXTS:
            version = await dialogue.add(version, text.encode(), name=text, model=text, run_id=text, output=text)
            assert await dialogue.store.version(version.id) == version
        assert await dialogue.history(version) == [text.encode() for text in _ODD_TEXTS]
        large = '🙂' * 250_000
        assert (await dialogue.store.version((await dialogue.add(version, b'1', name=large)).id)).name == large

    async def test_text_that_cannot_be_kept_is_refused(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        for text in _REFUSED_TEXTS:
            with pytest.raises(ValueError, match='does not keep'):
                await dialogue.add(root, b'1', name=text)
            with pytest.raises(ValueError, match=r'NUL|half'):
                await dialogue.store.version(text)
            with pytest.raises(ValueError, match=r'NUL|half'):
                await dialogue.store.versions(VersionFilter(name=text))
        with pytest.raises(ValueError, match='JSON object'):
            await dialogue.add(root, b'1', metadata='[]')
        with pytest.raises(ValueError, match='JSON object'):
            await dialogue.add(root, b'1', metadata='{')
        assert await dialogue.store.count() == 1

    # Runs

    async def test_runs_are_found_newest_first(self, dialogue: Dialogue) -> None:
        await dialogue.begin()
        parent = sample_run(dialogue.id)
        child = sample_run('other', parent_run_id=parent.id, state='complete')
        store = dialogue.store
        await store.commit(Commit(runs=[parent, child]))
        parent = parent._replace(owner=store.owner)
        assert await store.runs() == [child, parent]
        assert await store.runs(limit=1) == [child]
        assert await store.runs(conversation_id=dialogue.id) == [parent]
        assert await store.runs(parent_run_id=parent.id) == [child]
        assert await store.runs(states=['running', 'failed']) == [parent]
        assert await store.runs(states=[]) == []
        assert await store.run(new_id()) is None

    async def test_a_run_ends_with_what_it_used(self, dialogue: Dialogue) -> None:
        run = sample_run(dialogue.id)
        await dialogue.store.commit(Commit(runs=[run]))
        end = RunEnd(run_id=run.id, state='failed', usage='{"requests":2}', cost='0.5', error='{"type":"E"}')
        await dialogue.store.commit(Commit(ends=[end]))
        found = await dialogue.store.run(run.id)
        assert found is not None
        assert (found.state, found.usage, found.cost, found.error) == ('failed', end.usage, '0.5', '{"type":"E"}')
        assert found.owner is None
        assert found.ended_at is not None

    async def test_a_result_and_a_prompt_go_when_a_message_has_them(self, dialogue: Dialogue) -> None:
        run = sample_run(dialogue.id)
        started = sample_call(run.id, 'm', 'call_1')
        store = dialogue.store
        await store.commit(Commit(runs=[run], calls=[started, sample_call(run.id, 'm', 'call_2')]))
        done = started._replace(status='done', result='"' + 'x' * 500 + '"', ended_at=MOMENT + 1)
        await store.commit(Commit(calls=[done]))
        assert (await store.calls([run.id]))[0] == done
        await store.commit(Commit(settled_calls=[(run.id, 'm', 'call_1')], clears_prompt_of=run.id))
        assert (await store.calls([run.id]))[0] == done._replace(result=None)
        found = await store.run(run.id)
        assert found is not None
        assert found.prompt is None

    async def test_calls_are_in_the_order_in_which_they_started(self, store: Store) -> None:
        calls = [sample_call(run, 'm', f'c{n}', started_at=n) for n, run in enumerate(('a', 'b', 'a'))]
        await store.commit(Commit(calls=calls[::-1]))
        assert await store.calls(['a', 'b']) == calls
        assert await store.calls(['b']) == [calls[1]]
        assert await store.calls([]) == []

    async def test_requests_are_in_their_order_and_replaced_when_they_come_again(self, store: Store) -> None:
        requests = [sample_request('run', number) for number in (1, 2, 3)]
        lost = requests[1]._replace(kind='superseded')
        await store.commit(Commit(requests=[requests[2], lost, requests[0]]))
        assert await store.requests('run') == [requests[0], lost, requests[2]]
        answered = sample_request('run', 2)
        await store.commit(Commit(requests=[answered]))
        assert await store.requests('run') == [requests[0], answered, requests[2]]

    async def test_delegations_are_found_from_both_sides(self, store: Store) -> None:
        first, second = sample_delegation('run', 'child'), sample_delegation('run', 'other')
        await store.commit(Commit(delegations=[first, second]))
        await store.commit(Commit(delegations=[first._replace(intent='changed')]))
        assert await store.delegations(parent_run_id='run') == [first, second]
        assert await store.delegations(child_conversation_id='other') == [second]
        assert await store.delegations() == [first, second]

    # Processes that die

    async def test_a_fence_lets_only_the_owner_of_a_running_run_commit(self, open_store: OpenStore) -> None:
        ours, theirs = await open_store(), await open_store()
        assert ours.owner != theirs.owner
        dialogue = Dialogue(ours)
        run = sample_run(dialogue.id)
        await ours.commit(Commit(runs=[run]))
        await ours.commit(Commit(fence=run.id))
        asset = sample_asset(b'late')
        with pytest.raises(RunTakenOverError, match=run.id):
            await theirs.commit(Commit(fence=run.id, assets=[asset]))
        await ours.commit(Commit(ends=[RunEnd(run_id=run.id, state='complete')]))
        with pytest.raises(RunTakenOverError):
            await ours.commit(Commit(fence=run.id, assets=[asset]))
        assert await ours.has_assets([asset.digest]) == set()

    async def test_the_runs_of_the_dead_are_orphans_and_those_of_the_living_are_not(
        self, open_store: OpenStore
    ) -> None:
        dead, living = await open_store(), await open_store()
        parent = sample_run('c')
        child = sample_run('d', parent_run_id=parent.id)
        await dead.commit(Commit(runs=[child, parent, sample_run('e', state='complete')]))
        await living.commit(Commit(runs=[sample_run('f')]))
        assert await living.orphans() == []
        assert await living.claim_run(parent.id) is False
        await dead.aclose()
        assert [run.id for run in await living.orphans()] == [parent.id, child.id]
        assert [run.id for run in await living.orphans(limit=1)] == [parent.id]

    async def test_an_orphan_is_claimed_once(self, open_store: OpenStore) -> None:
        dead, *living = [await open_store() for _ in range(4)]
        run = sample_run('c')
        await dead.commit(Commit(runs=[run]))
        await dead.aclose()
        taken = await asyncio.gather(*(store.claim_run(run.id) for store in living * 3))
        assert sorted(taken) == [False] * 8 + [True]
        found = await living[0].run(run.id)
        assert found is not None
        assert (found.state, found.owner) == ('running', living[taken.index(True) % 3].owner)
        assert await living[0].orphans() == []
        assert await living[0].claim_run(new_id()) is False

    async def test_one_living_run_works_in_a_directory(self, open_store: OpenStore) -> None:
        dead, living = await open_store(), await open_store()
        root = await Dialogue(living).begin()
        first, second = sample_run('c'), sample_run('d')
        await dead.commit(Commit(runs=[first]))
        assert await dead.claim_workspace('{}', first.id, None) is True
        assert await dead.claim_workspace('{}', first.id, None) is True
        assert await living.claim_workspace('{}', second.id, None) is False
        await dead.aclose()
        assert await living.claim_workspace('{}', second.id, None) is True
        assert await living.workspace('{}') == WorkspaceRecord('{}', None, second.id)
        await living.commit(Commit(workspaces=[WorkspaceRecord('{}', root.id, None)]))
        assert await living.workspace('{}') == WorkspaceRecord('{}', root.id, None)
        assert await living.claim_workspace('{}', second.id, None) is False
        assert await living.claim_workspace('{}', second.id, root.id) is True
        assert await living.workspace('none') is None

    async def test_a_directory_keeps_its_identity_whoever_claims_it(self, open_store: OpenStore) -> None:
        dead, living = await open_store(), await open_store()
        root, run = await Dialogue(living).begin(), sample_run('c')
        held = WorkspaceRecord('{}', root.id, None, 'inode 7')
        await dead.commit(Commit(runs=[run], workspaces=[held]))
        assert await living.workspace('{}') == held
        assert await dead.claim_workspace('{}', run.id, root.id) is True
        assert await living.workspace('{}') == held._replace(run_id=run.id)
        await dead.aclose()
        assert await living.claim_run(run.id) is True
        assert await living.workspace('{}') == held
        for identity in ('inode 8', None):
            await living.commit(Commit(workspaces=[held._replace(identity=identity)]))
            assert await living.workspace('{}') == held._replace(identity=identity)

    async def test_a_run_marked_orphaned_is_an_orphan_for_its_own_store(self, open_store: OpenStore) -> None:
        ours, others = await open_store(), await open_store()
        orphaned, lives, claimed = sample_run('c'), sample_run('d'), sample_run('e')
        await ours.commit(Commit(runs=[orphaned, lives, claimed]))
        for run in (orphaned, lives, claimed):
            assert await ours.claim_workspace(run.conversation_id, run.id, None) is True
        ours.mark_orphaned(orphaned.id)
        ours.mark_orphaned(claimed.id)
        assert [run.id for run in await ours.orphans()] == [orphaned.id, claimed.id]
        assert await others.orphans() == []
        assert await others.claim_run(orphaned.id) is False
        assert await others.claim_workspace('c', 'other', None) is False
        assert await ours.claim_workspace('d', 'other', None) is False
        assert await ours.claim_workspace('c', 'other', None) is True
        taken = await asyncio.gather(*(ours.claim_run(run.id) for run in (orphaned, claimed) * 2))
        assert sorted(taken) == [False, False, True, True]
        assert await ours.orphans() == []
        assert await ours.claim_workspace('e', 'other', None) is True
        await ours.commit(Commit(fence=orphaned.id, ends=[RunEnd(run_id=orphaned.id, state='interrupted')]))
        ours.mark_orphaned(orphaned.id)
        assert await ours.orphans() == []
        assert await ours.claim_run(orphaned.id) is False

    async def test_a_directory_is_free_when_the_run_in_it_has_ended(self, store: Store) -> None:
        run = sample_run('c')
        await store.commit(Commit(runs=[run], workspaces=[WorkspaceRecord('{}', None, run.id)]))
        assert await store.claim_workspace('{}', 'other', None) is False
        await store.commit(Commit(ends=[RunEnd(run_id=run.id, state='complete')]))
        assert await store.claim_workspace('{}', 'other', None) is True

    async def test_a_checkout_that_was_cut_off_is_to_be_repeated_before_a_run_works_there(
        self, open_store: OpenStore
    ) -> None:
        dead, living = await open_store(), await open_store()
        root = await Dialogue(living).begin()
        claim = checkout_claim(root.id)
        assert await dead.claim_workspace('{"id":"/work"}', claim, None) is True
        assert await living.claim_workspace('{"id":"/work"}', new_id(), None) is False
        await dead.aclose()
        cut_off = WorkspaceRecord('{"id":"/work"}', None, claim)
        for _ in range(2):
            with pytest.raises(UnfinishedCheckoutError, match=f'^The checkout of version {root.id} into /work was cut'):
                await living.claim_workspace('{"id":"/work"}', new_id(), None)
            assert await living.workspace('{"id":"/work"}') == cut_off
            await living.commit(Commit(workspaces=[cut_off]))  # says that nobody works at it, and is no claim
        assert (cut_off.checkouts, cut_off._replace(run_id='r').checkouts) == ((root.id,), ())
        assert cut_off._replace(run_id=checkout_claim('c', root.id, 'c')).checkouts == ('c', root.id)
        assert await living.claim_workspace('{"id":"/work"}', checkout_claim(new_id()), None) is True

    async def test_a_checkout_that_was_given_up_is_in_nobodys_way(self, store: Store) -> None:
        version = new_id()
        for place, shown in (('c', 'c'), ('[]', r'\[\]'), ('{}', '{}')):
            claims = [checkout_claim(version) for _ in range(3)]
            assert await store.claim_workspace(place, claims[0], None) is True
            assert await store.claim_workspace(place, claims[1], None) is False
            store.mark_orphaned(claims[0])
            with pytest.raises(UnfinishedCheckoutError, match=f'version {version} into {shown} was cut off'):
                await store.claim_workspace(place, new_id(), None)
            assert await store.claim_workspace(place, claims[1], None) is True
            assert await store.claim_workspace(place, claims[2], None) is False

    async def test_of_many_who_claim_a_directory_one_gets_it(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        runs = [new_id() for _ in range(_WRITERS)]
        claims = (stores[n % 4].claim_workspace('{}', run, None) for n, run in enumerate(runs))
        assert sorted(await asyncio.gather(*claims)) == [False] * (_WRITERS - 1) + [True]

    # Approvals

    async def test_approvals_are_listed_oldest_first(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first, second = sample_approval(root), sample_approval(root, agent_name='critic')
        store = dialogue.store
        await store.commit(Commit(approvals=[first, second]))
        assert await store.approvals() == [first, second]
        assert await store.approvals(limit=1) == [first]
        assert await store.approvals(agent_name='critic') == [second]
        assert await store.approvals(version_id=root.id, status=None) == [first, second]
        assert await store.approvals(version_id=new_id()) == []
        assert await store.approvals(status='denied') == []
        assert await store.approval(first.id) == first
        with pytest.raises(ApprovalNotFoundError):
            await store.approval(new_id())

    async def test_an_approval_is_answered_once(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        dialogue = Dialogue(stores[0])
        approval = sample_approval(await dialogue.begin())
        await stores[0].commit(Commit(approvals=[approval]))

        async def decide(index: int) -> str | None:
            try:
                await stores[index % 3].decide([_as_decision(approval.id, by=f'person {index}', reason='why')])
            except ApprovalAnsweredError as error:
                assert (error.id, error.status) == (approval.id, 'approved')
                return error.by
            return None

        answers = await asyncio.gather(*(decide(index) for index in range(_WRITERS)))
        winner = f'person {answers.index(None)}'
        assert sorted(answers, key=str) == sorted([None, *[winner] * (_WRITERS - 1)], key=str)
        found = await stores[1].approval(approval.id)
        assert (found.status, found.decided_by, found.reason) == ('approved', winner, 'why')
        assert found.decided_at is not None

    async def test_decisions_hold_all_or_none(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first, second = sample_approval(root), sample_approval(root)
        store = dialogue.store
        await store.commit(Commit(approvals=[first, second]))
        for bad, error in (
            (_as_decision(new_id()), ApprovalNotFoundError),
            (_as_decision(second.id, arguments_digest='other'), ValueError),
            (_as_decision(first.id), ApprovalAnsweredError),
        ):
            with pytest.raises(error):
                await store.decide([_as_decision(first.id), bad])
            assert await store.approvals() == [first, second]
        decided = await store.decide([_as_decision(second.id, 'denied'), _as_decision(first.id, decision='{"a":2}')])
        assert [(each.id, each.status, each.decision) for each in decided] == [
            (second.id, 'denied', '{}'), (first.id, 'approved', '{"a":2}'),
        ]  # fmt: skip

    async def test_an_approval_expires(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        late = sample_approval(root, expires_at=MOMENT)
        open_ = sample_approval(root, expires_at=(time.time_ns() // 1000) + 10**12)
        store = dialogue.store
        await store.commit(Commit(approvals=[late, open_]))
        assert await store.approvals() == [open_]
        assert await store.approvals(status='expired') == [late._replace(status='expired')]
        assert (await store.approval(late.id)).status == 'expired'
        with pytest.raises(ApprovalAnsweredError, match='expired'):
            await store.decide([_as_decision(late.id)])
        assert (await store.decide([_as_decision(open_.id)]))[0].status == 'approved'

    async def test_an_approval_that_waits_on_as_another_is_superseded(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        old, new = sample_approval(root), sample_approval(root)
        store = dialogue.store
        await store.commit(Commit(approvals=[old]))
        await store.commit(Commit(approvals=[new], supersedes={old.id: new.id}))
        found = await store.approval(old.id)
        assert (found.status, found.superseded_by) == ('superseded', new.id)
        with pytest.raises(ApprovalAnsweredError, match=new.id):
            await store.decide([_as_decision(old.id)])

    async def test_one_run_acts_on_the_answers_of_a_version(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first, second = sample_approval(root), sample_approval(root)
        store = dialogue.store
        await store.commit(Commit(approvals=[first, second]))
        await store.decide([_as_decision(first.id)])
        claimed = await store.claim_approvals(root.id, 'run')
        assert [(each.id, each.status, each.resumed_by) for each in claimed] == [
            (first.id, 'approved', 'run'), (second.id, 'pending', 'run'),
        ]  # fmt: skip
        assert await store.claim_approvals(root.id, 'run') == claimed
        with pytest.raises(ApprovalAnsweredError, match='run'):
            await store.claim_approvals(root.id, 'other')
        with pytest.raises(ApprovalAnsweredError, match='without an answer'):
            await store.decide([_as_decision(second.id)])
        with pytest.raises(VersionNotFoundError):
            await store.claim_approvals(new_id(), 'run')

    # Deleting

    async def test_deleting_keeps_the_children_and_what_they_read(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        middle = await dialogue.add(root, b'1')
        leaf = await dialogue.add(middle, b'2')
        store = dialogue.store
        await store.delete(middle.id)
        await store.gc(0)
        assert await store.versions() == [leaf, root]
        assert await store.children(root.id) == []
        assert await dialogue.history(leaf) == [b'1', b'2']
        with pytest.raises(VersionNotFoundError, match=middle.id):
            await store.delete(middle.id)

    async def test_a_head_that_is_deleted_goes_back_to_its_parent(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        move = HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=(child := dialogue.version()).id)
        child = child._replace(parent_id=root.id)
        store = dialogue.store
        await store.commit(Commit(versions=[child], heads=[move]))
        for id, head in ((child.id, root.id), (root.id, None)):
            await store.delete(id)
            assert (await store.conversations())[0].head_id == head

    async def test_a_line_is_deleted_up_to_where_something_else_came_from(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        shared = await dialogue.add(root, b'1')
        first = await dialogue.add(shared, b'2')
        second = await dialogue.add(first, b'3')
        beside = await dialogue.add(shared, b'4')
        store = dialogue.store
        assert await store.delete_line(second.id) == 2
        assert await store.versions() == [beside, shared, root]
        assert await store.delete_line(beside.id) == 3
        assert await store.count() == 0
        with pytest.raises(VersionNotFoundError):
            await store.delete_line(root.id)

    async def test_a_line_is_not_deleted_below_a_run(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        child = await dialogue.add(root, b'1')
        await dialogue.store.commit(Commit(runs=[sample_run(dialogue.id, base_id=root.id)]))
        assert await dialogue.store.delete_line(child.id) == 1

    # Garbage collection

    async def test_gc_keeps_what_is_reached(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        image, pending, file = sample_asset(b'image'), sample_asset(b'pending'), sample_asset(b'file')
        deps = sample_asset(b'{"image":"%s"}' % image.digest.encode(), 'application/json')
        tree = Tree.of({'/d/file': FileVersion(digest=file.digest, size=4, mode=0o644)})
        media = sample_asset(b'media')
        body = b'{"media":"%s"}' % media.digest.encode()
        child = await dialogue.add(
            root, body, commit={'assets': [image, deps, pending, file, media], 'nodes': dict(tree.nodes())},
            deps=deps.digest, pending=pending.digest, tree=tree.digest,
        )  # fmt: skip
        store = dialogue.store
        report = await store.gc(0)
        assert (set(report.removed.values()), report.condemned, report.freed_bytes) == ({0}, 0, 0)
        everything = [asset.digest for asset in (image, deps, pending, file, media)]
        assert await store.has_assets(everything) == set(everything)
        assert Tree.from_nodes(tree.digest, await store.nodes(tree.digest)) == tree
        assert await dialogue.history(child) == [body]

    async def test_gc_removes_what_nothing_reaches(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        asset = sample_asset(b'contents of an asset')
        run = sample_run(dialogue.id, state='complete')
        tree = Tree.of({'/a': FileVersion(digest=asset.digest, size=4, mode=0o644)})
        leaf = await dialogue.add(
            root, b'1', b'2', commit={'assets': [asset], 'nodes': dict(tree.nodes()), 'runs': [run]}, tree=tree.digest
        )
        store = dialogue.store
        assert await store.delete_line(leaf.id) == 2
        report = await store.gc(0)
        assert dict(report.removed) == {
            'conversation': 1, 'branch': 1, 'message': 2, 'node': 1, 'asset': 1, 'run': 1,
        }  # fmt: skip
        assert report.condemned == 0
        assert report.freed_bytes > 20
        assert await store.conversations() == []
        assert await store.run(run.id) is None
        assert await store.has_assets([asset.digest]) == set()
        assert await store.messages(leaf.branch_id, 9) == []

    async def test_gc_condemns_first_and_removes_later(self, store: Store) -> None:
        asset = sample_asset(b'unreached')
        await store.commit(Commit(assets=[asset]))
        for _ in range(2):
            report = await store.gc(3600)
            assert (report.removed['asset'], report.condemned) == (0, 1)
        assert (await store.asset(asset.digest)).data == b'unreached'
        assert (await store.gc(0.000001)).removed['asset'] == 1

    async def test_what_comes_again_is_pardoned(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        asset, tree = sample_asset(b'unreached'), Tree()
        append = Append(branch_id=root.branch_id, at=0, messages=[NewMessage(id='m', body=b'1')], fork_id=new_id())
        store = dialogue.store
        await store.commit(Commit(assets=[asset], nodes=dict(tree.nodes()), append=append))
        assert (await store.gc(3600)).condemned == 3
        assert await store.has_assets([asset.digest]) == set()
        again = Append(branch_id=root.branch_id, at=1, messages=[NewMessage(id='m', body=b'1')], fork_id=new_id())
        version = dialogue.version(parent_id=root.id, deps=asset.digest, tree=tree.digest, message_count=2)
        await store.commit(Commit(assets=[asset], nodes=dict(tree.nodes()), append=again, versions=[version]))
        assert await store.has_assets([asset.digest]) == {asset.digest}
        report = await store.gc(0)
        assert (set(report.removed.values()), report.condemned) == ({0}, 0)

    async def test_gc_cuts_a_branch_after_its_last_version(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1')
        second = await dialogue.add(first, b'2', b'3')
        store = dialogue.store
        await store.delete(second.id)
        assert (await store.gc(0)).removed['message'] == 2
        assert [branch.tip_seq for branch in await store.branches(dialogue.id)] == [1]
        again = await dialogue.add(first, b'4')
        assert again.branch_id == first.branch_id
        assert await dialogue.history(again) == [b'1', b'4']

    async def test_gc_keeps_what_branches_came_from_and_stand_for(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        main = await dialogue.add(root, b'1', b'2', b'3')
        append = Append(
            branch_id=main.branch_id, at=0, messages=[NewMessage(id=new_id(), body=b's')], fork_id=new_id(), rewrites=2
        )
        summary = dialogue.version(parent_id=main.id, branch_id=main.branch_id, message_count=1)
        store = dialogue.store
        committed = await store.commit(Commit(append=append, versions=[summary]))
        assert committed.branch is not None
        fork = await dialogue.add(summary._replace(branch_id=committed.branch.id, message_count=0), b'f')
        for id in (summary.id, main.id, root.id):
            await store.delete(id)
        assert (await store.gc(0)).removed['message'] == 2
        assert await dialogue.history(fork) == [b'f']
        assert [each.body for each in await store.messages(main.branch_id, 9)] == [b'1', b'2']

    async def test_gc_keeps_what_a_run_in_flight_has(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        media = sample_asset(b'media of a prompt')
        run = sample_run(dialogue.id, prompt=b'{"media":"%s"}' % media.digest.encode(), base_id=root.id)
        append = Append(branch_id=root.branch_id, at=0, messages=[NewMessage(id=new_id(), body=b'1')], fork_id=new_id())
        store = dialogue.store
        await store.commit(Commit(assets=[media], runs=[run], append=append))
        report = await store.gc(0)
        assert set(report.removed.values()) == {0}
        await store.delete(root.id)
        assert set((await store.gc(0)).removed.values()) == {0}
        await store.commit(Commit(ends=[RunEnd(run_id=run.id, state='failed')], clears_prompt_of=run.id))
        assert dict((await store.gc(0)).removed) == {
            'conversation': 1, 'branch': 1, 'message': 1, 'node': 0, 'asset': 1, 'run': 1,
        }  # fmt: skip

    async def test_gc_keeps_conversations_that_were_delegated_and_what_waits(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        run = sample_run(dialogue.id, state='complete')
        turn = await dialogue.add(root, b'1', commit={'runs': [run]}, run_id=run.id)
        child = ConversationRecord(new_id(), 'researcher', None, MOMENT)
        inbox = ConversationRecord(new_id(), 'analyst', None, MOMENT)
        approval = sample_approval(root, conversation_id=inbox.id)
        store = dialogue.store
        await store.commit(
            Commit(
                conversations=[child, inbox], delegations=[sample_delegation(run.id, child.id)], approvals=[approval]
            )
        )  # fmt: skip
        assert set((await store.gc(0)).removed.values()) == {0}
        assert await store.conversation(child.id) == child
        assert await store.approvals() == [approval]
        await store.delete_line(turn.id)
        assert (await store.gc(0)).removed['conversation'] == 3

    async def test_a_thread_goes_with_the_turn_that_delegated_to_it_to_any_depth(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        turn, told = await dialogue.delegate(root)
        store = dialogue.store
        tools, file, deps, media = [sample_asset(data) for data in (b'tools', b'file', b'deps', b'media')]
        tree = Tree.of({'/file': FileVersion(digest=file.digest, size=4, mode=0o644)})
        request = sample_request(told.run_id or '')._replace(parameters=tools.digest)
        call = sample_call(told.run_id or '', new_id(), 'call_1', tree=tree.digest)
        await store.commit(
            Commit(assets=[tools, file, deps, media], nodes=dict(tree.nodes()), requests=[request], calls=[call])
        )
        thread = Dialogue(store, told.conversation_id, told.branch_id)
        again = sample_run(
            thread.id, state='complete', parent_run_id=turn.run_id, prompt=b'{"media":"%s"}' % media.digest.encode()
        )
        paused = await thread.add(told, commit={'runs': [again]}, run_id=again.id, deps=deps.digest)
        last, deep = await thread.delegate(paused, parent_run_id=turn.run_id)
        assert set((await store.gc(0)).removed.values()) == {0}
        await store.delete(turn.id)
        assert set((await store.gc(3600)).removed.values()) == {0}
        assert await store.version(deep.id) == deep
        assert dict((await store.gc(0)).removed) == {
            'conversation': 2, 'branch': 2, 'message': 4, 'node': 1, 'asset': 4, 'run': 4,
        }  # fmt: skip
        assert await store.versions() == [root]
        assert await store.conversation(told.conversation_id) is None
        assert await store.delegations(parent_run_id=turn.run_id) == []
        assert await store.delegations(parent_run_id=last.run_id) == []
        assert await store.calls([told.run_id or '']) == []
        assert set((await store.gc(0)).removed.values()) == {0}

    async def test_a_thread_stays_while_a_version_tells_of_it(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        turn, told = await dialogue.delegate(root)
        child = await dialogue.add(turn, b'2')
        clone = turn._replace(id=new_id(), cloned_from=turn.id)
        store = dialogue.store
        await store.commit(Commit(versions=[clone]))
        message = (await store.messages(turn.branch_id, 1))[0]
        other = Dialogue(store)
        append = Append(branch_id=other.branch_id, at=0, messages=[NewMessage(id=message.id, body=None)], fork_id='f')
        elsewhere = other.version(message_count=1)
        await other.begin()
        await store.commit(Commit(append=append, versions=[elsewhere]))
        fork = BranchRecord(new_id(), other.id, 'fork', told.branch_id, 0, 0, None, None, MOMENT)
        await store.commit(Commit(branches=[fork], versions=[other.version(branch_id=fork.id)]))
        for id in (turn.id, child.id, clone.id, root.id, elsewhere.id):
            assert await store.version(told.id) == told
            assert await other.history(told) == [b'told']
            await store.delete(id)
            for _ in range(2):
                await store.gc(0)
        with pytest.raises(VersionNotFoundError):
            await store.version(told.id)
        assert await store.delegations(child_conversation_id=told.conversation_id) == []

    async def test_what_goes_with_a_thread_is_deleted_for_what_came_from_it(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        leaf = await dialogue.add(root, b'1')
        turn, told = await dialogue.delegate(leaf)
        store = dialogue.store
        thread = Dialogue(store, told.conversation_id, told.branch_id)
        await thread.add(told, run_id=told.run_id, merged_from=root.id)
        elsewhere = Dialogue(store)
        await elsewhere.begin()
        child = elsewhere.version(parent_id=told.id)
        await store.commit(Commit(versions=[child]))
        await store.delete(turn.id)
        await store.gc(0)
        assert (await store.lineage(child.id)).truncated_at == told.id
        assert await store.delete_line(leaf.id) == 2

    async def test_a_thread_that_somebody_went_on_with_stays(self, store: Store) -> None:
        elsewhere = await Dialogue(store).begin()
        hands: list[dict[str, object]] = [
            {'run_id': 'by hand'}, {'run_id': None, 'kind': 'edit'}, {'name': 'kept'}, {'metadata': '{"kept":true}'},
            {'cloned_from': elsewhere.id},
        ]  # fmt: skip
        for by_hand in hands:
            dialogue = Dialogue(store)
            turn, told = await dialogue.delegate(await dialogue.begin())
            thread = Dialogue(store, told.conversation_id, told.branch_id)
            by_subagent: dict[str, object] = {'run_id': told.run_id}
            mine = await thread.add(told, b'2', commit=None, **(by_subagent | by_hand))
            await store.delete_line(turn.id)
            await store.gc(0)
            assert await store.version(told.id) == told
            assert await dialogue.history(mine) == [b'told', b'2']
            await store.delete(mine.id)
            await store.gc(0)
            assert await store.versions() == [elsewhere]

    async def test_a_thread_stays_while_a_run_or_an_approval_needs_it(self, dialogue: Dialogue) -> None:
        turn, told = await dialogue.delegate(await dialogue.begin())
        store = dialogue.store
        above = sample_run(dialogue.id, base_id=turn.id)
        await store.commit(Commit(runs=[above]))
        await store.delete_line(turn.id)
        await store.gc(0)
        below = sample_run(told.conversation_id, parent_run_id=turn.run_id)
        await store.commit(Commit(ends=[RunEnd(run_id=above.id, state='failed')], runs=[below]))
        await store.gc(0)
        approval = sample_approval(told)
        await store.commit(Commit(ends=[RunEnd(run_id=below.id, state='failed')], approvals=[approval]))
        await store.gc(0)
        assert await store.version(told.id) == told
        await store.decide([_as_decision(approval.id)])
        await store.gc(0)
        assert await store.count() == 0

    async def test_a_thread_that_began_with_a_history_goes_too(self, dialogue: Dialogue) -> None:
        turn, told = await dialogue.delegate(await dialogue.begin())
        thread = Dialogue(dialogue.store, told.conversation_id, told.branch_id)
        root = (await dialogue.store.lineage(told.id)).versions[0]
        history = await thread.add(root, b'before', kind='edit')
        run = sample_run(thread.id, base_id=history.id, state='complete', parent_run_id=turn.run_id)
        await thread.add(history, b'after', commit={'runs': [run]}, run_id=run.id)
        await dialogue.store.delete_line(turn.id)
        await dialogue.store.gc(0)
        assert await dialogue.store.count() == 0

    async def test_a_thread_that_somebody_goes_on_with_in_time_is_pardoned(self, dialogue: Dialogue) -> None:
        turn, told = await dialogue.delegate(await dialogue.begin())
        store = dialogue.store
        await store.delete_line(turn.id)
        assert (await store.gc(3600)).condemned > 0
        mine = await Dialogue(store, told.conversation_id, told.branch_id).add(told, b'2')
        await store.gc(0.000001)
        assert await store.versions(VersionFilter(conversation_id=told.conversation_id)) == [
            mine, told, (await store.lineage(told.id)).versions[0],
        ]  # fmt: skip

    async def test_what_waits_goes_with_its_version_and_what_was_answered_stays(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        waits, answered = sample_approval(root), sample_approval(root, status='denied', decided_at=MOMENT)
        store = dialogue.store
        await store.commit(Commit(approvals=[waits, answered]))
        await store.delete(root.id)
        assert await store.approvals(status=None) == [answered]

    # Closing

    async def test_what_was_acknowledged_is_there_after_closing(self, open_store: OpenStore) -> None:
        if not self.is_durable:
            pytest.skip('this store says that it is not durable')
        store = await open_store()
        root = await Dialogue(store).begin(name='kept')
        await store.aclose()
        assert await (await open_store()).versions() == [root]

    async def test_all_who_have_it_open_see_the_same(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        root = await Dialogue(first).begin()
        assert await second.version(root.id) == root

    async def test_many_write_on_one_place_and_nothing_is_lost(self, open_store: OpenStore) -> None:
        dialogues = [Dialogue(await open_store()) for _ in range(4)]

        async def talk(dialogue: Dialogue) -> None:
            version = await dialogue.begin()
            for index in range(10):
                version = await dialogue.add(version, b'%d' % index)
            assert await dialogue.history(version) == [b'%d' % index for index in range(10)]

        await asyncio.gather(*map(talk, dialogues))
        assert await dialogues[0].store.count() == 44

    async def test_a_closed_store_says_so(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreClosedError):
            await store.count()
        with pytest.raises(StoreClosedError):
            await store.commit(Commit())

    async def test_who_stops_waiting_breaks_nothing(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        task = asyncio.ensure_future(dialogue.add(root, b'1'))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        after = await dialogue.add(root, b'2')
        assert await dialogue.history(after) == [b'2']

    async def test_a_backup_of_a_whole_store_is_restored_whole(self, dialogue: Dialogue, tmp_path: Path) -> None:
        # All stores of this package have backups.
        if not isinstance(dialogue.store, SupportsBackup):  # pragma: no cover
            pytest.skip('The store has no backups.')
        turn = await dialogue.add(await dialogue.begin(), b'1', b'2')
        assert await dialogue.store.check() == []
        rows = await dialogue.store.backup(tmp_path / 'store.backup')
        url = f'sqlite:///{tmp_path}/restored.db'
        assert await restore_store(url, tmp_path / 'store.backup') == rows
        async with open_at(url, read_only=True) as restored:
            assert await restored.version(turn.id) == turn
            assert await Dialogue(restored, dialogue.id).history(turn) == [b'1', b'2']
            assert await restored.check() == []
