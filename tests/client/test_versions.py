"""Versions by the client."""

from __future__ import annotations

import pytest

from pydantic_deep.client import ApiError, Client

pytestmark = pytest.mark.anyio


async def say(client: Client, conversation_id: str, prompt: str) -> str:
    """Run a turn, and return the id of its version."""
    run = await client.turns.start(conversation_id, prompt)
    return (await client.turns.wait(run.id)).version_id or ''


async def test_log_and_diff(ada: Client):
    """The log has the versions of turns, newest first, with steps on request, and a diff has the changed files."""
    conversation = await ada.conversations.create('analyst')
    first = await say(ada, conversation.id, '/a=1')
    second = await say(ada, conversation.id, '/a=2')

    log = [version async for version in ada.versions.log(conversation.id)]
    steps = [version.kind async for version in ada.versions.log(conversation.id, steps=True)]
    of_parent, back = await ada.versions.diff(second), await ada.versions.diff(second, first)

    assert [version.id for version in log[:2]] == [second, first]
    assert steps.count('step') == 2
    assert [(file.path, file.kind) for file in of_parent.files] == [('/a', 'changed')]
    assert (back.before, back.after) == (second, first)


async def test_rewind_moves_the_head_by_compare_and_set(ada: Client):
    """A rewind moves the head, unless it is not where the caller expects it."""
    conversation = await ada.conversations.create('analyst')
    first = await say(ada, conversation.id, '/a=1')
    second = await say(ada, conversation.id, '/a=2')

    moved = await ada.versions.rewind(conversation.id, first, expected=second)
    with pytest.raises(ApiError) as late:
        await ada.versions.rewind(conversation.id, second, expected=second)

    assert (moved.id, moved.is_head) == (first, True)
    assert (late.value.status, late.value.facts) == (409, {'head': first})


async def test_branches_are_merged(ada: Client):
    """A branch starts from any version, and a merge has the files of both; a conflict is decided by a choice."""
    conversation = await ada.conversations.create('analyst')
    base = await say(ada, conversation.id, '/a=1')
    head = await say(ada, conversation.id, '/a=2')
    run = await ada.versions.branch(base, '/a=3 /b=3', branch='other')
    other = (await ada.turns.wait(run.id)).version_id or ''

    with pytest.raises(ApiError) as conflict:
        await ada.versions.merge(head, other)
    merged = await ada.versions.merge(head, other, choices={'/a': 'theirs'})

    assert conflict.value.facts == {'conflicts': [{'path': '/a', 'kind': 'content'}]}
    assert (merged.kind, merged.merged_from, merged.is_head) == ('merge', other, True)
    assert await ada.files.read(merged.id, 'a') == b'3\n'
    assert (await ada.versions.merge(merged.id, other)).id == merged.id  # it contains the other already
