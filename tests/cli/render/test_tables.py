"""Tables of commands."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from pydantic_deep.cli.render._tables import create_table


def test_a_long_word_is_continued_on_the_next_line() -> None:
    """A key or an id is complete in a narrow terminal, where it has several lines."""
    screen = StringIO()
    table = create_table('provider', 'key')
    table.add_row('anthropic', 'ANTHROPIC_API_KEY')
    Console(file=screen, width=20).print(table)
    assert [line.split() for line in screen.getvalue().splitlines()[1:]] == [['anthropic', 'ANTHROPIC'], ['_API_KEY']]
