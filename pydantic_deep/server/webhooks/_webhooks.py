"""The stored webhooks and deliveries, and what an owner can do with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import httpx2
from pydantic import AwareDatetime, BaseModel, ConfigDict

from pydantic_deep._checks import check_name, check_name_list
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.repository import Repository, RowExistsError, RowNotFoundError, SqlRepository, Where
from pydantic_deep.store import SqlStore, new_id

from ._requests import is_public
from ._signature import digest_of, secret_of

T = TypeVar('T', bound=BaseModel)

EventType: TypeAlias = Literal['approval.requested', 'approval.answered', 'run.ended']
"""An event that a webhook can receive. `run.ended` is not sent for a run that ends with pending approvals."""

EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)
"""All events, in the order of `EventType`."""

DeliveryState: TypeAlias = Literal['pending', 'delivered', 'failed']
"""`pending`: it will be sent or sent again. `failed`: it will not."""

PAGE = 1000
"""Number of rows that are read at once."""

MAX_WEBHOOKS = 20
"""Maximum number of webhooks of one owner."""

MAX_URL_CHARS = 2000
"""Maximum length of the URL of a webhook."""

MAX_PORT = 65535
"""The highest port of TCP."""


class InvalidWebhookError(DeepAgentError, ValueError):
    """A webhook cannot be created."""


class Webhook(BaseModel):
    """A URL that receives events of one owner."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: str
    """The id of the webhook."""
    owner: str
    """The owner of the conversations."""
    agents: tuple[str, ...] | None
    """The agents that the creator may use; `None` for all. Events of others are not sent."""
    key_id: str | None
    """The API key that created it, and without which nothing is sent; `None` for a login or the command line."""
    url: str
    """The URL that receives the events."""
    events: tuple[EventType, ...]
    """The events to send."""
    secret_digest: str
    """The SHA-256 of the secret."""
    created_at: AwareDatetime
    """When the webhook was created."""
    disabled_at: AwareDatetime | None = None
    """When sending stopped; `None` if it did not."""
    disabled_reason: str | None = None
    """Why sending stopped."""


