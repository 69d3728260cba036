"""The graph of versions as text."""

from __future__ import annotations

from inline_snapshot import snapshot

from pydantic_deep.cli.render._graph import GraphNode, draw_graph


def drawn(*nodes: tuple[str, str]) -> str:
    """Draw nodes, newest first: each its name, and those of its parents."""
    graph = draw_graph(GraphNode(id=name, parents=parents.split(), mark='*') for name, parents in nodes)
    return '\n'.join(f'{row.graph} {row.id or ""}'.rstrip() for row in graph)


def test_one_line_is_one_column() -> None:
    assert drawn(('c', 'b'), ('b', 'a'), ('a', '')) == '* c\n* b\n* a'


def test_two_children_of_one_are_two_columns_that_come_together() -> None:
    assert drawn(('d', 'b'), ('c', 'b'), ('b', 'a'), ('a', '')) == snapshot("""\
* d
│ * c
├─╯
* b
* a\
""")


def test_many_children_come_together_on_one_line() -> None:
    assert drawn(('d', 'a'), ('c', 'a'), ('b', 'a'), ('a', '')) == snapshot("""\
* d
│ * c
│ │ * b
├─┴─╯
* a\
""")


def test_a_merge_has_two_columns_below_it() -> None:
    assert drawn(('m', 'b c'), ('c', 'a'), ('b', 'a'), ('a', '')) == snapshot("""\
* m
├─╮
│ * c
* │ b
├─╯
* a\
""")


def test_a_merge_of_what_has_a_column_already_leads_there() -> None:
    assert drawn(('d', 'b'), ('m', 'c b'), ('c', 'a'), ('b', 'a'), ('a', '')) == snapshot("""\
* d
│ * m
├─┤
│ * c
* │ b
├─╯
* a\
""")


def test_a_merge_with_its_own_parent_needs_no_second_column() -> None:
    assert drawn(('m', 'a a'), ('a', '')) == '* m\n* a'


def test_a_line_crosses_what_lies_between() -> None:
    graph = drawn(('e', 'a'), ('d', 'b'), ('c', 'a'), ('a', ''), ('b', ''))
    assert graph == snapshot("""\
* e
│ * d
│ │ * c
├─┼─╯
* │ a
  * b\
""")


def test_a_column_that_ended_is_used_again_and_an_empty_one_is_passed() -> None:
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


def test_a_join_passes_a_column_that_has_ended() -> None:
    graph = drawn(('f', 'a'), ('e', 'x'), ('d', 'a'), ('x', ''), ('a', ''))
    assert graph == snapshot("""\
* f
│ * e
│ │ * d
│ * │ x
├───╯
* a\
""")


def test_what_lies_to_the_left_and_to_the_right_of_a_join_goes_on() -> None:
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


def test_a_column_that_is_free_is_taken_before_a_new_one() -> None:
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
