"""The commands `serve` and `keys`. They import `pydantic_deep.server`, which needs an extra, only when they run."""

from __future__ import annotations

import logging
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

import anyio
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.configuration._served_configuration import (
    ServedConfiguration,
    load_served_configuration,
    print_ignored,
)
from pydantic_deep.cli.history._store import choose_store, open_chosen_store, store_label
from pydantic_deep.cli.render._tables import create_table, print_table
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.turn._served_agents import with_configuration
from pydantic_deep.repository import RowNotFoundError

from ._options import (
    USAGE_ERROR_CODE,
    DocumentOption,
    McpConfigOption,
    ModelOption,
    NoProjectConfigOption,
    error_exit,
    exit_on_error,
    parse_text,
    print_document,
)

if TYPE_CHECKING:
    from pydantic_deep.server import AnyAgent, ApiKey, KeyRing, ServerSettings
    from pydantic_deep.store import SqlStore

T = TypeVar('T')

EXIT_CODE_HELP = 'Exit codes: 0 done, 1 it failed, 2 wrong usage, 3 no usable model.'

DEFAULT_AGENT = 'deep-agent'
"""The name of the agent that is served by default."""

_DAY_SECONDS = 86_400

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        '--config',
        exists=True,
        dir_okay=False,
        metavar='FILE',
        help='A TOML file with settings of the server, in which an unknown name is an error. Variables '
        'PYDANTIC_DEEP_SERVER_… override it, options override both.',
    ),
]
ServedStoreOption = Annotated[
    str | None,
    typer.Option(
        '--store',
        metavar='URL',
        help='The store, such as sqlite:///agents.db. Default: the setting `store`, else as for `run`.',
    ),
]

AGENTS_HELP = (
    'An agent, or a dictionary of agents by name, in a module that can be imported from the working directory. Default: '
    'a deep agent with separate files for each conversation.'
)
ServedAgentsOption = Annotated[str | None, typer.Option('--agents', metavar='MODULE:NAME', help=AGENTS_HELP)]
WorkDirOption = Annotated[
    Path | None,
    typer.Option(
        '--work-dir',
        metavar='DIR',
        help='The parent of the directories of conversations on this machine, which are filled before turns and removed '
        'when they are idle. Default: files are in memory, and in versions.',
    ),
]

ServedMemoryOption = Annotated[
    bool | None,
    typer.Option(
        '--memory/--no-memory',
        help='Let the agents remember across conversations, for each owner and agent separately, in the store. Needs '
        'pydantic-ai-harness. Default: the setting `memory`, else the key `memory` of the configuration, else off.',
        show_default=False,
    ),
]

serve_app = typer.Typer()
keys_app = typer.Typer(
    name='keys',
    no_args_is_help=True,
    help='Create, list and revoke API keys of a server. Changes apply at once to a running server.',
    epilog=EXIT_CODE_HELP,
)


class Scope(StrEnum):
    """The permissions of a key."""

    run = 'run'
    approve = 'approve'
    audit = 'audit'
    admin = 'admin'


