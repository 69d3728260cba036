"""Writes the reference of the JSON formats: docs/reference/events.md, docs/reference/views.md, and JSON Schemas.

`--check` only compares the files and reports the result in its exit code. The schemas are package data, in
`pydantic_deep/schemas`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pydantic_deep.streaming import STREAM_EVENTS
from pydantic_deep.views import ConversationDetails, Difference, Run, StoredApproval, Version, VersionDetails

ROOT = Path(__file__).resolve().parent.parent
EVENTS_PAGE = ROOT / 'docs/reference/events.md'
DOCUMENTS_PAGE = ROOT / 'docs/reference/views.md'
EVENTS = ROOT / 'pydantic_deep/streaming/_events.py'
DOCUMENTS = ROOT / 'pydantic_deep/cli/_schemas.py'

SCHEMAS: dict[Path, TypeAdapter[Any]] = {
    ROOT / 'pydantic_deep/schemas/events.json': STREAM_EVENTS,
    ROOT / 'pydantic_deep/schemas/views.json': TypeAdapter(
        Version | VersionDetails | Difference | StoredApproval | ConversationDetails | Run
    ),
}
"""The JSON Schema files, and the types that they describe."""

TODOS = ROOT / 'pydantic_deep/todos/_types.py'
TODO_NAMES = ('Todo', 'TodoStatus')

VIEWS = (
    ROOT / 'pydantic_deep/approvals/_view.py',
    ROOT / 'pydantic_deep/_text/line_diff.py',
    ROOT / 'pydantic_deep/_messages/deferred_metadata.py',
)
VIEW_NAMES = (
    'DecisionKind',
    'ApprovalView',
    'ArgumentView',
    'PreviewView',
    'DiffView',
    'DiffHunk',
    'DiffLine',
    'LineKind',
)

NAMED = (
    'UsageEvent|FileEvent|TurnWorkspace|FinishReason|RunStatus|Usage|FileChange|ApprovalView|ArgumentView|PreviewView|DiffView|DiffHunk|DiffLine|LineKind|Approval|DecisionKind|TodoStatus|Todo|Status|Outcome|'
    'RequestTokens|MergeConflict|BudgetEventKind|BudgetMeasure'
)
"""Names with their own section, which types link to."""

EVENTS_INTRODUCTION = """# Events

The events of a run are the same everywhere: as server-sent events over HTTP, as lines of `--json` of `run`, `resume` and `branch`, and from [`stream_agent`](streaming.md).
The `type` of each is a name below; the first is `start`, the last is `end`.
`--json` prints one event a line as soon as it is known, without `thinking` and `tool_call_delta`.
If there is no usable model, only `error` and `end` are printed.
As server-sent events, the `event:` line of a `tool_call` is `function_call`.
[The JSON Schema](events.schema.json) is also in the package, as `pydantic_deep/schemas/events.json`, and [changes](wire-changelog.md) are listed.
Ignore types and fields that you do not know: later releases may add some.

"""

DOCUMENTS_INTRODUCTION = """# Views

`pydantic_deep.views` has one shape for each stored thing.
The HTTP API answers with these shapes, and `log`, `show`, `diff` and `approvals` print them with `--json`.
[The JSON Schema](views.schema.json) is also in the package, as `pydantic_deep/schemas/views.json`, and [changes](wire-changelog.md) are listed.
Skip fields that you do not know: new ones may be added.

```python
from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import VersionedAgent
from pydantic_deep.views import StoreReader


async def main() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('Hi.')), store)
        version = await (await agent.create()).advance('Hello')
        details = await StoreReader(store).details(version.record)
        print(details.prompt, details.output, details.usage.requests)
        #> Hello Hi. 1
```

::: pydantic_deep.views

`run --output-format json`, `context`, `checkout`, `rewind`, `merge`, `replay`, `gc` and `store check` print the documents below; `sql` prints an object for each row.

