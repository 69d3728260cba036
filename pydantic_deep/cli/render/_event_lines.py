"""Events as lines on a terminal. Pure functions that return Rich texts which are safe to print.

They build `Text` objects, never markup, so `[red]` in a file name is printed as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue
from pydantic_core import from_json
from rich.text import Text

from pydantic_deep.approvals import DecisionKind
from pydantic_deep.skills import SkillCatalog
from pydantic_deep.streaming import (
    Approval,
    ApprovalAnswerEvent,
    BudgetEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    Outcome,
    RetriedEvent,
    SummarizedEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from pydantic_deep.todos import Todo, TodoStatus

from ._budget_amounts import render_amount
from ._ids import short_id
from ._next_command import next_command
from ._terminal_text import escape_invisible, first_line, first_line_of_prose, rich_text

MAX_PREVIEW_CHARS = 200
"""Maximum number of characters of an argument or a result. A terminal truncates them to its width."""

NAME_CHARS = 20
"""Maximum number of characters of a subagent's name before its calls."""

_MAIN_ARGUMENTS = ('command', 'pattern', 'path', 'subagent', 'name', 'description')
"""Arguments that identify a call, in order of importance. The first two are shown."""

_MARKS: Mapping[Outcome, tuple[str, str]] = {
    'success': ('✓', 'green'),
    'failed': ('✗', 'red'),
    'denied': ('✗', 'red'),
    'interrupted': ('■', 'yellow'),
    'retried': ('↻', 'yellow'),
}
"""Mark and color of each outcome."""

_DECISION_VERBS: Mapping[DecisionKind, str] = {
    'approve': 'approved',
    'edit': 'edited',
    'deny': 'denied',
    'respond': 'answered',
}
"""Past participles of the decisions."""

INCOMPLETE_FILES = 'Commands may have changed more files: the directory is too large to scan after each one.'
"""Notice for an incomplete list of files."""

UNVERSIONED_FILES = 'The directory is too large to store its files in versions: only the conversation is stored.'
"""Notice for a version without files."""

WORKED_ON_COPY = 'The agent worked on a copy; the directory is unchanged. To check out the files:'
"""Notice for a turn that worked on a copy. The command to check out the files follows."""

PLANNING_TOOL = 'write_todos'
"""The tool whose result is for the model only: people see the list."""

_TODO_STYLES: Mapping[TodoStatus, tuple[str, str]] = {
    'pending': ('○', ''),
    'in_progress': ('▸', 'bold'),
    'completed': ('●', 'dim'),
}
"""Mark and style of each status."""


def render_call(call: ToolCallEvent, result: ToolResultEvent | None = None, *, is_named: bool = False) -> Text:
    """Return the line of a call: the tool, its main arguments, and its result.

    Args:
        call: The call. Calls of subagents are indented.
        result: Its result, if it has ended.
        is_named: Whether to print the name of its subagent.
    """
    mark, style = _MARKS['failed' if result.exit_code else result.outcome] if result else ('·', 'cyan')
    text = Text.assemble('  ' * len(call.path), (mark, style), ' ')
    if is_named and call.path:
        text.append(f'{first_line(call.path[-1], NAME_CHARS)} ', 'magenta')
    text.append(escape_invisible(call.name), 'bold')
    arguments = ' '.join(main_arguments(parse_args(call.args)))
    if arguments:
        text.append(f' {arguments}')
    if result:
        failed = result.outcome != 'success' or bool(result.exit_code)
        summary = _failure_reason(result) if failed else summarize_result(result.content)
        if failed or call.name != PLANNING_TOOL:
            text.append(f'  {summary}', style=style if failed else 'dim')
    return text


def render_changed_approval(approval: Approval) -> Text:
    """Return the line that explains why a call has to be answered again."""
    tool = rich_text(approval.view.tool)
    asked = ('Asked again: a file has changed since this call of ', tool, ' was answered.')
    return Text.assemble(*asked, style='yellow')