@serve_app.command(
    'serve',
    epilog='Clients of OpenAI use http://HOST:PORT/v1, those of Anthropic and Google http://HOST:PORT; the model is '
    'the name of an agent. Clients need a key. Ctrl-C stops the server after the running turns; a second '
    'Ctrl-C stops these turns, and their stored steps remain. Needs the extra `server`.\n\n' + EXIT_CODE_HELP,
)
def _serve(
    context: typer.Context,
    agents: ServedAgentsOption = None,
    model: ModelOption = None,
    host: Annotated[
        str | None,
        typer.Option(
            '--host',
            metavar='HOST',
            help='The address to listen on. Default: 127.0.0.1. For other addresses, put a TLS proxy in front and name '
            'its host in the setting `allowed_hosts`.',
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option('--port', min=0, max=65535, help='The port. Default: 8000; 0 takes a free one.', metavar='N'),
    ] = None,
    store: ServedStoreOption = None,
    no_worker: Annotated[
        bool, typer.Option('--no-worker', help='Execute no runs here: `pydantic-deep worker` processes do.')
    ] = False,
    work_dir: WorkDirOption = None,
    file_url_domain: Annotated[
        list[str] | None,
        typer.Option(
            '--file-url-domain',
            metavar='DOMAIN',
            help='A domain, with its subdomains, from which files and images that clients of OpenAI, Anthropic and '
            'Google send by URL are fetched; repeatable. Default: none.',
        ),
    ] = None,
    memory: ServedMemoryOption = None,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    config: ConfigOption = None,
) -> None:
    """Serve agents over HTTP, with a page for people and the APIs of OpenAI, Anthropic and Google for programs."""
    log_to_stderr()
    environment = context.find_object(Environment) or Environment()
    worker = False if no_worker else None
    overrides = {
        'agents': agents, 'host': host, 'port': port, 'store': store, 'worker': worker, 'work_dir': work_dir,
        'file_url_domains': file_url_domain or None, 'memory': memory,
    }  # fmt: skip
    with exit_on_error():
        settings = load_server_settings(config, overrides)
        choose_shared_store(settings, environment)
        from pydantic_deep.server import serve

        configured = load_served_configuration(
            environment, mcp_config=mcp_config, no_project_config=no_project_config, model=model
        )
        settings = with_configured_memory(settings, config, overrides, configured)
        capabilities = configured.capabilities
        print_ignored(configured, has_own_agents=settings.agents is not None)

        async def work(served: Mapping[str, AnyAgent]) -> None:
            async with (
                with_configuration(served, configured.servers, capabilities) as ready,
                _open_keys(settings, environment) as (opened, ring),
            ):
                where = store_label(opened.url, environment)
                hint = None if await ring.list() else _create_hint(opened.url, environment)
                print_address = partial(_print_address, list(served), where, hint)
                await serve(ready, opened, settings, on_start=print_address)

        run_with_agents(work, settings, configured.default_agent)


@keys_app.command('create', epilog=EXIT_CODE_HELP)
def _create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(parser=parse_text, help='A name for people, such as laptop.')],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            '--scope',
            metavar='SCOPE',
            help='A permission: `run` conversations of its owner, `approve` calls in them, read their `audit`, or '
            '`admin` for everything. Repeatable. Default: `run` and `approve`.',
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            '--owner',
            metavar='NAME',
            parser=parse_text,
            help='The owner whose conversations it can see; several keys can share one. Default: the key itself.',
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option('--agent', metavar='NAME', help='An agent that it can use; repeatable. Default: all.'),
    ] = None,
    expires_in: Annotated[
        float | None,
        typer.Option(
            '--expires-in', min=0.001, metavar='DAYS', help='The number of days after which it expires. Default: never.'
        ),
    ] = None,
    store: ServedStoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a key and print it. It is shown only once."""

    async def work(store: SqlStore, ring: KeyRing) -> str:
        return await ring.create(
            name=name,
            scopes=[member.value for member in scope or (Scope.run, Scope.approve)],
            owner=owner,
            agents=agent,
            expires_in_seconds=None if expires_in is None else expires_in * _DAY_SECONDS,
        )

    typer.echo(_use_keys(context, store, config, work, must_exist=False))
    typer.echo('Store it: it is not shown again.', err=True)


@keys_app.command('list', epilog=EXIT_CODE_HELP)
def _list(
    context: typer.Context, store: ServedStoreOption = None, config: ConfigOption = None, json: DocumentOption = False
) -> None:
    """List all keys without their secrets, oldest first."""
    environment = context.find_object(Environment) or Environment()

    async def work(store: SqlStore, ring: KeyRing) -> tuple[list[tuple[ApiKey, datetime | None]], str]:
        keys = [(key, await ring.last_used_at(key.id)) for key in await ring.list()]
        return keys, _create_hint(store.url, environment)

    keys, hint = _use_keys(context, store, config, work)
    if json:
        rows = [
            {**key.model_dump(mode='json', exclude={'digest'}), 'last_used_at': used and used.isoformat()}
            for key, used in keys
        ]
        print_document(rows)
    elif keys:
        print_table(Console(), _render_keys(keys))
    else:
        typer.echo(hint, err=True)


@keys_app.command('revoke', epilog=EXIT_CODE_HELP)
def _revoke(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help='The id of the key, as `list` shows it.')],
    store: ServedStoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a key immediately and permanently."""
    key = _use_keys(context, store, config, lambda store, ring: ring.revoke(id))
    typer.echo(escape_invisible(f'{key.name} is revoked.'), err=True)


class _LogFormatter(logging.Formatter):
    """Escapes the characters with which a logged text could control the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_invisible(super().format(record))


def log_to_stderr() -> None:
    """Write the warnings and errors of this process to standard error, unless its logs go elsewhere already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LogFormatter('%(asctime)s %(levelname)s %(name)s: %(message)s'))
    logging.basicConfig(handlers=[handler])


def run_with_agents(
    work: Callable[[Mapping[str, AnyAgent]], Awaitable[None]],
    settings: ServerSettings,
    create_default: Callable[[], AnyAgent],
) -> None:
    """Call a function with the agents of the settings, or with a default agent if they name none."""
    from pydantic_deep.server import InvalidAgentsError, import_agents

    try:
        anyio.run(
            work, {DEFAULT_AGENT: create_default()} if settings.agents is None else import_agents(settings.agents)
        )
    except InvalidAgentsError as error:
        raise error_exit(str(error), USAGE_ERROR_CODE) from None


