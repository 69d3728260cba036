"""Tables of commands."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from pydantic_deep.cli.render._tables import create_table, print_table


def test_a_long_word_is_continued_on_the_next_line() -> None:
    """A key or an id is complete in a narrow terminal, where it has several lines."""
    screen = StringIO()
    table = create_table('provider', 'key')
    table.add_row('anthropic', 'ANTHROPIC_API_KEY')
    Console(file=screen, width=20).print(table)
    assert [line.split() for line in screen.getvalue().splitlines()[1:]] == [['anthropic', 'ANTHROPIC'], ['_API_KEY']]


def test_each_row_is_one_line_outside_of_a_terminal() -> None:
    """`pydantic-deep keys list | grep analyst` finds a name, however wide the other columns are. Names are literal."""
    screen, terminal = StringIO(), StringIO()
    table = create_table('[bold]name', 'where')
    table.add_row('analyst', 'a/' * 100)
    table.add_row('writer', 'b')
    print_table(Console(file=screen, width=20), table)
    print_table(Console(file=terminal, width=20, force_terminal=True, color_system=None), table)
    assert screen.getvalue().splitlines() == ['[bold]name  where', 'analyst     ' + 'a/' * 100, 'writer      b']
    assert len(terminal.getvalue().splitlines()) > 10