def render_prior_answer(event: ApprovalAnswerEvent, tool: str | None) -> Text:
    """Return the line for a call that another person answered first.

    Args:
        event: The answer.
        tool: The name of the tool, if it is known.
    """
    call = 'a call' if tool is None else f'the call of {escape_invisible(tool)}'
    who = escape_invisible(event.answered_by or '')
    return Text(f'{who} has already {_DECISION_VERBS[event.decision]} {call}; the first answer counts.', 'yellow')


def render_summarized(event: SummarizedEvent) -> Text:
    """Return the line for a summarized conversation."""
    why = f': {event.error}' if event.error else ''
    plain = f'; no model could write the summary{why}' if event.is_plain else ''
    return _notice_line(
        event.path,
        f'summarized {_count(event.replaced_messages, "message")}: '
        f'{event.tokens_before:,} → {event.tokens_after:,} tokens{plain}',
    )


def render_retried(event: RetriedEvent, *, is_shown: bool) -> Text:
    """Return the line for a retried request.

    Args:
        event: The retry.
        is_shown: Whether text of the failed attempt remains on the screen.
    """
    delay = f' in {event.delay_seconds:.1f} s' if event.delay_seconds else ''
    void = '; the unfinished answer above is void' if is_shown else ''
    return _notice_line(event.path, f'attempt {event.attempt} of {event.attempts}{delay}: {event.reason}{void}')


def render_budget(event: BudgetEvent) -> Text:
    """Return the line for a budget event."""
    if event.limit is None or event.used is None:
        noun, verb = ('cost', 'is') if event.measure == 'cost' else ('tokens', 'are')
        model = f' of {event.model}' if event.model else ''
        return _notice_line(
            event.path, f'the {noun} of an answer{model} {verb} unknown and not counted against the budget'
        )
    used = render_amount(event.measure, event.used).removesuffix(' tokens')
    more = '; one answer left' if event.kind == 'last_answer' else ''
    return _notice_line(event.path, f'budget: {used} of {render_amount(event.measure, event.limit)} used{more}')


def _notice_line(path: Sequence[str], sentence: str) -> Text:
    """Return a notice, preceded by the path of subagents."""
    names = ''.join(f'{first_line(name, NAME_CHARS)}: ' for name in path)
    return Text(f'{names}{first_line(sentence, MAX_PREVIEW_CHARS)}', 'dim')


def _failure_reason(result: ToolResultEvent) -> str:
    """Return why a call failed. For a command: its exit code and the last line of its output."""
    if not result.exit_code:
        return first_line(result.content, MAX_PREVIEW_CHARS)
    printed = result.content.rpartition('\n')[0].rstrip()  # the last line repeats the exit code
    last = first_line(printed.rpartition('\n')[2], MAX_PREVIEW_CHARS)
    return f'exit code {result.exit_code}: {last}' if last else f'exit code {result.exit_code}'


def summarize_result(text: str) -> str:
    """Return a result of one line, or the number of lines of a longer one."""
    lines = text.strip().split('\n')
    return first_line(text, MAX_PREVIEW_CHARS) if len(lines) <= 1 else f'{len(lines)} lines'


def render_todos(todos: Sequence[Todo]) -> Text:
    """Return the plan, one line for each todo."""
    lines = [
        Text(f'  {mark} {first_line_of_prose(todo.content, MAX_PREVIEW_CHARS)}', style)
        for todo, mark, style in _marked_todos(todos)
    ]
    return Text('\n').join(lines)


def render_file(change: FileEvent) -> Text:
    """Return the line for a changed file."""
    text = Text.assemble(f'{change.change} ', (escape_invisible(change.path).replace('\n', '\\n'), 'bold'))
    if change.added_lines is None or change.removed_lines is None:
        return text.append(' by a command', 'dim')
    return Text.assemble(text, (f' +{change.added_lines}', 'green'), (f' -{change.removed_lines}', 'red'))