@asynccontextmanager
async def open_served_store(
    settings: ServerSettings, environment: Environment, *, must_exist: bool = False
) -> AsyncGenerator[SqlStore]:
    """Open the store of the settings, by default that of the command line."""
    url = settings.store or choose_store(None, environment)
    async with open_chosen_store(
        url,
        environment,
        must_exist=must_exist,
        blobs=settings.blobs,
        wait_seconds=settings.store_wait_seconds,
    ) as opened:
        yield cast('SqlStore', opened)  # `open_store` returns this type for a database


def choose_shared_store(settings: ServerSettings, environment: Environment) -> str:
    """Return the address of a store that other processes open too, or exit if it is in memory."""
    url = settings.store or choose_store(None, environment)
    if url.startswith('memory:'):
        raise error_exit(
            f'The store {url} is visible in one process only, and this command needs one that `serve`, `keys`, '
            '`webhooks` and `worker` share. Use sqlite:///… or postgresql://….',
            USAGE_ERROR_CODE,
        )
    return url


def _use_keys(
    context: typer.Context,
    store: str | None,
    config: Path | None,
    work: Callable[[SqlStore, KeyRing], Awaitable[T]],
    *,
    must_exist: bool = True,
) -> T:
    """Open the keys of a store and call a function with them."""
    environment = context.find_object(Environment) or Environment()

    async def run(settings: ServerSettings) -> T:
        async with _open_keys(settings, environment, must_exist=must_exist) as (opened, ring):
            return await work(opened, ring)

    with exit_on_error():
        settings = load_server_settings(config, {'store': store})
        choose_shared_store(settings, environment)
        try:
            return anyio.run(run, settings)
        except RowNotFoundError as error:
            problem = f'There is no key {error.key!r}. `pydantic-deep keys list` shows them.'
            raise error_exit(escape_invisible(problem), USAGE_ERROR_CODE) from None


def load_server_settings(config: Path | None, overrides: Mapping[str, object]) -> ServerSettings:
    """Return the settings. Options override the environment, and the environment overrides the file."""
    try:
        from pydantic_deep.server import InvalidSettingsError, load_settings
    except ModuleNotFoundError as error:
        raise error_exit(str(error), USAGE_ERROR_CODE) from None
    try:
        return load_settings(config, **{name: value for name, value in overrides.items() if value is not None})
    except InvalidSettingsError as error:
        raise error_exit(str(error), USAGE_ERROR_CODE) from None


def with_configured_memory(
    settings: ServerSettings, config: Path | None, overrides: Mapping[str, object], configured: ServedConfiguration
) -> ServerSettings:
    """Return the settings with a memory if the configuration files want one, and neither an option nor the setting decides."""
    if 'memory' not in settings.model_fields_set and configured.effective.memory:
        return load_server_settings(config, {**overrides, 'memory': True})
    return settings


@asynccontextmanager
async def _open_keys(
    settings: ServerSettings, environment: Environment, *, must_exist: bool = False
) -> AsyncGenerator[tuple[SqlStore, KeyRing]]:
    """Open the store of the server and its API keys."""
    from pydantic_deep.server import open_keys

    async with open_served_store(settings, environment, must_exist=must_exist) as store, open_keys(store) as ring:
        yield store, ring


def _print_address(names: list[str], store: str, hint: str | None, url: str) -> None:
    typer.echo(escape_invisible(f'Serving {", ".join(names)} at {url}'), err=True)
    typer.echo(escape_invisible(f'versions in {store}'), err=True)
    if hint is not None:
        typer.echo(hint, err=True)


def _create_hint(url: str, environment: Environment) -> str:
    """Return how to create a first key in a store."""
    option = '' if url == choose_store(None, environment) else f' --store {shlex.quote(url)}'
    return escape_invisible(f'There is no key yet. Create one: pydantic-deep keys create NAME{option}')


def _render_keys(keys: list[tuple[ApiKey, datetime | None]]) -> Table:
    table = create_table('id', 'name', 'owner', 'scopes', 'agents', 'expires', 'last used')
    for key, used in keys:
        expires = 'revoked' if key.revoked_at is not None else _format_day(key.expires_at, 'never')
        agents = 'all' if key.agents is None else ', '.join(key.agents)
        owner = 'itself' if key.owner == key.id else key.owner
        cells = (key.id, key.name, owner, ', '.join(key.scopes), agents, expires, _format_day(used, 'never'))
        table.add_row(*(Text(escape_invisible(cell), overflow='fold') for cell in cells))
    table.columns[0].no_wrap = True  # so that an id can be copied
    return table


def _format_day(moment: datetime | None, otherwise: str) -> str:
    return otherwise if moment is None else moment.strftime('%Y-%m-%d %H:%M')
