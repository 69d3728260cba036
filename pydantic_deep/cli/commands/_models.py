"""The command `models`: the providers and whether they can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.render._tables import create_table, print_table
from pydantic_deep.cli.turn._providers import ProviderState, list_providers

from ._options import MODEL_HELP, print_document

_NOTE = "To install a package: pip install 'pydantic-ai-slim[PACKAGE]'. To list names: pydantic-deep models PROVIDER"

models_app = typer.Typer()


@models_app.command('models', epilog=MODEL_HELP)
def _models(
    context: typer.Context,
    provider: Annotated[
        str | None, typer.Argument(help='List the model names of this provider, such as anthropic.')
    ] = None,
    json: Annotated[bool, typer.Option('--json', help='Print one JSON array.')] = False,
) -> None:
    """List the providers, whether each has its key set and its package installed, and the model names pydantic-ai knows.

    Providers that you can use come first. A provider accepts names that are not listed too. The value of a key is never
    printed.
    """
    environment = context.find_object(Environment) or Environment()
    known = list_providers(environment.variables)
    chosen = [state for state in known if provider in (None, state.name)]
    if not chosen:
        raise typer.BadParameter(
            f'there is no provider {provider!r}. Known: {", ".join(state.name for state in known)}.',
            param_hint="'PROVIDER'",
        )
    if json:
        print_document([asdict(state) | {'is_ready': state.is_ready} for state in chosen])
    elif provider:
        typer.echo('\n'.join(model for state in chosen for model in state.models))
    else:
        print_table(Console(), _render_table(chosen))


def _render_table(states: Sequence[ProviderState]) -> Table:
    """Return the providers as a table, usable ones first."""
    table = create_table('provider', 'ready', 'key', 'package', 'names')
    table.caption = Text(_NOTE)
    table.caption_justify = 'left'
    for state in sorted(states, key=lambda state: (not state.is_ready, state.name)):
        table.add_row(
            state.name, 'yes' if state.is_ready else '', _key_cell(state), _package_cell(state), str(len(state.models))
        )
    return table


def _key_cell(state: ProviderState) -> str:
    if not state.variables:
        return 'see its docs'
    return f'{state.set_variable} is set' if state.set_variable else ' or '.join(state.variables)


def _package_cell(state: ProviderState) -> str:
    if state.is_installed is None:
        return '?'
    return 'installed' if state.is_installed else f'{state.extra} is missing'
