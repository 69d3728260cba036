"""The report: ratios first, because they are comparable between machines, then values with targets and verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from figures import Figure, Samples, judge

Column = tuple[str, str]
"""The key of a contestant and the heading of its column."""

BEGIN, END = '<!-- figures: begin -->', '<!-- figures: end -->'
"""Markers around the tables in the README."""


def render_tables(figures: Sequence[Figure], columns: Sequence[Column], samples: Samples) -> str:
    """Return both tables as Markdown.

    Args:
        figures: The rows. A row without any value is omitted.
        columns: The contestants, including ours under the key `ours`.
        samples: The values of all rounds.
    """
    measured = [figure for figure in figures if any(figure.key in samples.get(key, {}) for key, _ in columns)]
    others = [column for column in columns if column[0] != 'ours']
    ratios = [[figure.title, *(_ratio(figure, key, samples) for key, _ in others)] for figure in measured]
    values = [
        [figure.title, *(_value(figure, key, samples) for key, _ in columns), *_verdict(figure, samples)]
        for figure in measured
    ]
    return '\n\n'.join(
        [
            'Multiples of ours (above 1: ours needs less):',
            render_table([['', *(name for _, name in others)], *(row for row in ratios if any(row[1:]))]),
            'Medians:',
            render_table([['', *(name for _, name in columns), 'target', 'holds'], *values]),
        ]
    )


def missed(figures: Sequence[Figure], samples: Samples) -> list[str]:
    """Return a line for each target that ours misses."""
    judged = [(figure, judge(figure, samples)) for figure in figures]
    return [
        f'{figure.title}: {verdict.value:.{max(figure.digits, 2)}f}, target {verdict.target}'
        for figure, verdict in judged
        if verdict and not verdict.holds
    ]


def replace_tables(page: str, tables: str) -> str:
    """Return the page with the tables between its markers replaced.

    Raises:
        ValueError: The page lacks the markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f'The page has no {BEGIN!r} … {END!r}. Put both where the tables belong.')
    return f'{before}{BEGIN}\n\n{tables}\n\n{END}{after}'


def _median(figure: Figure, key: str, samples: Samples) -> float | None:
    values = samples.get(key, {}).get(figure.key, ())
    return statistics.median(values) if values else None


def _ratio(figure: Figure, key: str, samples: Samples) -> str:
    ours, other = _median(figure, 'ours', samples), _median(figure, key, samples)
    if not figure.is_cost or ours is None or other is None or ours <= 0:
        return ''
    ratio = other / ours
    if ratio < 0.005:  # no work at all: the import of the bare library on top of itself
        return ''
    return f'{ratio:.0f}×' if ratio >= 10 else f'{ratio:.2f}×'


def _value(figure: Figure, key: str, samples: Samples) -> str:
    value = _median(figure, key, samples)
    return '' if value is None else f'{value:,.{figure.digits}f}'


def _verdict(figure: Figure, samples: Samples) -> tuple[str, str]:
    verdict = judge(figure, samples)
    if verdict is None:
        return '', ''
    return verdict.target, 'yes' if verdict.holds else '**missed**'


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as an aligned Markdown table. The first row is the head; all columns but the first align right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]

    def line(row: Sequence[str]) -> str:
        cells = [cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in _cells(row, widths)]
        return f'| {" | ".join(cells)} |'

    rule = '|'.join([f':{"-" * (widths[0] + 1)}', *(f'{"-" * (width + 1)}:' for width in widths[1:])])
    head, *body = rows
    return '\n'.join([line(head), f'|{rule}|', *(line(row) for row in body)])


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(row, widths, strict=True)))
