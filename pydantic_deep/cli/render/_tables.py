"""Tables of commands."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_MAX_WIDTH = 1_000_000
"""The maximum width of a table that is not printed on a terminal, in cells."""


def create_table(*names: str) -> Table:
    """Return a table without lines. Words that are wider than their column continue on the next line, and are not cut."""
    columns = (Column(Text(name), overflow='fold') for name in names)
    return Table(*columns, box=None, pad_edge=False, header_style='bold')


def print_table(console: Console, table: Table) -> None:
    """Print a table, folded to the width of a terminal. Elsewhere, each row is one line, for programs such as `grep`."""
    if console.is_terminal:
        console.print(table)
        return
    width = Measurement.get(console, console.options.update(max_width=_MAX_WIDTH), table).maximum
    wide = Console(width=max(1, width))
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)
