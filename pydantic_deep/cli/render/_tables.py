"""Tables of commands. Pure."""

from __future__ import annotations

from rich.table import Column, Table


def create_table(*names: str) -> Table:
    """Return a table without lines. Words that are wider than their column continue on the next line, and are not cut."""
    return Table(*(Column(name, overflow='fold') for name in names), box=None, pad_edge=False, header_style='bold')
