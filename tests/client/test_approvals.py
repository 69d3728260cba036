"""Approvals by the client."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pydantic_deep.approvals import Approve, Deny, Edit, Respond
from pydantic_deep.client import ApiError, Client
from pydantic_deep.client._approvals import _body  # pyright: ignore[reportPrivateUsage]
from pydantic_deep.errors import ValidationError
from pydantic_deep.views import StoredApproval

pytestmark = pytest.mark.anyio


async def pause(client: Client, prompt: str = '/a=1') -> Sequence[StoredApproval]:
    """Start a turn that pauses, and return its approvals."""
    conversation = await client.conversations.create('careful')
    run = await client.turns.start(conversation.id, prompt)
    return (await client.turns.wait(run.id)).approvals


async def test_approvals_are_listed_by_status(ada: Client):
    """The list has pending approvals by default, and all of them on request."""
    one, other = await pause(ada, '/a=1 /b=2')
    await ada.approvals.answer(one, Deny())

    assert [each.id async for each in ada.approvals.list()] == [other.id]
    assert [each.status async for each in ada.approvals.list(status='denied')] == ['denied']
    everything = ada.approvals.list(status=None, agent='careful', conversation_id=one.conversation_id)
    assert [each.id async for each in everything] == [one.id, other.id]
    assert await ada.approvals.get(other.id) == other


async def test_edited_call_runs_with_the_new_arguments(ada: Client):
    """An edit replaces the arguments of the call, and has its reason in the record."""
    [approval] = await pause(ada)

    edit = Edit({'path': '/a', 'content': 'other\n'})
    answered = await ada.approvals.answer(approval, edit, reason='A typo.', resume=True)
    run = await ada.turns.wait(answered.run_id or '')

    assert (answered.approval.status, answered.approval.reason) == ('edited', 'A typo.')
    assert await ada.files.read(run.version_id or '', '/a') == b'other\n'


async def test_answer_applies_only_to_the_call_that_was_shown(ada: Client):
    """An answer with another digest, and a second answer, are refused with 409."""
    [approval] = await pause(ada)

    with pytest.raises(ApiError) as changed:
        await ada.approvals.answer(approval, Approve(digest='0' * 64))
    await ada.approvals.answer(approval, Approve())
    with pytest.raises(ApiError) as again:
        await ada.approvals.answer(approval, Deny())

    assert (changed.value.status, again.value.status) == (409, 409)
    assert again.value.facts == {'status': 'approved', 'decided_by': 'ada'}


async def test_reason_of_a_denial_is_sent_to_the_model(ada: Client):
    """The model receives the text of the denial as the result of its call."""
    [approval] = await pause(ada)

    answered = await ada.approvals.answer(approval, Deny('Not that file.'), resume=True)
    run = await ada.turns.wait(answered.run_id or '')
    version = await ada.versions.get(run.version_id or '')

    assert [call.content for call in version.tool_calls] == ['Not that file.']
    with pytest.raises(ValidationError, match='reason: A denial has its own reason'):
        await ada.approvals.answer(approval, Deny(), reason='No.')


@pytest.mark.parametrize(
    ('content', 'reason', 'body'),
    [
        ('blue', None, {'decision': 'respond', 'content': 'blue'}),
        (None, 'Asked.', {'decision': 'respond', 'content': None, 'reason': 'Asked.'}),
    ],
)
def test_response_may_be_null(content: str | None, reason: str | None, body: dict[str, str | None]):
    """The response to a call is sent even if it is null."""
    assert _body(Respond(content), reason) == body
