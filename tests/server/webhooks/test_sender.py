"""Deliveries: signed, repeated with growing waits, and sent by one process at a time."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import timedelta

import anyio
import pytest
import standardwebhooks
from fastapi import Response

from pydantic_deep.server import Webhook, WebhookDelivery, Webhooks, open_webhooks
from pydantic_deep.server.webhooks import _sender
from pydantic_deep.server.webhooks._requests import Reply
from pydantic_deep.server.webhooks._sender import BACKOFF_SECONDS, RETENTION
from pydantic_deep.store import StoreUnavailableError
from pydantic_deep.testing import FakeClock
from tests.server.conftest import Client, Served

from .conftest import KEY, Receiver, Rounds, new_rounds, run

pytestmark = pytest.mark.anyio


async def only(webhooks: Webhooks) -> WebhookDelivery:
    """Return the only delivery."""
    [delivery] = (await webhooks.deliveries.list()).items
    return delivery


async def test_signature_is_verified_by_the_official_library(served: Served, receiver: Receiver):
    """A request has the headers of Standard Webhooks, and its signature is valid for the secret that was shown."""
    async with open_webhooks(served.store, key=KEY, private_hosts=['127.0.0.1']) as webhooks:
        hook, secret = await webhooks.create(owner='ada', url=receiver.url)
        sent = await webhooks.send_test(hook)
        await new_rounds(served, webhooks)()
    [(headers, body)] = receiver.requests
    assert headers['webhook-id'] == sent.id
    assert headers['content-type'] == 'application/json'
    assert standardwebhooks.Webhook(secret).verify(body, dict(headers)) == json.loads(body)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(body.replace('test', 'tent'), dict(headers))


async def test_failed_delivery_is_repeated_with_growing_waits(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, rounds: Rounds, clock: FakeClock
):
    """A delivery that fails is sent again after each wait, with the same id, until it succeeds."""
    receiver.responses = [Response(status_code=500), Response(status_code=302, headers={'location': receiver.url})]
    await run(ada)
    await rounds()
    delivery = await only(webhooks)
    assert (delivery.state, delivery.attempts, delivery.status_code) == ('pending', 1, 500)
    assert delivery.problem == 'The receiver responded with the status 500.'
    await rounds()
    assert len(receiver.requests) == 1
    for wait in BACKOFF_SECONDS[:2]:
        clock.advance(wait)
        await rounds()
    assert len(receiver.requests) == 3
    assert len({headers['webhook-id'] for headers, _ in receiver.requests}) == 1
    assert len({headers['webhook-timestamp'] for headers, _ in receiver.requests}) == 3
    delivery = await only(webhooks)
    assert (delivery.state, delivery.attempts, delivery.status_code, delivery.problem) == ('delivered', 3, 204, None)


async def test_webhook_is_disabled_after_the_last_attempt(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, rounds: Rounds, clock: FakeClock
):
    """After all attempts, the delivery has failed and the webhook is disabled with the reason; a test enables it."""
    receiver.responses = [Response(status_code=500) for _ in range(len(BACKOFF_SECONDS) + 1)]
    await run(ada)
    for wait in (0, *BACKOFF_SECONDS, 86_400):
        clock.advance(wait)
        await rounds()
    assert len(receiver.requests) == len(BACKOFF_SECONDS) + 1
    disabled = await webhooks.get(hook.id)
    assert disabled.disabled_at is not None
    assert disabled.disabled_reason == (
        'The receiver responded with the status 500. No more requests are sent after 10 attempts.'
    )
    await webhooks.send_test(disabled)
    await rounds()
    assert receiver.types[-1] == 'test'
    assert (await webhooks.get(hook.id)).disabled_at is None


async def test_receiver_that_is_gone_is_disabled_at_once(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, rounds: Rounds
):
    """The status 410 disables the webhook."""
    receiver.responses = [Response(status_code=410)]
    await run(ada)
    await rounds()
    assert (await only(webhooks)).state == 'failed'
    assert (await webhooks.get(hook.id)).disabled_reason == (
        'The receiver responded with the status 410. No more requests are sent after 1 attempt.'
    )


async def test_receiver_that_is_down_is_tried_again(ada: Client, webhooks: Webhooks, rounds: Rounds, served: Served):
    """A request without a response is repeated, and the delivery shows what happened."""
    await webhooks.create(owner='ada', url='http://127.0.0.1:9/')
    await rounds()
    await run(ada)
    await rounds()
    delivery = await only(webhooks)
    assert (delivery.state, delivery.attempts, delivery.status_code) == ('pending', 1, None)
    assert (delivery.problem or '').startswith('The request failed: ')


@pytest.mark.parametrize(
    ('header', 'waits'), [('60', 60), ('1e9', 86_400), ('nan', 5), ('Wed, 21 Oct 2026 07:28:00 GMT', 5), ('1', 5)]
)
async def test_receiver_can_ask_for_a_longer_wait(
    ada: Client,
    hook: Webhook,
    webhooks: Webhooks,
    receiver: Receiver,
    rounds: Rounds,
    clock: FakeClock,
    header: str,
    waits: int,
):
    """`Retry-After` in seconds extends the wait, up to a day."""
    receiver.responses = [Response(status_code=503, headers={'retry-after': header})]
    await run(ada)
    await rounds()
    wait = (await only(webhooks)).next_attempt_at - clock.now()
    assert wait.total_seconds() == pytest.approx(waits, abs=1)


async def test_failure_leaves_later_deliveries_for_the_next_round(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, rounds: Rounds
):
    """A receiver that fails gets one request a round, and the other deliveries are not lost."""
    await run(ada)
    await run(ada)
    receiver.responses = [Response(status_code=500)]
    await rounds()
    assert len(receiver.requests) == 1
    await rounds()
    assert len(receiver.requests) == 2


async def test_receivers_do_not_wait_for_each_other(
    ada: Client, webhooks: Webhooks, receiver: Receiver, rounds: Rounds
):
    """Each webhook gets the event, whatever the others respond."""
    for _ in range(2):
        await webhooks.create(owner='ada', url=receiver.url)
    await rounds()
    receiver.responses = [Response(status_code=500)]
    await run(ada)
    await rounds()
    assert receiver.types == ['run.ended', 'run.ended']
    assert len({headers['webhook-id'] for headers, _ in receiver.requests}) == 2


async def test_webhook_in_progress_is_not_begun_twice(
    ada: Client, hook: Webhook, rounds: Rounds, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """While a receiver is slow, further rounds send it nothing."""
    reached, opened = anyio.Event(), anyio.Event()
    post = _sender.post

    async def slow(*args: object) -> object:
        reached.set()
        await opened.wait()
        return await post(*args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(_sender, 'post', slow)
    await run(ada)
    async with anyio.create_task_group() as group:
        await rounds.sender.work(group)
        await reached.wait()
        await rounds.sender.work(group)
        opened.set()
    assert len(receiver.requests) == 1


async def test_other_process_sends_nothing_while_the_first_lives(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, served: Served
):
    """Only the process with the lease sends, and the next one takes it when the first has ended."""
    await run(ada)
    other = new_rounds(served, webhooks)
    await other()
    assert receiver.requests == []
    [lease] = (await webhooks.tracked.list({'kind': 'lease'})).items
    await webhooks.tracked.upsert(lease.model_copy(update={'holder': 'a dead process'}))
    await other()
    assert receiver.types == ['run.ended']
    [taken] = (await webhooks.tracked.list({'kind': 'lease'})).items
    assert (taken.position, taken.holder) == (lease.position + 1, served.store.owner)


async def test_process_that_is_too_late_for_the_lease_sends_nothing(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, served: Served, monkeypatch: pytest.MonkeyPatch
):
    """Of two processes that take the lease of a dead one, one gets it."""
    await run(ada)
    [lease] = (await webhooks.tracked.list({'kind': 'lease'})).items
    dead = lease.model_copy(update={'holder': 'a dead process'})
    await webhooks.tracked.upsert(dead)
    first, second = new_rounds(served, webhooks), new_rounds(served, webhooks)
    living = served.store.engine.living_owners

    async def first_takes_it(owners: list[str]) -> set[str]:
        monkeypatch.undo()
        await first()
        return await living(owners)

    monkeypatch.setattr(served.store.engine, 'living_owners', first_takes_it)
    await second()
    assert len(receiver.requests) == 1


async def test_lease_ends_with_the_sender(webhooks: Webhooks, rounds: Rounds, monkeypatch: pytest.MonkeyPatch):
    """A sender that stops gives the lease back."""
    worked, hooks = anyio.Event(), webhooks.list

    async def note() -> list[Webhook]:
        assert await webhooks.tracked.count({'kind': 'lease'}) == 1
        worked.set()
        return await hooks()

    object.__setattr__(webhooks, 'list', note)
    async with anyio.create_task_group() as group:
        group.start_soon(rounds.sender.run)
        await worked.wait()
        group.cancel_scope.cancel()
    assert await webhooks.tracked.count({'kind': 'lease'}) == 0


async def test_failures_of_the_store_are_logged_and_repeated(
    rounds: Rounds, webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A round that fails is logged, and the next one works."""
    monkeypatch.setattr(_sender, 'INTERVAL_SECONDS', 0)
    hooks, failures = webhooks.list, [OSError('the disk failed')]

    async def fail_once(*args: object) -> object:
        if failures:
            raise failures.pop()
        worked.set()
        return await hooks()

    worked = anyio.Event()
    object.__setattr__(webhooks, 'list', fail_once)
    async with anyio.create_task_group() as group:
        group.start_soon(rounds.sender.run)
        await worked.wait()
        group.cancel_scope.cancel()
    assert 'Events for webhooks could not be sent' in caplog.text


