"""The commands `webhooks`. They import `pydantic_deep.server`, which needs an extra, only when they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import anyio
import typer
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.render._tables import create_table, print_table
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.repository import RowNotFoundError

from ._options import USAGE_ERROR_CODE, DocumentOption, error_exit, exit_on_error, parse_text, print_document
from ._server import (
    EXIT_CODE_HELP,
    ConfigOption,
    ServedStoreOption,
    choose_shared_store,
    load_server_settings,
    open_served_store,
)

if TYPE_CHECKING:
    from pydantic_deep.server import ServerSettings, Webhook, WebhookDelivery, Webhooks

T = TypeVar('T')

_MAX_LISTED = 50
"""Maximum number of deliveries to list."""

webhooks_app = typer.Typer(
    name='webhooks',
    no_args_is_help=True,
    help='Add, list, test and remove webhooks: URLs that receive notices of approvals and ended runs. A running server '
    'sends them.',
    epilog=EXIT_CODE_HELP,
)


class Event(StrEnum):
    """The events of webhooks."""

    approval_requested = 'approval.requested'
    approval_answered = 'approval.answered'
    run_ended = 'run.ended'


IdArgument = Annotated[str, typer.Argument(metavar='ID', help='The id of the webhook, as `list` shows it.')]


@webhooks_app.command('add', epilog=EXIT_CODE_HELP)
def _add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar='URL', help='The URL that receives the events, with https.')],
    owner: Annotated[
        str,
        typer.Option(
            '--owner',
            metavar='NAME',
            parser=parse_text,
            help='The owner of the conversations, as `keys list` shows it.',
        ),
    ],
    event: Annotated[
        list[Event] | None, typer.Option('--event', help='An event to send. Repeatable. Default: all.')
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option('--agent', metavar='NAME', help='An agent whose events are sent. Repeatable. Default: all.'),
    ] = None,
    store: ServedStoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Add a webhook and print its secret, which verifies the signatures. It is shown only once."""

    async def work(webhooks: Webhooks) -> tuple[Webhook, str]:
        events = [member.value for member in event or Event]
        return await webhooks.create(owner=owner, url=url, events=events, agents=agent)

    hook, secret = _use_webhooks(context, store, config, work, must_exist=False)
    typer.echo(secret)
    typer.echo(f'The webhook is {hook.id}. Store its secret: it is not shown again.', err=True)


@webhooks_app.command('list', epilog=EXIT_CODE_HELP)
def _list(
    context: typer.Context,
    owner: Annotated[
        str | None,
        typer.Option('--owner', metavar='NAME', parser=parse_text, help='Only webhooks of this owner. Default: all.'),
    ] = None,
    store: ServedStoreOption = None,
    config: ConfigOption = None,
    json: DocumentOption = False,
) -> None:
    """List webhooks without their secrets, oldest first."""
    hooks = _use_webhooks(context, store, config, lambda webhooks: webhooks.list(owner))
    if json:
        print_document([hook.model_dump(mode='json', exclude={'secret_digest'}) for hook in hooks])
    elif hooks:
        rows = [(hook.id, hook.owner, hook.url, _events_of(hook), hook.disabled_reason or 'no') for hook in hooks]
        _print_table(('id', 'owner', 'url', 'events', 'disabled'), rows)
    else:
        typer.echo('There are no webhooks. Add one: pydantic-deep webhooks add URL --owner NAME', err=True)


@webhooks_app.command('remove', epilog=EXIT_CODE_HELP)
def _remove(
    context: typer.Context, id: IdArgument, store: ServedStoreOption = None, config: ConfigOption = None
) -> None:
    """Remove a webhook with its deliveries."""

    async def work(webhooks: Webhooks) -> Webhook:
        hook = await webhooks.get(id)
        await webhooks.remove(hook)
        return hook

    hook = _use_webhooks(context, store, config, work)
    typer.echo(escape_invisible(f'{hook.url} is removed.'), err=True)


@webhooks_app.command('test', epilog=EXIT_CODE_HELP)
def _test(context: typer.Context, id: IdArgument, store: ServedStoreOption = None, config: ConfigOption = None) -> None:
    """Let the running server send a test, and enable a webhook that was disabled."""

    async def work(webhooks: Webhooks) -> WebhookDelivery:
        return await webhooks.send_test(await webhooks.get(id))

    delivery = _use_webhooks(context, store, config, work)
    typer.echo(f'{delivery.id} is sent by the running server. See: pydantic-deep webhooks deliveries {id}', err=True)


@webhooks_app.command('deliveries', epilog=EXIT_CODE_HELP)
def _deliveries(
    context: typer.Context,
    id: IdArgument,
    store: ServedStoreOption = None,
    config: ConfigOption = None,
    json: DocumentOption = False,
) -> None:
    """List the newest 50 deliveries of a webhook, newest first."""

    async def work(webhooks: Webhooks) -> list[WebhookDelivery]:
        hook = await webhooks.get(id)
        page = await webhooks.deliveries.list({'webhook_id': hook.id}, order_by='-created_at', limit=_MAX_LISTED)
        return page.items

    deliveries = _use_webhooks(context, store, config, work)
    if json:
        print_document([delivery.model_dump(mode='json', exclude={'body'}) for delivery in deliveries])
    elif deliveries:
        rows = [
            (f'{sent.created_at:%Y-%m-%d %H:%M}', sent.type, sent.state, str(sent.attempts), sent.problem or '')
            for sent in deliveries
        ]
        _print_table(('created', 'type', 'state', 'tries', 'problem'), rows)
    else:
        typer.echo('There are no deliveries in the last seven days.', err=True)


def _use_webhooks(
    context: typer.Context,
    store: str | None,
    config: Path | None,
    work: Callable[[Webhooks], Awaitable[T]],
    *,
    must_exist: bool = True,
) -> T:
    """Open the webhooks of a store and call a function with them."""
    environment = context.find_object(Environment) or Environment()
    settings = load_server_settings(config, {'store': store})

    async def run(settings: ServerSettings) -> T:
        from pydantic_deep.server import open_webhooks

        async with (
            open_served_store(settings, environment, must_exist=must_exist) as opened,
            open_webhooks(opened, key=settings.webhook_key, private_hosts=settings.webhook_private_hosts) as webhooks,
        ):
            return await work(webhooks)

    with exit_on_error():
        choose_shared_store(settings, environment)
        from pydantic_deep.server import InvalidWebhookError

        try:
            return anyio.run(run, settings)
        except InvalidWebhookError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
        except RowNotFoundError as error:
            problem = f'There is no webhook {error.key!r}. `pydantic-deep webhooks list` shows them.'
            raise error_exit(escape_invisible(problem), USAGE_ERROR_CODE) from None


def _events_of(hook: Webhook) -> str:
    return 'all' if len(hook.events) == len(Event) else ', '.join(hook.events)


def _print_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = create_table(*columns)
    for row in rows:
        table.add_row(*(Text(escape_invisible(cell), overflow='fold') for cell in row))
    table.columns[0].no_wrap = True  # so that it can be copied
    print_table(Console(), table)
