"""Rules about heads, lineages and queries for versions."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import MOMENT, Dialogue, sample_run
from pydantic_deep.store.errors import VersionConflictError, VersionNotFoundError
from pydantic_deep.store.records import Commit, ConversationRecord, HeadMove, VersionFilter

from ._base import WRITERS, StoreRules


class VersionRules(StoreRules):
    """Rules about heads, lineages and queries for versions."""

    async def test_head_moves_once_and_the_other_version_is_stored(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        children = [dialogue.version(parent_id=root.id) for _ in range(WRITERS)]

        async def move(version_id: str) -> VersionConflictError | None:
            version = next(child for child in children if child.id == version_id)
            heads = [HeadMove(conversation_id=dialogue.id, expected_id=root.id, version_id=version_id)]
            try:
                await dialogue.store.commit(Commit(versions=[version], heads=heads))
            except VersionConflictError as error:
                return error
            return None

        results = await asyncio.gather(*(move(child.id) for child in children))
        winner = children[results.index(None)].id
        losers = [result for result in results if result is not None]
        assert [error.head for error in losers] == [winner] * (WRITERS - 1)
        assert {error.yours for error in losers} == {child.id for child in children} - {winner}
        assert await dialogue.store.count() == WRITERS + 1
        conversation = await dialogue.store.conversation(dialogue.id)
        assert conversation is not None
        assert conversation.head_id == winner

    async def test_head_move_with_a_wrong_expectation_raises(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        with pytest.raises(VersionConflictError) as caught:
            move = HeadMove(conversation_id=dialogue.id, expected_id=None, version_id=root.id)
            await dialogue.store.commit(Commit(heads=[move]))
        assert caught.value.head == root.id
        with pytest.raises(ValueError, match='no conversation'):
            move = HeadMove(conversation_id='none', expected_id=None, version_id=root.id)
            await dialogue.store.commit(Commit(heads=[move]))

    async def test_lineage_leads_from_the_root_to_the_version(self, dialogue: Dialogue) -> None:
        line = [await dialogue.begin()]
        for index in range(5):
            line.append(await dialogue.add(line[-1], b'%d' % index))
        await dialogue.add(line[2], b'beside')
        lineage = await dialogue.store.lineage(line[-1].id)
        assert (lineage.versions, lineage.truncated_at) == (tuple(line), None)

    async def test_lineage_ends_at_a_deleted_version(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        middle = await dialogue.add(root, b'1')
        leaf = await dialogue.add(middle, b'2')
        await dialogue.store.delete(middle.id)
        lineage = await dialogue.store.lineage(leaf.id)
        assert (lineage.versions, lineage.truncated_at) == ((leaf,), middle.id)
        assert await dialogue.history(leaf) == [b'1', b'2']

    async def test_run_continues_after_its_base_is_deleted(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        run = sample_run(dialogue.id, base_id=root.id)
        await dialogue.store.commit(Commit(runs=[run]))
        await dialogue.store.delete(root.id)
        with pytest.raises(VersionNotFoundError, match=root.id):
            await dialogue.add(root, b'1')
        leaf = await dialogue.add(root, b'1', commit={'fence': run.id}, run_id=run.id)
        lineage = await dialogue.store.lineage(leaf.id)
        assert (lineage.versions, lineage.truncated_at) == ((leaf,), root.id)

    async def test_children_are_listed_oldest_first(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first = await dialogue.add(root, b'1', kind='step')
        second = await dialogue.add(root, b'2')
        merged = await dialogue.add(first, b'3', merged_from=second.id, kind='merge')
        assert await dialogue.store.children(root.id) == [first, second]
        assert await dialogue.store.children(first.id) == [merged]
        assert await dialogue.store.children(second.id) == []

    async def test_unambiguous_prefix_of_an_id_is_sufficient(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        store = dialogue.store
        assert await store.version(root.id[:30]) == root
        assert await store.version(root.id[:30].upper()) == root
        other = await dialogue.add(root, b'1', id=root.id[:-2] + ('00' if root.id[-2:] != '00' else '11'))
        with pytest.raises(VersionNotFoundError) as caught:
            await store.version(root.id[:30])
        assert root.id in str(caught.value)
        assert other.id in str(caught.value)

    async def test_invalid_id_is_not_found(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        for id in (new_id(), root.id[:7], '', '%', '________', root.id + '0', root.id[:8] + '_', "' OR 1=1 --"):
            with pytest.raises(VersionNotFoundError) as caught:
                await dialogue.store.version(id)
            assert caught.value.id == id

    async def test_filters_select_versions(self, dialogue: Dialogue) -> None:
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
            (VersionFilter(metadata_keys=['a']), [step, root]),
            (VersionFilter(metadata_keys=['a', 'd']), [root]),
            (VersionFilter(metadata_keys=['e']), []),
            (VersionFilter(name='3', kinds=['turn'], since=0, conversation_id=dialogue.id), [turn]),
        ):
            assert await dialogue.store.versions(filter) == expected, filter
            assert await dialogue.store.count(filter) == len(expected), filter

    async def test_newest_versions_are_those_of_each_value_of_a_key(self, dialogue: Dialogue) -> None:
        """Without the key, a conversation counts as a value. Pages go by the newest versions."""
        store = dialogue.store
        root = await dialogue.begin(metadata='{"a": 1}')
        first = await dialogue.add(root, b'1', metadata='{"a": 1, "s": "x"}')
        second = await dialogue.add(first, b'2', metadata='{"a": 1, "s": "y"}')
        third = await dialogue.add(second, b'3', metadata='{"s": "x"}')
        other = await Dialogue(store).begin()
        assert await store.newest_by_metadata('s') == [other, third, second, root]
        assert await store.newest_by_metadata('s', limit=2) == [other, third]
        assert await store.newest_by_metadata('s', limit=2, before=third.number) == [second, root]
        assert await store.newest_by_metadata('s', before=second.number) == [root]
        assert await store.newest_by_metadata('s', VersionFilter(metadata={'a': 1})) == [second, first, root]
        assert await store.newest_by_metadata('s', VersionFilter(metadata_keys=['s'])) == [third, second]
        assert await store.newest_by_metadata('t', VersionFilter(kinds=['turn'])) == [third]

    async def test_texts_of_filters_are_literal(self, dialogue: Dialogue) -> None:
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

    async def test_pages_are_newest_first_and_stable(self, dialogue: Dialogue) -> None:
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
        assert [conversation.id for conversation in await store.conversations(limit=2)] == ids[:0:-1]
        assert [conversation.id for conversation in await store.conversations(offset=2)] == ids[:1]
        assert await store.conversation(new_id()) is None
