"""The commands `config`, `config trust` and `mcp-servers`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import anyio
import typer
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import ConfigReport
from pydantic_deep.cli.configuration._effective import ConfigOptions, load_configuration
from pydantic_deep.cli.configuration._files import Project, read_project
from pydantic_deep.cli.configuration._schema import ConfigurationError
from pydantic_deep.cli.configuration._trust import ask_trust, describe_project, trust_store
from pydantic_deep.cli.render._mcp_servers import render_mcp_servers
from pydantic_deep.cli.render._tables import create_table, print_table
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.turn._runtime import open_mcp_servers
from pydantic_deep.mcp import McpServerStatus

from ._options import (
    DocumentOption,
    McpConfigOption,
    ModelOption,
    NoProjectConfigOption,
    exit_on_error,
    print_document,
)

EXIT_CODE_HELP = 'Exit codes: 0 done, 1 not done, 2 wrong usage.'

ProjectOption = Annotated[
    Path, typer.Option('--dir', '-d', exists=True, file_okay=False, help='The directory of the project.')
]

config_app = typer.Typer(
    name='config',
    invoke_without_command=True,
    help='Show each effective setting and its source.',
    epilog='From weakest to strongest: defaults, the files of the project (pydantic-deep.toml, or the table '
    'tool.pydantic-deep of pyproject.toml, and .mcp.json), ~/.config/pydantic-deep/config.toml, environment variables, '
    'options. Secrets are not shown.\n\n' + EXIT_CODE_HELP,
)
mcp_app = typer.Typer()


@config_app.callback()
def _config(
    context: typer.Context,
    directory: ProjectOption = Path(),
    model: ModelOption = None,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    json: DocumentOption = False,
) -> None:
    """Show each effective setting and its source, with the options that you pass."""
    if context.invoked_subcommand is not None:
        return
    environment = context.find_object(Environment) or Environment()
    options = ConfigOptions(
        directory=directory, model=model, mcp_config=mcp_config or (), no_project_config=no_project_config
    )

    async def work() -> ConfigReport:
        effective = await load_configuration(options, environment, asks=False)
        files = () if effective.untrusted is None else effective.untrusted.files
        if not files:  # otherwise a rule may be for a server that one of them names
            effective.check_rules()
        return ConfigReport(
            settings=effective.settings(environment.variables), untrusted=[str(file.path) for file in files]
        )

    with exit_on_error():
        report = anyio.run(work)
    if json:
        print_document(report)
        return
    table = create_table('setting', 'value', 'source')
    for setting in report.settings:
        cells = (setting.key, setting.value or '', setting.source)
        table.add_row(*(Text(escape_invisible(cell), overflow='fold') for cell in cells))
    print_table(Console(), table)
    if report.untrusted:
        typer.echo(
            escape_invisible(
                f'Not trusted, so without effect: {", ".join(report.untrusted)}. To review them: '
                f'pydantic-deep config trust --dir {directory}'
            ),
            err=True,
        )


@config_app.command('trust', epilog=EXIT_CODE_HELP)
def _trust(
    context: typer.Context,
    directory: ProjectOption = Path(),
    yes: Annotated[bool, typer.Option('--yes', help='Trust the files without a question.')] = False,
    revoke: Annotated[bool, typer.Option('--revoke', help='Trust no files of the directory any more.')] = False,
) -> None:
    """Show what the configuration files of a project would allow, and trust exactly these contents.

    After any change of the files, the next command asks again. The programs that the files name are not checked.
    """
    environment = context.find_object(Environment) or Environment()
    store = trust_store(environment)
    with exit_on_error():
        if revoke:
            existed = store.remove(directory)
            typer.echo('The files are not trusted any more.' if existed else 'No files were trusted.')
            return
        project = read_project(directory)
        if project is None:
            raise ConfigurationError(f'{directory.resolve()} has no configuration files.')
        if yes:
            typer.echo('\n'.join(describe_project(project)))
        elif not anyio.run(_ask, project, environment):
            typer.echo('The files are not trusted.', err=True)
            raise typer.Exit(1)
        store.add(project)
    typer.echo('The files are trusted.')


async def _ask(project: Project, environment: Environment) -> bool:
    """Return whether the user trusts the files.

    Raises:
        ConfigurationError: There is no terminal.
    """
    with environment.open_terminal() as terminal:
        if terminal is None:
            raise ConfigurationError('There is no terminal to ask at. To trust the files without a question: --yes.')
        return await ask_trust(project, terminal)


@mcp_app.command('mcp-servers', epilog='Exit codes: 0 all are running, 1 one is not, 2 wrong usage.')
def _mcp_servers(
    context: typer.Context,
    directory: ProjectOption = Path(),
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    json: DocumentOption = False,
) -> None:
    """Start the configured MCP servers, and list their state and tools."""
    environment = context.find_object(Environment) or Environment()
    options = ConfigOptions(directory=directory, mcp_config=mcp_config or (), no_project_config=no_project_config)

    async def work() -> list[McpServerStatus]:
        effective = await load_configuration(options, environment)
        servers = open_mcp_servers(effective.extras, environment)
        return [] if servers is None else await servers.status()

    with exit_on_error():
        statuses = anyio.run(work)
    if json:
        print_document([asdict(status) for status in statuses])
    else:
        print_lines(Console(), list(render_mcp_servers(statuses)))
    raise typer.Exit(1 if any(status.error is not None for status in statuses) else 0)
