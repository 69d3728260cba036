"""`Table`: the result of a query, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_MAX_ROWS_SHOWN: Final = 20
"""Maximum number of rows in the text of a table: a screen."""

_MAX_CELL_CHARS: Final = 60
"""Maximum number of characters in the text of a cell."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Table:
    """The rows that a query returned; iterating yields them.

    Values have Python types: `str`, `int`, `float`, `bool`, `None`, `datetime` (UTC, without a zone), `date`, `time`,
    `timedelta`, `decimal.Decimal`, `uuid.UUID`, `bytes`, and lists and dicts (for structs and maps) of these. JSON is
    `str`.
    """

    columns: tuple[str, ...]
    """Names of the columns, in order; a query may repeat a name."""
    rows: tuple[tuple[object, ...], ...]
    """The rows in the order of the query, which is undefined without `ORDER BY`."""
    is_truncated: bool = False
    """Whether the query has more rows than the requested `max_rows`."""

    def to_dicts(self) -> list[dict[str, object]]:
        """Return each row as a dict. If columns have the same name, the last one is used."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        """Return a short table: the first rows, with long cells truncated."""
        shown = [[_cell(value) for value in row] for row in self.rows[:_MAX_ROWS_SHOWN]]
        lines = [[_cell(name) for name in self.columns], *shown]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = ['-' * width for width in widths]
        numeric = [self._is_numeric(index) for index in range(len(self.columns))]
        text = '\n'.join(_line(line, widths, numeric) for line in (lines[0], rule, *shown))
        rest = len(self.rows) - len(shown)
        return f'{text}\n({rest} more rows)' if rest else text

    def _is_numeric(self, index: int) -> bool:
        values = [row[index] for row in self.rows if row[index] is not None]
        return bool(values) and all(isinstance(value, int | float) for value in values)


def _cell(value: object) -> str:
    if value is None:
        return ''
    text = f'{value:.6g}' if isinstance(value, float) else str(value)
    text = ''.join(character if character.isprintable() else ' ' for character in text)
    return text if len(text) <= _MAX_CELL_CHARS else f'{text[: _MAX_CELL_CHARS - 1]}…'


def _line(cells: list[str], widths: list[int], numeric: list[bool]) -> str:
    padded = [
        cell.rjust(width) if is_number else cell.ljust(width)
        for cell, width, is_number in zip(cells, widths, numeric, strict=True)
    ]
    return '  '.join(padded).rstrip()
