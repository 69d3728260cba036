r"""A unified diff for a person to read, in the format of GNU `diff -u`. Pure.

Lines end at `\n` only, as everywhere in this room. Each line that changes is shown, and each line that is shown as
changed is one: applied to the old text, the diff gives the new one. It is cut only where it is longer than anybody
reads, and says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from pydantic_deep_backends.lines import shared_lines
from pydantic_deep_backends.search import split_lines

CONTEXT_LINES: Final = 3
"""How many equal lines are shown around a change, as `diff -u` does."""

MAX_DIFF_CHARS: Final = 200_000
"""The longest diff that is shown whole: some 4,000 lines, more than anybody reviews, and small in a database."""

_Change: TypeAlias = tuple[int, int, int, int]
"""`(from, to)` in the old lines and `(from, to)` in the new ones."""


def render_diff(path: str, old: str | None, new: str, *, max_chars: int = MAX_DIFF_CHARS) -> str:
    """Return the diff of two texts; only its two head lines if they have the same lines.

    Args:
        path: The path as it is shown, absolute.
        old: The text now; `None` if there is no file.
        new: The text after.
        max_chars: How long the diff may be, without the line that says how much was cut.
    """
    lines = [f'--- {"/dev/null" if old is None else f"a{path}"}\n', f'+++ b{path}\n']
    lines += _hunks(split_lines(old or ''), split_lines(new))
    return _cut(lines, max_chars)


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for hunk in _grouped(_changes(old, new)):
        low, high = max(hunk[0][0] - CONTEXT_LINES, 0), min(hunk[-1][1] + CONTEXT_LINES, len(old))
        shift_low, shift_high = hunk[0][2] - hunk[0][0], hunk[-1][3] - hunk[-1][1]
        yield f'@@ -{_range(low, high)} +{_range(low + shift_low, high + shift_high)} @@\n'
        done = low
        for old_from, old_to, new_from, new_to in hunk:
            yield from _marked(' ', old[done:old_from])
            yield from _marked('-', old[old_from:old_to])
            yield from _marked('+', new[new_from:new_to])
            done = old_to
        yield from _marked(' ', old[done:high])


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[_Change]:
    """Yield what lies between the lines that both have."""
    done_old = done_new = 0
    blocks = shared_lines(*([line.encode('utf-8', 'surrogatepass') for line in lines] for lines in (old, new)))
    for start_old, start_new, count in (*blocks, (len(old), len(new), 0)):
        if done_old < start_old or done_new < start_new:
            yield done_old, start_old, done_new, start_new
        done_old, done_new = start_old + count, start_new + count


def _grouped(changes: Iterator[_Change]) -> Iterator[list[_Change]]:
    """Yield changes together whose lines of context would touch."""
    group: list[_Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f'{mark}{line}' if line.endswith('\n') else f'{mark}{line}\n\\ No newline at end of file\n'


def _range(low: int, high: int) -> str:
    """Return a range of lines as the format writes it: an empty one begins at the line before it."""
    count = high - low
    return f'{low + 1}' if count == 1 else f'{low + 1 if count else low},{count}'


def _cut(lines: Sequence[str], max_chars: int) -> str:
    text = ''.join(lines)
    if len(text) <= max_chars:
        return text
    left = text.count('\n', max_chars) + (not text.endswith('\n'))
    return (
        f'{text[:max_chars]}\n'
        f'[cut here: {len(text) - max_chars:,} more characters of the diff, on {left:,} lines, are not shown]\n'
    )
