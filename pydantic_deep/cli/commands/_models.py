"""The providers that `models` lists, as a table and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from pydantic_deep.cli.turn._providers import ProviderState

NOTE = "To install a package: pip install 'pydantic-ai-slim[PACKAGE]'. To list names: pydantic-deep models PROVIDER"


def select_providers(known: Sequence[ProviderState], name: str | None) -> list[ProviderState]:
    """Return the providers with a name, or all of them for `None`."""
    return [state for state in known if name in (None, state.name)]


def render_providers_json(states: Sequence[ProviderState]) -> str:
    """Return the providers as one JSON array."""
    return json.dumps([asdict(state) | {'is_ready': state.is_ready} for state in states], indent=2)


def render_provider_table(states: Sequence[ProviderState]) -> Table:
    """Return the providers as a table, usable ones first."""
    table = Table('provider', 'ready', 'key', 'package', 'names', box=None, pad_edge=False, header_style='bold')
    table.caption = Text(NOTE)
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