class WebhookDelivery(BaseModel):
    """One event for one webhook."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: str
    """The value of the header `webhook-id`: a digest of the webhook and the event."""
    webhook_id: str
    """The webhook to send to."""
    type: str
    """The type of the event; `test` for a test."""
    body: str
    """The JSON to send."""
    created_at: AwareDatetime
    """When the event was found."""
    state: DeliveryState = 'pending'
    """Whether the delivery will be sent."""
    next_attempt_at: AwareDatetime
    """When it is due, while it is pending."""
    attempts: int = 0
    """The number of requests that were sent."""
    status_code: int | None = None
    """The HTTP status of the last response; `None` without one."""
    problem: str | None = None
    """Why the last attempt failed; `None` if none has failed."""


class Tracked(BaseModel):
    """Something that the discovery of events remembers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: str
    """The id of the run or approval, `position`, or `lease-` with a number."""
    kind: Literal['position', 'run', 'approval', 'lease']
    """A run that has not ended, an approval that is pending, the position in the list of runs, or who sends."""
    position: int = 0
    """The position in the list of runs, or the number of the lease."""
    holder: str = ''
    """The owner of the lease."""


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """The webhooks of a store: `open_webhooks` returns it."""

    hooks: SqlRepository[Webhook]
    """The webhooks, by id."""
    deliveries: SqlRepository[WebhookDelivery]
    """The deliveries, by id."""
    tracked: SqlRepository[Tracked]
    """The state of the discovery."""
    key: str | None
    """The setting `webhook_key`."""
    private_hosts: Collection[str]
    """The setting `webhook_private_hosts`."""
    clock: Callable[[], datetime]
    """The clock of creations and attempts."""

    async def create(
        self,
        *,
        owner: str,
        url: str,
        events: Sequence[str] = EVENT_TYPES,
        agents: Sequence[str] | None = None,
        key_id: str | None = None,
    ) -> tuple[Webhook, str]:
        """Create a webhook, and return it with its secret. This is the only time that the secret is shown.

        Args:
            owner: The owner of the conversations.
            url: The URL that receives the events.
            events: The events to send. By default, all.
            agents: The agents whose events are sent. By default, all.
            key_id: The API key that creates it. Sending stops when it is revoked or expires.

        Raises:
            InvalidWebhookError: The setting `webhook_key` is missing, the URL cannot be used, there are no events or an
                unknown one, or the owner has too many webhooks.
            ValidationError: The owner or an agent is blank or not a string, or `agents` is a text.
        """
        check_name('owner', owner)
        check_name_list('agents', agents)
        if self.key is None:
            raise InvalidWebhookError(
                'Webhooks need the setting `webhook_key`, from which their secrets are derived. Set it to 32 or more '
                'random characters.'
            )
        if problem := url_problem(url, self.private_hosts):
            raise InvalidWebhookError(problem)
        chosen: list[EventType] = [type for type in EVENT_TYPES if type in events]
        if not chosen or len(chosen) < len(set(events)):
            unknown = next((event for event in events if event not in EVENT_TYPES), None)
            problem = 'There are no events.' if unknown is None else f'There is no event {unknown!r}.'
            raise InvalidWebhookError(f'{problem} Name at least one of {", ".join(EVENT_TYPES)}.')
        id = new_id()
        secret = secret_of(self.key, id)
        hook = Webhook(
            id=id,
            owner=owner,
            agents=None if agents is None else tuple(agents),
            key_id=key_id,
            url=url,
            events=tuple(chosen),
            secret_digest=digest_of(secret),
            created_at=self.clock(),
        )
        await self.hooks.create(hook)
        if await self.hooks.count({'owner': owner}) > MAX_WEBHOOKS:  # counted afterwards, with concurrent ones
            await self.remove(hook)
            raise InvalidWebhookError(f'There are {MAX_WEBHOOKS} webhooks, and no more are possible. Remove one.')
        return hook, secret

    async def list(self, owner: str | None = None) -> list[Webhook]:
        """Return the webhooks of an owner, or of all owners, oldest first."""
        return [hook async for hook in rows(self.hooks, None if owner is None else {'owner': owner})]

    async def get(self, id: str, owner: str | None = None) -> Webhook:
        """Return a webhook.

        Args:
            id: The id of the webhook.
            owner: The owner that it must have. By default, any.

        Raises:
            RowNotFoundError: There is no such webhook of this owner.
        """
        hook = await self.hooks.get(id)
        if owner not in (None, hook.owner):
            raise RowNotFoundError('server_webhook', id)
        return hook

    async def remove(self, hook: Webhook) -> None:
        """Remove a webhook with its deliveries. A request that is being sent may still arrive."""
        await self.hooks.delete(hook.id)
        while page := (await self.deliveries.list({'webhook_id': hook.id}, limit=1000)).items:
            for delivery in page:
                await self.deliveries.delete(delivery.id)

    async def send_test(self, hook: Webhook) -> WebhookDelivery:
        """Store a delivery of the type `test`, and enable a webhook that was disabled.

        Raises:
            RowNotFoundError: The webhook was removed meanwhile.
        """
        if not await self.set_disabled(hook.id, None, None):
            raise RowNotFoundError('server_webhook', hook.id)
        moment = self.clock()
        delivery = self._delivery(hook, 'test', new_id(), moment, {'webhook_id': hook.id})
        await self.deliveries.create(delivery)
        return delivery

    async def set_disabled(self, id: str, at: datetime | None, reason: str | None) -> bool:
        """Disable a webhook, or enable it; return whether it exists.

        Args:
            id: The id of the webhook.
            at: When sending stopped; `None` to enable it.
            reason: Why sending stopped.
        """
        values = {'disabled_at': at, 'disabled_reason': reason}
        return await self.hooks.update(id, lambda hook: hook and hook.model_copy(update=values)) is not None

    async def add(self, hook: Webhook, type: EventType, subject: str, at: datetime, data: Mapping[str, Any]) -> None:
        """Store a delivery, unless it exists: an event that is found again after a crash is sent once.

        Args:
            hook: The webhook to send to.
            type: The type of the event.
            subject: The id of the run or approval.
            at: When the event occurred.
            data: The content of the event.
        """
        try:
            await self.deliveries.create(self._delivery(hook, type, subject, at, data))
        except RowExistsError:
            return

    def _delivery(
        self, hook: Webhook, type: str, subject: str, at: datetime, data: Mapping[str, Any]
    ) -> WebhookDelivery:
        digest = hashlib.sha256(f'{hook.id} {type} {subject}'.encode()).hexdigest()
        now = self.clock()
        return WebhookDelivery(
            id=f'msg_{digest[:32]}',
            webhook_id=hook.id,
            type=type,
            body=json.dumps({'type': type, 'timestamp': at.isoformat().replace('+00:00', 'Z'), 'data': data}),
            created_at=now,
            next_attempt_at=now,
        )


