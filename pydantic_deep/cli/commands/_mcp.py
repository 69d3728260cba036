"""The command `mcp`. It imports `pydantic_deep.server`, which needs an extra, only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from pydantic_deep.agent import create_deep_agent
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.turn._models import choose_model, open_model

from ._options import USAGE_ERROR_CODE, ModelOption, error_exit, exit_on_error
from ._server import (
    EXIT_CODE_HELP,
    ConfigOption,
    ServedAgentsOption,
    ServedStoreOption,
    WorkDirOption,
    load_server_settings,
    open_served_store,
    run_with_agents,
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
    config: ConfigOption = None,
) -> None:
    """Serve agents over MCP on standard input and output, for editors and other agents."""
    environment = context.find_object(Environment) or Environment()
    overrides = {'agents': agents, 'store': store, 'work_dir': work_dir, 'mcp_answers': allow_answers or None}
    with exit_on_error():
        settings = load_server_settings(config, overrides)
        try:
            from pydantic_deep.server.mcp.stdio import serve_stdio
        except ModuleNotFoundError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None

        async def work(served: Mapping[str, AnyAgent]) -> None:
            async with open_served_store(settings, environment) as opened:
                await serve_stdio(served, opened, settings, owner=environment.person)

        def create_default() -> AnyAgent:
            return create_deep_agent(open_model(choose_model(model, environment.variables), environment.models))

        run_with_agents(work, settings, create_default)
