"""Rules about crashed processes and claims of directories."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import Dialogue, sample_asset, sample_run
from pydantic_deep.store.errors import RunTakenOverError, UnfinishedCheckoutError, VersionBusyError
from pydantic_deep.store.records import Commit, RunEnd, WorkspaceRecord, checkout_claim

from ._base import WRITERS, OpenStore, StoreRules


class ProcessRules(StoreRules):
    """Rules about crashed processes and claims of directories."""

    async def test_fence_lets_only_the_owner_of_a_running_run_commit(self, open_store: OpenStore) -> None:
        ours, other = await open_store(), await open_store()
        assert ours.owner != other.owner
        dialogue = Dialogue(ours)
        run = sample_run(dialogue.id)
        await ours.commit(Commit(runs=[run]))
        await ours.commit(Commit(fence=run.id))
        asset = sample_asset(b'late')
        with pytest.raises(RunTakenOverError, match=run.id):
            await other.commit(Commit(fence=run.id, assets=[asset]))
        await ours.commit(Commit(ends=[RunEnd(run_id=run.id, state='complete')]))
        with pytest.raises(RunTakenOverError):
            await ours.commit(Commit(fence=run.id, assets=[asset]))
        assert await ours.has_assets([asset.digest]) == set()

    async def test_runs_of_closed_stores_are_orphans_and_those_of_open_stores_are_not(
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

    async def test_orphan_is_claimed_once(self, open_store: OpenStore) -> None:
        dead, *living = [await open_store() for _ in range(4)]
        run = sample_run('c')
        await dead.commit(Commit(runs=[run]))
        await dead.aclose()
        claims = await asyncio.gather(*(store.claim_run(run.id) for store in living * 3))
        assert sorted(claims) == [False] * 8 + [True]
        stored = await living[0].run(run.id)
        assert stored is not None
        assert (stored.state, stored.owner) == ('running', living[claims.index(True) % 3].owner)
        assert await living[0].orphans() == []
        assert await living[0].claim_run(new_id()) is False

    async def test_one_running_run_works_in_a_directory(self, open_store: OpenStore) -> None:
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

    async def test_directory_has_the_same_identity_for_every_claim(self, open_store: OpenStore) -> None:
        dead, living = await open_store(), await open_store()
        root, run = await Dialogue(living).begin(), sample_run('c')
        record = WorkspaceRecord('{}', root.id, None, 'inode 7')
        await dead.commit(Commit(runs=[run], workspaces=[record]))
        assert await living.workspace('{}') == record
        assert await dead.claim_workspace('{}', run.id, root.id) is True
        assert await living.workspace('{}') == record._replace(run_id=run.id)
        await dead.aclose()
        assert await living.claim_run(run.id) is True
        assert await living.workspace('{}') == record
        for identity in ('inode 8', None):
            await living.commit(Commit(workspaces=[record._replace(identity=identity)]))
            assert await living.workspace('{}') == record._replace(identity=identity)

    async def test_run_marked_orphaned_is_an_orphan_for_its_own_store(self, open_store: OpenStore) -> None:
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
        claims = await asyncio.gather(*(ours.claim_run(run.id) for run in (orphaned, claimed) * 2))
        assert sorted(claims) == [False, False, True, True]
        assert await ours.orphans() == []
        assert await ours.claim_workspace('e', 'other', None) is True
        await ours.commit(Commit(fence=orphaned.id, ends=[RunEnd(run_id=orphaned.id, state='interrupted')]))
        ours.mark_orphaned(orphaned.id)
        assert await ours.orphans() == []
        assert await ours.claim_run(orphaned.id) is False

    async def test_run_marked_orphaned_before_it_begins_has_its_process(self, store: Store) -> None:
        run = sample_run('c')
        store.mark_orphaned(run.id)
        await store.commit(Commit(runs=[run]))
        assert await store.orphans() == []
        store.mark_orphaned(run.id)
        with pytest.raises(ValueError, match='exists already'):
            await store.commit(Commit(runs=[run]))
        assert [orphan.id for orphan in await store.orphans()] == [run.id]

    async def test_directory_is_free_after_its_run_ends(self, store: Store) -> None:
        run = sample_run('c')
        await store.commit(Commit(runs=[run], workspaces=[WorkspaceRecord('{}', None, run.id)]))
        assert await store.claim_workspace('{}', 'other', None) is False
        await store.commit(Commit(ends=[RunEnd(run_id=run.id, state='complete')]))
        assert await store.claim_workspace('{}', 'other', None) is True

    async def test_interrupted_checkout_must_be_repeated_before_a_run(self, open_store: OpenStore) -> None:
        dead, living = await open_store(), await open_store()
        root = await Dialogue(living).begin()
        claim = checkout_claim(root.id)
        assert await dead.claim_workspace('{"id":"/work"}', claim, None) is True
        assert await living.claim_workspace('{"id":"/work"}', new_id(), None) is False
        await dead.aclose()
        cut_off = WorkspaceRecord('{"id":"/work"}', None, claim)
        for _ in range(2):
            with pytest.raises(
                UnfinishedCheckoutError, match=f'^The checkout of version {root.id} into /work was interrupted'
            ):
                await living.claim_workspace('{"id":"/work"}', new_id(), None)
            assert await living.workspace('{"id":"/work"}') == cut_off
            await living.commit(Commit(workspaces=[cut_off]))  # no run works there; not a claim
        assert (cut_off.checkouts, cut_off._replace(run_id='r').checkouts) == ((root.id,), ())
        assert cut_off._replace(run_id=checkout_claim('c', root.id, 'c')).checkouts == ('c', root.id)
        assert await living.claim_workspace('{"id":"/work"}', checkout_claim(new_id()), None) is True

    async def test_orphaned_checkout_can_be_repeated(self, store: Store) -> None:
        version = new_id()
        for place, shown in (('c', 'c'), ('[]', r'\[\]'), ('{}', '{}')):
            claims = [checkout_claim(version) for _ in range(3)]
            assert await store.claim_workspace(place, claims[0], None) is True
            assert await store.claim_workspace(place, claims[1], None) is False
            store.mark_orphaned(claims[0])
            with pytest.raises(UnfinishedCheckoutError, match=f'version {version} into {shown} was interrupted'):
                await store.claim_workspace(place, new_id(), None)
            assert await store.claim_workspace(place, claims[1], None) is True
            assert await store.claim_workspace(place, claims[2], None) is False

    async def test_one_of_several_concurrent_claims_of_a_directory_succeeds(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        runs = [new_id() for _ in range(WRITERS)]
        claims = (stores[n % 4].claim_workspace('{}', run, None) for n, run in enumerate(runs))
        assert sorted(await asyncio.gather(*claims)) == [False] * (WRITERS - 1) + [True]

    async def test_one_of_several_concurrent_exclusive_runs_from_a_version_begins(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(4)]
        dialogue = Dialogue(stores[0])
        base = await dialogue.begin()
        begun: list[str] = []
        refused: list[str] = []

        async def begin(store: Store) -> None:
            run = sample_run(dialogue.id, base_id=base.id)
            try:
                await store.commit(Commit(runs=[run], exclusive=True))
                begun.append(run.id)
            except VersionBusyError as error:
                refused.append(error.run_id)

        await asyncio.gather(*(begin(stores[n % 4]) for n in range(WRITERS)))
        assert refused == begun * (WRITERS - 1)
        later = await dialogue.add(base)
        for others in (
            Commit(runs=[sample_run(dialogue.id, base_id=later.id), sample_run(dialogue.id)], exclusive=True),
            Commit(runs=[sample_run(dialogue.id, base_id=base.id, parent_run_id=begun[0])]),
        ):
            await stores[0].commit(others)
        await stores[0].commit(Commit(ends=[RunEnd(run_id=begun[0], state='failed')]))
        await begin(stores[1])
        assert len(begun) == 2

    async def test_orphan_does_not_refuse_an_exclusive_run_or_deletion(self, open_store: OpenStore) -> None:
        dead, living = await open_store(), await open_store()
        dialogue = Dialogue(living)
        base = await dialogue.begin()
        run = sample_run(dialogue.id, base_id=base.id)
        await dead.commit(Commit(runs=[run]))
        with pytest.raises(VersionBusyError, match=run.id):
            await living.delete(base.id, exclusive=True)
        await dead.aclose()
        second = sample_run(dialogue.id, base_id=base.id)
        await living.commit(Commit(runs=[second], exclusive=True))
        with pytest.raises(VersionBusyError, match=second.id):
            await living.delete(base.id, exclusive=True)
        living.mark_orphaned(second.id)
        await living.delete(base.id, exclusive=True)
        assert await living.versions() == []
