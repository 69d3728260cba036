"""One version, and the difference between two, as Rich texts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

from pydantic import JsonValue
from rich.text import Text
from rich.tree import Tree

from pydantic_deep.cli._metadata import SETTINGS
from pydantic_deep.streaming import ToolCallEvent, ToolResultEvent
from pydantic_deep.todos import Todo
from pydantic_deep.versions import FileDiff, OmittedFile
from pydantic_deep.views import Difference, StoredRequest, SubagentTree, ToolCall, Usage, VersionDetails, prompt_text

from ._diff import render_diff
from ._event_lines import render_call, render_todos
from ._ids import HEAD, short_id
from ._terminal_text import escape_invisible, escape_prose, first_line_of_prose, rich_text

LINE_CHARS = 200
"""Maximum number of characters of a text that is shown on one line."""

MESSAGE_LINES = 10
"""Maximum number of lines that `diff` shows of each message part. Most answers are shorter."""

MESSAGE_CHARS = 800
"""Maximum number of characters of such a part: ten lines of a terminal, for parts with very long lines."""

_FILE_MARKS = {'added': ('+', 'green'), 'removed': ('-', 'red'), 'changed': ('~', 'yellow')}


def render_details(details: VersionDetails, *, is_head: bool = False) -> Iterator[Text | Tree]:
    """Yield the turn of a version as lines and blocks."""
    head = f' ({HEAD})' if is_head else ''
    yield Text.assemble(('version ', 'bold'), (details.id, 'yellow'), (head, 'bold cyan'))
    yield _field_line(
        'made', f'{details.kind}, {_state(details)}, {details.created_at.isoformat(timespec="milliseconds")}'
    )
    if details.parent_id is not None:
        merged = '' if details.merged_from is None else f' and {details.merged_from}'
        yield _field_line('from', f'{details.parent_id}{merged}')
    yield _field_line('conversation', f'{details.conversation_id}, {_count(details.message_count, "message")}')
    yield _field_line('branch', details.branch)
    yield _field_line(
        'agent', details.agent if details.model is None else f'{details.agent}, {_requested_model(details)}'
    )
    if details.prompt is not None:
        yield from _section('Prompt', escape_prose(details.prompt))
    if details.tool_calls:
        yield _title_line('Calls')
        yield from (_call_line(call) for call in details.tool_calls)
    if details.subagents:
        yield _title_line('Subagents')
        yield render_subagents(details.subagents)
    if details.output is not None:
        is_whole = details.state not in ('interrupted', 'failed')
        yield from _section('Answer' if is_whole else 'Partial answer', escape_prose(details.output))
    if details.error is not None:
        yield from _section('Error', escape_invisible(details.error), 'red')
    if details.is_pending:
        yield _title_line('Pending')
        for approval in details.approvals:
            args = json.dumps(approval.args)
            yield render_call(ToolCallEvent(id=approval.pending_id, name=approval.tool, args=args))
    if details.files:
        yield _title_line('Files')
        yield from (render_file_line(file) for file in details.files)
    if details.protected_changes:
        yield _title_line('Protected files changed')
        for change in details.protected_changes:
            mark, style = _FILE_MARKS[change.change]
            yield Text(f'  {mark} {escape_invisible(change.path)}', style)
    if details.omitted_files:
        yield _title_line('Files in no version')
        yield from (_omitted_line(file) for file in details.omitted_files)
    if details.todos:
        yield _title_line('Todos')
        yield render_todos(details.todos)
    if details.requests:
        yield _title_line('Requests')
        yield from (_request_line(request) for request in details.requests)
    yield Text(f'{_usage_text(details.usage)} so far', 'dim')


def render_difference(difference: Difference) -> Iterator[Text]:
    """Yield the differences between two versions as lines."""
    ids = (difference.before, difference.after)
    yield Text(' → ').join(Text(short_id(id, ids), 'yellow') for id in ids)
    if difference.messages_removed or difference.messages_added:
        yield _title_line('Messages')
        for sign, style, messages in (
            ('-', 'red', difference.messages_removed),
            ('+', 'green', difference.messages_added),
        ):
            for message in messages:
                yield from (Text(f'{sign} {line}'.rstrip(), style) for line in describe_message(message))
    if difference.todos_before != difference.todos_after:
        yield _title_line('Todos')
        yield from _todo_lines(difference.todos_before, '-', 'red')
        yield from _todo_lines(difference.todos_after, '+', 'green')
    for file in difference.files:
        yield Text()
        yield from render_file_diff(file)
    if not (difference.messages_removed or difference.messages_added or difference.files):
        yield Text('The messages and the files are the same.', 'dim')


def render_file_diff(file: FileDiff) -> Iterator[Text]:
    """Yield a changed file: its summary line, and its diff if there is one."""
    yield render_file_line(file)
    if file.view is not None:
        yield from render_diff(file.view)


def render_file_line(file: FileDiff) -> Text:
    """Return the summary line of a changed file."""
    mark, style = _FILE_MARKS[file.kind]
    sizes = ' → '.join(f'{size} bytes' for size in (file.size_before, file.size_after) if size is not None)
    about = sizes if file.view is None else f'+{file.view.added} -{file.view.removed}'
    return Text.assemble((mark, style), ' ', rich_text(file.shown_path, 'bold'), (f'  {about}', 'dim'))


def _omitted_line(file: OmittedFile) -> Text:
    return Text.assemble(
        ('! ', 'yellow'), escape_invisible(file.path).replace('\n', '\\n'), (f'  {file.reason}', 'dim')
    )


def render_subagents(subagents: Sequence[SubagentTree]) -> Tree:
    """Return the delegated conversations as a tree."""
    tree = Tree('', hide_root=True, guide_style='dim')
    _add_subagents(tree, subagents)
    return tree


def describe_message(message: JsonValue) -> Iterator[str]:
    """Yield the parts of a message as lines. Long parts are truncated."""
    for part in cast('list[dict[str, Any]]', cast('dict[str, object]', message).get('parts', [])):
        kind = str(part.get('part_kind'))
        content = part.get('args') if kind == 'tool-call' else part.get('content')
        text = prompt_text(content) if kind == 'user-prompt' else content
        shown = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        name = f' {part["tool_name"]}' if part.get('tool_name') else ''
        first, *others = _truncated_lines(escape_invisible(f'{kind}{name}: {shown.strip()}'))
        yield first
        yield from (f'  {line}' for line in others)


def _truncated_lines(text: str) -> list[str]:
    """Return the lines of a text. If it is too long, return its first lines and the amount that is omitted."""
    start = '\n'.join(text[:MESSAGE_CHARS].split('\n')[:MESSAGE_LINES])
    rest = text[len(start) :]
    omitted = _count(rest.count('\n'), 'more line') if '\n' in rest else _count(len(rest), 'more character')
    return [*start.split('\n'), *([f'… {omitted}'] if rest else [])]


def _add_subagents(tree: Tree, subagents: Sequence[SubagentTree]) -> None:
    for node in subagents:
        intent = first_line_of_prose(node.intent, LINE_CHARS)
        version = '' if node.version_id is None else f' {short_id(node.version_id)}'
        line = Text.assemble(
            (escape_invisible(node.subagent), 'magenta'), (version, 'yellow'), f' {node.state}', (f'  {intent}', 'dim')
        )
        _add_subagents(tree.add(line), node.subagents)


def _requested_model(details: VersionDetails) -> str | None:
    """Return the model name of the options, or for other programs the one that pydantic-ai recorded."""
    settings = details.metadata.get(SETTINGS)
    name = settings.get('model') if isinstance(settings, dict) else None
    return name if isinstance(name, str) else details.model


def _field_line(name: str, value: str) -> Text:
    return Text.assemble((f'{name:13}', 'dim'), escape_invisible(value))


def _title_line(title: str) -> Text:
    return Text.assemble('\n', (title, 'bold'))


def _section(title: str, text: str, style: str = '') -> Iterator[Text]:
    yield _title_line(title)
    yield Text(text.rstrip('\n'), style)


def _call_line(call: ToolCall) -> Text:
    event = ToolCallEvent(id=call.id, name=call.name, args=call.args)
    if call.outcome is None:
        return render_call(event)
    result = ToolResultEvent(
        id=call.id, name=call.name, outcome=call.outcome, content=call.content or '', exit_code=call.exit_code
    )
    return render_call(event, result)


def _request_line(request: StoredRequest) -> Text:
    settings = ', '.join(f'{name}={json.dumps(value)}' for name, value in request.settings.items())
    cost = '' if request.cost is None else f', ${request.cost}'
    return Text.assemble(
        f'{request.number} {escape_invisible(request.model)}{"" if request.kind == "answer" else f" ({request.kind})"}',
        (f'  {request.input_tokens} tokens in, {request.output_tokens} out{cost}, {request.seconds:.1f} s', 'dim'),
        (f'  {escape_invisible(settings)}' if settings else '', 'dim'),
    )


def _usage_text(usage: Usage) -> str:
    requests, calls = _count(usage.requests, 'request'), _count(usage.tool_calls, 'tool call')
    return f'{requests}, {calls}, {usage.input_tokens} tokens in, {usage.output_tokens} out'


def _count(number: int, noun: str) -> str:
    return f'1 {noun}' if number == 1 else f'{number} {noun}s'


def _state(version: VersionDetails) -> str:
    """Return the state of a version. A version that paused for approvals is `pending` or `answered`."""
    answered = 'answered' if version.state == 'awaiting_approval' else version.state
    return 'pending' if version.is_pending else answered


def _todo_lines(todos: Sequence[Todo], sign: str, style: str) -> Iterator[Text]:
    for todo in todos:
        yield Text(f'{sign} {first_line_of_prose(todo.content, LINE_CHARS)} ({todo.status})', style)
