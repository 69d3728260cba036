"""Profile a table: what each column holds, what is missing, what looks wrong. Standard library only.

Usage: python3 profile_table.py FILE [--json] [--rows N]

FILE is CSV, TSV or another delimited text, or JSON Lines; `-` reads standard input. One pass; memory is bounded.
Exit code 1 and one sentence on standard error if the file cannot be read as a table.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MISSING = {'', '-', '--', 'n/a', 'na', 'nan', 'null', 'none', '?', '#n/a'}
NUMBER = re.compile(r'[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?')
FORMATTED = re.compile(r'[-+(]?\s*[$€£]?\s*\d{1,3}([.,\' ]\d{3})*([.,]\d+)?\s*[%€$£]?\)?')
ISO_DATE = re.compile(r'\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?')
OTHER_DATE = re.compile(r'\d{1,2}[./-]\d{1,2}[./-]\d{2,4}')
BOOLEAN = {'true', 'false', 'yes', 'no', 'y', 'n', 't', 'f'}
MAX_VALUES = 10_000
"""How many different values of a column are counted."""


@dataclass
class Column:
    """What was seen in a column."""

    name: str
    missing: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    has_more_values: bool = False
    low: float | None = None
    high: float | None = None
    total: float = 0.0
    first: str | None = None
    last: str | None = None
    leading_zeros: int = 0
    padded: int = 0

    def add(self, raw: object) -> None:
        """Count one value."""
        text = '' if raw is None else raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)
        value = text.strip()
        self.padded += value != text
        if value.casefold() in MISSING:
            self.missing += 1
            return
        kind = kind_of(value)
        self.kinds[kind] += 1
        if kind == 'number':
            number = float(value)
            self.low = number if self.low is None else min(self.low, number)
            self.high = number if self.high is None else max(self.high, number)
            self.total += number
            self.leading_zeros += len(value) > 1 and value.isdigit() and value[0] == '0'
        elif kind == 'date':
            self.first = min(self.first or value, value)
            self.last = max(self.last or value, value)
        if value in self.values or len(self.values) < MAX_VALUES:
            self.values[value] += 1
        else:
            self.has_more_values = True

    def summary(self, rows: int) -> dict[str, object]:
        """Return what is worth knowing."""
        filled = rows - self.missing
        found: dict[str, object] = {
            'column': self.name,
            'kinds': dict(self.kinds.most_common()),
            'missing': self.missing,
            'distinct': f'over {MAX_VALUES}' if self.has_more_values else len(self.values),
        }
        if self.low is not None:
            found |= {'min': self.low, 'max': self.high, 'mean': self.total / self.kinds['number']}
        if self.first is not None:
            found |= {'first': self.first, 'last': self.last}
        found['frequent'] = [f'{value[:40]} ({count})' for value, count in self.values.most_common(5)]
        found['notes'] = self.notes(filled)
        return found

    def notes(self, filled: int) -> list[str]:
        """Return what may be wrong."""
        notes: list[str] = []
        if filled and not self.has_more_values and len(self.values) == filled and not self.missing:
            notes.append('unique: may identify a row')
        if len(self.kinds) > 1:
            notes.append('mixed kinds')
        if self.leading_zeros:
            notes.append(f'{self.leading_zeros} with leading zeros: keep as text')
        if self.kinds['formatted number']:
            notes.append('numbers with separators, units or brackets: convert on purpose')
        if self.kinds['ambiguous date']:
            notes.append('day and month order is not certain')
        if self.padded:
            notes.append(f'{self.padded} with blanks around')
        if len(self.values) == 1 and filled:
            notes.append('constant')
        return notes


def kind_of(value: str) -> str:
    """Return what a value looks like."""
    if NUMBER.fullmatch(value):
        return 'number'
    if ISO_DATE.fullmatch(value):
        return 'date'
    if OTHER_DATE.fullmatch(value):
        return 'ambiguous date'
    if FORMATTED.fullmatch(value):
        return 'formatted number'
    return 'boolean' if value.casefold() in BOOLEAN else 'text'


def decode(data: bytes) -> tuple[str, str]:
    """Return the text and the name of its encoding."""
    wide = data[:2] in (b'\xff\xfe', b'\xfe\xff')
    for encoding in ('utf-16',) if wide else ('utf-8-sig', 'cp1252', 'latin-1'):
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    raise ValueError('the encoding is not known')


def profile(data: bytes, limit: int | None) -> dict[str, object]:
    """Return the profile of a table.

    Raises:
        ValueError: It is no table.
    """
    if data[:4] in (b'PK\x03\x04', b'PAR1'):
        raise ValueError('it is a spreadsheet, an archive or Parquet. Export it as CSV')
    text, encoding = decode(data)
    if not text.strip():
        raise ValueError('it is empty')
    if '\0' in text[:8192]:
        raise ValueError('it is no text')
    is_json = text.lstrip()[:1] == '{'
    return {'encoding': encoding} | (profile_json(text, limit) if is_json else profile_delimited(text, limit))


def profile_json(text: str, limit: int | None) -> dict[str, object]:
    """Return the profile of JSON Lines."""
    columns: dict[str, Column] = {}
    broken: list[int] = []
    rows = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or (limit is not None and rows >= limit):
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            broken.append(number)
            continue
        for name in record:
            if name not in columns:
                columns[name] = Column(name, missing=rows)
        rows += 1
        for name, column in columns.items():
            column.add(record.get(name))
    if not rows:
        raise ValueError('no line of it is a JSON object')
    return result('json lines', rows, columns.values(), broken)


def profile_delimited(text: str, limit: int | None) -> dict[str, object]:
    """Return the profile of delimited text with a header."""
    delimiter = find_delimiter(text)
    csv.field_size_limit(10_000_000)
    reader = csv.reader(io.StringIO(text, newline=''), delimiter=delimiter)
    try:
        header = next(row for row in reader if any(row))
        columns = [Column(name.strip() or f'column {index}') for index, name in enumerate(header, 1)]
        broken: list[int] = []
        rows = 0
        for row in reader:
            if not any(row):
                continue
            if limit is not None and rows >= limit:
                break
            if len(row) != len(columns):
                broken.append(reader.line_num)
                continue
            rows += 1
            for column, value in zip(columns, row, strict=True):
                column.add(value)
    except csv.Error as error:
        raise ValueError(f'line {reader.line_num}: {error}') from error
    return result(f'delimited by {delimiter!r}', rows, columns, broken)


def find_delimiter(text: str) -> str:
    """Return the delimiter that divides the first lines most evenly."""
    lines = [line for line in text[:65536].splitlines() if line.strip()][:50]
    scores = {}
    for delimiter in ',;\t|':
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        width, times = Counter(counts).most_common(1)[0]
        scores[delimiter] = (width > 1, times, width)
    return max(scores, key=scores.__getitem__)


def result(form: str, rows: int, columns: Iterable[Column], broken: list[int]) -> dict[str, object]:
    """Return what is reported."""
    return {
        'form': form,
        'rows': rows,
        'unusable_lines': len(broken),
        'first_unusable_lines': broken[:10],
        'columns': [column.summary(rows) for column in columns],
    }


def render(found: dict[str, object]) -> str:
    """Return a profile for people and models."""
    lines = [f'{found["form"]}, {found["encoding"]}, {found["rows"]} rows, {len(found["columns"])} columns']
    if found['unusable_lines']:
        lines.append(f'! {found["unusable_lines"]} unusable lines, the first at {found["first_unusable_lines"]}')
    for column in found['columns']:
        kinds = ', '.join(f'{kind} {count}' for kind, count in column['kinds'].items()) or 'nothing'
        lines.append(f'\n{column["column"]}: {kinds}; missing {column["missing"]}; distinct {column["distinct"]}')
        if 'min' in column:
            lines.append(f'  from {column["min"]:g} to {column["max"]:g}, mean {column["mean"]:g}')
        if 'first' in column:
            lines.append(f'  from {column["first"]} to {column["last"]}')
        if column['frequent']:
            lines.append(f'  frequent: {"; ".join(column["frequent"])}')
        lines += [f'  ! {note}' for note in column['notes']]
    return '\n'.join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(description='Profile a table.')
    parser.add_argument('file', help='CSV, TSV or JSON Lines; - for standard input')
    parser.add_argument('--json', action='store_true', help='print JSON')
    parser.add_argument('--rows', type=int, help='look at so many rows only')
    options = parser.parse_args(argv)
    try:
        data = sys.stdin.buffer.read() if options.file == '-' else Path(options.file).read_bytes()
        found = profile(data, options.rows)
    except (OSError, ValueError) as error:
        sys.stderr.write(f'{options.file} cannot be profiled: {error}.\n')
        return 1
    sys.stdout.write((json.dumps(found, indent=1, ensure_ascii=False) if options.json else render(found)) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
