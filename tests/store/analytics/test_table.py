"""The result of a query as a table: its text, and its rows."""

from __future__ import annotations

import pytest

from pydantic_deep.store.analytics import Table

pytestmark = pytest.mark.slow


def test_table_repr_shows_the_first_rows_and_shortens_cells() -> None:
    rows = tuple((number, 0.1234567, None if number else 'a\nb' + 'c' * 90) for number in range(22))
    text = repr(Table(columns=('n', 'rate', 'text'), rows=rows))
    lines = text.splitlines()
    assert lines[0] == ' n      rate  text'
    assert lines[2] == f' 0  0.123457  a b{"c" * 56}…'
    assert lines[3] == ' 1  0.123457'
    assert lines[-1] == '(2 more rows)'
    assert len(lines) == 23


def test_table_iterates_over_its_rows() -> None:
    table = Table(columns=('a', 'b'), rows=((1, None), (2, None)))
    assert [a for a, _ in table] == [1, 2]
    assert len(table) == 2
    assert repr(Table(columns=('a',), rows=())) == 'a\n-'
