"""Rules about deletion and garbage collection."""

from __future__ import annotations

import pytest

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import (
    MOMENT,
    Dialogue,
    sample_approval,
    sample_asset,
    sample_call,
    sample_delegation,
    sample_request,
    sample_run,
)
from pydantic_deep.store.errors import VersionNotFoundError
from pydantic_deep.store.records import (
    Append,
    BranchRecord,
    Commit,
    ConversationRecord,
    HeadMove,
    NewMessage,
    RunEnd,
    VersionFilter,
)
from pydantic_deep_backends.snapshots import FileVersion, Tree

from ._base import StoreRules, as_decision


class GarbageCollectionRules(StoreRules):
    """Rules about deletion and garbage collection."""

    async def test_deleting_a_version_preserves_its_children_and_their_history(self, dialogue: Dialogue) -> None:
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

    async def test_head_moves_to_the_parent_of_a_deleted_version(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        move = HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=(child := dialogue.version()).id)
        child = child._replace(parent_id=root.id)
        store = dialogue.store
        await store.commit(Commit(versions=[child], heads=[move]))
        for id, head in ((child.id, root.id), (root.id, None)):
            await store.delete(id)
            assert (await store.conversations())[0].head_id == head

    async def test_line_is_deleted_up_to_a_version_with_another_child(self, dialogue: Dialogue) -> None:
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

    async def test_base_of_a_running_run_is_not_deleted_with_a_line(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        child = await dialogue.add(root, b'1')
        await dialogue.store.commit(Commit(runs=[sample_run(dialogue.id, base_id=root.id)]))
        assert await dialogue.store.delete_line(child.id) == 1

    async def test_gc_preserves_reachable_objects(self, dialogue: Dialogue) -> None:
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

    async def test_gc_removes_unreachable_objects(self, dialogue: Dialogue) -> None:
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

    async def test_gc_marks_first_and_removes_later(self, store: Store) -> None:
        asset = sample_asset(b'unreached')
        await store.commit(Commit(assets=[asset]))
        for _ in range(2):
            report = await store.gc(3600)
            assert (report.removed['asset'], report.condemned) == (0, 1)
        assert (await store.asset(asset.digest)).data == b'unreached'
        assert (await store.gc(0.000001)).removed['asset'] == 1

    async def test_marked_object_that_is_committed_again_is_preserved(self, dialogue: Dialogue) -> None:
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

    async def test_gc_preserves_forked_and_rewritten_branches(self, dialogue: Dialogue) -> None:
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
        assert [message.body for message in await store.messages(main.branch_id, 9)] == [b'1', b'2']

    async def test_gc_preserves_objects_of_running_runs(self, dialogue: Dialogue) -> None:
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

    async def test_gc_preserves_delegated_conversations_and_pending_approvals(self, dialogue: Dialogue) -> None:
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

    async def test_threads_are_removed_with_their_delegating_turn_at_any_depth(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        turn, child_turn = await dialogue.delegate(root)
        store = dialogue.store
        tools, file, deps, media = [sample_asset(data) for data in (b'tools', b'file', b'deps', b'media')]
        tree = Tree.of({'/file': FileVersion(digest=file.digest, size=4, mode=0o644)})
        request = sample_request(child_turn.run_id or '')._replace(parameters=tools.digest)
        call = sample_call(child_turn.run_id or '', new_id(), 'call_1', tree=tree.digest)
        await store.commit(
            Commit(assets=[tools, file, deps, media], nodes=dict(tree.nodes()), requests=[request], calls=[call])
        )
        thread = Dialogue(store, child_turn.conversation_id, child_turn.branch_id)
        again = sample_run(
            thread.id, state='complete', parent_run_id=turn.run_id, prompt=b'{"media":"%s"}' % media.digest.encode()
        )
        paused = await thread.add(child_turn, commit={'runs': [again]}, run_id=again.id, deps=deps.digest)
        last, deep = await thread.delegate(paused, parent_run_id=turn.run_id)
        assert set((await store.gc(0)).removed.values()) == {0}
        await store.delete(turn.id)
        assert set((await store.gc(3600)).removed.values()) == {0}
        assert await store.version(deep.id) == deep
        assert dict((await store.gc(0)).removed) == {
            'conversation': 2, 'branch': 2, 'message': 4, 'node': 1, 'asset': 4, 'run': 4,
        }  # fmt: skip
        assert await store.versions() == [root]
        assert await store.conversation(child_turn.conversation_id) is None
        assert await store.delegations(parent_run_id=turn.run_id) == []
        assert await store.delegations(parent_run_id=last.run_id) == []
        assert await store.calls([child_turn.run_id or '']) == []
        assert set((await store.gc(0)).removed.values()) == {0}

    async def test_thread_is_preserved_while_a_version_has_its_delegation(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        turn, child_turn = await dialogue.delegate(root)
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
        fork = BranchRecord(new_id(), other.id, 'fork', child_turn.branch_id, 0, 0, None, None, MOMENT)
        await store.commit(Commit(branches=[fork], versions=[other.version(branch_id=fork.id)]))
        for id in (turn.id, child.id, clone.id, root.id, elsewhere.id):
            assert await store.version(child_turn.id) == child_turn
            assert await other.history(child_turn) == [b'told']
            await store.delete(id)
            for _ in range(2):
                await store.gc(0)
        with pytest.raises(VersionNotFoundError):
            await store.version(child_turn.id)
        assert await store.delegations(child_conversation_id=child_turn.conversation_id) == []

    async def test_versions_of_a_removed_thread_count_as_deleted_for_their_children(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        leaf = await dialogue.add(root, b'1')
        turn, child_turn = await dialogue.delegate(leaf)
        store = dialogue.store
        thread = Dialogue(store, child_turn.conversation_id, child_turn.branch_id)
        await thread.add(child_turn, run_id=child_turn.run_id, merged_from=root.id)
        elsewhere = Dialogue(store)
        await elsewhere.begin()
        child = elsewhere.version(parent_id=child_turn.id)
        await store.commit(Commit(versions=[child]))
        await store.delete(turn.id)
        await store.gc(0)
        assert (await store.lineage(child.id)).truncated_at == child_turn.id
        assert await store.delete_line(leaf.id) == 2

    async def test_thread_that_a_person_continued_is_preserved(self, store: Store) -> None:
        elsewhere = await Dialogue(store).begin()
        hands: list[dict[str, object]] = [
            {'run_id': 'by hand'}, {'run_id': None, 'kind': 'edit'}, {'name': 'kept'}, {'metadata': '{"kept":true}'},
            {'cloned_from': elsewhere.id},
        ]  # fmt: skip
        for by_hand in hands:
            dialogue = Dialogue(store)
            turn, child_turn = await dialogue.delegate(await dialogue.begin())
            thread = Dialogue(store, child_turn.conversation_id, child_turn.branch_id)
            by_subagent: dict[str, object] = {'run_id': child_turn.run_id}
            mine = await thread.add(child_turn, b'2', commit=None, **(by_subagent | by_hand))
            await store.delete_line(turn.id)
            await store.gc(0)
            assert await store.version(child_turn.id) == child_turn
            assert await dialogue.history(mine) == [b'told', b'2']
            await store.delete(mine.id)
            await store.gc(0)
            assert await store.versions() == [elsewhere]

    async def test_thread_is_preserved_while_a_run_or_an_approval_needs_it(self, dialogue: Dialogue) -> None:
        turn, child_turn = await dialogue.delegate(await dialogue.begin())
        store = dialogue.store
        above = sample_run(dialogue.id, base_id=turn.id)
        await store.commit(Commit(runs=[above]))
        await store.delete_line(turn.id)
        await store.gc(0)
        below = sample_run(child_turn.conversation_id, parent_run_id=turn.run_id)
        await store.commit(Commit(ends=[RunEnd(run_id=above.id, state='failed')], runs=[below]))
        await store.gc(0)
        approval = sample_approval(child_turn)
        await store.commit(Commit(ends=[RunEnd(run_id=below.id, state='failed')], approvals=[approval]))
        await store.gc(0)
        assert await store.version(child_turn.id) == child_turn
        await store.decide([as_decision(approval.id)])
        await store.gc(0)
        assert await store.count() == 0

    async def test_thread_that_began_with_a_history_is_removed(self, dialogue: Dialogue) -> None:
        turn, child_turn = await dialogue.delegate(await dialogue.begin())
        thread = Dialogue(dialogue.store, child_turn.conversation_id, child_turn.branch_id)
        root = (await dialogue.store.lineage(child_turn.id)).versions[0]
        history = await thread.add(root, b'before', kind='edit')
        run = sample_run(thread.id, base_id=history.id, state='complete', parent_run_id=turn.run_id)
        await thread.add(history, b'after', commit={'runs': [run]}, run_id=run.id)
        await dialogue.store.delete_line(turn.id)
        await dialogue.store.gc(0)
        assert await dialogue.store.count() == 0

    async def test_marked_thread_that_is_continued_is_preserved(self, dialogue: Dialogue) -> None:
        turn, child_turn = await dialogue.delegate(await dialogue.begin())
        store = dialogue.store
        await store.delete_line(turn.id)
        assert (await store.gc(3600)).condemned > 0
        mine = await Dialogue(store, child_turn.conversation_id, child_turn.branch_id).add(child_turn, b'2')
        await store.gc(0.000001)
        assert await store.versions(VersionFilter(conversation_id=child_turn.conversation_id)) == [
            mine, child_turn, (await store.lineage(child_turn.id)).versions[0],
        ]  # fmt: skip

    async def test_pending_approvals_are_deleted_with_their_version_and_answered_ones_are_not(
        self, dialogue: Dialogue
    ) -> None:
        root = await dialogue.begin()
        waits, answered = sample_approval(root), sample_approval(root, status='denied', decided_at=MOMENT)
        store = dialogue.store
        await store.commit(Commit(approvals=[waits, answered]))
        await store.delete(root.id)
        assert await store.approvals(status=None) == [answered]
