"""How events look on a terminal: pure functions from values to Rich texts, each safe to print.

Texts are built as `Text`, never as markup: `[red]` in a file name is a file name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue
from rich.markdown import Markdown
from rich.text import Text

from pydantic_deep.todos import Todo, TodoStatus

from ._events import FileChange, Outcome, ResultEvent, ToolCallEvent, ToolResultEvent, Usage
from ._printable import first_line, printable

TOLD_APART_CHARS = 200
"""How much of an argument or a result is shown at most; the terminal cuts it to its own width."""

_MAIN_ARGUMENTS = ('command', 'pattern', 'path', 'subagent', 'name', 'description')
"""Arguments that say what a call is about, the most telling first; two of them are shown."""

_MARKS: Mapping[Outcome, tuple[str, str]] = {
    'success': ('✓', 'green'),
    'failed': ('✗', 'red'),
    'denied': ('✗', 'red'),
    'interrupted': ('■', 'yellow'),
    'retried': ('↻', 'yellow'),
}
"""The mark of each outcome, and its colour."""

_TODO_STYLES: Mapping[TodoStatus, tuple[str, str]] = {
    'pending': ('○', ''),
    'in_progress': ('▸', 'bold'),
    'completed': ('●', 'dim'),
}
"""The mark of each status, and its style."""


def render_call(call: ToolCallEvent, result: ToolResultEvent | None = None) -> Text:
    """Return a call in a line: the tool, what it is about, and how it ended if it did."""
    mark, style = _MARKS[result.outcome] if result else ('·', 'cyan')
    text = Text.assemble((mark, style), ' ', (printable(call.tool), 'bold'))
    about = ' '.join(_main_arguments(call.args))
    if about:
        text.append(f' {about}')
    if result:
        failed = result.outcome != 'success'
        text.append(f'  {summarize_result(result.text)}', style=style if failed else 'dim')
    return text


def summarize_result(text: str) -> str:
    """Return a result in a few words: itself if it is one line, else how many lines it has."""
    lines = text.strip().split('\n')
    return first_line(text, TOLD_APART_CHARS) if len(lines) <= 1 else f'{len(lines)} lines'


def render_todos(todos: Sequence[Todo]) -> Text:
    """Return the plan, a line each."""
    lines = [
        Text(f'  {mark} {first_line(todo.content, TOLD_APART_CHARS)}', style) for todo, mark, style in _marked(todos)
    ]
    return Text('\n').join(lines)


def render_file(change: FileChange) -> Text:
    """Return what happened to a file in a line."""
    return Text.assemble(
        f'{change.change} ',
        (printable(change.path).replace('\n', '\\n'), 'bold'),
        (f' +{change.added_lines}', 'green'),
        (f' -{change.removed_lines}', 'red'),
    )


def render_usage(usage: Usage, seconds: float) -> Text:
    """Return what was used, in a line."""
    return Text(
        f'{_count(usage.requests, "request")}, {_count(usage.tool_calls, "tool call")}, '
        f'{_short(usage.input_tokens)} tokens in, {_short(usage.output_tokens)} out, {seconds:.0f} s',
        style='dim',
    )


def render_result(result: ResultEvent) -> Text:
    """Return the end of a turn: the files, what was used, and what went wrong."""
    lines = [render_file(change) for change in result.files]
    lines.append(render_usage(result.usage, result.seconds))
    if result.error is not None:
        lines.append(Text(printable(result.error), 'bold red'))
    return Text('\n').join(lines)


def render_answer(output: str) -> Markdown:
    """Return the answer as Markdown. Links are written out: what a link says may not be where it leads."""
    return Markdown(printable(output), hyperlinks=False)


def _main_arguments(args: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield the two arguments that tell most, or the first text there is."""
    known = [args[name] for name in _MAIN_ARGUMENTS if name in args]
    texts = [value for value in known or args.values() if isinstance(value, str) and value]
    for text in texts[: 2 if known else 1]:
        yield first_line(text, TOLD_APART_CHARS // 2)


def _marked(todos: Sequence[Todo]) -> Iterator[tuple[Todo, str, str]]:
    for todo in todos:
        yield todo, *_TODO_STYLES[todo.status]


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'


def _short(number: int) -> str:
    """Return a number in at most four characters and a unit."""
    if number < 10_000:
        return str(number)
    return f'{number / 1000:.0f}k' if number < 1_000_000 else f'{number / 1_000_000:.1f}M'
