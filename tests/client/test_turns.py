"""Turns by the client."""

from __future__ import annotations

import pytest

from pydantic_deep.approvals import Approve
from pydantic_deep.client import ApiError, Client

pytestmark = pytest.mark.anyio


async def test_turn_is_started_and_waited_for(ada: Client):
    """Starting a turn returns its run, and waiting returns it with its output."""
    conversation = await ada.conversations.create('analyst')
    started = await ada.turns.start(conversation.id, '/a=1', session_id='mine')
    ended = await ada.turns.wait(started.id)

    assert (ended.state, ended.output, ended.session_id) == ('complete', 'Written.', 'mine')
    assert [run.id async for run in ada.turns.list(conversation_id=conversation.id)] == [started.id]
    assert [run.id async for run in ada.turns.list()] == [started.id]
    assert (await ada.turns.cancel(started.id)).state == 'complete'


async def test_fields_of_a_turn_are_sent(ada: Client):
    """The optional fields reach the server: the version to start from, the branch, settings and the plan mode."""
    conversation = await ada.conversations.create('planner')
    run = await ada.turns.start(conversation.id, 'Hello')
    first = (await ada.turns.wait(run.id)).base_id
    assert first is not None

    aside = await ada.turns.start(
        conversation.id,
        'Otherwise',
        from_version=first,
        branch='aside',
        model_settings={'temperature': 0},
        plan_mode=True,
        max_iterations=5,
    )
    version = await ada.versions.get((await ada.turns.wait(aside.id)).version_id or '')

    assert (version.branch, version.parent_id, version.requests[0].settings['temperature']) == ('aside', first, 0)
    with pytest.raises(ApiError, match='timeout') as refused:
        await ada.turns.start(conversation.id, 'x', model_settings={'timeout': 1})
    assert refused.value.status == 422


async def test_turn_resumes_with_answers_given_before(ada: Client):
    """Answers that were given without resuming take effect when the turn is resumed."""
    conversation = await ada.conversations.create('careful')
    paused = await ada.turns.wait((await ada.turns.start(conversation.id, '/a=1')).id)
    for approval in paused.approvals:
        await ada.approvals.answer(approval, Approve())

    resumed = await ada.turns.wait((await ada.turns.resume(conversation.id)).id)

    assert (paused.state, resumed.state, resumed.output) == ('awaiting_approval', 'complete', 'Written.')