"""


def main(arguments: list[str]) -> int:
    """Write both pages, or compare them for `--check`, and return the exit code."""
    others = ((TODOS, TODO_NAMES), *((path, VIEW_NAMES) for path in VIEWS))
    events = render_events(
        EVENTS.read_text(encoding='utf-8'), [(path.read_text(encoding='utf-8'), names) for path, names in others]
    )
    documents = render_documents(DOCUMENTS.read_text(encoding='utf-8'))
    code = 0
    for page, text in (
        (EVENTS_PAGE, EVENTS_INTRODUCTION + events),
        (DOCUMENTS_PAGE, DOCUMENTS_INTRODUCTION + documents),
        *((path, render_schema(adapter)) for path, adapter in SCHEMAS.items()),
    ):
        if arguments != ['--check']:
            page.write_text(text, encoding='utf-8')
        elif page.read_text(encoding='utf-8') != text:
            print(f'{page.relative_to(ROOT)} is not fresh. Run: .venv/bin/python scripts/write_schemas.py')
            code = 1
    return code


def render_schema(adapter: TypeAdapter[Any]) -> str:
    """Return the JSON Schema of a type, for its serialized form."""
    return json.dumps(adapter.json_schema(mode='serialization'), indent=2) + '\n'


def render_events(events: str, others: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a section for each event and each type in one: its docstring and a table of its fields.

    Args:
        events: The source of the events module. It is parsed, because only the source contains the docstrings of
            fields.
        others: The sources of other modules, with the names of types that events contain.
    """
    pairs = [
        (node, after)
        for text, names in ((events, None), *others)
        for node, after in zip(ast.parse(text).body, [*ast.parse(text).body[1:], ast.Pass()], strict=True)
        if names is None or name_of(node) in names
    ]
    sections = [(node, render_class(node)) for node, _ in pairs if isinstance(node, ast.ClassDef)]
    choices = [render_choice(node, after) for node, after in pairs if is_choice(node)]
    ordered = sorted(sections, key=lambda section: event_type(section[0]) is None)
    return '\n'.join([*(text for _, text in ordered), *choices])


def render_documents(text: str) -> str:
    """Return a section for each document that a command about versions prints.

    Args:
        text: The source of the module with these types.
    """
    return '\n'.join(render_class(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef))


def render_class(node: ast.ClassDef) -> str:
    """Return the section of a class."""
    event = event_type(node)
    heading = f'## `{event}` event' if event else f'## {node.name}'
    lines = [
        heading,
        '',
        unwrapped(ast.get_docstring(node) or ''),
        '',
        '| field | type | description |',
        '|---|---|---|',
    ]
    for field, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(field, ast.AnnAssign) and name_of(field) != 'type':
            lines.append(f'| `{name_of(field)}` | {render_type(field.annotation)} | {docstring_of(after)} |')
    return '\n'.join([*lines, ''])


def render_choice(node: ast.stmt, after: ast.stmt) -> str:
    """Return the section of a type alias for literals."""
    heading = f'## {name_of(node)}'
    values = re.findall(r"'(\w+)'", ast.unparse(node))
    return (
        '\n'.join([heading, '', ', '.join(f'`{value}`' for value in values), '', docstring_of(after)]).rstrip() + '\n'
    )


def render_type(annotation: ast.expr) -> str:
    """Return a type as Python source, with links to the sections of its parts."""
    return ' or '.join(map(render_part, ast.unparse(annotation).split(' | ')))  # a bar would end the cell


def render_part(source: str) -> str:
    """Return a part of a union, with a link to its section if it has one."""
    named = re.search(NAMED, source)
    return f'[{source}](#{anchor_of(named.group())})' if named else f'`{source}`'


def anchor_of(name: str) -> str:
    """Return the anchor of the section of a class. That of an event is headed by its type, as in `tool_call-event`."""
    event = name.removesuffix('Event')
    return name.lower() if event == name else f'{re.sub("(?<=.)(?=[A-Z])", "_", event).lower()}-event'


def is_choice(node: ast.stmt) -> bool:
    """Return whether a statement is an alias of literals."""
    return isinstance(node, ast.AnnAssign) and node.value is not None and ast.unparse(node.value).startswith('Literal[')


def name_of(node: ast.stmt) -> str:
    """Return the name that a statement defines; empty if it defines none."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return node.name if isinstance(node, ast.ClassDef) else ''


def event_type(node: ast.ClassDef) -> str | None:
    """Return the value of the field `type` of an event; `None` for a class without it."""
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and name_of(field) == 'type' and field.value:
            return str(ast.literal_eval(field.value))
    return None


def docstring_of(node: ast.stmt) -> str:
    """Return the text of a docstring statement on one line; empty for other statements."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return unwrapped(node.value.value)
    return ''


def unwrapped(text: str) -> str:
    """Return a text on one line."""
    return ' '.join(text.split())


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
