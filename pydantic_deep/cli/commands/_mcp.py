"""The command `mcp`. It imports `pydantic_deep.server`, which needs an extra, only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import typer

from pydantic_deep.agent import create_deep_agent
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.history._store import choose_store, open_chosen_store
from pydantic_deep.cli.turn._models import choose_model, open_model

from ._options import USAGE_ERROR_CODE, ModelOption, error_exit, exit_on_error
from ._server import DEFAULT_AGENT, EXIT_CODE_HELP, ConfigOption, ServedStoreOption, load_server_settings

if TYPE_CHECKING:
    from pydantic_deep.server import AnyAgent
    from pydantic_deep.store import SqlStore

mcp_server_app = typer.Typer()


@mcp_server_app.command(
    'mcp',
    epilog='Start it from the configuration of an editor or another agent: the command is `pydantic-deep`, the arguments '
    'are `mcp` and options. Standard output has messages of the protocol only. Conversations belong to the user who '
    'starts it. A server with the same agents offers MCP over HTTP too: `pydantic-deep serve`, path /mcp. Needs the '
    'extras `mcp` and `server`.\n\n' + EXIT_CODE_HELP,
)
def _mcp(
    context: typer.Context,
    agents: Annotated[
        str | None,
        typer.Option('--agents', metavar='MODULE:NAME', help='The agents, as for `serve`. Default: a deep agent.'),
    ] = None,
    model: ModelOption = None,
    store: ServedStoreOption = None,
    work_dir: Annotated[
        Path | None,
        typer.Option(
            '--work-dir',
            metavar='DIR',
            help='The parent of the directories of conversations, as for `serve`. Default: files are in memory, and in '
            'versions.',
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve agents over MCP on standard input and output, for editors and other agents."""
    environment = context.find_object(Environment) or Environment()
    with exit_on_error():
        settings = load_server_settings(config, {'agents': agents, 'store': store, 'work_dir': work_dir})
        try:
            from pydantic_deep.server.mcp.stdio import serve_stdio
        except ModuleNotFoundError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
        from pydantic_deep.server import InvalidAgentsError, import_agents

        async def work(served: Mapping[str, AnyAgent]) -> None:
            url = settings.store or choose_store(None, environment)
            async with open_chosen_store(
                url, environment, blobs=settings.blobs, wait_seconds=settings.store_wait_seconds
            ) as opened:
                await serve_stdio(served, cast('SqlStore', opened), settings, owner=environment.person)

        try:
            if settings.agents is None:
                asked = open_model(choose_model(model, environment.variables), environment.models)
                anyio.run(work, {DEFAULT_AGENT: create_deep_agent(asked)})
            else:
                anyio.run(work, import_agents(settings.agents))
        except InvalidAgentsError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
