"""Results of queries as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from inline_snapshot import snapshot
from rich.console import Console
from typer.testing import Result

from pydantic_deep.cli.render._query_table import render_table
from pydantic_deep.store.analytics import Table
from tests.cli.conftest import document

Invoke = Callable[..., Result]


@pytest.mark.slow
def test_sql_serializes_every_value_type(invoke: Invoke, history: list[str]) -> None:
    query = (
        "SELECT 'a\x1bb' AS text, TIMESTAMP '2026-01-02 03:04:05' AS moment, DATE '2026-01-02' AS day, "
        "{'a': [1, 2]} AS nested, '\\x01'::BLOB AS bytes, 1.5::DECIMAL(3,1) AS number, true AS yes"
    )
    assert document(invoke('sql', query, '--json')) == snapshot(
        [
            {
                'text': 'a\x1bb',
                'moment': '2026-01-02T03:04:05',
                'day': '2026-01-02',
                'nested': {'a': [1, 2]},
                'bytes': '01',
                'number': '1.5',
                'yes': True,
            }
        ]
    )
    assert invoke('sql', query, '--csv').stdout.splitlines()[1].endswith(',"{""a"": [1, 2]}",01,1.5,True')
    shown = invoke('sql', query).stdout
    assert 'a\\x1bb  2026-01-02 03:04:05' in shown
    assert shown.endswith('1 row\n')


def test_table_folds_long_cells_on_a_terminal() -> None:
    screen = Console(file=StringIO(), width=20, force_terminal=True, color_system=None)
    render_table(screen, Table(columns=('name', 'n'), rows=(('x' * 40, 1),)))
    assert isinstance(screen.file, StringIO)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 20
    assert sum(line.count('x') for line in lines) == 40


@pytest.mark.slow
def test_sql_row_count_is_on_one_line(invoke: Invoke, history: list[str]) -> None:
    assert invoke('sql', 'SELECT 1 AS a').stdout == 'a\n1\n1 row\n'
    assert invoke('sql', 'SELECT 1 AS a, 2 AS b WHERE false').stdout == 'a  b\n0 rows\n'


def test_empty_table_on_a_terminal_shows_all_column_names() -> None:
    screen = Console(file=StringIO(), width=20, force_terminal=True, color_system=None)
    render_table(screen, Table(columns=('number', 'parent_number', 'conversation'), rows=()))
    assert isinstance(screen.file, StringIO)
    assert screen.file.getvalue().split() == ['number', 'parent_number', 'conversation', '0', 'rows']
