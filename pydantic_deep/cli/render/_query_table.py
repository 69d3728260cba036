"""The answer to a query, for a person and for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Protocol, cast

from pydantic import JsonValue
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ._terminal_text import escape_invisible


class Table(Protocol):
    """What `store.sql` returns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        ...

    @property
    def rows(self) -> tuple[tuple[object, ...], ...]:
        """What the query returned."""
        ...


def values_of(table: Table) -> list[dict[str, JsonValue]]:
    """Return each row as JSON: moments as ISO 8601, bytes as hexadecimal digits, what is none of JSON's as text."""
    return [{name: value_of(each) for name, each in zip(table.columns, row, strict=True)} for row in table.rows]


def render_table(console: Console, table: Table) -> None:
    """Print a table: folded to a terminal, and as wide as it is where another program reads it."""
    names = [escape_invisible(name) for name in table.columns]
    if table.rows:
        _print_rows(console, table, names)
    else:
        console.print(Text('  '.join(names), 'bold'), soft_wrap=not console.is_terminal)
    console.print(Text('1 row' if len(table.rows) == 1 else f'{len(table.rows)} rows', 'dim'), soft_wrap=True)


def _print_rows(console: Console, table: Table, names: Sequence[str]) -> None:
    """Draw the rows of a table; it has some."""
    drawn = RichTable(*names, box=None, pad_edge=False, header_style='bold')
    for column, values in zip(drawn.columns, zip(*table.rows, strict=True), strict=True):
        column.overflow = 'fold'
        if {type(value) for value in values if value is not None} in ({int}, {float}, {int, float}):
            column.justify = 'right'
    for row in table.rows:
        drawn.add_row(*(_cell(value) for value in row))
    if console.is_terminal:
        console.print(drawn)
        return
    width = Measurement.get(console, console.options.update(max_width=1_000_000), drawn).maximum
    wide = Console(width=max(1, width))
    with wide.capture() as captured:
        wide.print(drawn)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _cell(value: object) -> Text:
    if value is None:
        return Text('null', 'dim')
    text = value.isoformat(sep=' ') if isinstance(value, datetime) else str(value_of(value))
    return Text(escape_invisible(text))


def value_of(value: object) -> JsonValue:
    """Return a value of a query as JSON."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            items = cast('Mapping[object, object]', value).items()
            return {str(key): value_of(each) for key, each in items}
        case list() | tuple():
            return [value_of(each) for each in cast('Sequence[object]', value)]
        case _:
            return str(value)
