"""How versions look in `log`: the graph, and a line each. Pure but for the time of day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ._graph import Node, draw
from ._names import HEAD, shown_id
from ._printable import first_line
from ._reader import parents_of
from ._shapes import VersionRow

PROMPT_CHARS = 200
"""How much of a prompt is shown at most; the terminal cuts it to its own width."""

MIN_PROMPT_COLUMNS = 8
"""How much of a prompt stays however narrow the terminal is."""

_MARKS = {'root': '○', 'turn': '●', 'step': '·', 'pause': '◌', 'edit': '✎', 'merge': '◆'}
"""The mark of each kind."""

_STATES = {'interrupted': ('interrupted', 'yellow'), 'failed': ('failed', 'red')}
"""What is said of a turn that did not simply end."""

_UNITS = ((86_400, 'd'), (3_600, 'h'), (60, 'm'))


def print_log(console: Console, rows: Sequence[VersionRow], *, now: datetime | None = None) -> None:
    """Print versions, newest first; on a terminal each on one line."""
    moment = now or datetime.now(UTC)
    parents = parents_of(rows)
    nodes = [Node(id=row.id, parents=above, mark=_MARKS[row.kind]) for row, above in zip(rows, parents, strict=True)]
    row_by_id = {row.id: row for row in rows}
    tips = set(_tips(rows))
    for line in draw(nodes):
        if line.id is None:
            console.print(Text(line.graph, 'dim'))
            continue
        row = row_by_id[line.id]
        head = Text.assemble((f'{line.graph} ', 'dim'), (shown_id(row.id, row_by_id), 'yellow'), _refs(row, tips))
        head.append_text(_about(row, moment))
        console.print(
            _fitted(head, row, console.width if console.is_terminal else None),
            no_wrap=console.is_terminal,
            overflow='ellipsis',
            soft_wrap=not console.is_terminal,
        )


def describe_age(created_at: str, now: datetime) -> str:
    """Return how long ago a moment was, in one unit."""
    seconds = int((now - datetime.fromisoformat(created_at)).total_seconds())
    return next((f'{seconds // size}{unit}' for size, unit in _UNITS if seconds >= size), 'now')


def summarize(row: VersionRow) -> str:
    """Return what a version is about, in a line."""
    if row.prompt is not None:
        return first_line(row.prompt, PROMPT_CHARS)
    if row.calls:
        return first_line(f'calls {", ".join(row.calls)}', PROMPT_CHARS)
    if row.kind in ('turn', 'pause'):
        return 'went on after answers'
    if row.kind == 'edit' and row.state == 'interrupted':
        return 'went on without answers'
    kinds = {
        'root': 'a conversation begins',
        'edit': 'edited without the agent' if row.files_changed else 'other settings',
        'merge': f'with {shown_id(row.merged_from or "")}',
    }
    return kinds.get(row.kind, '')


def count_files(count: int | None) -> str:
    """Return how many files changed, in two words; nothing for none."""
    return '' if not count else f'{count} file' if count == 1 else f'{count} files'


def _tips(rows: Sequence[VersionRow]) -> Iterator[str]:
    """Yield the newest version of each branch."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        branch = (row.conversation_id, row.branch)
        if branch not in seen:
            seen.add(branch)
            yield row.id


def _refs(row: VersionRow, tips: set[str]) -> Text:
    names: list[tuple[str, str]] = []
    if row.is_head:
        names.append((HEAD, 'bold cyan'))
    if row.id in tips:
        names.append((first_line(row.branch, 30), 'green'))
    if not names:
        return Text()
    return Text.assemble(' (', Text(', ').join(Text(*name) for name in names), ')')


def _about(row: VersionRow, now: datetime) -> Text:
    text = Text()
    if row.kind not in ('turn', 'step'):
        text.append(f' {row.kind}', 'magenta')
    if row.is_waiting:
        text.append(' waits', 'bold yellow')
    elif row.state in _STATES and row.kind != 'step':
        word, style = _STATES[row.state]
        text.append(f' {word}', style)
    return text.append(f' {describe_age(row.created_at, now)}', 'dim')


def _fitted(head: Text, row: VersionRow, width: int | None) -> Text:
    """Return the line with as much of the prompt as leaves room for what stands after it."""
    prompt, files = Text(f'  {summarize(row)}', '' if row.prompt else 'dim italic'), count_files(row.files_changed)
    if width is not None:
        room = width - head.cell_len - (cell_len(files) + 2 if files else 0)
        prompt.truncate(max(room, MIN_PROMPT_COLUMNS), overflow='ellipsis')
    return Text.assemble(head, prompt, (f'  {files}' if files else '', 'cyan'))
