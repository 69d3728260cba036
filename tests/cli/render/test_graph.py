"""The version graph as text."""

from __future__ import annotations

from inline_snapshot import snapshot

from pydantic_deep.cli.render._graph import GraphNode, draw_graph


def drawn(*nodes: tuple[str, str]) -> str:
    """Draw nodes, newest first. Each is given as its name and the names of its parents."""
    graph = draw_graph(GraphNode(id=name, parents=parents.split(), mark='*') for name, parents in nodes)
    return '\n'.join(f'{row.graph} {row.id or ""}'.rstrip() for row in graph)


def test_linear_history_is_one_column() -> None:
    assert drawn(('c', 'b'), ('b', 'a'), ('a', '')) == '* c\n* b\n* a'


def test_two_children_are_two_columns_that_join() -> None:
    assert drawn(('d', 'b'), ('c', 'b'), ('b', 'a'), ('a', '')) == snapshot("""\
* d
│ * c
├─╯
* b
* a\
""")


def test_many_children_join_on_one_line() -> None:
    assert drawn(('d', 'a'), ('c', 'a'), ('b', 'a'), ('a', '')) == snapshot("""\
* d
│ * c
│ │ * b
├─┴─╯
* a\
""")


def test_merge_opens_two_columns() -> None:
    assert drawn(('m', 'b c'), ('c', 'a'), ('b', 'a'), ('a', '')) == snapshot("""\
* m
├─╮
│ * c
* │ b
├─╯
* a\
""")


def test_merge_connects_to_the_existing_column_of_its_parent() -> None:
    assert drawn(('d', 'b'), ('m', 'c b'), ('c', 'a'), ('b', 'a'), ('a', '')) == snapshot("""\
* d
│ * m
├─┤
│ * c
* │ b
├─╯
* a\
""")


def test_merge_with_its_own_parent_has_one_column() -> None:
    assert drawn(('m', 'a a'), ('a', '')) == '* m\n* a'


def test_join_line_crosses_other_columns() -> None:
    graph = drawn(('e', 'a'), ('d', 'b'), ('c', 'a'), ('a', ''), ('b', ''))
    assert graph == snapshot("""\
* e
│ * d
│ │ * c
├─┼─╯
* │ a
  * b\
""")


def test_ended_column_is_reused_and_an_empty_one_is_skipped() -> None:
    graph = drawn(('f', 'a'), ('e', ''), ('d', 'a'), ('c', ''), ('b', 'a'), ('a', ''))
    assert graph == snapshot("""\
* f
│ * e
│ * d
│ │ * c
│ │ * b
├─┴─╯
* a\
""")


def test_join_skips_an_ended_column() -> None:
    graph = drawn(('f', 'a'), ('e', 'x'), ('d', 'a'), ('x', ''), ('a', ''))
    assert graph == snapshot("""\
* f
│ * e
│ │ * d
│ * │ x
├───╯
* a\
""")


def test_columns_beside_a_join_continue() -> None:
    graph = drawn(('f', 'z'), ('e', 'a'), ('d', 'a'), ('c', 'y'), ('a', ''), ('y', ''), ('z', ''))
    assert graph == snapshot("""\
* f
│ * e
│ │ * d
│ │ │ * c
│ ├─╯ │
│ *   │ a
│     * y
* z\
""")


def test_free_column_is_used_before_a_new_one() -> None:
    graph = drawn(('f', 'a'), ('e', 'x'), ('d', 'a'), ('x', ''), ('g', 'a'), ('a', ''))
    assert graph == snapshot("""\
* f
│ * e
│ │ * d
│ * │ x
│ * │ g
├─┴─╯
* a\
""")