async def test_result_that_cannot_be_stored_is_sent_again(
    ada: Client,
    hook: Webhook,
    webhooks: Webhooks,
    rounds: Rounds,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """A delivery whose result was not stored is repeated with the same id."""
    await run(ada)

    async def fail(key: str, change: object) -> None:
        raise OSError('the disk failed')

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(webhooks.deliveries, 'update', fail)
        await rounds()
    assert f'The deliveries of the webhook {hook.id} could not be sent' in caplog.text
    await rounds()
    first, second = (headers['webhook-id'] for headers, _ in receiver.requests)
    assert first == second


async def test_changed_key_disables_the_webhook(
    ada: Client, hook: Webhook, webhooks: Webhooks, rounds: Rounds, receiver: Receiver
):
    """A webhook whose secret depends on an earlier `webhook_key` is disabled with the reason, and gets nothing."""
    await run(ada)
    object.__setattr__(webhooks, 'key', 'another ' + KEY)
    await rounds()
    assert receiver.requests == []
    assert (await webhooks.get(hook.id)).disabled_reason == (
        'The setting `webhook_key` has changed, so the secret is invalid. Remove the webhook, and add it again.'
    )


async def test_revoked_key_disables_its_webhooks(
    ada: Client, webhooks: Webhooks, rounds: Rounds, receiver: Receiver, served: Served
):
    """After the API key that created a webhook was revoked, it gets nothing; one of an unknown key neither."""
    await served.key('run')
    [*_, key] = await served.state.keys.list()
    hook, _ = await webhooks.create(owner='ada', url=receiver.url, key_id=key.id)
    unknown, _ = await webhooks.create(owner='ada', url=receiver.url, key_id='unknown')
    await rounds()
    await run(ada)
    await served.state.keys.revoke(key.id)
    await rounds()
    assert receiver.requests == []
    for id in (hook.id, unknown.id):
        assert (await webhooks.get(id)).disabled_reason == (
            'The API key that created the webhook is revoked or has expired. Add it again with another key.'
        )


async def test_webhook_that_was_removed_meanwhile_is_not_stored_again(
    ada: Client, hook: Webhook, webhooks: Webhooks, rounds: Rounds, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """Disabling a webhook that its owner removed at the same time changes nothing, and neither does its last delivery."""
    await run(ada)

    async def removed(*args: object) -> object:
        await webhooks.remove(hook)
        return Reply(410, None)

    monkeypatch.setattr(_sender, 'post', removed)
    await rounds()
    assert await webhooks.list() == []
    assert await webhooks.deliveries.count() == 0


async def test_idle_round_reads_little_and_writes_nothing(
    hook: Webhook, rounds: Rounds, served: Served, monkeypatch: pytest.MonkeyPatch
):
    """A round without events reads five times, with any number of stored runs, and writes nothing."""
    engine = served.store.engine
    counts = {'read': 0, 'write': 0}
    is_counted = ContextVar('is_counted', default=False)  # tasks of the server use the store meanwhile

    def counting(name: str) -> object:
        method = getattr(engine, name)

        async def count(operation: object) -> object:
            counts[name] += is_counted.get()
            return await method(operation)

        return count

    for name in counts:
        monkeypatch.setattr(engine, name, counting(name))
    is_counted.set(True)
    await rounds()
    assert counts == {'read': 5, 'write': 0}


async def test_sender_that_never_sent_stops(webhooks: Webhooks, rounds: Rounds, monkeypatch: pytest.MonkeyPatch):
    """A sender that is stopped without a lease, and while the store is unavailable, stops without an error."""
    tried = anyio.Event()

    async def fail(*args: object, **options: object) -> object:
        tried.set()
        raise StoreUnavailableError('The disk failed.')

    monkeypatch.setattr(webhooks.tracked, 'list', fail)
    async with anyio.create_task_group() as group:
        group.start_soon(rounds.sender.run)
        await tried.wait()
        group.cancel_scope.cancel()


async def test_old_deliveries_are_removed(
    ada: Client, hook: Webhook, webhooks: Webhooks, rounds: Rounds, clock: FakeClock
):
    """Deliveries are stored for seven days."""
    await run(ada)
    await rounds()
    clock.advance(RETENTION.total_seconds())
    await rounds()
    assert await webhooks.deliveries.count() == 0
    assert timedelta(seconds=sum(BACKOFF_SECONDS)) * 1.1 < RETENTION
