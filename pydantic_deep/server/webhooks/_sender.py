"""Sends the deliveries that are due, in one process of a store at a time.

That process holds the lease, a row that the next process replaces once the first one is dead, which its lock in the
store shows. A process that loses its lock while it sends may send a delivery twice, with the same `webhook-id`.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import anyio
from anyio.abc import TaskGroup

from pydantic_deep.repository import Create, Delete, In, Range, RepositoryError, RowExistsError
from pydantic_deep.server._api_keys import KeyRing
from pydantic_deep.store import SqlStore, StoreError

from ._discovery import Discovery
from ._requests import RequestFailedError, post
from ._signature import digest_of, secret_of, sign
from ._webhooks import Tracked, Webhook, WebhookDelivery, Webhooks

_LOGGER = logging.getLogger('pydantic_deep')

INTERVAL_SECONDS: Final = 1
"""Time between two searches for events, and for deliveries that are due."""

BACKOFF_SECONDS: Final = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Time before each further attempt, as Standard Webhooks recommends. After the last attempt, the webhook is disabled."""

JITTER: Final = 0.1
"""Maximum share by which a time is extended at random, so that a receiver that recovers is not flooded."""

RETENTION: Final = timedelta(days=7)
"""How long deliveries are stored. The attempts of one take three days."""

PRUNE_INTERVAL: Final = timedelta(hours=1)
"""Minimum time between two searches for old deliveries."""

RELEASE_SECONDS: Final = 5
"""How long a sender that stops waits for the store to give the lease back. Without that, its lock shows that it ended."""

_BATCH: Final = 100
"""Maximum number of deliveries to begin at once."""

_GONE: Final = 410
"""The status with which a receiver asks for no more requests."""