async def rows(repository: Repository[T], where: Where | None = None) -> AsyncGenerator[T]:
    """Yield all rows that match, page by page."""
    cursor: str | None = None
    while True:
        page = await repository.list(where, limit=PAGE, cursor=cursor)
        for row in page.items:
            yield row
        cursor = page.cursor
        if cursor is None:
            return


def url_problem(url: str, private_hosts: Collection[str]) -> str | None:
    """Return why a URL cannot receive events; `None` if it can. The name of its host is resolved for each request."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        return f'{url[:200]!r} is not a URL: {error}. Use one like https://example.com/hook.'
    host, is_private = parsed.host, parsed.host in private_hosts
    if len(url) > MAX_URL_CHARS:
        return f'The URL has {len(url)} characters. Use at most {MAX_URL_CHARS}.'
    if not host or parsed.scheme not in ('https', 'http') or (parsed.port or 0) > MAX_PORT:
        return f'{url!r} is not a URL of a web server. Use one like https://example.com/hook.'
    if parsed.userinfo or parsed.fragment:
        return 'The URL contains a user, a password or a fragment. Remove it; requests are signed.'
    if parsed.scheme == 'http' and not is_private:
        return f'{url!r} is not encrypted. Use https, or name {host!r} in the setting `webhook_private_hosts`.'
    try:
        is_refused = not is_private and not is_public(ip_address(host))
    except ValueError:
        return None
    if is_refused:
        return f'{host} is a private address. Name it in the setting `webhook_private_hosts` to allow it.'
    return None


@asynccontextmanager
async def open_webhooks(
    store: SqlStore,
    *,
    key: str | None,
    private_hosts: Collection[str] = (),
    clock: Callable[[], datetime] | None = None,
) -> AsyncGenerator[Webhooks]:
    """Open the webhooks of a store, and close them at the end of the block. The store remains open.

    Args:
        store: The store of the server.
        key: The setting `webhook_key`.
        private_hosts: The setting `webhook_private_hosts`.
        clock: The clock of creations and attempts. By default, the current time.
    """
    hooks = await SqlRepository[Webhook].open(store, Webhook, fields=['owner'], name='server_webhook')
    fields = ['webhook_id', 'state', 'next_attempt_at', 'created_at']
    deliveries = await SqlRepository[WebhookDelivery].open(
        store, WebhookDelivery, fields=fields, name='server_webhook_delivery'
    )
    tracked = await SqlRepository[Tracked].open(store, Tracked, fields=['kind'], name='server_webhook_tracked')
    try:
        yield Webhooks(
            hooks=hooks,
            deliveries=deliveries,
            tracked=tracked,
            key=key,
            private_hosts=private_hosts,
            clock=clock or partial(datetime.now, UTC),
        )
    finally:
        await tracked.aclose()
        await deliveries.aclose()
        await hooks.aclose()
