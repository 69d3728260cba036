"""Rules about commits."""

from __future__ import annotations

import pytest

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import MOMENT, Dialogue, sample_asset, sample_call, sample_request, sample_run
from pydantic_deep.store.errors import AssetNotFoundError, VersionNotFoundError
from pydantic_deep.store.records import BranchRecord, Commit, ConversationRecord, HeadMove, RunEnd
from pydantic_deep_backends.snapshots import Tree, digest_of

from ._base import StoreRules


class CommitRules(StoreRules):
    """Rules about commits."""

    async def test_committed_rows_are_read_unchanged(self, dialogue: Dialogue) -> None:
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

    async def test_failed_commit_stores_nothing(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        asset = sample_asset(b'contents')
        with pytest.raises(ValueError, match='no run'):
            await dialogue.add(root, b'{}', commit={'assets': [asset], 'ends': [RunEnd(run_id='none', state='failed')]})
        assert await dialogue.store.count() == 1
        assert await dialogue.store.has_assets([asset.digest]) == set()
        assert [branch.tip_seq for branch in await dialogue.store.branches(dialogue.id)] == [0]

    async def test_empty_commit_does_nothing(self, store: Store) -> None:
        committed = await store.commit(Commit())
        assert (committed.branch, dict(committed.numbers)) == (None, {})

    async def test_numbers_increase_in_the_order_of_commits(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1')
        second = await dialogue.add(first, b'2')
        assert 0 < root.number < first.number < second.number

    async def test_existing_rows_are_not_changed(self, dialogue: Dialogue) -> None:
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

    async def test_referenced_version_must_exist(self, dialogue: Dialogue) -> None:
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

    async def test_referenced_contents_must_exist(self, dialogue: Dialogue) -> None:
        await dialogue.begin()
        missing = digest_of(b'missing')
        for version in (dialogue.version(deps=missing), dialogue.version(tree=missing)):
            with pytest.raises(AssetNotFoundError, match=missing):
                await dialogue.store.commit(Commit(versions=[version]))

    async def test_branch_and_its_conversation_must_exist(self, store: Store) -> None:
        dialogue = Dialogue(store)
        branch = BranchRecord(dialogue.branch_id, dialogue.id, 'main', None, 0, 0, None, None, 1)
        with pytest.raises(ValueError, match=dialogue.branch_id):
            await store.commit(Commit(versions=[dialogue.version()]))
        with pytest.raises(ValueError, match=dialogue.id):
            await store.commit(Commit(branches=[branch], versions=[dialogue.version()]))