class WebhookSender:
    """Finds events, and sends them.

    Args:
        store: The store of the server.
        webhooks: The webhooks, with a key.
        keys: The API keys, without which the webhooks that they created stop.
        owner_key: The key of the owner in the metadata of versions.
        public_url: The setting `public_url`.
        jitter: Returns a random number from 0 to 1.
    """

    def __init__(
        self,
        store: SqlStore,
        webhooks: Webhooks,
        *,
        keys: KeyRing,
        owner_key: str,
        public_url: str | None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._keys = keys
        self._discovery = Discovery(store, webhooks, owner_key=owner_key, public_url=public_url)
        self._jitter = jitter
        self._lease_id = ''
        self._pruned_at: datetime | None = None
        self._sending: set[str] = set()
        """The webhooks with requests in progress."""

    async def run(self) -> None:
        """Work until cancelled. Failures of the store are logged, and end when it is available again."""
        try:
            async with anyio.create_task_group() as group:
                while True:
                    try:
                        await self.work(group)
                    except Exception:  # outermost boundary: the next round tries again
                        _LOGGER.exception('Events for webhooks could not be sent')
                    await anyio.sleep(INTERVAL_SECONDS)
        finally:
            with anyio.move_on_after(RELEASE_SECONDS, shield=True), suppress(StoreError, RepositoryError):
                if self._lease_id:
                    await self._webhooks.tracked.delete(self._lease_id)

    async def work(self, group: TaskGroup) -> None:
        """Find events and begin to send what is due, if this process holds the lease.

        Args:
            group: Runs the requests.
        """
        if not await self._holds_lease():
            return
        hooks = [hook for hook in await self._webhooks.list() if hook.disabled_at is None]
        await self._discovery.discover(hooks)
        await self._prune()
        if not hooks:
            return
        by_id = {hook.id: hook for hook in hooks if hook.id not in self._sending}
        due = await self._webhooks.deliveries.list(
            {
                'webhook_id': In(list(by_id)),
                'state': 'pending',
                'next_attempt_at': Range(le=self._webhooks.clock()),
            },
            order_by='next_attempt_at',
            limit=_BATCH,
        )
        batches: dict[str, list[WebhookDelivery]] = {}
        for delivery in due.items:
            batches.setdefault(delivery.webhook_id, []).append(delivery)
        for id, batch in batches.items():
            self._sending.add(id)
            group.start_soon(self._send_batch, by_id[id], batch)

    async def _holds_lease(self) -> bool:
        """Return whether this process sends, after taking the lease of a dead one."""
        leases = (await self._webhooks.tracked.list({'kind': 'lease'}, limit=1000)).items
        newest = max(leases, key=lambda lease: lease.position, default=None)
        if newest is not None and newest.id == self._lease_id:
            return True
        if newest is not None and await self._store.engine.living_owners([newest.holder]):
            return False
        number = 1 if newest is None else newest.position + 1
        lease = Tracked(id=f'lease-{number}', kind='lease', position=number, holder=self._store.owner)
        await self._discovery.load()
        try:
            await self._webhooks.tracked.apply([Create(lease), *(Delete(old.id) for old in leases)])
        except RowExistsError:  # another process was faster
            return False
        self._lease_id = lease.id
        return True

    async def _prune(self) -> None:
        """Remove old deliveries, once in `PRUNE_INTERVAL`."""
        now = self._webhooks.clock()
        if self._pruned_at is not None and now - self._pruned_at < PRUNE_INTERVAL:
            return
        self._pruned_at, before = now, now - RETENTION
        old = await self._webhooks.deliveries.list({'created_at': Range(lt=before)}, limit=1000)
        for delivery in old.items:
            await self._webhooks.deliveries.delete(delivery.id)

    async def _send_batch(self, hook: Webhook, batch: list[WebhookDelivery]) -> None:
        """Send deliveries one after the other, until one fails."""
        try:
            for delivery in batch:
                if not await self._send(hook, delivery):
                    return
        except Exception:  # outermost boundary: what is not recorded as sent is sent again
            _LOGGER.exception('The deliveries of the webhook %s could not be sent', hook.id)
        finally:
            self._sending.discard(hook.id)

    async def _send(self, hook: Webhook, delivery: WebhookDelivery) -> bool:
        """Make one attempt, store its result, and return whether it was delivered."""
        now = self._webhooks.clock()
        status_code: int | None = None
        retry_after: str | None = None
        if problem := await self._problem(hook):
            await self._webhooks.set_disabled(hook.id, now, problem)
            return False
        secret = secret_of(self._webhooks.key or '', hook.id)
        headers = sign(secret, delivery.id, int(now.timestamp()), delivery.body)
        try:
            status_code, retry_after = await post(hook.url, delivery.body, headers, self._webhooks.private_hosts)
            problem = None if 200 <= status_code < 300 else f'The receiver responded with the status {status_code}.'
        except RequestFailedError as error:
            problem = str(error)
        attempts = delivery.attempts + 1
        is_last = attempts > len(BACKOFF_SECONDS)
        state = 'delivered' if problem is None else 'failed' if is_last or status_code == _GONE else 'pending'
        if state == 'pending':
            wait = max(BACKOFF_SECONDS[attempts - 1] * (1 + JITTER * self._jitter()), _seconds(retry_after))
            now += timedelta(seconds=wait)
        result = {
            'state': state,
            'attempts': attempts,
            'next_attempt_at': now,
            'status_code': status_code,
            'problem': problem,
        }
        await self._webhooks.deliveries.update(delivery.id, lambda stored: stored and stored.model_copy(update=result))
        if state == 'failed':
            number = '1 attempt' if attempts == 1 else f'{attempts} attempts'
            reason = f'{problem} No more requests are sent after {number}.'
            await self._webhooks.set_disabled(hook.id, self._webhooks.clock(), reason)
        return state == 'delivered'

    async def _problem(self, hook: Webhook) -> str | None:
        """Return why nothing may be sent any more; `None` if it may."""
        if digest_of(secret_of(self._webhooks.key or '', hook.id)) != hook.secret_digest:
            return (
                'The setting `webhook_key` has changed, so the secret is invalid. Remove the webhook, and add it again.'
            )
        if hook.key_id is not None and not await self._keys.is_valid(hook.key_id):
            return 'The API key that created the webhook is revoked or has expired. Add it again with another key.'
        return None


def _seconds(retry_after: str | None) -> float:
    """Return the seconds of a header `Retry-After`, at most a day; 0 for a date, or none."""
    try:
        seconds = float(retry_after or 0)
    except ValueError:
        return 0
    return min(seconds, BACKOFF_SECONDS[-1]) if math.isfinite(seconds) else 0