def render_skills(catalog: SkillCatalog) -> list[Text]:
    """Return a line for each skill and for each diagnostic."""
    lines = [
        Text.assemble(
            (f'/{escape_invisible(skill.name)}', 'bold'),
            f'  {first_line_of_prose(skill.description, MAX_PREVIEW_CHARS)}',
        )
        for skill in catalog.skills.values()
    ]
    return lines + [Text(escape_invisible(str(diagnostic)), 'yellow') for diagnostic in catalog.diagnostics]


def render_usage(usage: UsageEvent, seconds: float) -> Text:
    """Return the usage of a turn as one line."""
    return Text(f'{render_total(usage)}, {seconds:.0f} s', style='dim')


def render_total(usage: UsageEvent) -> Text:
    """Return usage without a duration as one line."""
    return Text(
        f'{_count(usage.requests, "request")}, {_count(usage.tool_calls, "tool call")}, '
        f'{_short_number(usage.input_tokens)} tokens in, {_short_number(usage.output_tokens)} out'
    )


def render_end(end: EndEvent, *, names_store: bool = True) -> Text:
    """Return the end of a turn: its files, its usage, and its version."""
    lines = [render_file(file) for file in end.files or ()]
    workspace = end.workspace
    if workspace is not None and not workspace.has_all_changes:
        lines.append(Text(INCOMPLETE_FILES, 'yellow'))
    if workspace is not None and not workspace.has_files:
        lines.append(Text(UNVERSIONED_FILES, 'yellow'))
    lines.append(render_usage(end.usage or UsageEvent(), end.seconds or 0))
    if end.version_id is not None:
        lines.append(_version_line(end.version_id, workspace.store if workspace and names_store else None))
        if workspace is not None and not workspace.is_in_directory:
            lines.append(Text(f'{WORKED_ON_COPY} {next_command("checkout", short_id(end.version_id))}', 'yellow'))
    return Text('\n').join(lines)


def _version_line(version: str, store: str | None) -> Text:
    where = '' if store is None else f' in {escape_invisible(store.removeprefix("sqlite:///"))}'
    return Text(f'version {short_id(version)}{where}', 'dim')


def render_error(error: ErrorEvent, end: EndEvent) -> Text:
    """Return the error message of a turn."""
    return Text(escape_invisible(error.message), 'bold yellow' if end.status == 'suspended' else 'bold red')


def render_pause(approvals: Sequence[Approval], end: EndEvent) -> Text:
    """Return the number of pending calls, and the command that resumes the turn."""
    calls = '1 call needs' if len(approvals) == 1 else f'{len(approvals)} calls need'
    command = next_command('resume', short_id(end.version_id or ''))
    return Text(f'Paused: {calls} your answer. Answer with: {command}', 'bold yellow')


def parse_args(args: str) -> dict[str, JsonValue]:
    """Return the arguments of a call. Without a JSON object, the whole text is one argument."""
    try:
        parsed: JsonValue = from_json(args or '{}')
    except ValueError:
        parsed = args
    return parsed if isinstance(parsed, dict) else {'args': args}


def main_arguments(args: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield the two main arguments, or else the first text."""
    known = [args[name] for name in _MAIN_ARGUMENTS if name in args]
    texts = [value for value in known or args.values() if isinstance(value, str) and value]
    for text in texts[: 2 if known else 1]:
        yield first_line(text, MAX_PREVIEW_CHARS // 2)


def _marked_todos(todos: Sequence[Todo]) -> Iterator[tuple[Todo, str, str]]:
    for todo in todos:
        yield todo, *_TODO_STYLES[todo.status]


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'


def _short_number(number: int) -> str:
    """Return a number, in thousands or millions if it has five digits or more."""
    if number < 10_000:
        return str(number)
    return f'{number / 1000:.0f}k' if number < 1_000_000 else f'{number / 1_000_000:.1f}M'
