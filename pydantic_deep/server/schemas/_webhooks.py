"""Webhooks and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.server.webhooks._webhooks import (
    EVENT_TYPES,
    MAX_URL_CHARS,
    DeliveryState,
    EventType,
    Webhook,
    WebhookDelivery,
)

_EXAMPLE = {
    'id': EXAMPLE_ID,
    'url': 'https://example.com/hook',
    'events': ['approval.requested', 'run.ended'],
    'agents': None,
    'created_at': EXAMPLE_MOMENT,
    'disabled_at': None,
    'disabled_reason': None,
}
_EXAMPLE_DELIVERY = {
    'id': 'msg_9f86d081884c7d659a2feaa0c55ad015',
    'type': 'run.ended',
    'state': 'pending',
    'created_at': EXAMPLE_MOMENT,
    'next_attempt_at': EXAMPLE_MOMENT,
    'attempts': 1,
    'status_code': 503,
    'problem': 'The receiver responded with the status 503.',
}


class NewWebhook(BaseModel):
    """A webhook to create."""

    model_config = example_config({'url': 'https://example.com/hook', 'events': ['run.ended']}, extra='forbid')

    url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS)]
    """The URL that receives the events. It needs `https`, and a host with public addresses."""
    events: Annotated[list[EventType], Field(min_length=1)] = list(EVENT_TYPES)
    """The events to send. Default: all."""


class WebhookInfo(BaseModel):
    """A webhook, without its secret."""

    model_config = example_config(_EXAMPLE)

    id: str
    """The id of the webhook."""
    url: str
    """The URL that receives the events."""
    events: list[EventType]
    """The events that are sent."""
    agents: list[str] | None
    """The agents whose events are sent; null for all."""
    created_at: datetime
    """When the webhook was created."""
    disabled_at: datetime | None
    """When sending stopped; null if it did not. A test starts it again."""
    disabled_reason: str | None
    """Why sending stopped."""

    @classmethod
    def of(cls, hook: Webhook) -> WebhookInfo:
        """Return what its owner sees of a webhook."""
        return cls.model_validate(hook.model_dump())


class CreatedWebhook(WebhookInfo):
    """A new webhook with its secret."""

    model_config = example_config({**_EXAMPLE, 'secret': 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'})

    secret: str
    """The secret that verifies the signatures. It is not shown again."""


class WebhookList(BaseModel):
    """The webhooks of an owner."""

    model_config = example_config({'items': [_EXAMPLE]})

    items: list[WebhookInfo]
    """The webhooks, oldest first."""


class DeliveryInfo(BaseModel):
    """One event for one webhook."""

    model_config = example_config(_EXAMPLE_DELIVERY)

    id: str
    """The header `webhook-id` of its requests."""
    type: str
    """The type of the event; `test` for a test."""
    state: DeliveryState
    """`pending`: it will be sent, or sent again. `failed`: it will not."""
    created_at: datetime
    """When the event was found."""
    next_attempt_at: datetime
    """When it is due, while it is pending; otherwise when the last request was sent."""
    attempts: int
    """The number of requests that were sent."""
    status_code: int | None
    """The HTTP status of the last response; null without one."""
    problem: str | None
    """Why the last request failed; null if it did not."""

    @classmethod
    def of(cls, delivery: WebhookDelivery) -> DeliveryInfo:
        """Return what its owner sees of a delivery."""
        return cls.model_validate(delivery.model_dump())


class DeliveryPage(BaseModel):
    """A page of deliveries."""

    model_config = example_config({'items': [_EXAMPLE_DELIVERY], 'cursor': None})

    items: list[DeliveryInfo]
    """The deliveries, newest first."""
    cursor: str | None
    """The cursor of the next page; null for the last page."""
