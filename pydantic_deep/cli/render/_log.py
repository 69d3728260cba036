"""The output of `log`: the graph, and a line for each version. Pure except for the current time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pydantic_deep.views import Version

from ._graph import GraphNode, draw_graph
from ._ids import HEAD, short_id
from ._terminal_text import first_line, first_line_of_prose
from ._wrapping import print_truncated

PROMPT_CHARS = 200
"""Maximum number of characters of a prompt. A terminal truncates it to its width."""

MIN_PROMPT_COLUMNS = 8
"""Minimum width of a prompt, however narrow the terminal is."""

BRANCH_CHARS = 30
"""Maximum number of characters of the name of a branch."""

TITLE_CHARS = 20
"""Maximum number of characters of the title beside it, so that prompts remain readable in 60 columns."""

_MARKS = {'root': '○', 'turn': '●', 'step': '·', 'pause': '◌', 'edit': '✎', 'merge': '◆'}
"""Mark of each kind of version."""

_STATE_STYLES = {'interrupted': ('interrupted', 'yellow'), 'failed': ('failed', 'red')}
"""Word and style of the states of turns that did not complete."""

_UNITS = ((86_400, 'd'), (3_600, 'h'), (60, 'm'))


def print_log(
    console: Console,
    rows: Sequence[Version],
    turn_bases: Mapping[str, str],
    *,
    head_id: str | None = None,
    titles: Mapping[str, str],
) -> None:
    """Print versions, newest first, each on one line. A terminal truncates lines to its width.

    Args:
        console: The output.
        rows: The versions.
        turn_bases: The base versions of turns, by the id of the step that represents the turn.
        head_id: The version whose files the directory has.
        titles: The titles of other conversations than that of `HEAD`, by id.
    """
    moment = datetime.now(UTC)
    row_parents = _graph_parents(rows, turn_bases)
    nodes = [
        GraphNode(id=row.id, parents=parents, mark=_MARKS[row.kind])
        for row, parents in zip(rows, row_parents, strict=True)
    ]
    row_by_id = {row.id: row for row in rows}
    tips = set(_tips(rows))
    for line in draw_graph(nodes):
        if line.id is None:
            print_truncated(console, Text(line.graph, 'dim'))
            continue
        row, is_alone = row_by_id[line.id], line.id in turn_bases
        head = Text.assemble(
            (f'{line.graph} ', 'dim'), (short_id(row.id, row_by_id), 'yellow'), _refs(row, tips, head_id, titles)
        )
        head.append_text(_status_text(row, moment, is_alone=is_alone))
        prompt = Text(f'  {summarize(row, is_alone=is_alone)}', '' if row.prompt else 'dim italic')
        print_truncated(console, _fit_line(head, prompt, row, console.width if console.is_terminal else None))


def _graph_parents(rows: Sequence[Version], turn_bases: Mapping[str, str]) -> list[list[str]]:
    """Return the parents of each row. The parent of a turn is its last step, if that is shown.

    Args:
        rows: The versions, newest first.
        turn_bases: The parents of steps without a parent among the rows.
    """
    last_steps = {row.run_id: row.id for row in reversed(rows) if row.kind == 'step'}
    parents: list[list[str]] = []
    for row in rows:
        parent = turn_bases.get(row.id, row.parent_id)
        first = last_steps.get(row.run_id, parent) if row.kind in ('turn', 'pause') else parent
        parents.append([id for id in (first, row.merged_from) if id is not None])
    return parents


def describe_age(created_at: datetime, now: datetime) -> str:
    """Return the age of a time in one unit."""
    seconds = int((now - created_at).total_seconds())
    return next((f'{seconds // size}{unit}' for size, unit in _UNITS if seconds >= size), 'now')


def summarize(row: Version, *, is_alone: bool = False) -> str:
    """Return a one-line summary of a version. For a step, list its calls, unless it represents its turn."""
    if row.calls and not is_alone:
        return first_line(f'calls {", ".join(row.calls)}', PROMPT_CHARS)
    if row.prompt is not None:
        return first_line_of_prose(row.prompt, PROMPT_CHARS)
    if row.kind == 'edit' and row.state == 'interrupted' and not row.files_changed:
        return 'continued without answers'
    kinds = {
        'root': 'a conversation begins',
        'turn': 'continued without a prompt',
        'pause': 'continued without a prompt',
        'edit': 'edited without the agent' if row.files_changed else 'settings changed',
        'merge': f'with {short_id(row.merged_from or "")}',
    }
    return kinds.get(row.kind, '')


def count_files(paths: Sequence[str] | None) -> str:
    """Return the number of changed files as text, which is empty for none."""
    return '' if not paths else '1 file' if len(paths) == 1 else f'{len(paths)} files'


def _tips(rows: Sequence[Version]) -> Iterator[str]:
    """Yield the newest version of each branch."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        branch = (row.conversation_id, row.branch)
        if branch not in seen:
            seen.add(branch)
            yield row.id


def branch_label(version: Version, titles: Mapping[str, str]) -> str:
    """Return the name of the branch of a version, with the title of its conversation if that is not the one of `HEAD`.

    It is empty if the title is the prompt of the version, which is shown beside it.

    Args:
        version: The version.
        titles: The titles of other conversations than that of `HEAD`, by id.
    """
    name, title = first_line(version.branch, BRANCH_CHARS), titles.get(version.conversation_id)
    if title is None:
        return name
    return '' if title == summarize(version) else f'{name} of “{first_line_of_prose(title, TITLE_CHARS)}”'


def _refs(row: Version, tips: set[str], head_id: str | None, titles: Mapping[str, str]) -> Text:
    names: list[tuple[str, str]] = []
    if row.id == head_id:
        names.append((HEAD, 'bold cyan'))
    if row.id in tips and (label := branch_label(row, titles)):
        names.append((label, 'green'))
    if not names:
        return Text()
    return Text.assemble(' (', Text(', ').join(Text(*name) for name in names), ')')


def _status_text(row: Version, now: datetime, *, is_alone: bool) -> Text:
    text = Text()
    if is_alone or row.kind not in ('turn', 'step'):
        text.append(f' {row.kind}', 'magenta')
    if row.is_pending:
        text.append(' pending', 'bold yellow')
    elif row.state in _STATE_STYLES and row.kind != 'step':
        word, style = _STATE_STYLES[row.state]
        text.append(f' {word}', style)
    return text.append(f' {describe_age(row.created_at, now)}', 'dim')


def _fit_line(head: Text, prompt: Text, row: Version, width: int | None) -> Text:
    """Return the line of a version, with the prompt truncated so that the number of files fits."""
    files = count_files(row.files_changed)
    if width is not None:
        columns = width - head.cell_len - (cell_len(files) + 2 if files else 0)
        prompt.truncate(max(columns, MIN_PROMPT_COLUMNS), overflow='ellipsis')
    return Text.assemble(head, prompt, (f'  {files}' if files else '', 'cyan'))
