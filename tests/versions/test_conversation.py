"""Many turns from one version and many writers of one conversation: no work is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pydantic_ai import UsageLimitExceeded, UsageLimits
from pydantic_ai.messages import ModelMessage, TextPart, UserPromptPart

from pydantic_deep import Approve
from pydantic_deep.store import VersionConflictError
from pydantic_deep.testing import Answer, call

from .conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def words(messages: Sequence[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart | TextPart)]


def echo(messages: list[ModelMessage], info: object) -> Answer:
    return f're {words(messages)[-1]}'


async def test_twenty_concurrent_turns_are_twenty_children(make: MakeAgent, store: SpyStore):
    agent = make(then=echo)
    base = await (await agent.create()).advance('start')

    children = await asyncio.gather(*[base.advance(f'go {index}') for index in range(20)])

    assert set(await base.children()) == set(children)
    assert len({child.id for child in children}) == 20
    for index, child in enumerate(children):
        loaded = await (make(then=echo)).load(child.id)
        assert words(await loaded.messages()) == ['start', 're start', f'go {index}', f're go {index}']
        assert [v.id for v in await loaded.lineage()][-2:] == [base.id, child.id]
    branches = await store.branches(base.conversation_id)
    assert len(branches) == 20
    assert len({branch.name for branch in branches}) == 20
    assert {child.branch for child in children} == {branch.name for branch in branches}
    assert words(await base.messages()) == ['start', 're start']


async def test_concurrent_children_of_children_do_not_mix(make: MakeAgent):
    agent = make(then=echo)
    root = await agent.create()
    first = await asyncio.gather(*[root.advance(f'{index}') for index in range(5)])

    second = await asyncio.gather(*[each.advance(f'{n}+') for n, each in enumerate(first) for _ in range(2)])

    assert [words(await each.messages())[0] for each in second] == ['0', '0', '1', '1', '2', '2', '3', '3', '4', '4']
    assert await agent.count() == 16


async def test_one_of_two_concurrent_writers_wins_and_both_turns_are_stored(make: MakeAgent, store: SpyStore):
    """C4: of two concurrent writers, one moves the head; the other gets a conflict, and its turn is stored."""
    agent = make(then=echo)
    root = await agent.create()
    ours, theirs = agent.conversation(root.conversation_id), agent.conversation(root.conversation_id)

    results = await asyncio.gather(ours.advance('a'), theirs.advance('b'), return_exceptions=True)

    [won] = [result for result in results if not isinstance(result, BaseException)]
    [lost] = [result for result in results if isinstance(result, VersionConflictError)]
    assert await ours.head() == won
    assert lost.head == won.id
    kept = await agent.load(lost.yours)
    assert sorted([words(await won.messages())[0], words(await kept.messages())[0]]) == ['a', 'b']
    assert {each.id for each in await root.children()} == {won.id, kept.id}
    assert {won.branch, kept.branch} == {branch.name for branch in await ours.branches()}


async def test_conversation_is_always_current(make: MakeAgent):
    """C2: values are immutable, handles move"""
    agent = make('one', 'two')
    root = await agent.create()
    one, other = agent.conversation(root.conversation_id), make('x').conversation(root.conversation_id)

    first = await one.advance('a')
    assert await other.head() == first
    second = await one.advance('b')

    assert words(await other.messages()) == ['a', 'one', 'b', 'two']
    assert (await one.head(), second.parent_id) == (second, first.id)
    assert repr(one) == f'<VersionedConversation {root.conversation_id}>'


async def test_head_can_move_back_and_branch(make: MakeAgent):
    agent = make('one', 'two', 'three')
    root = await agent.create()
    talk = agent.conversation(root.conversation_id)
    first = await talk.advance('a')
    await talk.advance('b')

    await talk.move_to(first)
    third = await talk.advance('c')

    assert third.parent_id == first.id
    assert words(await talk.messages()) == ['a', 'one', 'c', 'three']
    with pytest.raises(ValueError, match='belongs to the conversation'):
        await talk.move_to(await agent.create())


async def test_turns_from_versions_do_not_move_the_head(make: MakeAgent):
    agent = make('one', 'two')
    root = await agent.create()
    talk = agent.conversation(root.conversation_id)
    first = await talk.advance('a')

    await root.advance('b')

    assert await talk.head() == first


async def test_conversation_pauses_and_resumes(make: MakeAgent):
    agent = make(call('write_file', path='/a', content='x'), 'done', interrupt_on={'write_file': True})
    talk = agent.conversation((await agent.create()).conversation_id)
    paused = await talk.advance('go')

    done = await talk.resume({paused.pending[0].id: Approve()}, by='ann')

    assert (await talk.head(), done.output) == (done, 'done')


async def test_turns_of_a_conversation_respect_usage_limits(make: MakeAgent):
    agent = make(call('write_file', path='/a', content='x'), 'done', interrupt_on={'write_file': True})
    talk = agent.conversation((await agent.create()).conversation_id)
    with pytest.raises(UsageLimitExceeded):
        await talk.advance('go', usage_limits=UsageLimits(request_limit=0))
    paused = await talk.advance('go', usage_limits=UsageLimits(request_limit=1))

    with pytest.raises(UsageLimitExceeded):
        await talk.resume({paused.pending[0].id: Approve()}, usage_limits=UsageLimits(request_limit=1))


async def test_missing_conversation_is_named_in_the_error(make: MakeAgent):
    agent = make()
    with pytest.raises(LookupError, match="'nobody'"):
        await agent.conversation('nobody').head()


async def test_deleted_head_falls_back_to_its_parent_or_raises(make: MakeAgent):
    agent = make('one')
    root = await agent.create()
    talk = agent.conversation(root.conversation_id)
    turn = await talk.advance('a')
    clone = await root.clone()

    await agent.delete(turn)
    assert await talk.head() == root
    await agent.delete(root)

    with pytest.raises(LookupError, match='has no head'):
        await talk.head()
    await talk.move_to(clone)
    assert await talk.head() == clone
