"""Costs of versions, counted in commits, statements and bytes, at any length of the history."""

from __future__ import annotations

import pytest

from pydantic_deep import StateBackend
from pydantic_deep.store import Commit
from pydantic_deep.store.sql._commit_rows import size_of
from pydantic_deep.testing import call
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def messages_in(commits: list[Commit]) -> int:
    return sum(len(commit.append.messages) for commit in commits if commit.append is not None)


async def test_chat_turn_is_two_commits(make: MakeAgent, store: SpyStore):
    root = await make('one').create()
    store.commits.clear()

    await root.advance('a')

    assert len(store.commits) == 2
    assert messages_in(store.commits) == 2


@pytest.mark.parametrize('steps', [1, 4])
async def test_each_step_with_a_tool_adds_two_commits(make: MakeAgent, store: SpyStore, steps: int):
    def send() -> str:
        """Send."""
        return 'sent'

    root = await make(*(call('send') for _ in range(steps)), 'done', tools=[send]).create()
    store.commits.clear()

    await root.advance('a')

    assert len(store.commits) == 2 + 2 * steps


@pytest.mark.parametrize('tool', ['write_file', 'ls'])
async def test_result_of_a_call_is_stored_once(make: MakeAgent, store: SpyStore, tool: str):
    asked = call('ls') if tool == 'ls' else call('write_file', path='/a', content='x')
    root = await make(asked, 'done').create(backend=StateBackend())

    turn = await root.advance('a')

    (kept,) = await store.calls([turn.record.run_id or ''])
    assert (kept.status, kept.result) == ('done', None)
    assert not [sql for sql in store.counting.writes if sql.startswith('UPDATE tool_call')]


async def test_each_read_only_step_adds_one_commit(make: MakeAgent, store: SpyStore):
    root = await make(call('ls'), call('ls'), 'done').create()
    store.commits.clear()

    await root.advance('a')

    assert len(store.commits) == 2 + 2


async def test_turn_costs_the_same_at_any_length_of_history(make: MakeAgent, store: SpyStore):
    """Statements and bytes of the 5th and the 60th turn; ids and numbers have a fixed length except for their digits."""
    agent = make(then=lambda messages, info: 'answer')
    version = await agent.create()
    costs: dict[int, tuple[int, int, int, int]] = {}
    for turn in range(1, 61):
        store.commits.clear()
        store.counting.reads.clear()
        store.counting.writes.clear()
        version = await version.advance(f'prompt {turn:03}')
        size = sum(size_of(commit) for commit in store.commits)
        costs[turn] = (len(store.counting.writes), len(store.counting.reads), messages_in(store.commits), size)

    assert costs[60][:3] == costs[5][:3]
    assert costs[5][2] == 2
    assert costs[60][3] - costs[5][3] <= 16
    assert version.message_count == 120


async def test_fork_writes_only_new_content_at_any_length_of_history(make: MakeAgent, store: SpyStore):
    """000-06c: Every `advance()` writes only new data, regardless of the length of the history."""
    agent = make(then=lambda messages, info: 'answer')
    versions = [await agent.create()]
    for turn in range(30):
        versions.append(await versions[-1].advance(f'prompt {turn:03}'))
    costs: list[tuple[int, int]] = []
    for index in (2, 28):
        store.commits.clear()
        store.counting.writes.clear()
        await versions[index].advance('prompt alt')
        costs.append((len(store.counting.writes), messages_in(store.commits)))

    assert costs[0] == costs[1]
    assert costs[0][1] == 2


async def test_clone_is_one_commit_without_messages(make: MakeAgent, store: SpyStore):
    """000-06a: The cost of a clone does not depend on the length of the conversation."""
    agent = make(then=lambda messages, info: 'answer')
    version = await agent.create()
    sizes: list[int] = []
    for turn in range(20):
        version = await version.advance(f'prompt {turn:03}')
        store.commits.clear()
        await version.clone()
        sizes.append(sum(size_of(commit) for commit in store.commits))
        assert len(store.commits) == 1

    assert max(sizes) - min(sizes) <= 8


async def test_prompt_is_stored_before_the_model_request(make: MakeAgent, store: SpyStore):
    seen: list[bytes | None] = []

    async def look(messages: object, info: object) -> str:
        seen.extend(run.prompt for run in await store.runs())
        return 'done'

    turn = await (await make(look).create()).advance('remember me')

    assert seen == [b'"remember me"']
    run = await store.run(turn.run_id or '')
    assert run is not None
    assert run.prompt is None
