"""Webhooks in Python: what cannot be created says why."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

from pydantic_deep.errors import ValidationError
from pydantic_deep.repository import RowNotFoundError
from pydantic_deep.server import InvalidWebhookError, Webhooks
from pydantic_deep.server.webhooks._webhooks import MAX_WEBHOOKS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ('events', 'problem'),
    [([], 'There are no events.'), (['run.ended', 'run.began'], "There is no event 'run.began'.")],
)
async def test_unknown_events_are_refused(webhooks: Webhooks, events: list[str], problem: str):
    """A webhook needs one of the known events, which the error lists."""
    with pytest.raises(InvalidWebhookError) as caught:
        await webhooks.create(owner='ada', url='https://example.com/', events=events)
    names = 'approval.requested, approval.answered, run.ended'
    assert str(caught.value) == f'{problem} Name at least one of {names}.'


@pytest.mark.parametrize(
    'arguments', [{'owner': ' '}, {'owner': 'ada', 'agents': 'analyst'}, {'owner': 'ada', 'agents': ['']}]
)
async def test_owner_and_agents_are_names(webhooks: Webhooks, arguments: dict[str, Any]):
    with pytest.raises(ValidationError):
        await webhooks.create(url='https://example.com/', **arguments)
    assert await webhooks.list() == []


async def test_webhook_of_another_owner_is_not_found(webhooks: Webhooks):
    """`get` with an owner returns the webhooks of this owner only."""
    hook, _ = await webhooks.create(owner='ada', url='https://example.com/')
    assert await webhooks.get(hook.id) == await webhooks.get(hook.id, 'ada') == hook
    with pytest.raises(RowNotFoundError):
        await webhooks.get(hook.id, 'bob')


async def test_concurrent_creations_respect_the_limit(webhooks: Webhooks):
    async def create() -> None:
        with suppress(InvalidWebhookError):
            await webhooks.create(owner='ada', url='https://example.com/')

    async with anyio.create_task_group() as group:
        for _ in range(MAX_WEBHOOKS + 10):
            group.start_soon(create)
    assert len(await webhooks.list('ada')) <= MAX_WEBHOOKS
    await webhooks.create(owner='bob', url='https://example.com/')


async def test_test_of_a_removed_webhook_leaves_nothing(webhooks: Webhooks):
    """A test that was requested before the webhook was removed, perhaps at another server, does not bring it back."""
    hook, _ = await webhooks.create(owner='ada', url='https://example.com/')
    await webhooks.remove(hook)
    with pytest.raises(RowNotFoundError):
        await webhooks.send_test(hook)
    assert await webhooks.list() == []
    assert await webhooks.deliveries.count() == 0
