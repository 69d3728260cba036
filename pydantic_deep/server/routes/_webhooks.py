"""Routes of webhooks: URLs of the caller that receive notices of approvals and ended runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError, describe_errors, not_found
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._webhooks import (
    CreatedWebhook,
    DeliveryInfo,
    DeliveryPage,
    NewWebhook,
    WebhookInfo,
    WebhookList,
)
from pydantic_deep.server.webhooks._webhooks import InvalidWebhookError, Webhook

from ._parameters import Limit, Runner

router = APIRouter(prefix='/api/webhooks', tags=['webhooks'], route_class=JsonRoute)


@router.post('', status_code=201, summary='Create a webhook', responses=describe_errors())
async def create_webhook(body: NewWebhook, access: Runner) -> CreatedWebhook:
    """The URL receives events of all conversations of the key's owner, signed as Standard Webhooks defines it.

    The response contains the secret, which is not shown again. Events are sent until the key is revoked or expires.
    """
    try:
        hook, secret = await access.state.webhooks.create(
            owner=access.owner,
            url=body.url,
            events=body.events,
            agents=access.identity.agents,
            key_id=access.caller.account if access.caller.has_key else None,
        )
    except InvalidWebhookError as error:
        raise ServerError('invalid', str(error)) from None
    return CreatedWebhook(**WebhookInfo.of(hook).model_dump(), secret=secret)


@router.get('', summary='List webhooks', responses=describe_errors())
async def list_webhooks(access: Runner) -> WebhookList:
    """The webhooks of the key's owner, without their secrets. A key of some agents sees those of these agents."""
    hooks = [hook for hook in await access.state.webhooks.list(access.owner) if _may_manage(access, hook)]
    return WebhookList(items=[WebhookInfo.of(hook) for hook in hooks])


@router.delete('/{webhook}', status_code=204, summary='Remove a webhook', responses=describe_errors('not_found'))
async def remove_webhook(webhook: str, access: Runner) -> None:
    """Removes it with its deliveries. A request that is being sent may still arrive."""
    await access.state.webhooks.remove(await _load(access, webhook))


@router.post('/{webhook}/test', status_code=202, summary='Send a test', responses=describe_errors('not_found'))
async def send_test(webhook: str, access: Runner) -> DeliveryInfo:
    """Sends an event of the type `test`, and enables a webhook that was disabled. Its deliveries show the result."""
    return DeliveryInfo.of(await access.state.webhooks.send_test(await _load(access, webhook)))


@router.get('/{webhook}/deliveries', summary='List the deliveries of a webhook', responses=describe_errors('not_found'))
async def list_deliveries(
    webhook: str,
    access: Runner,
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(description='The cursor of the previous page.', max_length=4096)] = None,
) -> DeliveryPage:
    """The deliveries of the last seven days."""
    hook = await _load(access, webhook)
    page = await access.state.webhooks.deliveries.list(
        {'webhook_id': hook.id}, order_by='-created_at', limit=limit, cursor=cursor
    )
    return DeliveryPage(items=[DeliveryInfo.of(delivery) for delivery in page.items], cursor=page.cursor)


async def _load(access: Access, id: str) -> Webhook:
    """Return a webhook that the caller may manage."""
    hook = await access.state.webhooks.get(id, access.owner)
    if not _may_manage(access, hook):
        raise not_found()
    return hook


def _may_manage(access: Access, hook: Webhook) -> bool:
    """Return whether the caller may use all agents whose events a webhook receives."""
    agents = access.identity.agents
    return agents is None or (hook.agents is not None and all(agent in agents for agent in hook.agents))
