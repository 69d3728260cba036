"""Rules about messages and branches."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._samples import MOMENT, Dialogue
from pydantic_deep.store.errors import BranchExistsError
from pydantic_deep.store.records import Append, BranchRecord, Commit, NewMessage

from ._base import WRITERS, StoreRules


class MessageRules(StoreRules):
    """Rules about messages and branches."""

    async def test_append_at_the_tip_extends_the_branch(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        child = await dialogue.add(root, b'1', b'2')
        assert child.branch == 'main'
        assert (await dialogue.add(child, b'3')).branch_id == dialogue.branch_id

    async def test_append_below_the_tip_creates_a_branch(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1', b'2')
        await dialogue.add(first, b'3')
        fork = await dialogue.add(first, b'4')
        assert fork.branch == 'branch-2'
        assert await dialogue.history(fork) == [b'1', b'2', b'4']
        main, other = await dialogue.store.branches(dialogue.id)
        assert (main.tip_seq, other.parent_id, other.fork_seq, other.tip_seq) == (3, main.id, 2, 3)

    async def test_concurrent_appends_at_one_position_all_have_a_history(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'first')
        bodies = [b'%d' % index for index in range(WRITERS)]
        children = await asyncio.gather(*(dialogue.add(first, body) for body in bodies))
        assert len({child.branch_id for child in children}) == WRITERS
        assert {child.branch for child in children} == {'main', *(f'branch-{n}' for n in range(2, WRITERS + 1))}
        for child, body in zip(children, bodies, strict=True):
            assert await dialogue.history(child) == [b'first', body]

    async def test_fork_of_a_fork_reads_the_first_branch(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        main = await dialogue.add(root, b'1', b'2', b'3')
        fork = await dialogue.add(main._replace(message_count=2), b'4', b'5')
        deep = await dialogue.add(fork._replace(message_count=3), b'6')
        before_its_branch = await dialogue.add(deep._replace(message_count=1), b'7')
        assert await dialogue.history(deep) == [b'1', b'2', b'4', b'6']
        assert await dialogue.history(before_its_branch) == [b'1', b'7']

    async def test_messages_are_read_in_the_requested_range(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        main = await dialogue.add(root, b'0', b'1', b'2')
        fork = await dialogue.add(main._replace(message_count=2), b'3', b'4')
        messages = await dialogue.store.messages(fork.branch_id, 4, start=1)
        assert [(message.seq, message.body) for message in messages] == [(1, b'1'), (2, b'3'), (3, b'4')]
        assert [message.seq for message in await dialogue.store.messages(fork.branch_id, 99, start=3)] == [3]
        assert await dialogue.store.messages(new_id(), 5) == []

    async def test_messages_are_shared_by_id(self, dialogue: Dialogue) -> None:
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
        messages = await dialogue.store.messages(branch.id, branch.tip_seq)
        assert [(message.id, message.body) for message in messages] == [(known.id, b'1'), (shared[1].id, b'new')]
        with pytest.raises(ValueError, match='no message'):
            missing = Append(branch_id=branch.id, at=2, messages=[NewMessage(id='x', body=None)], fork_id='y')
            await dialogue.store.commit(Commit(append=missing))

    async def test_repeated_message_does_not_change_the_stored_one(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        append = Append(branch_id=root.branch_id, at=0, messages=[NewMessage(id='m', body=b'1')], fork_id=new_id())
        await dialogue.store.commit(Commit(append=append))
        again = Append(branch_id=root.branch_id, at=1, messages=[NewMessage(id='m', body=b'2')], fork_id=new_id())
        await dialogue.store.commit(Commit(append=again))
        assert [message.body for message in await dialogue.store.messages(root.branch_id, 2)] == [b'1', b'1']

    async def test_branch_is_created_with_the_requested_name_or_not_at_all(self, dialogue: Dialogue) -> None:
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

    async def test_generated_branch_names_are_unused(self, dialogue: Dialogue) -> None:
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

    async def test_append_after_a_missing_message_is_refused(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        with pytest.raises(ValueError, match='0 messages'):
            await dialogue.add(root._replace(message_count=5), b'1')
        with pytest.raises(ValueError, match='no branch'):
            await dialogue.add(root._replace(branch_id='none'), b'1')
