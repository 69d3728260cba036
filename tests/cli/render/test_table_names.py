"""Names of stored things in place of tables."""

from __future__ import annotations

from pydantic_deep.cli.render._table_names import name_rows, summarize_rows


def test_a_summary_has_the_numbers_of_known_rows() -> None:
    assert summarize_rows({'version': 2, 'edge': 5, 'conversation': 1, 'approval': 0}) == '1 conversation, 2 versions'
    assert summarize_rows({'edge': 5}) == 'nothing'
    assert summarize_rows({'blob': 1, 'rows_memory': 2, 'rows_notes': 1}) == '1 stored object, 3 rows of repositories'


def test_internal_tables_have_no_name() -> None:
    assert (name_rows('tool_call'), name_rows('tally')) == ('tool calls', None)
    assert name_rows('rows_memory') == 'rows of memory'
