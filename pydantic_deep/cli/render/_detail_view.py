"""How one version, and the difference of two, look on a terminal. Pure: values in, Rich texts out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from pydantic import JsonValue
from rich.text import Text
from rich.tree import Tree

from pydantic_deep._escapes import escape
from pydantic_deep._line_diff import diff_lines
from pydantic_deep.cli._events import ToolCallEvent, ToolResultEvent, Usage
from pydantic_deep.cli._schemas import (
    CallRow,
    Difference,
    FileRow,
    OmittedRow,
    RequestRow,
    SubagentRow,
    VersionDetails,
    VersionRow,
)
from pydantic_deep.cli.approvals._call_view import DIFF_STYLES
from pydantic_deep.cli.history._prompts import text_of_json
from pydantic_deep.cli.history._revisions import HEAD, shown_id
from pydantic_deep.cli.turn._conversation import SETTINGS
from pydantic_deep.todos import Todo

from ._event_lines import render_call, render_todos
from ._printable import first_line, printable, rich_text

LINE_CHARS = 200
"""How much of what somebody wrote stands where it has one line."""

MESSAGE_LINES = 10
"""How many lines of each part of a message `diff` shows; of most answers that is all."""

MESSAGE_CHARS = 800
"""How many characters of them: ten lines of a terminal, where one line is as long as a file."""

_FILE_MARKS = {'added': ('+', 'green'), 'removed': ('-', 'red'), 'changed': ('~', 'yellow')}


def render_details(details: VersionDetails) -> Iterator[Text | Tree]:
    """Yield what happened in the turn of a version: each a line, or a few."""
    row = details.version
    head = f' ({HEAD})' if row.is_head else ''
    yield Text.assemble(('version ', 'bold'), (row.id, 'yellow'), (head, 'bold cyan'))
    yield _field('made', f'{row.kind}, {_state(row)}, {row.created_at}')
    if row.parent_id is not None:
        merged = '' if row.merged_from is None else f' and {row.merged_from}'
        yield _field('from', f'{row.parent_id}{merged}')
    yield _field('conversation', f'{row.conversation_id}, {_count(row.message_count, "message")}')
    yield _field('branch', row.branch)
    yield _field('agent', row.agent_name if row.model is None else f'{row.agent_name}, {_given_model(details)}')
    if row.prompt is not None:
        yield from _section('Prompt', printable(row.prompt))
    if details.calls:
        yield _title('Calls')
        yield from (_call(call) for call in details.calls)
    if details.subagents:
        yield _title('Subagents')
        yield render_subagents(details.subagents)
    if details.output is not None:
        is_whole = row.state not in ('interrupted', 'failed')
        yield from _section('Answer' if is_whole else 'Answer, as far as it came', printable(details.output))
    if details.error is not None:
        yield from _section('Error', printable(details.error), 'red')
    if details.pending:
        yield _title('Waits for')
        for approval in details.pending:
            yield render_call(ToolCallEvent(id=approval.id, tool=approval.tool, args=approval.args))
    if details.files:
        yield _title('Files')
        yield from (render_file_line(file) for file in details.files)
    if details.protected:
        yield _title('Protected files changed')
        for change in details.protected:
            mark, style = _FILE_MARKS[change.change]
            yield Text(f'  {mark} {printable(change.path)}', style)
    if details.omitted_files:
        yield _title('Files in no version')
        yield from (_omitted(file) for file in details.omitted_files)
    if details.todos:
        yield _title('Todos')
        yield render_todos(details.todos)
    if details.requests:
        yield _title('Requests')
        yield from (_request(request) for request in details.requests)
    yield Text(f'{_used(details.usage)} so far', 'dim')


def render_difference(difference: Difference) -> Iterator[Text]:
    """Yield what is different between two versions."""
    yield Text.assemble((difference.before, 'yellow'), ' → ', (difference.after, 'yellow'))
    if difference.messages_removed or difference.messages_added:
        yield _title('Messages')
        for sign, style, messages in (
            ('-', 'red', difference.messages_removed),
            ('+', 'green', difference.messages_added),
        ):
            for message in messages:
                yield from (Text(f'{sign} {line}'.rstrip(), style) for line in describe_message(message))
    if difference.todos_before != difference.todos_after:
        yield _title('Todos')
        yield from _todos(difference.todos_before, '-', 'red')
        yield from _todos(difference.todos_after, '+', 'green')
    for file in difference.files:
        yield Text()
        yield from render_file_diff(file)
    if not (difference.messages_removed or difference.messages_added or difference.files):
        yield Text('The messages and the files are the same.', 'dim')


def render_file_diff(file: FileRow) -> Iterator[Text]:
    """Yield a file as a diff, or as a line if there is none."""
    yield render_file_line(file)
    if file.view is not None:
        yield from (rich_text(line, DIFF_STYLES.get(kind, '')) for kind, line in diff_lines(file.view))


def render_file_line(file: FileRow) -> Text:
    """Return a file in a line."""
    mark, style = _FILE_MARKS[file.kind]
    sizes = ' → '.join(f'{size} bytes' for size in (file.size_before, file.size_after) if size is not None)
    about = sizes if file.view is None else f'+{file.view.added} -{file.view.removed}'
    return Text.assemble((mark, style), ' ', rich_text(escape(file.path, one_line=True), 'bold'), (f'  {about}', 'dim'))


def _omitted(file: OmittedRow) -> Text:
    return Text.assemble(('! ', 'yellow'), printable(file.path).replace('\n', '\\n'), (f'  {file.reason}', 'dim'))


def render_subagents(subagents: Sequence[SubagentRow]) -> Tree:
    """Return the conversations that were delegated to, as a tree."""
    tree = Tree('', hide_root=True, guide_style='dim')
    _grow(tree, subagents)
    return tree


def describe_message(message: JsonValue) -> Iterator[str]:
    """Yield a message, part by part: each whole if it is short, else how it begins."""
    for part in cast('list[dict[str, Any]]', cast('dict[str, object]', message).get('parts', [])):
        kind = str(part.get('part_kind'))
        content = part.get('args') if kind == 'tool-call' else part.get('content')
        text = text_of_json(content) if kind == 'user-prompt' else content
        shown = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        name = f' {part["tool_name"]}' if part.get('tool_name') else ''
        first, *others = _beginning(printable(f'{kind}{name}: {shown.strip()}'))
        yield first
        yield from (f'  {line}' for line in others)


def _beginning(text: str) -> list[str]:
    """Return the lines of a text, or the first of them and how much is left out."""
    kept = '\n'.join(text[:MESSAGE_CHARS].split('\n')[:MESSAGE_LINES])
    left = text[len(kept) :]
    more = _count(left.count('\n'), 'more line') if '\n' in left else _count(len(left), 'more character')
    return [*kept.split('\n'), *([f'… {more}'] if left else [])]


def _grow(tree: Tree, subagents: Sequence[SubagentRow]) -> None:
    for each in subagents:
        intent = first_line(each.intent, LINE_CHARS)
        version = '' if each.version_id is None else f' {shown_id(each.version_id)}'
        line = Text.assemble(
            (printable(each.subagent), 'magenta'), (version, 'yellow'), f' {each.state}', (f'  {intent}', 'dim')
        )
        _grow(tree.add(line), each.subagents)


def _given_model(details: VersionDetails) -> str | None:
    """Return the model as it was named to the command line; of another program, what pydantic-ai says of who answered."""
    settings = details.metadata.get(SETTINGS)
    given = settings.get('model') if isinstance(settings, dict) else None
    return given if isinstance(given, str) else details.version.model


def _field(name: str, value: str) -> Text:
    return Text.assemble((f'{name:13}', 'dim'), printable(value))


def _title(title: str) -> Text:
    return Text.assemble('\n', (title, 'bold'))


def _section(title: str, text: str, style: str = '') -> Iterator[Text]:
    yield _title(title)
    yield Text(text.rstrip('\n'), style)


def _call(call: CallRow) -> Text:
    event = ToolCallEvent(id=call.id, tool=call.tool, args=call.args)
    if call.outcome is None:
        return render_call(event)
    result = ToolResultEvent(
        id=call.id, tool=call.tool, outcome=call.outcome, text=call.result or '', exit_code=call.exit_code
    )
    return render_call(event, result)


def _request(request: RequestRow) -> Text:
    settings = ', '.join(f'{name}={json.dumps(value)}' for name, value in request.settings.items())
    cost = '' if request.cost is None else f', ${request.cost}'
    return Text.assemble(
        f'{request.number} {printable(request.model)}{"" if request.kind == "answer" else f" ({request.kind})"}',
        (f'  {request.input_tokens} tokens in, {request.output_tokens} out{cost}, {request.seconds:.1f} s', 'dim'),
        (f'  {printable(settings)}' if settings else '', 'dim'),
    )


def _used(usage: Usage) -> str:
    requests, calls = _count(usage.requests, 'request'), _count(usage.tool_calls, 'tool call')
    return f'{requests}, {calls}, {usage.input_tokens} tokens in, {usage.output_tokens} out'


def _count(number: int, noun: str) -> str:
    return f'1 {noun}' if number == 1 else f'{number} {noun}s'


def _state(row: VersionRow) -> str:
    """Return what became of a version: of one that asked, whether it waits still."""
    answered = 'answered' if row.state == 'awaiting_approval' else row.state
    return 'waits' if row.is_waiting else answered


def _todos(todos: Sequence[Todo], sign: str, style: str) -> Iterator[Text]:
    for todo in todos:
        yield Text(f'{sign} {first_line(todo.content, LINE_CHARS)} ({todo.status})', style)
