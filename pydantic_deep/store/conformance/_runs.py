"""Rules about runs, calls, requests and delegations."""

from __future__ import annotations

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import MOMENT, Dialogue, sample_call, sample_delegation, sample_request, sample_run
from pydantic_deep.store.records import Commit, RunEnd

from ._base import StoreRules


class RunRules(StoreRules):
    """Rules about runs, calls, requests and delegations."""

    async def test_runs_are_listed_newest_first(self, dialogue: Dialogue) -> None:
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

    async def test_ended_run_has_its_usage(self, dialogue: Dialogue) -> None:
        run = sample_run(dialogue.id)
        await dialogue.store.commit(Commit(runs=[run]))
        end = RunEnd(run_id=run.id, state='failed', usage='{"requests":2}', cost='0.5', error='{"type":"E"}')
        await dialogue.store.commit(Commit(ends=[end]))
        stored = await dialogue.store.run(run.id)
        assert stored is not None
        assert (stored.state, stored.usage, stored.cost, stored.error) == ('failed', end.usage, '0.5', '{"type":"E"}')
        assert stored.owner is None
        assert stored.ended_at is not None

    async def test_result_and_prompt_are_removed_when_a_message_has_them(self, dialogue: Dialogue) -> None:
        run = sample_run(dialogue.id)
        started = sample_call(run.id, 'm', 'call_1')
        store = dialogue.store
        await store.commit(Commit(runs=[run], calls=[started, sample_call(run.id, 'm', 'call_2')]))
        done = started._replace(status='done', result='"' + 'x' * 500 + '"', ended_at=MOMENT + 1)
        await store.commit(Commit(calls=[done]))
        assert (await store.calls([run.id]))[0] == done
        await store.commit(Commit(settled_calls=[(run.id, 'm', 'call_1')], clears_prompt_of=run.id))
        assert (await store.calls([run.id]))[0] == done._replace(result=None)
        stored = await store.run(run.id)
        assert stored is not None
        assert stored.prompt is None
        calls = await store.calls([run.id])
        await store.commit(Commit(settled_calls=[(run.id, 'm', 'call_1'), (run.id, 'm', 'call_2')]))
        assert await store.calls([run.id]) == calls  # neither has a result any more

    async def test_calls_are_listed_in_the_order_of_their_start(self, store: Store) -> None:
        calls = [sample_call(run, 'm', f'c{n}', started_at=n) for n, run in enumerate(('a', 'b', 'a'))]
        await store.commit(Commit(calls=calls[::-1]))
        assert await store.calls(['a', 'b']) == calls
        assert await store.calls(['b']) == [calls[1]]
        assert await store.calls([]) == []

    async def test_requests_are_ordered_and_replaced_if_committed_again(self, store: Store) -> None:
        requests = [sample_request('run', number) for number in (1, 2, 3)]
        lost = requests[1]._replace(kind='superseded')
        await store.commit(Commit(requests=[requests[2], lost, requests[0]]))
        assert await store.requests('run') == [requests[0], lost, requests[2]]
        answered = sample_request('run', 2)
        await store.commit(Commit(requests=[answered]))
        assert await store.requests('run') == [requests[0], answered, requests[2]]

    async def test_delegations_are_found_by_parent_and_by_child(self, store: Store) -> None:
        first, second = sample_delegation('run', 'child'), sample_delegation('run', 'other')
        await store.commit(Commit(delegations=[first, second]))
        await store.commit(Commit(delegations=[first._replace(intent='changed')]))
        assert await store.delegations(parent_run_id='run') == [first, second]
        assert await store.delegations(child_conversation_id='other') == [second]
        assert await store.delegations() == [first, second]
