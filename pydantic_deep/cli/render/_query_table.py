"""Query results as a table for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from ._tables import create_table, print_table
from ._terminal_text import escape_invisible

if TYPE_CHECKING:
    from pydantic_deep.store.analytics import Table


def values_of(table: Table) -> list[dict[str, JsonValue]]:
    """Return the rows as JSON objects: times as ISO 8601, bytes as hexadecimal digits, other types as text."""
    return [{name: value_of(value) for name, value in row.items()} for row in table.to_dicts()]


def render_table(console: Console, table: Table) -> None:
    """Print a table, folded to the width of a terminal and unchanged elsewhere."""
    names = [escape_invisible(name) for name in table.columns]
    if table.rows:
        _print_rows(console, table, names)
    else:
        console.print(Text('  '.join(names), 'bold'), soft_wrap=not console.is_terminal)
    console.print(Text('1 row' if len(table.rows) == 1 else f'{len(table.rows)} rows', 'dim'), soft_wrap=True)


def _print_rows(console: Console, table: Table, names: Sequence[str]) -> None:
    """Print a table with at least one row."""
    drawn = create_table(*names)
    for column, values in zip(drawn.columns, zip(*table.rows, strict=True), strict=True):
        if {type(value) for value in values if value is not None} in ({int}, {float}, {int, float}):
            column.justify = 'right'
    for row in table.rows:
        drawn.add_row(*(_cell(value) for value in row))
    print_table(console, drawn)


def _cell(value: object) -> Text:
    if value is None:
        return Text('null', 'dim')
    text = value.isoformat(sep=' ') if isinstance(value, datetime) else str(value_of(value))
    return Text(escape_invisible(text))


def value_of(value: object) -> JsonValue:
    """Convert a value of a query result to JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            items = cast('Mapping[object, object]', value).items()
            return {str(key): value_of(item) for key, item in items}
        case list() | tuple():
            return [value_of(item) for item in cast('Sequence[object]', value)]
        case _:
            return str(value)
