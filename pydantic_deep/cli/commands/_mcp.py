"""The command `mcp`. It imports `pydantic_deep.server`, which needs an extra, only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.configuration._served_configuration import load_served_configuration, print_ignored
from pydantic_deep.cli.terminal._protected_stdio import protected_stdio
from pydantic_deep.cli.turn._served_agents import with_configuration

from ._options import (
    USAGE_ERROR_CODE,
    McpConfigOption,
    ModelOption,
    NoProjectConfigOption,
    error_exit,
    exit_on_error,
)
from ._server import (
    EXIT_CODE_HELP,
    ConfigOption,
    ServedAgentsOption,
    ServedStoreOption,
    WorkDirOption,
    load_server_settings,
    open_served_store,
    run_with_agents,
    with_configured_memory,
)

if TYPE_CHECKING:
    from pydantic_deep.server import AnyAgent

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
    agents: ServedAgentsOption = None,
    model: ModelOption = None,
    store: ServedStoreOption = None,
    work_dir: WorkDirOption = None,
    allow_answers: Annotated[
        bool,
        typer.Option(
            '--allow-answers',
            help='Offer the tool `answer_approval`, with which the calling agent can approve calls. Default: only you '
            'approve, in forms of the client or with `pydantic-deep approvals`.',
        ),
    ] = False,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    config: ConfigOption = None,
) -> None:
    """Serve agents over MCP on standard input and output, for editors and other agents."""
    # A terminal that controls the process belongs to the client, as for `acp`.
    environment = replace(context.find_object(Environment) or Environment(), open_terminal=lambda: nullcontext(None))
    overrides = {'agents': agents, 'store': store, 'work_dir': work_dir, 'mcp_answers': allow_answers or None}
    with exit_on_error(), protected_stdio() as streams:  # modules of agents may print, too
        settings = load_server_settings(config, overrides)
        try:
            from pydantic_deep.server.mcp.stdio import serve_stdio
        except ModuleNotFoundError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None

        configured = load_served_configuration(
            environment, mcp_config=mcp_config, no_project_config=no_project_config, model=model, is_mcp_server=True
        )
        settings = with_configured_memory(settings, config, overrides, configured)
        capabilities = configured.capabilities
        print_ignored(configured, has_own_agents=settings.agents is not None)

        async def work(served: Mapping[str, AnyAgent]) -> None:
            async with (
                with_configuration(served, configured.servers, capabilities) as ready,
                open_served_store(settings, environment) as opened,
            ):
                await serve_stdio(ready, opened, settings, owner=environment.person, streams=streams)

        run_with_agents(work, settings, configured.default_agent)
