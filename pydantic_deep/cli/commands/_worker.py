"""The command `worker`. It imports `pydantic_deep.server`, which needs an extra, only when it runs."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.configuration._served_configuration import load_served_configuration, print_ignored
from pydantic_deep.cli.history._store import open_chosen_store, store_label
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.turn._served_agents import with_configuration

from ._options import USAGE_ERROR_CODE, McpConfigOption, NoProjectConfigOption, error_exit, exit_on_error
from ._server import (
    ConfigOption,
    ServedMemoryOption,
    ServedStoreOption,
    choose_shared_store,
    load_server_settings,
    log_to_stderr,
    with_configured_memory,
)

if TYPE_CHECKING:
    from pydantic_deep.dispatch import WorkerEvent
    from pydantic_deep.store import SqlStore

worker_app = typer.Typer()


@worker_app.command(
    'worker',
    epilog='SIGTERM and Ctrl-C stop it: it takes no more runs, waits for the running ones, and gives the rest back to '
    'other workers. A second Ctrl-C ends the process at once, and other workers take over its runs as after a crash. '
    'Standard error has one line when it is ready, and one for each run that begins, ends, is taken over or given back. '
    'Needs the extra `server`.\n\nExit codes: 0 it was stopped, 1 it failed, 2 wrong usage.',
)
def _worker(
    context: typer.Context,
    agents: Annotated[
        str | None,
        typer.Option(
            '--agents',
            metavar='MODULE:NAME',
            help='The agents, as for `serve`, under the same names. Required, unless the setting `agents` names them.',
        ),
    ] = None,
    store: ServedStoreOption = None,
    concurrency: Annotated[
        int | None,
        typer.Option('--concurrency', min=1, metavar='N', help='The maximum number of runs at once. Default: 32.'),
    ] = None,
    dispatcher: Annotated[
        str | None,
        typer.Option(
            '--dispatcher',
            metavar='URL',
            help='The engine that delivers runs. Default: the setting `dispatcher`, else the worker finds them in the '
            'store.',
        ),
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            '--drain',
            min=0,
            metavar='SECONDS',
            help='How long running runs may take to end when it stops. Default: the setting `shutdown_seconds`, 20.',
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            '--metrics-port',
            min=0,
            max=65535,
            metavar='PORT',
            help='The port for metrics, at the address of the setting `host`; 0 selects a free one. Default: none.',
        ),
    ] = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            '--work-dir',
            metavar='DIR',
            help='The parent of the directories of conversations on this machine, which the worker fills before turns '
            'and removes when they are idle. Default: files are opened where their versions say.',
        ),
    ] = None,
    memory: ServedMemoryOption = None,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    config: ConfigOption = None,
) -> None:
    """Execute the runs that servers queue in a store, and take over runs of processes that crashed.

    Any number of workers may share a store, on any machines that reach it.
    """
    log_to_stderr()
    environment = context.find_object(Environment) or Environment()
    overrides = {
        'agents': agents,
        'store': store,
        'worker_concurrency': concurrency,
        'dispatcher': dispatcher,
        'shutdown_seconds': drain,
        'metrics_port': metrics_port,
        'work_dir': work_dir,
        'memory': memory,
    }
    with exit_on_error():
        settings = load_server_settings(config, overrides)
        from pydantic_deep.server import InvalidSettingsError, import_agents, run_worker

        if settings.agents is None:
            raise error_exit('There are no agents. Name them as for `serve`: --agents MODULE:NAME.', USAGE_ERROR_CODE)
        url = choose_shared_store(settings, environment)
        served = import_agents(settings.agents)
        configured = load_served_configuration(environment, mcp_config=mcp_config, no_project_config=no_project_config)
        settings = with_configured_memory(settings, config, overrides, configured)
        capabilities = configured.capabilities
        print_ignored(configured, has_own_agents=True)

        async def work() -> None:
            async with (
                with_configuration(served, configured.servers, capabilities) as ready,
                open_chosen_store(
                    url, environment, blobs=settings.blobs, wait_seconds=settings.store_wait_seconds
                ) as opened,
            ):

                def print_ready(engine: str) -> None:
                    where = store_label(opened.url, environment)
                    parts = f'{", ".join(served)}; store {where}; dispatcher {engine}'
                    _print(f'Worker ready: agents {parts}; concurrency {settings.worker_concurrency}')

                def print_stop(count: int) -> None:
                    _print(f'Stopping: waiting up to {settings.shutdown_seconds:g} seconds for running runs ({count}).')

                await run_worker(
                    ready,
                    cast('SqlStore', opened),
                    settings,
                    on_start=print_ready,
                    on_event=_print_event,
                    on_stop=print_stop,
                )

        try:
            anyio.run(work)
        except InvalidSettingsError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None


def _print_event(event: WorkerEvent) -> None:
    time = datetime.now(UTC).isoformat(timespec='milliseconds').replace('+00:00', 'Z')
    _print(
        f'time={time} event={event.kind} run={event.run_id} agent={event.agent_name} '
        f'conversation={event.conversation_id} state={event.state}'
    )


def _print(line: str) -> None:
    with suppress(OSError):  # nobody reads the lines any more, which does not end the worker
        typer.echo(escape_invisible(line), err=True)
