"""The graph of versions as text, newest first, with a column for each open line of descent. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A version in the graph."""

    id: str
    parents: Sequence[str]
    """The ids of its parents. The line to a parent that is not in the graph ends with `…`."""
    mark: str
    """The character of the version in the graph."""


@dataclass(frozen=True, kw_only=True)
class GraphRow:
    """A line of the drawn graph."""

    graph: str
    id: str | None
    """The version on this line; `None` if the line only joins or ends columns."""


def draw_graph(nodes: Iterable[GraphNode]) -> Iterator[GraphRow]:
    """Yield the lines of a graph.

    Args:
        nodes: The versions, each before its parents.
    """
    lanes: list[str | None] = []
    for node in nodes:
        columns = [column for column, awaited in enumerate(lanes) if awaited == node.id]
        column = columns[0] if columns else _free_column(lanes)
        if columns[1:]:
            yield GraphRow(graph=_join_line(lanes, column, columns[1:], ends='╯┴'), id=None)
        for other in columns[1:]:
            lanes[other] = None
        lanes[column] = node.id
        yield GraphRow(graph=_lane_line(lanes, {column: node.mark}), id=node.id)
        first, others = (node.parents[0] if node.parents else None), node.parents[1:]
        lanes[column] = first
        for parent in others:
            if parent not in lanes:
                target = _free_column(lanes, above=column)
                lanes[target] = parent
                yield GraphRow(graph=_join_line(lanes, column, [target], ends='╮┬'), id=None)
            elif (target := lanes.index(parent)) != column:
                low, high = sorted((column, target))
                yield GraphRow(graph=_join_line(lanes, low, [high], ends='┤┼'), id=None)
        while lanes and lanes[-1] is None:
            lanes.pop()
    if lanes:
        yield GraphRow(graph=_lane_line(lanes, {n: '…' for n, awaited in enumerate(lanes) if awaited}), id=None)


def _free_column(lanes: list[str | None], *, above: int = -1) -> int:
    """Return the first unused column to the right of a column. Add one if there is none."""
    for column, awaited in enumerate(lanes):
        if awaited is None and column > above:
            return column
    lanes.append(None)
    return len(lanes) - 1


def _lane_line(lanes: Sequence[str | None], marks: dict[int, str]) -> str:
    cells = [marks.get(column, ' ' if awaited is None else '│') for column, awaited in enumerate(lanes)]
    return ' '.join(cells).rstrip()


def _join_line(lanes: Sequence[str | None], column: int, others: Sequence[int], *, ends: str) -> str:
    """Return a line on which columns to the right join a column, or fork from it."""
    last = max(others)
    drawn = ''
    for other_column, awaited in enumerate(lanes):
        if other_column == column:
            cell = '├'
        elif other_column == last:
            cell = ends[0]
        elif other_column in others:
            cell = ends[1]
        elif column < other_column < last:
            cell = '─' if awaited is None else '┼'
        else:
            cell = ' ' if awaited is None else '│'
        drawn += cell + ('─' if column <= other_column < last else ' ')
    return drawn.rstrip()
